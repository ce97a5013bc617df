//! Serving calls.

use std::sync::Arc;

use afar_rx::AbortCode;
use tokio::runtime;

use crate::call::Call;

/// Serves the calls to one service.
pub trait Handler: Send + Sync + 'static {
    /// Serves one incoming call. `Ok` sends the last packet, if the call is not yet finished;
    /// `Err` aborts the call with that code.
    ///
    /// It runs as a task of its own. If it panics the call is aborted with
    /// [`AbortCode::RX_USER_ABORT`].
    fn handle(&self, call: &mut Call) -> impl Future<Output = Result<(), AbortCode>> + Send;
}

/// Starts the task that serves a call.
pub(crate) type Spawn = Box<dyn Fn(Call) + Send>;

/// Starts tasks of the given runtime that serve calls with `handler`.
pub(crate) fn spawn_with<H: Handler>(runtime: runtime::Handle, handler: H) -> Spawn {
    let handler = Arc::new(handler);
    Box::new(move |mut call| {
        let handler = Arc::clone(&handler);
        runtime.spawn(async move {
            let result = match handler.handle(&mut call).await {
                // The peer may have given up meanwhile, which the call knows best.
                Ok(()) => call.finish().await.map_err(|error| error.code()),
                Err(code) => Err(code),
            };
            if let Err(code) = result {
                call.abort(code);
            }
        });
    })
}
