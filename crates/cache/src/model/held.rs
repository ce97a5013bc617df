//! What is cached of a file, for those on this machine who would fetch it themselves otherwise.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::str::FromStr;

use afar_types::DataVersion;

/// What a cache has of a file, of the version that the file's servers have, while nothing is written to it
/// here. Its text has the version, the servers and each range on a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The version.
    pub version: DataVersion,
    /// The servers of its volume. Cells of the same name are told apart by these.
    pub servers: Vec<SocketAddr>,
    /// The bytes that are there, in order; the first thousand ranges if there are more.
    pub ranges: Vec<Range<u64>>,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.version)?;
        let servers: Vec<_> = self.servers.iter().map(ToString::to_string).collect();
        writeln!(f, "{}", servers.join(" "))?;
        for range in &self.ranges {
            writeln!(f, "{} {}", range.start, range.end)?;
        }
        Ok(())
    }
}

/// A text that does not tell what is [held](Held).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a version, servers, and ranges in order")]
pub struct HeldError;

impl FromStr for Held {
    type Err = HeldError;

    fn from_str(text: &str) -> Result<Self, HeldError> {
        let mut lines = text.lines();
        let version = lines.next().and_then(|line| line.parse().ok());
        let (version, servers) = version.zip(lines.next()).ok_or(HeldError)?;
        let servers: Result<_, _> = servers.split_whitespace().map(str::parse).collect();
        let mut held = Self {
            version: DataVersion(version),
            servers: servers.map_err(|_| HeldError)?,
            ranges: Vec::new(),
        };
        let mut end = 0;
        for line in lines {
            let (start, to) = line.split_once(' ').ok_or(HeldError)?;
            let number = |text: &str| text.parse().map_err(|_| HeldError);
            let range = number(start)?..number(to)?;
            // Another process wrote this: what is not in order is not believed.
            if range.start < end || range.start >= range.end {
                return Err(HeldError);
            }
            end = range.end;
            held.ranges.push(range);
        }
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_told_is_understood(
            version in any::<u64>(),
            servers in prop::collection::vec(any::<SocketAddr>(), 0..4),
            cuts in prop::collection::btree_set(any::<u64>(), 0..20),
        ) {
            let cuts: Vec<_> = cuts.into_iter().collect();
            let ranges = cuts.chunks_exact(2).map(|cut| cut[0]..cut[1]).collect();
            // Scopes and flow labels have no place in an address of AFS.
            let servers = servers.iter().map(|server| (server.ip(), server.port()).into()).collect();
            let held = Held { version: DataVersion(version), servers, ranges };
            prop_assert_eq!(held.to_string().parse(), Ok(held));
        }

        #[test]
        fn any_text_is_understood_as_it_is_told_or_not_at_all(text in "[0-9 .:\n]{0,60}") {
            if let Ok(held) = text.parse::<Held>() {
                prop_assert!(held.ranges.is_sorted_by(|one, other| one.end <= other.start));
                prop_assert_eq!(held.to_string().parse(), Ok(held));
            }
        }
    }

    #[test]
    fn what_nobody_tells_is_refused() {
        for wrong in [
            "",
            "1",
            "x\n\n",
            "1\nhere\n",
            "1\n\n5 5\n",
            "1\n\n0 9\n8 10\n",
            "1\n\n7\n",
        ] {
            assert_eq!(wrong.parse::<Held>(), Err(HeldError), "{wrong:?}");
        }
        assert!("1\n\n".parse::<Held>().is_ok());
    }
}
