//! Listeners for HTTP: where clients come from, and how many are served at a time.

use std::future::poll_fn;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use afar_net::remove_left;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How long a client has to send its request.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of a request, and lines of its head. The first is the least that the library takes.
pub(crate) const REQUEST_MAX: usize = 8192;
pub(crate) const HEADERS_MAX: usize = 32;
/// The pause after a connection could not be accepted: the process may be out of files.
const PAUSE: Duration = Duration::from_millis(200);

/// Where clients come from.
pub(crate) trait Listener: Send + Sync + 'static {
    /// Whether only the server's owner can use it, who may look at everything.
    const IS_PRIVATE: bool;

    /// A connection of one of them.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Stream>>;
}

impl Listener for TcpListener {
    const IS_PRIVATE: bool = false;
    type Stream = TcpStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let accepted = Self::poll_accept(self, cx);
        accepted.map_ok(|(stream, _)| stream)
    }
}

impl Listener for LocalSocket {
    const IS_PRIVATE: bool = true;
    type Stream = UnixStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        let accepted = self.listener.poll_accept(cx);
        accepted.map_ok(|(stream, _)| stream)
    }
}

/// Serves the clients of a listener, so many at a time, until this is dropped. The others wait in the kernel.
pub(crate) async fn serve<L: Listener, F>(
    listener: L,
    connections_max: usize,
    serve: impl Fn(L::Stream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(connections_max));
    // They end with this.
    let mut connections = JoinSet::new();
    loop {
        // It is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        match poll_fn(|cx| listener.poll_accept(cx)).await {
            Ok(stream) => {
                let served = serve(stream);
                connections.spawn(async move {
                    served.await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection for HTTP could not be accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

/// A Unix socket that only its owner may use, and that goes with this.
#[derive(Debug)]
pub(crate) struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl LocalSocket {
    /// With this name in a run directory, which is ours alone: what is left there of an earlier server goes.
    pub(crate) fn bind(run: &Path, name: &str) -> io::Result<Self> {
        let path = run.join(name);
        remove_left(&path)?;
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path })
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        // It may have been removed with its directory.
        let _gone = std::fs::remove_file(&self.path);
    }
}
