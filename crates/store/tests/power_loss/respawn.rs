//! The test's own program, run again as a child: to be killed, or to crash in the test's place.

use std::env;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a child is to do; set for children only.
const ROLE: &str = "AFAR_TEST_ROLE";

/// Runs one ignored test of this program, named by its path, in a child; [`role`] tells the child
/// what to do.
pub(crate) fn respawn(test: &str, role: &str) -> io::Result<Child> {
    Command::new(env::current_exe()?)
        .args([
            "--exact",
            test,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// What this process is to do, if it is a child.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Waits for a child; one that takes too long is killed, and counts as failed.
pub(crate) fn wait(child: &mut Child, patience: Duration) -> io::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > patience {
            child.kill()?;
        }
        thread::sleep(Duration::from_millis(2));
    }
}
