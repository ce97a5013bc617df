//! Server processes and keys as the basic overseer describes them (AFS-3 bosint).

use std::fmt;

use afar_xdr::{BytesMut, Decode, DecodeError, Decoder, Encode, XdrString};

use crate::UnixTime;

/// A string of the basic overseer (BOZO_BSSIZE).
pub type BozoText = XdrString<256>;

/// Programs and parameters of a process, as many as its type takes; the others are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct BozoParameters {
    /// The first.
    pub p1: BozoText,
    /// The second.
    pub p2: BozoText,
    /// The third.
    pub p3: BozoText,
    /// The fourth.
    pub p4: BozoText,
    /// The fifth.
    pub p5: BozoText,
    /// The sixth.
    pub p6: BozoText,
}

/// What the overseer knows of a process it runs (AFS-3 bozo_status, 17 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct BozoStatus {
    /// 1 if it is to run, 0 if not.
    pub goal: i32,
    /// The same as the configuration file has it, from the next start on.
    pub file_goal: i32,
    /// When a process was last started.
    pub process_start_time: UnixTime,
    /// How often processes were started.
    pub process_starts: i32,
    /// When a process last ended.
    pub last_any_exit: UnixTime,
    /// When a process last ended that should not.
    pub last_error_exit: UnixTime,
    /// The exit code of that end; 0 if it was a signal.
    pub error_code: i32,
    /// The signal of that end; 0 if it was none.
    pub error_signal: i32,
    /// Bits as in the constants.
    pub flags: u32,
    /// 0.
    pub spare: [i32; 8],
}

impl BozoStatus {
    /// The process left a core file.
    pub const HAS_CORE: u32 = 1;
    /// It failed too often and is not started again.
    pub const ERROR_STOP: u32 = 2;
    /// Directories of the overseer have the wrong permissions.
    pub const BAD_DIRECTORY_ACCESS: u32 = 4;
}

/// What a process is doing (the number GetStatus returns).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum BozoState {
    /// It does not run.
    #[xdr(case = 0)]
    Shutdown,
    /// It runs.
    #[xdr(case = 1)]
    Normal,
    /// It was told to stop.
    #[xdr(case = 2)]
    ShuttingDown,
    /// It is being started.
    #[xdr(case = 3)]
    StartingUp,
    /// A state AFS-3 does not define.
    #[xdr(default)]
    Other(u32),
}

/// A time of day or week (AFS-3 bozo_netKTime, 5 words). A field counts if its bit is in `mask`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct BozoTime {
    /// Bits as in the constants.
    pub mask: u32,
    /// 0 to 23.
    pub hour: i16,
    /// 0 to 59.
    pub minute: i16,
    /// 0 to 59.
    pub second: i16,
    /// 0 is Sunday.
    pub day: i16,
}

impl BozoTime {
    /// `hour` counts.
    pub const HOUR: u32 = 0x01;
    /// `minute` counts.
    pub const MINUTE: u32 = 0x02;
    /// `second` counts.
    pub const SECOND: u32 = 0x04;
    /// `day` counts; without it every day is meant.
    pub const DAY: u32 = 0x08;
    /// Never; nothing else counts.
    pub const NEVER: u32 = 0x10;
    /// At once; nothing else counts.
    pub const NOW: u32 = 0x20;

    /// Never.
    #[must_use]
    pub fn never() -> Self {
        Self {
            mask: Self::NEVER,
            ..Self::default()
        }
    }
}

/// A DES key of a server, 8 words. Overseers send zeros in its place, unless they check nobody or
/// the connection is encrypted.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct BozoKey(pub [u8; 8]);

/// Not the key.
impl fmt::Debug for BozoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BozoKey(..)")
    }
}

impl Encode for BozoKey {
    fn encode(&self, out: &mut BytesMut) {
        // A C `char` is signed where AFS comes from.
        self.0.map(|byte| i8::from_be_bytes([byte])).encode(out);
    }
}

impl Decode for BozoKey {
    const MIN_LEN: usize = 32;
    const MAX_LEN: usize = 32;

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        input.read().map(Self)
    }
}

/// About a key (AFS-3 bozo_keyInfo, 4 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct BozoKeyInfo {
    /// When the file of keys was last changed.
    pub modified: UnixTime,
    /// Microseconds of that time; 0 from OpenAFS.
    pub modified_microseconds: i32,
    /// By which two keys can be compared without showing them.
    pub checksum: u32,
    /// 0.
    pub spare: i32,
}

#[cfg(test)]
mod tests {
    use afar_xdr::{from_bytes, to_bytes};

    use super::*;

    fn words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
        words.into_iter().flat_map(u32::to_be_bytes).collect()
    }

    #[test]
    fn a_status_has_17_words() {
        let bytes = words(1..=17);
        let status: BozoStatus = from_bytes(&bytes).unwrap();
        assert_eq!((status.goal, status.file_goal), (1, 2));
        assert_eq!(
            (status.process_start_time, status.process_starts),
            (UnixTime(3), 4)
        );
        assert_eq!(status.last_any_exit, UnixTime(5));
        assert_eq!(status.last_error_exit, UnixTime(6));
        assert_eq!(
            (status.error_code, status.error_signal, status.flags),
            (7, 8, 9)
        );
        assert_eq!(status.spare, [10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!(to_bytes(&status)[..], bytes);
    }

    #[test]
    fn a_time_has_a_word_for_each_short() {
        let time = BozoTime {
            mask: BozoTime::HOUR | BozoTime::MINUTE | BozoTime::SECOND,
            hour: 4,
            minute: 30,
            second: 0,
            day: -1,
        };
        assert_eq!(to_bytes(&time)[..], words([7, 4, 30, 0, u32::MAX]));
        assert_eq!(from_bytes(&to_bytes(&time)), Ok(time));
        assert_eq!(to_bytes(&BozoTime::never())[..], words([16, 0, 0, 0, 0]));
    }

    #[test]
    fn a_key_has_a_signed_word_for_each_byte_and_is_not_shown() {
        let key = BozoKey([0, 1, 0, 0x7f, 0x80, 0xff, 2, 3]);
        let bytes = words([0, 1, 0, 0x7f, 0xffff_ff80, 0xffff_ffff, 2, 3]);
        assert_eq!(to_bytes(&key)[..], bytes);
        assert_eq!(from_bytes(&bytes), Ok(key));
        assert_eq!(format!("{key:?}"), "BozoKey(..)");
        let info: BozoKeyInfo = from_bytes(&words(1..=4)).unwrap();
        assert_eq!((info.modified, info.checksum), (UnixTime(1), 3));
    }

    #[test]
    fn states_are_numbered() {
        assert_eq!(from_bytes(&words([1])), Ok(BozoState::Normal));
        assert_eq!(to_bytes(&BozoState::StartingUp)[..], words([3]));
        assert_eq!(from_bytes(&words([9])), Ok(BozoState::Other(9)));
    }
}
