//! What a program counts of itself, and how that is shown.
//!
//! A [`Registry`] holds metrics by name. Each has a [`Desc`]: its name as Prometheus shows it, its
//! unit, and a sentence of help. The program keeps the handle that registering gave it, and updates
//! it without a lock; whoever shows metrics asks the registry for all of them at once
//! ([`Registry::collect`]), as text by [`render_prometheus`].
//!
//! - [`Counter`], [`Gauge`], [`Histogram`]: one number, or the distribution of one. Updates cost a few
//!   nanoseconds, whatever other threads do.
//! - [`Table`]: a row of numbers for each key, such as a volume or a client. Its memory is bounded:
//!   keys that are busy have a row, all others share one.
//! - [`Live`]: what goes on at the moment, such as the calls that are being served.
//! - [`Window`], [`Rates`]: rates over the last seconds, from samples that the viewer takes.
//!
//! No metric is global: a process that runs two servers gives each a registry of its own.
//!
//! ```
//! use afar_telemetry::{Desc, Registry, Unit, render_prometheus};
//!
//! const CALLS: Desc = Desc::counter("example_calls_total", Unit::None, "Calls served.");
//!
//! let registry = Registry::default();
//! let calls = registry.counter(&CALLS, &[("operation", "fetch")]);
//! calls.add(2);
//! assert!(render_prometheus(&registry).contains("example_calls_total{operation=\"fetch\"} 2\n"));
//! ```
//!
//! - `desc`: names, units, help
//! - `shard`: which of several cells a thread updates
//! - `counter`, `histogram`: numbers and distributions
//! - `collect`: what a registry hands to whatever shows it
//! - `sketch`, `table`: rows by key
//! - `live`: what goes on at the moment
//! - `window`: rates
//! - `registry`: metrics by name
//! - `prometheus`: the text format

mod collect;
mod counter;
mod desc;
mod histogram;
mod live;
mod prometheus;
mod registry;
mod shard;
mod sketch;
mod table;
mod window;

pub use collect::{Activity, Cells, Collect, Family, Series, Value, is_harmful};
pub use counter::{Counter, Gauge};
pub use desc::{Desc, Kind, Unit};
pub use histogram::{Distribution, Histogram, Parts};
pub use live::{Going, Live, Ongoing};
pub use prometheus::render_prometheus;
pub use registry::{Activities, Registry, Watches};
pub use sketch::Lookup;
pub use table::{Row, Snapshot, Table, TableConfig, Watch};
pub use window::{Rates, Window};
