//! One request from its beginning to its end.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use afar_cache::{Asker, Errno, Waits, Who};
use afar_telemetry::Going;

use super::Eyes;
use super::line::line;
use super::operation::{Operation, Outcome};
use super::processes::UnderWay;

/// A request that was noted when it began. It is counted when it [ends](Self::end); one that is dropped was never
/// answered.
#[derive(Debug)]
pub(crate) struct Noted {
    eyes: Arc<Eyes>,
    operation: Operation,
    who: Who,
    began: Instant,
    waits: Arc<Waits>,
    _under_way: Going<UnderWay>,
    /// If somebody reads along.
    args: Option<String>,
}

impl Noted {
    /// A request begins. `args` is called if somebody reads along.
    pub(crate) fn begin(
        eyes: &Arc<Eyes>,
        operation: Operation,
        who: Who,
        args: impl FnOnce() -> String,
    ) -> Self {
        let asker = eyes.tells_process.then_some(Asker {
            uid: who.uid,
            pid: who.pid,
        });
        let (began, waits) = (Instant::now(), Arc::new(Waits::of(asker)));
        let under_way = eyes.processes.begin(operation, who, began, &waits);
        Self {
            eyes: Arc::clone(eyes),
            operation,
            who,
            began,
            waits,
            _under_way: under_way,
            args: eyes.log.is_read().then(args),
        }
    }

    /// What it waits for.
    pub(crate) fn waits(&self) -> Arc<Waits> {
        Arc::clone(&self.waits)
    }

    /// It is about to be answered so.
    pub(crate) fn end<T: Outcome>(self, result: &Result<T, Errno>) {
        let took = self.began.elapsed();
        let bytes = result.as_ref().map(Outcome::bytes).ok();
        let calls = self.waits.calls();
        self.eyes.counts.count(self.operation, took, bytes, calls);
        let asked = (self.operation, self.who);
        self.eyes.processes.count(asked, took, bytes, calls);
        let Some(args) = &self.args else {
            return;
        };
        let words = match result {
            Ok(outcome) => Ok(outcome.words()),
            Err(error) => Err(*error),
        };
        let text = line(
            SystemTime::now(),
            self.who,
            self.operation,
            args,
            words.as_deref().map_err(|error| *error),
            took,
        );
        self.eyes.log.push(&text);
    }
}

#[cfg(test)]
mod tests {
    use afar_telemetry::Registry;
    use bytes::Bytes;

    use super::*;

    #[tokio::test]
    async fn a_request_has_a_line_if_somebody_reads_along_when_it_begins() {
        let eyes = Eyes::new(&Registry::default(), false);
        let begin = |args: &'static str| {
            let args = || args.to_owned();
            Noted::begin(&eyes, Operation::Read, Who::default(), args)
        };
        let unread = Noted::begin(&eyes, Operation::Read, Who::default(), || {
            panic!("nobody reads it")
        });
        eyes.log.open(1).unwrap();
        let read = begin("7,0,3");
        unread.end(&Ok(Bytes::from_static(b"abc")));
        read.end(&Ok(Bytes::from_static(b"abc")));
        begin("8").end::<Bytes>(&Err(Errno::EIO));
        drop(begin("9"));
        let text = eyes.log.read(1, 10_000, true).await.unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("] read (7,0,3): OK (3) <"), "{text}");
        assert!(lines[1].contains("] read (8): error 5 ("), "{text}");
    }
}
