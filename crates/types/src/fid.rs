//! Identifiers: volumes, vnodes, versions, users, times.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use afar_xdr::{Decode, Encode};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode,
        )]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl From<$inner> for $name {
            fn from(number: $inner) -> Self {
                Self(number)
            }
        }
    };
}

number! {
    /// A volume's number, unique in its cell. 0 is no volume.
    VolumeId(u32)
}
number! {
    /// A vnode's number in its volume: odd for directories, even for files and symlinks.
    VnodeId(u32)
}
number! {
    /// Tells successive users of one vnode number apart.
    Uniquifier(u32)
}
number! {
    /// Counts the changes of a file's data or of a directory's entries.
    DataVersion(u64)
}
number! {
    /// A user (positive) or group (negative) of the protection service.
    PtsId(i32)
}
number! {
    /// A transaction of a volume server; counted from 1 since its start.
    TransactionId(i32)
}
number! {
    /// Seconds since 1970, as AFS carries them: 0 often means "not known".
    UnixTime(u32)
}

impl VolumeId {
    /// Whether it names no volume.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl VnodeId {
    /// Whether a vnode of this number is a directory.
    #[must_use]
    // spec: volumes#vnodes
    pub const fn is_directory(self) -> bool {
        self.0 % 2 == 1
    }
}

impl UnixTime {
    /// The same time for the standard library.
    #[must_use]
    pub fn to_system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.0.into())
    }
}

/// Times before 1970 become 0 and times after 2106 the last one there is.
impl From<SystemTime> for UnixTime {
    fn from(time: SystemTime) -> Self {
        let seconds = time
            .duration_since(UNIX_EPOCH)
            .map_or(0, |elapsed| elapsed.as_secs());
        Self(u32::try_from(seconds).unwrap_or(u32::MAX))
    }
}

/// The name of a file, directory or symlink within its cell (AFS-3 AFSFid, 3 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Fid {
    /// The volume it is in.
    pub volume: VolumeId,
    /// Its place in the volume. Vnode 0 in a callback break stands for the whole volume.
    pub vnode: VnodeId,
    /// Which user of that place it is.
    pub uniquifier: Uniquifier,
}

impl Fid {
    /// A fid from its three numbers.
    #[must_use]
    pub const fn new(volume: u32, vnode: u32, uniquifier: u32) -> Self {
        Self {
            volume: VolumeId(volume),
            vnode: VnodeId(vnode),
            uniquifier: Uniquifier(uniquifier),
        }
    }

    /// The root directory of a volume: vnode 1, uniquifier 1.
    #[must_use]
    pub const fn root(volume: VolumeId) -> Self {
        Self::new(volume.0, 1, 1)
    }

    /// Whether it stands for the whole volume, as in a break after a release.
    #[must_use]
    pub const fn is_whole_volume(&self) -> bool {
        self.vnode.0 == 0
    }
}

/// `volume.vnode.uniquifier`, as AFS tools write it.
impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.volume, self.vnode, self.uniquifier)
    }
}
