//! The programs that are measured.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A way to move bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Contender {
    Afar,
    /// iperf3 with TCP CUBIC.
    Cubic,
    /// iperf3 with TCP BBR.
    Bbr,
    /// The fastest client of OpenAFS that needs no kernel module: `vos dump`.
    Openafs,
}

impl Contender {
    /// The name by which the kernel knows the congestion control.
    pub(super) fn tcp(self) -> Option<&'static str> {
        match self {
            Self::Cubic => Some("cubic"),
            Self::Bbr => Some("bbr"),
            Self::Afar | Self::Openafs => None,
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Afar => "afar",
            Self::Cubic => "TCP CUBIC",
            Self::Bbr => "TCP BBR",
            Self::Openafs => "OpenAFS",
        })
    }
}
