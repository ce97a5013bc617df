//! Servers of this machine: those with a run directory.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use afar_net::Local;
use afar_server::local_cell::{self, LocalCell};
use afar_server::view::View;
use serde::Serialize;

use crate::advice;
use crate::top::{Socket, long, shown};

/// How long a server has to answer.
const LIMIT: Duration = Duration::from_secs(3);
/// What is served, by UDP port.
const SERVICES: [(u16, &str); 5] = [
    (7000, "files"),
    (7002, "users"),
    (7003, "locations"),
    (7005, "volumes"),
    (7007, "status"),
];

/// A server of this machine.
#[derive(Debug, Serialize)]
pub(super) struct ServerState {
    cell: String,
    run: PathBuf,
    addresses: Vec<IpAddr>,
    services: Vec<&'static str>,
    state: &'static str,
    version: Option<String>,
    uptime_seconds: Option<f64>,
    /// Calls that it serves now.
    calls: Option<u64>,
    /// Why it tells nothing.
    problem: Option<String>,
}

impl ServerState {
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, "up" | "private")
    }

    fn of(cell: LocalCell) -> Self {
        let services = SERVICES.iter().filter(|(port, _)| cell.is_served(*port));
        let mut state = Self {
            cell: cell.entry.name.to_string(),
            services: services.map(|(_, name)| *name).collect(),
            addresses: cell.server.addresses,
            state: "up",
            version: None,
            uptime_seconds: None,
            calls: None,
            problem: None,
            run: cell.run,
        };
        if Local::is_abandoned(&state.run) {
            state.state = "down";
            return state;
        }
        match Socket::of(&state.run)
            .within(LIMIT)
            .fetch(View::Calls, LIMIT)
        {
            Ok(snapshot) => {
                state.calls = Some(snapshot.rows.len() as u64 + snapshot.beyond);
                state.version = Some(snapshot.version);
                state.uptime_seconds = Some(snapshot.uptime);
            }
            Err(error) => {
                let kind = error.chain().find_map(|cause| {
                    let cause = cause.downcast_ref::<std::io::Error>();
                    cause.map(std::io::Error::kind)
                });
                state.state = match kind {
                    Some(std::io::ErrorKind::PermissionDenied) => "private",
                    Some(std::io::ErrorKind::TimedOut) => "stuck",
                    _ => "silent",
                };
                state.problem = Some(advice::told(&error));
            }
        }
        state
    }
}

/// All there are.
pub(super) fn all() -> Vec<ServerState> {
    let cells = local_cell::with_killed().into_iter();
    cells.map(ServerState::of).collect()
}

impl fmt::Display for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server   {}: ", shown(&self.cell))?;
        match self.state {
            "private" => f.write_str("up, which only its user and root may look into")?,
            "down" => f.write_str("down: it was killed")?,
            "stuck" => f.write_str("it does not answer")?,
            "silent" => {
                let problem = self.problem.as_deref().unwrap_or_default();
                write!(f, "it tells nothing: {}", shown(problem))?;
            }
            up => f.write_str(up)?,
        }
        if let Some(uptime) = self.uptime_seconds {
            write!(f, " {}", long(uptime))?;
        }
        if let Some(version) = &self.version {
            write!(f, ", version {}", shown(version))?;
        }
        for (number, address) in self.addresses.iter().enumerate() {
            write!(f, "{} {address}", if number == 0 { ", at" } else { "," })?;
        }
        for (number, service) in self.services.iter().enumerate() {
            write!(
                f,
                "{} {service}",
                if number == 0 { "; serves" } else { "," }
            )?;
        }
        if let Some(calls) = self.calls {
            write!(f, "; {calls} calls now")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_in_a_line() {
        let mut state = ServerState {
            cell: "example.org".to_owned(),
            run: "run".into(),
            addresses: vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()],
            services: vec!["files", "volumes"],
            state: "up",
            version: Some("0.1.0".to_owned()),
            uptime_seconds: Some(273_600.0),
            calls: Some(3),
            problem: None,
        };
        assert_eq!(
            state.to_string(),
            "server   example.org: up 3d04h, version 0.1.0, at 192.0.2.1, 192.0.2.2; serves files, volumes; \
             3 calls now"
        );
        assert!(state.is_up());
        (state.state, state.version, state.uptime_seconds) = ("stuck", None, None);
        state.calls = None;
        assert!(
            state
                .to_string()
                .starts_with("server   example.org: it does not answer, at 192")
        );
        assert!(!state.is_up());
    }
}
