//! Serving calls.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;

use afar_rx::AbortCode;
use tokio::runtime::{self, RuntimeFlavor};
use tokio::sync::Semaphore;

use crate::call::{Call, CallShared};

/// Serves the calls to one service.
pub trait Handler: Send + Sync + 'static {
    /// Whether most calls are served by something that blocks.
    ///
    /// As many calls at a time as there are processors then have a thread each, on which they may block
    /// ([`has_own_thread`]). While few are served, this spares each the way to other threads and back,
    /// which takes longer than many a call. What comes beyond them, and everything in a runtime of one
    /// thread, is served by tasks.
    const BLOCKS: bool = false;

    /// Serves one incoming call. `Ok` sends the last packet, if the call is not yet finished;
    /// `Err` aborts the call with that code.
    ///
    /// It runs as a task or thread of its own. If it panics the call is aborted with
    /// [`AbortCode::RX_USER_ABORT`].
    fn handle(&self, call: &mut Call) -> impl Future<Output = Result<(), AbortCode>> + Send;
}

/// Starts what serves a call.
pub(crate) type Spawn = Box<dyn Fn(Call) + Send>;

/// Starts tasks and threads of the given runtime that serve calls with `handler`.
pub(crate) fn spawn_with<H: Handler>(runtime: runtime::Handle, handler: H) -> Spawn {
    let handler = Arc::new(handler);
    let threads = if H::BLOCKS && runtime.runtime_flavor() != RuntimeFlavor::CurrentThread {
        thread::available_parallelism().map_or(1, usize::from)
    } else {
        0
    };
    let threads = Arc::new(Semaphore::new(threads));
    Box::new(move |call| {
        let serving = serve(Arc::clone(&handler), call);
        let Ok(permit) = Arc::clone(&threads).try_acquire_owned() else {
            runtime.spawn(serving);
            return;
        };
        let handle = runtime.clone();
        runtime.spawn_blocking(move || {
            let _permit = permit;
            let _own = OwnThread::enter();
            handle.block_on(serving);
        });
    })
}

async fn serve<H: Handler>(handler: Arc<H>, mut call: Call) {
    let shared = call.shared();
    let handled = SERVED.scope(shared, handler.handle(&mut call));
    let result = match handled.await {
        // The peer may have given up meanwhile, which the call knows best.
        Ok(()) => call.finish().await.map_err(|error| error.code()),
        Err(code) => Err(code),
    };
    if let Err(code) = result {
        call.abort(code);
    }
}

tokio::task_local! {
    /// The call that a task serves.
    static SERVED: Arc<CallShared>;
}

/// Whether the client of the call that this task serves still waits for it. What waited long, and is done for one who has
/// given up, may come behind what that one has done since.
#[must_use]
pub fn is_wanted() -> bool {
    let over = SERVED.try_with(|call| call.lock().error.is_some());
    !over.unwrap_or(false)
}

thread_local! {
    static OWN_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is the thread of one call, which holds up nothing else by blocking.
#[must_use]
pub fn has_own_thread() -> bool {
    OWN_THREAD.get()
}

/// Makes a thread that of one call until it is dropped: the runtime's threads have other uses.
struct OwnThread;

impl OwnThread {
    fn enter() -> Self {
        OWN_THREAD.set(true);
        Self
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        OWN_THREAD.set(false);
    }
}
