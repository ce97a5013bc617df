//! What a call waits for while it is served.

use std::ffi::CStr;

/// What a call that is being served waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Wait {
    /// The disk, with the work that belongs to it.
    Disk = 1,
    /// Clients that are told of broken callback promises.
    Callbacks,
    /// The client takes no more of the answer for now: its window is full, or the path is.
    Window,
    /// More of what the client sends.
    Data,
    /// Another call that changes the same.
    Lock,
    /// The client, which is asked about itself, or the protection server, about the user.
    Identity,
}

impl Wait {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::Disk,
        Self::Callbacks,
        Self::Window,
        Self::Data,
        Self::Lock,
        Self::Identity,
    ];

    /// In a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.label().to_str() {
            Ok(name) => name,
            Err(_) => "",
        }
    }

    /// The same, as probes tell it.
    pub(crate) const fn label(self) -> &'static CStr {
        match self {
            Self::Disk => c"disk",
            Self::Callbacks => c"callbacks",
            Self::Window => c"window",
            Self::Data => c"data",
            Self::Lock => c"lock",
            Self::Identity => c"identity",
        }
    }

    /// What [`number`](Self::number) stands for.
    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|wait| wait.number() == number)
    }

    pub(crate) const fn number(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_one_wait_each() {
        for wait in Wait::ALL {
            assert_eq!(Wait::of(wait.number()), Some(wait));
        }
        assert_eq!((Wait::of(0), Wait::of(7)), (None, None));
    }
}
