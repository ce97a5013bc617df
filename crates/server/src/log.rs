//! The log: what goes to standard error, how much of it, and its last lines for `bos getlog`.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use afar_rpc::Serving;
use anyhow::{Context, bail};
use parking_lot::Mutex;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

/// Bytes of the log that are kept for `bos getlog`.
const KEPT: usize = 256 << 10;

static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();
static LINES: Mutex<VecDeque<u8>> = Mutex::new(VecDeque::new());

/// Begins the log, with this filter.
pub fn start_log(filter: &str) -> anyhow::Result<()> {
    let (filter, handle) = reload::Layer::new(understood(filter)?);
    let lines = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    // The journal has the time already.
    let lines = match std::env::var_os("JOURNAL_STREAM") {
        Some(_) => lines.without_time().map_event_format(InCall).boxed(),
        None => lines.map_event_format(InCall).boxed(),
    };
    let kept = fmt::layer()
        .with_writer(|| Last)
        .with_ansi(false)
        .map_event_format(InCall);
    let started = tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .with(kept)
        .try_init();
    if let Err(error) = started {
        bail!("logging is set up already: {error}");
    }
    if FILTER.set(handle).is_err() {
        bail!("logging was set up twice");
    }
    Ok(())
}

/// Changes what is logged from now on.
pub(crate) fn set_log(filter: &str) -> anyhow::Result<()> {
    let filter = understood(filter)?;
    let handle = FILTER.get().context("this process has no log")?;
    Ok(handle.reload(filter)?)
}

fn understood(filter: &str) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(filter)
        .with_context(|| format!("log = {filter:?}: not understood; `afar config explain log`"))
}

/// Lines as they are, and at their end the call that was being served: who called for what.
struct InCall<T>(Format<Full, T>);

impl<S, N, T> FormatEvent<S, N> for InCall<T>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    T: FormatTime + Clone,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let Some(call) = Serving::with_current(Serving::to_string) else {
            return self.0.format_event(context, writer, event);
        };
        let format = self.0.clone().with_ansi(writer.has_ansi_escapes());
        let mut line = String::new();
        format.format_event(context, Writer::new(&mut line), event)?;
        writeln!(writer, "{} {call}", line.trim_end())
    }
}

/// The last lines of the log, without NULs.
pub(crate) fn last_lines() -> Vec<u8> {
    LINES.lock().iter().copied().collect()
}

/// Keeps the last lines.
struct Last;

impl Write for Last {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        keep(&mut LINES.lock(), bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends bytes, and drops whole lines at the front beyond [`KEPT`].
fn keep(lines: &mut VecDeque<u8>, bytes: &[u8]) {
    lines.extend(bytes.iter().filter(|byte| **byte != 0));
    let Some(over) = lines.len().checked_sub(KEPT).filter(|over| *over > 0) else {
        return;
    };
    let end = lines.iter().skip(over).position(|byte| *byte == b'\n');
    lines.drain(..end.map_or(lines.len(), |end| over + end + 1));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use afar_net::{AbortCode, Config, Endpoint, RxNull};
    use afar_rpc::{Caller, rxafs, spawn_blocking};
    use afar_types::Fid;

    use super::*;

    /// A file server whose disk fails.
    struct Failing;

    impl rxafs::Service for Failing {
        async fn fetch_status(
            &self,
            _: &Caller,
            _: rxafs::fetch_status::Request,
        ) -> Result<rxafs::fetch_status::Reply, AbortCode> {
            tracing::error!("here");
            let subscriber = tracing::dispatcher::get_default(Clone::clone);
            let elsewhere = spawn_blocking(move || {
                tracing::dispatcher::with_default(&subscriber, || {
                    tracing::warn!(code = 5, "there")
                });
            });
            elsewhere.await.unwrap();
            Err(AbortCode(5))
        }
    }

    #[tokio::test]
    async fn an_error_logged_while_a_call_is_served_tells_of_the_call() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let subscriber = fmt::Subscriber::builder()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .without_time()
            .map_event_format(InCall)
            .with_writer({
                let log = Arc::clone(&log);
                move || Into(Arc::clone(&log))
            })
            .finish();
        let guard = tracing::subscriber::set_default(subscriber);
        let bind = || Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
        let (client, server) = (bind(), bind());
        server.serve(rxafs::SERVICE, "files", rxafs::Server::new(Failing));
        server.stats().await;
        let to = client.connect(server.local_addr(), rxafs::SERVICE, Arc::new(RxNull));
        let files = rxafs::Client::new(to);
        files.fetch_status(Fid::new(7, 8, 9)).await.unwrap_err();
        tracing::warn!("outside");
        drop(guard);
        let call = format!(
            "call{{operation=RXAFS.fetch_status peer={} who=anonymous fid=7.8.9}}",
            client.local_addr()
        );
        let target = "afar_server::log::tests:";
        assert_eq!(
            String::from_utf8(log.lock().clone()).unwrap(),
            format!(
                "ERROR {target} here {call}\n WARN {target} there code=5 {call}\n WARN {target} outside\n"
            )
        );
    }

    /// Writes to what the test looks at.
    struct Into(Arc<Mutex<Vec<u8>>>);

    impl Write for Into {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_last_lines_are_kept_whole_and_no_more_than_that() {
        let mut lines = VecDeque::new();
        keep(&mut lines, b"first\0\n");
        assert_eq!(lines, b"first\n");
        let line = [&[b'x'; 999][..], b"\n"].concat();
        for _ in 0..300 {
            keep(&mut lines, &line);
            assert!(lines.len() <= KEPT);
        }
        assert_eq!(lines.len() % line.len(), 0);
        keep(&mut lines, &vec![b'y'; KEPT + 1]);
        assert!(lines.is_empty());
    }
}
