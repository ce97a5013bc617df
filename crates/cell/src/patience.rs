//! How long requests wait for servers that do not answer.
//!
//! A server that is started again is silent for a second or two, one whose machine is, for a minute. Nobody need
//! hear of that: requests wait, and are made again when the server answers. One of the requests asks it now and
//! then whether it is there; the others wait for the answer.

use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;

/// How long a request waits by default.
const USUAL: Duration = Duration::from_secs(60);

/// How long a request waits for servers that do not answer, before that is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// So long; without it for ever.
    limit: Option<Duration>,
    /// Whether to wait also for servers that have never answered: there may be none at their addresses.
    strangers: bool,
}

impl Patience {
    /// Do not wait for anything.
    pub const NONE: Self = Self::of_those_met(Duration::ZERO);
    /// A minute, for servers that have answered before.
    pub const USUAL: Self = Self::of_those_met(USUAL);

    /// So long, for servers that have answered before.
    #[must_use]
    pub const fn of_those_met(limit: Duration) -> Self {
        Self {
            limit: Some(limit),
            strangers: false,
        }
    }

    /// Until when to wait for a server that a request has awaited for this long already; `None` means for ever.
    /// Where that is over requests are tried, and fail at once: what waits for one another does not wait for the
    /// sum.
    pub(crate) fn until(self, waited: Duration) -> Option<Instant> {
        let left = self.limit?.saturating_sub(waited);
        Instant::now().checked_add(left)
    }

    /// Whether so long is longer than it lasts.
    pub(crate) fn is_over(self, waited: Duration) -> bool {
        self.limit.is_some_and(|limit| limit <= waited)
    }

    /// Whether to wait for a server that has answered before, or has not.
    pub(crate) fn is_for(self, met: bool) -> bool {
        self.limit != Some(Duration::ZERO) && (met || self.strangers)
    }
}

impl FromStr for Patience {
    type Err = String;

    /// `hard`, or a number of seconds; a limit that is given is for all servers.
    fn from_str(text: &str) -> Result<Self, String> {
        let limit = match text {
            "hard" => None,
            _ => Some(text.parse().map(Duration::from_secs).map_err(|_| {
                "give a number of seconds, or hard to wait until the server answers".to_owned()
            })?),
        };
        Ok(Self {
            limit,
            strangers: true,
        })
    }
}

/// Returns at that time; never without one.
pub(crate) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_seconds_or_hard() {
        let read = |text: &str| text.parse::<Patience>();
        assert_eq!(read("hard").unwrap().until(Duration::ZERO), None);
        assert_eq!(read("90").unwrap().limit, Some(Duration::from_secs(90)));
        // A time that never comes is for ever.
        assert_eq!(
            read(&u64::MAX.to_string()).unwrap().until(Duration::ZERO),
            None
        );
        assert!(!read("0").unwrap().is_for(true));
        assert!(read("1").unwrap().is_for(false));
        assert!(!Patience::USUAL.is_for(false) && Patience::USUAL.is_for(true));
        for wrong in ["", "-1", "1.5", "soft", "60s"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
