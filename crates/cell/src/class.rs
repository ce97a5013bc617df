//! Whether transfers compete with others, come before them or give way to them.
#![expect(
    unsafe_code,
    reason = "ioprio_get has no safe wrapper in rustix or nix"
)]

/// The class of a transfer, in Linux's words for I/O (`ionice`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Class {
    /// It has three times the share of another: what is looked at or listened to while it comes.
    First,
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
/// The level within the class is in these.
const LEVEL: libc::c_long = 7;
/// What has its share, at a level.
const CLASS_REALTIME: libc::c_long = 1;
const CLASS_BEST_EFFORT: libc::c_long = 2;
/// What is served when nobody else wants anything.
const CLASS_IDLE: libc::c_long = 3;
/// Where a process is that was not told otherwise; 0 is the highest.
const LEVEL_ORDINARY: libc::c_long = 4;

impl Class {
    /// That of a process or thread; 0 is the one that asks. `ionice -c 3` makes it idle, `ionice -n 0`, or
    /// any level higher than the ordinary one, first. It is [`BestEffort`](Self::BestEffort) if it
    /// cannot be told.
    #[must_use]
    pub fn of(id: u32) -> Self {
        // SAFETY: the call takes two numbers, and gives one back.
        let found = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, id) };
        match found >> CLASS_SHIFT {
            CLASS_IDLE => Self::Idle,
            CLASS_REALTIME => Self::First,
            CLASS_BEST_EFFORT if found & LEVEL < LEVEL_ORDINARY => Self::First,
            _ => Self::BestEffort,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn ionice_sets_the_class_of_a_process() {
        let cases = [
            ("-n4", Class::BestEffort),
            ("-n7", Class::BestEffort),
            ("-n0", Class::First),
            ("-c3", Class::Idle),
        ];
        for (class, expected) in cases {
            let mut sleep = Command::new("ionice");
            let mut sleep = sleep
                .args([class, "sleep", "60"])
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
