//! Whether transfers compete with others or give way to them.
#![expect(
    unsafe_code,
    reason = "ioprio_get has no safe wrapper in rustix or nix"
)]

/// The class of a transfer, in Linux's words for I/O (`ionice`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Class {
    /// It has its share of the way to a server.
    #[default]
    BestEffort,
    /// It has what others leave of it.
    Idle,
}

/// Asks for the class of a process or thread.
const WHO_PROCESS: libc::c_int = 1;
/// The class is above these bits of the answer.
const CLASS_SHIFT: u32 = 13;
/// What is served when nobody else wants anything.
const CLASS_IDLE: libc::c_long = 3;

impl Class {
    /// That of a process or thread, as `ionice -c 3` sets it; 0 is the one that asks. It is
    /// [`BestEffort`](Self::BestEffort) if it cannot be told.
    #[must_use]
    pub fn of(id: u32) -> Self {
        // SAFETY: the call takes two numbers, and gives one back.
        let found = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, id) };
        if found >> CLASS_SHIFT == CLASS_IDLE {
            Self::Idle
        } else {
            Self::BestEffort
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn ionice_sets_the_class_of_a_process() {
        for (class, expected) in [("2", Class::BestEffort), ("3", Class::Idle)] {
            let mut sleep = Command::new("ionice");
            let mut sleep = sleep
                .args(["-c", class, "sleep", "60"])
                .spawn()
                .expect("ionice is in util-linux");
            let id = sleep.id();
            let found = (0..1000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                Class::of(id) == expected
            });
            sleep.kill().unwrap();
            sleep.wait().unwrap();
            assert!(found, "class {class}");
        }
        assert_eq!(Class::of(u32::MAX), Class::BestEffort);
        assert_eq!(Class::of(0), Class::BestEffort);
    }
}
