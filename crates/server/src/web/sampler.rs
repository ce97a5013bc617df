//! Samples what the server counts while somebody looks at the page, and tells all who look. While nobody does,
//! it does nothing.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use afar_telemetry::Registry;
use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use super::glance::{About, glance};
use super::sample::Sample;
use super::servers::{Cell, Known};

/// Samples that are kept: rates are those between the oldest and the newest.
const SAMPLES: usize = 4;
/// How often the file servers of the cell are asked.
const SERVERS_EVERY: Duration = Duration::from_secs(10);

/// Makes the events of the page, one for all viewers.
#[derive(Debug)]
pub(super) struct Sampler {
    registry: Registry,
    about: Arc<About>,
    started: Instant,
    interval: Duration,
    /// The newest event; nothing while nobody looks.
    newest: watch::Sender<Bytes>,
    looked: Notify,
    servers: Known,
}

impl Sampler {
    /// Of a server that starts now. An event comes each `interval`.
    pub(super) fn new(registry: &Registry, about: About, interval: Duration) -> Self {
        Self {
            registry: registry.clone(),
            about: Arc::new(about),
            started: Instant::now(),
            interval,
            newest: watch::Sender::default(),
            looked: Notify::new(),
            servers: Known::default(),
        }
    }

    /// Somebody looks, until the receiver is dropped. The newest event counts as new.
    pub(super) fn look(&self) -> watch::Receiver<Bytes> {
        let mut events = self.newest.subscribe();
        events.mark_changed();
        self.looked.notify_one();
        events
    }

    /// Makes events while somebody looks, for ever.
    pub(super) async fn run(self: Arc<Self>, cell: Option<Cell>) {
        loop {
            self.looked.notified().await;
            tokio::select! {
                () = self.sample_while_looked_at() => {}
                // It has no end.
                () = self.ask(cell.as_ref()) => {}
            }
            self.newest.send_replace(Bytes::new());
        }
    }

    async fn sample_while_looked_at(&self) {
        let mut samples = VecDeque::new();
        while self.newest.receiver_count() > 0 {
            samples = self.sample(samples).await;
            sleep(self.interval).await;
        }
    }

    async fn ask(&self, cell: Option<&Cell>) {
        let Some(cell) = cell else {
            return pending().await;
        };
        loop {
            cell.ask(&self.servers).await;
            sleep(SERVERS_EVERY).await;
        }
    }

    /// Takes a sample, and makes an event of it and of those before.
    async fn sample(&self, mut samples: VecDeque<Sample>) -> VecDeque<Sample> {
        let (registry, about) = (self.registry.clone(), Arc::clone(&self.about));
        let uptime = self.started.elapsed().as_secs_f64();
        let servers = self.servers.get();
        let made = tokio::task::spawn_blocking(move || {
            let now = Sample::take(&registry);
            let then = samples.front();
            let text = serde_json::to_string(&glance(&about, &now, then, &servers, uptime));
            samples.push_back(now);
            if samples.len() > SAMPLES {
                samples.pop_front();
            }
            (samples, text)
        });
        match made.await {
            Ok((samples, Ok(text))) => {
                // The text has no line ends.
                let event = Bytes::from(format!("data: {text}\n\n"));
                self.newest.send_replace(event);
                samples
            }
            Ok((samples, Err(error))) => {
                tracing::error!(%error, "an event of the page could not be written");
                samples
            }
            Err(error) => {
                tracing::error!(%error, "an event of the page could not be made");
                VecDeque::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afar_telemetry::{Collect, Desc};
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::time::timeout;

    /// Counts how often it is asked.
    struct Asked(Arc<AtomicU32>);

    impl Collect for Asked {
        fn describe(&self) -> Vec<Desc> {
            Vec::new()
        }

        fn collect(&self, _: &mut afar_telemetry::Cells) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn nothing_is_done_while_nobody_looks() {
        const SOON: Duration = Duration::from_secs(10);
        let asked = Arc::new(AtomicU32::new(0));
        let registry = Registry::default();
        registry.collector(Asked(Arc::clone(&asked)));
        let about = About {
            cell: "a".to_owned(),
            server: "b".to_owned(),
            version: "1",
            roles: Vec::new(),
        };
        let interval = Duration::from_millis(5);
        let sampler = Arc::new(Sampler::new(&registry, about, interval));
        let running = tokio::spawn(Arc::clone(&sampler).run(None));
        sleep(10 * interval).await;
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        for _ in 0..2 {
            let (mut one, mut other) = (sampler.look(), sampler.look());
            for viewer in [&mut one, &mut other] {
                let event = viewer.wait_for(|event| !event.is_empty());
                let event = timeout(SOON, event).await.unwrap().unwrap();
                assert!(event.starts_with(b"data: {\"cell\":\"a\"") && event.ends_with(b"}\n\n"));
            }
            drop((one, other));
            timeout(SOON, async {
                while !sampler.newest.borrow().is_empty() {
                    sleep(interval).await;
                }
            })
            .await
            .unwrap();
            let before = asked.load(Ordering::Relaxed);
            sleep(10 * interval).await;
            assert_eq!(asked.load(Ordering::Relaxed), before);
        }
        running.abort();
    }
}
