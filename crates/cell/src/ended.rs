//! Tasks that end without a result.

use tokio::task::JoinError;

/// What is left to do for one who waits for the result of a task that ended without one. A task's panic goes on here. Else
/// it was cancelled, which happens only when the runtime ends: then this never returns, and ends with the runtime.
pub async fn ended<T>(error: JoinError) -> T {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => std::future::pending().await,
    }
}
