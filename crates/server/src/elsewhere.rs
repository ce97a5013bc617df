//! What viewers on other machines are shown: to administrators, the tables that those of this machine see.

use std::sync::Arc;

use afar_net::AbortCode;
use afar_rpc::{Caller, Calls, DownloadSink, eyes};
use afar_telemetry::Registry;
use afar_types::error::errno::{EINVAL, EIO};

use crate::metrics::Exporter;
use crate::overseer::administers;
use crate::view::View;

/// Bytes that are sent at a time.
const PIECE: usize = 64 << 10;

/// Answers viewers elsewhere.
pub(crate) struct Elsewhere {
    exporter: Arc<Exporter>,
    calls: Calls,
}

impl Elsewhere {
    /// With what this shows on the machine itself.
    pub(crate) fn new(exporter: Arc<Exporter>, registry: &Registry) -> Self {
        Self {
            exporter,
            calls: Calls::new(eyes::INTERFACE, registry),
        }
    }
}

impl eyes::Service for Elsewhere {
    fn calls(&self) -> Option<&Calls> {
        Some(&self.calls)
    }

    async fn snapshot(
        &self,
        caller: &Caller,
        request: eyes::snapshot::Request,
        data: &mut DownloadSink<'_>,
    ) -> Result<eyes::snapshot::Reply, AbortCode> {
        administers(caller)?;
        let mut views = View::SERVER.into_iter();
        let view = views.find(|view| view.name().as_bytes() == request.table.as_bytes());
        let view = view.ok_or(AbortCode(EINVAL))?;
        let text = self.exporter.snapshot(view, request.seconds).await;
        let mut text = text.ok_or(AbortCode(EIO))?;
        while !text.is_empty() {
            data.send(text.split_to(text.len().min(PIECE))).await?;
        }
        Ok(eyes::snapshot::Reply {})
    }
}
