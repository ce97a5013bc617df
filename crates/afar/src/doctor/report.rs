//! What was found, as text and as JSON.

use std::fmt;

use afar_doctor::{Diagnosis, Measured, healthy};
use serde::Serialize;

/// The verdict, and what it was made from.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    target: String,
    /// The first sentence.
    verdict: String,
    /// What binds, the worst first.
    diagnoses: Vec<Diagnosis>,
    measured: Measured,
}

impl Report {
    pub(super) fn new(target: &str, measured: Measured, diagnoses: Vec<Diagnosis>) -> Self {
        let verdict = match diagnoses.first() {
            Some(worst) => worst.sentence.clone(),
            None if measured.is_answered() => healthy(&measured),
            None => silence(&measured),
        };
        Self {
            target: target.to_owned(),
            verdict,
            diagnoses,
            measured,
        }
    }
}

/// What is said of a server that answers nothing.
fn silence(measured: &Measured) -> String {
    let (sent, server) = (measured.path.sent, measured.address);
    match measured.path.refused {
        true => format!(
            "could not measure: nothing listens at {server}, says its system; is the server started, and is the \
             port right?"
        ),
        false => format!(
            "could not measure: {server} answers none of {sent} packets and no call; is the host up, and does a \
             firewall let UDP to this port through?"
        ),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            target,
            verdict,
            diagnoses,
            measured,
        } = self;
        let version = measured
            .server
            .version
            .as_deref()
            .unwrap_or("version unknown");
        writeln!(f, "{target}: {} ({version})", measured.address)?;
        if diagnoses.is_empty() {
            writeln!(f, "\n{verdict}")?;
        }
        for one in diagnoses {
            writeln!(f, "\n{}", one.sentence)?;
            writeln!(f, "  gain  {}", one.gain)?;
            writeln!(f, "  do    {}", one.command)?;
        }
        writeln!(f)?;
        let lines = lines(measured);
        for (number, (name, text)) in lines.iter().enumerate() {
            write!(f, "{name:<16}{text}")?;
            if number + 1 < lines.len() {
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

/// The measurements, a line each.
fn lines(measured: &Measured) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let path = &measured.path;
    if let (Some(least), Some(median), Some(most)) =
        (path.rtt_min_s, path.rtt_median_s, path.rtt_p99_s)
    {
        let figures = [least, median, most].map(milliseconds);
        let [least, median, most] = figures;
        lines.push((
            "round trip",
            format!("{least} at least, {median} median, {most} 99th percentile"),
        ));
    }
    let limited = if path.rate_limited {
        ", of a host that limits its answers"
    } else {
        ""
    };
    lines.push((
        "packets",
        format!(
            "{} of {} lost, {} reordered, {} repeated{limited}",
            path.lost(),
            path.sent,
            path.reordered,
            path.duplicated
        ),
    ));
    if let Some(mtu) = measured.mtu {
        let lost = match mtu.lost {
            Some(lost) => format!("{lost} bytes disappear"),
            None => "none disappear".to_owned(),
        };
        lines.push((
            "packet sizes",
            format!(
                "{} bytes pass, {lost}, the route has {}",
                mtu.passed, mtu.route
            ),
        ));
    }
    if let Some(nat) = measured.nat {
        let seconds = |time: Option<u64>, none: &str| {
            time.map_or_else(|| none.to_owned(), |time| format!("{time} s"))
        };
        let text = format!(
            "lets packets through after {} of silence, stops them after {}",
            seconds(nat.kept_s, "no time"),
            seconds(nat.lost_s, "more than was tried")
        );
        lines.push(("NAT", text));
    }
    server_lines(measured, &mut lines);
    fetch_lines(measured, &mut lines);
    local_lines(measured, &mut lines);
    for database in &measured.databases {
        let answer = match database.answer_s {
            Some(time) => milliseconds(time),
            None => "no answer".to_owned(),
        };
        lines.push(("database server", format!("{}: {answer}", database.address)));
    }
    for note in &measured.notes {
        lines.push(("not measured", note.clone()));
    }
    lines
}

fn server_lines(measured: &Measured, lines: &mut Vec<(&'static str, String)>) {
    let threads = &measured.server.threads;
    if let (Some(most), Some(idle)) = (
        threads.iter().map(|look| look.waiting).max(),
        threads.iter().map(|look| look.idle).min(),
    ) {
        let text = format!(
            "at most {most} calls wait, at least {idle} idle, in {} looks",
            threads.len()
        );
        lines.push(("threads", text));
    }
    if let Some(clock) = measured.clock {
        let text = format!(
            "{:+.3} s from this machine's, give or take {:.3} s",
            clock.offset_s, clock.error_s
        );
        lines.push(("clock", text));
    }
    if let Some(call) = measured.small_call {
        let text = match call.answered {
            0 => format!("none of {} answered", call.made),
            answered => format!(
                "{} median, {answered} of {} answered",
                milliseconds(call.median_s),
                call.made
            ),
        };
        lines.push(("small calls", text));
    }
    if let Some(packets) = measured.server.receive_window_packets {
        lines.push((
            "receive window",
            format!("{packets} packets for a call of ours"),
        ));
    }
    if let Some(peer) = measured.server.peer {
        let text = format!(
            "round trip {}, {} of {} packets sent again, congestion window {} packets",
            milliseconds(peer.rtt_s),
            peer.resent,
            peer.sent,
            peer.window_packets
        );
        lines.push(("the server sees", text));
    }
}

fn fetch_lines(measured: &Measured, lines: &mut Vec<(&'static str, String)>) {
    let Some(fetch) = &measured.fetch else {
        return;
    };
    let rtt = measured.path.rtt_min_s.unwrap_or(0.0);
    let (one, several) = (fetch.one, fetch.several);
    lines.push((
        "fetch",
        format!(
            "{:.2} MB/s by one call ({:.0} packets in flight), {:.2} MB/s by {}",
            one.bytes_per_s / 1e6,
            one.packets_in_flight(rtt),
            several.bytes_per_s / 1e6,
            several.calls
        ),
    ));
    if let Some(loaded) = fetch.rtt_loaded_s {
        let text = format!(
            "round trip {}, {} datagrams dropped here",
            milliseconds(loaded),
            fetch.buffer_drops
        );
        lines.push(("meanwhile", text));
    }
}

fn local_lines(measured: &Measured, lines: &mut Vec<(&'static str, String)>) {
    let local = &measured.local;
    if let Some(buffer) = local.receive_buffer {
        let wanted = local.receive_buffer_wanted >> 10;
        lines.push((
            "receive buffer",
            format!("{} KiB of {wanted} KiB", buffer >> 10),
        ));
    }
    if let Some(cipher) = local.cipher {
        lines.push((
            "packet cipher",
            format!("{:.0} MB/s on one processor", cipher.open_bytes_per_s / 1e6),
        ));
    }
    if let Some(disk) = &local.cache {
        let rate = disk.write_bytes_per_s.map_or_else(
            || "not written to".to_owned(),
            |rate| format!("takes {:.0} MB/s", rate / 1e6),
        );
        let text = format!(
            "{} {rate}, {} of {} MiB free",
            disk.directory.display(),
            disk.free >> 20,
            disk.size >> 20
        );
        lines.push(("cache disk", text));
    }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

#[cfg(test)]
mod tests {
    use afar_doctor::{Database, Path, diagnose};

    use super::*;

    fn measured() -> Measured {
        let mut measured = Measured::new("192.0.2.1:7000".parse().unwrap());
        measured.path = Path {
            sent: 320,
            ..Path::default()
        };
        measured
    }

    fn report(measured: Measured) -> Report {
        let diagnoses = diagnose(&measured);
        Report::new("fs1", measured, diagnoses)
    }

    #[test]
    fn silence_is_no_health() {
        let text = report(measured()).to_string();
        assert!(
            text.contains("could not measure: 192.0.2.1:7000 answers none of 320 packets"),
            "{text}"
        );
        let mut refused = measured();
        refused.path.refused = true;
        let text = report(refused).to_string();
        assert!(text.contains("nothing listens at 192.0.2.1:7000"), "{text}");
    }

    #[test]
    fn the_verdict_comes_first_in_text_and_json() {
        let mut measured = measured();
        measured.path.answered = 320;
        measured.path.rtt_min_s = Some(0.001);
        measured.server.version = Some("afar 0.1.0".to_owned());
        let text = report(measured.clone()).to_string();
        assert!(
            text.starts_with(
                "fs1: 192.0.2.1:7000 (afar 0.1.0)\n\nnothing binds: round trip 1.0 ms"
            ),
            "{text}"
        );
        measured.databases = vec![Database {
            address: "192.0.2.9:7003".parse().unwrap(),
            answer_s: None,
        }];
        let report = report(measured);
        let text = report.to_string();
        assert!(
            text.contains("\n\n1 of 1 database servers does not answer: 192.0.2.9:7003.\n  gain  "),
            "{text}"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["diagnoses"][0]["cause"], "databases");
        assert_eq!(json["verdict"], json["diagnoses"][0]["sentence"]);
        assert_eq!(json["measured"]["path"]["sent"], 320);
    }
}
