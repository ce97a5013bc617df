//! A browser without a window, by its debugging protocol over pipes: one JSON message after another, each with
//! a zero behind it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// The names that it has.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
const OPTIONS: [&str; 7] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];
/// It reads from 3 and writes to 4.
const PIPES: &str = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null";
const SOON: Duration = Duration::from_secs(60);

/// A browser with a page.
pub(crate) struct Browser {
    child: Child,
    pipe: ChildStdin,
    messages: Receiver<Value>,
    calls: u64,
    session: Option<String>,
    /// What the page complained of.
    pub(crate) complaints: Vec<String>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Browser {
    /// One with a directory for what it keeps, or none if there is no such program.
    pub(crate) fn start(profile: &Path) -> Option<Self> {
        let has = |program: &&str| -> bool {
            let asked = Command::new(program).arg("--version").output();
            asked.is_ok_and(|output| output.status.success())
        };
        let program = PROGRAMS.into_iter().find(has)?;
        let mut child = Command::new("sh")
            .args(["-c", PIPES, program])
            .args(OPTIONS)
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, messages) = channel();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while answers
                .read_until(0, &mut message)
                .is_ok_and(|length| length > 0)
            {
                message.pop();
                let known = serde_json::from_slice(&message).unwrap_or_default();
                if sender.send(known).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Self {
            pipe: child.stdin.take().unwrap(),
            child,
            messages,
            calls: 0,
            session: None,
            complaints: Vec::new(),
        };
        let page = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let wanted = json!({"targetId": page["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", &wanted);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for part in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(part, &json!({}));
        }
        Some(browser)
    }

    /// Has it do something, and returns what comes of it.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.pipe
            .write_all(format!("{message}\0").as_bytes())
            .unwrap();
        let until = Instant::now() + SOON;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut answer = self.messages.recv_timeout(left).unwrap();
            if matches!(
                answer["method"].as_str(),
                Some("Runtime.exceptionThrown" | "Log.entryAdded" | "Runtime.consoleAPICalled")
            ) {
                self.complaints.push(answer["params"].to_string());
            }
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true});
        let mut answer = self.call("Runtime.evaluate", &params);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        let until = Instant::now() + SOON;
        while self.value(expression) != json!(true) {
            assert!(Instant::now() < until, "never true: {expression}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// A picture of the whole page, as a PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let params = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.call("Page.captureScreenshot", &params);
        let picture = answer["data"].as_str().unwrap();
        BASE64_STANDARD.decode(picture).unwrap()
    }
}
