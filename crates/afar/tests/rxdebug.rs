//! The field's own `rxdebug` (Debian's openafs-client) asks an afar server what it is doing.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// `afar rxperf server` on a free port of this machine.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_afar"))
            .args([
                "rxperf",
                "server",
                "--json",
                "-p",
                "0",
                "--bind",
                "127.0.0.1",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let listening: Value = serde_json::from_str(&line).unwrap();
        let address = listening["address"].as_str().unwrap();
        let port = address.rsplit_once(':').unwrap().1.to_owned();
        Self { child, port }
    }

    /// Moves some bytes to and from it.
    fn use_it(&self) {
        let output = Command::new(env!("CARGO_BIN_EXE_afar"))
            .args([
                "rxperf", "client", "-p", &self.port, "-c", "rpc", "-S", "1000", "-R", "2000",
            ])
            .args(["-T", "3"])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// What `rxdebug` prints.
    fn ask(&self, flags: &[&str]) -> String {
        let output = Command::new("rxdebug")
            .args(["-servers", "127.0.0.1", "-port", &self.port])
            .args(flags)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn rxdebug_understands_the_answers() {
    if Command::new("rxdebug").arg("-help").output().is_err() {
        // Past the capture of the test runner, so that it is seen.
        let skipped = b"skipped: rxdebug is not installed (Debian package openafs-client)\n";
        std::io::stderr().write_all(skipped).unwrap();
        return;
    }
    let server = Server::start();

    let version = server.ask(&["-version"]);
    let expected = format!("AFS version: afar {}", env!("CARGO_PKG_VERSION"));
    assert!(version.contains(&expected), "{version}");

    // Nobody has come yet.
    let text = server.ask(&["-allconnections", "-peers"]);
    assert_eq!(text.matches("Connection from host").count(), 0, "{text}");
    assert_eq!(text.matches("Done.").count(), 2, "{text}");

    server.use_it();
    let text = server.ask(&["-rxstats", "-allconnections", "-peers", "-long"]);
    let lines = [
        "calls: 3, used FDs: 1",
        "not waiting for packets.",
        "0 calls waiting for a thread",
        "1 server connections, 0 client connections, 1 peer structs",
        "Connection from host 127.0.0.1, port ",
        "security index 0, server conn",
        "rxnull level=0, flags=0",
        "Peer at host 127.0.0.1, port ",
        "maxMTU 65507",
    ];
    for line in lines {
        assert!(text.contains(line), "`{line}` is not in:\n{text}");
    }
    assert!(text.matches("call 0: # ").count() == 1, "{text}");
    assert_eq!(text.matches("Done.").count(), 2, "{text}");
    assert!(!text.contains("WARNING"), "{text}");
    // Packets of the three calls and their replies.
    let sent = number_after(&text, "packets sent ");
    assert!(sent >= 3, "{text}");
    assert!(
        number_after(&text, "bytes received high 0 low ") > 3000,
        "{text}"
    );

    // No call runs, so nothing is interesting.
    let text = server.ask(&[]);
    assert!(!text.contains("Connection from host"), "{text}");
}

/// The number that follows the last place of some words.
fn number_after(text: &str, words: &str) -> u64 {
    let rest = text.rsplit_once(words).unwrap().1;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
    rest[..end].parse().unwrap()
}
