//! `afar rxperf` as its user sees it: two processes on loopback, their reports, errors and exit
//! codes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

/// A server process on a port of its own.
struct Server {
    child: Child,
    lines: BufReader<ChildStdout>,
    port: String,
}

impl Server {
    fn start(flags: &[&str]) -> Self {
        let mut child = afar()
            .args([
                "rxperf",
                "server",
                "--json",
                "-p",
                "0",
                "--bind",
                "127.0.0.1",
            ])
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let listening = next_report(&mut lines);
        assert_eq!(listening["type"], "listening");
        assert_eq!(listening["service"], 147);
        let address = listening["address"].as_str().unwrap();
        let port = address.rsplit_once(':').unwrap().1.to_owned();
        Self { child, lines, port }
    }

    /// Runs a client against this server.
    fn client(&self, flags: &[&str]) -> Output {
        afar()
            .args(["rxperf", "client", "-p", &self.port])
            .args(flags)
            .output()
            .unwrap()
    }

    /// Runs a client that must do well, and gives its reports.
    fn reports(&self, flags: &[&str]) -> Vec<Value> {
        let output = self.client(&[flags, &["--json"]].concat());
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{flags:?}: {err}");
        out.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Ends the server as Ctrl-C does, and gives its remaining reports.
    fn stop(mut self) -> Vec<Value> {
        interrupt(&self.child);
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn afar() -> Command {
    Command::new(env!("CARGO_BIN_EXE_afar"))
}

/// Does what Ctrl-C does.
fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
}

fn next_report(lines: &mut impl BufRead) -> Value {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// The last report of a run, which is its result.
fn result(reports: &[Value]) -> &Value {
    let result = reports.last().unwrap();
    assert_eq!(result["type"], "result");
    assert_eq!(result["interrupted"], false);
    result
}

#[test]
fn every_command_moves_what_it_says() {
    let server = Server::start(&["--verbose"]);
    let amounts = std::env::temp_dir().join(format!("afar-rxperf-{}", std::process::id()));
    fs::write(&amounts, "250000\n1\n\n50000\n").unwrap();
    let file = amounts.to_str().unwrap().to_owned();
    let cases: [(&[&str], u64, u64, u64); 6] = [
        (&["-c", "send", "-b", "3M", "-T", "2"], 2, 6_000_000, 0),
        (
            &["-c", "recv", "-b", "3M", "-T", "2", "-w", "1000"],
            2,
            0,
            6_000_000,
        ),
        (
            &["-c", "rpc", "-S", "3", "-R", "30", "-T", "50"],
            50,
            150,
            1_500,
        ),
        (
            &["-c", "rpc", "-S", "100k", "-R", "70000", "-T", "3"],
            3,
            300_000,
            210_000,
        ),
        (
            &["-c", "FILE", "-f", &file, "-T", "2"],
            2,
            2_000_008,
            400_000,
        ),
        (&["-c", "send", "-b", "0", "-T", "1"], 1, 0, 0),
    ];
    let mut transfers = Vec::new();
    for (flags, calls, request, reply) in cases {
        let reports = server.reports(flags);
        let result = result(&reports);
        assert_eq!(result["calls"], calls, "{flags:?}");
        assert_eq!(result["bytes"], request + reply, "{flags:?}");
        transfers.push((calls, request, reply));
    }
    fs::remove_file(&amounts).unwrap();

    let reports = server.stop();
    let (summary, reports) = reports.split_last().unwrap();
    let mut reports = reports.iter();
    for (calls, request, reply) in transfers {
        for _ in 0..calls {
            let transfer = reports.next().unwrap();
            assert_eq!(transfer["type"], "transfer");
            assert_eq!(transfer["received_bytes"], request / calls);
            assert_eq!(transfer["sent_bytes"], reply / calls);
            assert_eq!(transfer["error"], Value::Null);
        }
    }
    assert_eq!(summary["type"], "summary");
    assert_eq!(summary["calls"], 60);
    assert_eq!(summary["failed"], 0);
    assert_eq!(summary["bytes"], 14_911_658);
}

#[test]
fn threads_are_reported_one_by_one() {
    let server = Server::start(&[]);
    let reports = server.reports(&["-c", "recv", "-b", "100k", "-T", "3", "-t", "9"]);
    assert_eq!(reports[0]["type"], "start");
    assert_eq!(reports[0]["threads"], 9);
    assert_eq!(reports[0]["connections"], 3);
    let result = result(&reports);
    assert_eq!(result["calls"], 27);
    let threads = result["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 9);
    for thread in threads {
        assert_eq!(thread["calls"], 3);
        assert_eq!(thread["bytes"], 300_000);
    }
    let jain = result["jain_index"].as_f64().unwrap();
    assert!((1.0 / 9.0..=1.000_001).contains(&jain), "{jain}");
}

#[test]
fn more_threads_than_channels_share_what_connections_there_are() {
    let server = Server::start(&[]);
    let flags = ["-c", "rpc", "-T", "20", "-t", "16", "--connections", "2"];
    let reports = server.reports(&flags);
    assert_eq!(result(&reports)["calls"], 320);
}

#[test]
fn intervals_and_path_are_reported() {
    let server = Server::start(&[]);
    let flags = [
        "-c",
        "send",
        "-b",
        "1M",
        "--duration",
        "0.5",
        "--interval",
        "0.1",
        "-D",
    ];
    let reports = server.reports(&flags);
    let intervals = || reports.iter().filter(|report| report["type"] == "interval");
    assert!(intervals().count() >= 1);
    let in_intervals: u64 = intervals()
        .map(|report| report["calls"].as_u64().unwrap())
        .sum();
    let result = result(&reports);
    assert!(in_intervals <= result["calls"].as_u64().unwrap());
    assert_eq!(
        result["bytes"].as_u64().unwrap(),
        result["calls"].as_u64().unwrap() * 1_000_000
    );
    let path = &result["path"];
    assert!(path["rtt_min_s"].as_f64().unwrap() > 0.0);
    assert!(path["rtt_smoothed_s"].as_f64() >= path["rtt_min_s"].as_f64());
    for field in ["cwnd_bytes", "mtu_bytes", "data_sent", "window_packets"] {
        assert!(path[field].as_u64().unwrap() > 0, "{field}");
    }
    for field in ["lost", "spurious", "data_resent", "ecn_ce"] {
        assert!(path[field].is_u64(), "{field}");
    }
    for field in ["datagrams_per_send", "datagrams_per_recv"] {
        assert!(path[field].as_f64().unwrap() >= 1.0, "{field}");
    }
    assert!(result["counters"]["datagrams_sent"].as_u64().unwrap() > 0);
}

#[test]
fn text_has_the_figures_and_goes_to_the_file_asked_for() {
    let server = Server::start(&[]);
    let output = server.client(&["-c", "recv", "-b", "1Mi", "-T", "2", "-t", "2"]);
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    for part in [
        "recv to 127.0.0.1:",
        "2 threads over 1 connection, each 2 calls",
        "thread   1: 2,097,152 bytes, 2 calls",
        "Jain's index",
        "path: rtt min ",
        "datagrams per syscall ",
        "recv: 4,194,304 bytes in 4 calls in ",
        " Mbit/s), ",
    ] {
        assert!(out.contains(part), "no {part:?} in {out}");
    }

    let path = std::env::temp_dir().join(format!("afar-rxperf-out-{}", std::process::id()));
    let output = server.client(&["-c", "rpc", "-T", "1", "-o", path.to_str().unwrap()]);
    assert!(output.status.success());
    assert!(output.stdout.is_empty());
    assert!(
        fs::read_to_string(&path)
            .unwrap()
            .contains("rpc: 33 bytes in 1 calls")
    );
    fs::remove_file(&path).unwrap();
}

#[test]
fn every_congestion_control_and_transport_flag_works() {
    let flags = [
        "-u", "256", "-m", "1400", "-W", "64", "-j", "-H", "-N", "-V",
    ];
    let server = Server::start(&flags);
    for congestion in ["bbr", "cubic", "reno"] {
        let command = [
            "-c",
            "recv",
            "-b",
            "2M",
            "-T",
            "1",
            "--congestion",
            congestion,
        ];
        let reports = server.reports(&[&command[..], &flags[..]].concat());
        assert_eq!(result(&reports)["bytes"], 2_000_000);
    }
    let reports = server.reports(&["-c", "send", "-b", "2M", "-T", "1", "--classic"]);
    assert_eq!(result(&reports)["path"]["peer_is_afar"], false);
}

#[test]
fn wrong_usage_exits_with_2() {
    let cases: [&[&str]; 7] = [
        &[],
        &["-c", "copy"],
        &["-c", "file"],
        &["-c", "send", "-b", "1Q"],
        &["-c", "send", "-w", "513Ki"],
        &["-c", "send", "-t", "0"],
        &["-c", "send", "--duration", "0"],
    ];
    for flags in cases {
        let output = afar()
            .args(["rxperf", "client"])
            .args(flags)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(output.stdout.is_empty(), "{flags:?}");
    }
}

#[test]
fn failures_are_one_line_with_cause_and_next_step() {
    let closed = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let bad = std::env::temp_dir().join(format!("afar-rxperf-bad-{}", std::process::id()));
    fs::write(&bad, "1\nmany\n").unwrap();
    let bad = bad.to_str().unwrap();
    let turning = format!("{bad}-turning");
    fs::write(&turning, "1\n0\n1\n0\n1\n").unwrap();
    let cases: [(&[&str], &str); 5] = [
        (
            &["-c", "send", "-p", &closed],
            "is `afar rxperf server` running there",
        ),
        (
            &["-c", "send", "-s", "no-such-host.invalid"],
            "check the name given with -s",
        ),
        (&["-c", "send", "-b", "3000000001"], "change -b"),
        (
            &["-c", "file", "-f", bad],
            "line 2: \"many\" is not a number",
        ),
        (
            &["-c", "file", "-f", &turning],
            "an Rx call turns around only once",
        ),
    ];
    for (flags, part) in cases {
        let output = afar()
            .args(["rxperf", "client"])
            .args(flags)
            .output()
            .unwrap();
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{flags:?}: {err}");
        assert!(
            err.starts_with("afar: rxperf client: ") && err.contains(part),
            "{err}"
        );
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    fs::remove_file(bad).unwrap();
    fs::remove_file(turning).unwrap();
}

#[test]
fn a_taken_port_is_named() {
    let server = Server::start(&[]);
    let output = afar()
        .args([
            "rxperf",
            "server",
            "--bind",
            "127.0.0.1",
            "-p",
            &server.port,
        ])
        .output()
        .unwrap();
    let (_, err) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains(&server.port) && err.contains("Try -p"),
        "{err}"
    );
}

#[test]
fn an_interrupted_client_reports_what_it_did() {
    let server = Server::start(&[]);
    let flags = [
        "-c",
        "rpc",
        "--duration",
        "600",
        "--interval",
        "0.05",
        "--json",
    ];
    let mut client = afar()
        .args(["rxperf", "client", "-p", &server.port])
        .args(flags)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap());
    assert_eq!(next_report(&mut lines)["type"], "start");
    assert_eq!(next_report(&mut lines)["type"], "interval");
    interrupt(&client);
    let mut report = next_report(&mut lines);
    while report["type"] == "interval" {
        report = next_report(&mut lines);
    }
    assert_eq!(report["type"], "result");
    assert_eq!(report["interrupted"], true);
    assert_eq!(client.wait().unwrap().code(), Some(130));
}
