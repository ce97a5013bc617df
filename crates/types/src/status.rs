//! Status of files and promises about it (AFS-3 AFSFetchStatus, AFSStoreStatus, AFSCallBack,
//! AFSVolSync).

use afar_xdr::{BytesMut, Decode, DecodeError, Decoder, Encode};

use crate::{DataVersion, PtsId, Rights, Uniquifier, UnixTime, VnodeId};

/// What a vnode is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub enum FileType {
    /// Nothing: the status of a bulk call's failed entry.
    #[default]
    #[xdr(case = 0)]
    Invalid,
    /// An ordinary file.
    #[xdr(case = 1)]
    File,
    /// A directory.
    #[xdr(case = 2)]
    Directory,
    /// A symbolic link, or a mount point if it has no `x` bit.
    #[xdr(case = 3)]
    Symlink,
    /// A type AFS-3 does not define.
    #[xdr(default)]
    Other(u32),
}

/// The status of a file, directory or symlink (21 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FetchStatus {
    /// 1 from every server known; the rest means nothing to a reader that expects another.
    pub interface_version: u32,
    /// File, directory or symlink.
    pub file_type: FileType,
    /// Names the vnode has.
    pub link_count: u32,
    /// Bytes of data; of a directory, of its pages.
    pub length: u64,
    /// Version of the data.
    pub data_version: DataVersion,
    /// The user who stored the data last.
    pub author: PtsId,
    /// The owner.
    pub owner: PtsId,
    /// The group; not used for access.
    pub group: PtsId,
    /// What the caller may do, by ACL and ownership.
    pub caller_access: Rights,
    /// What anyone may do.
    pub anonymous_access: Rights,
    /// The twelve permission bits, without a file type.
    pub unix_mode_bits: u32,
    /// The directory it is in; of a directory, itself.
    pub parent_vnode: VnodeId,
    /// Uniquifier of `parent_vnode`.
    pub parent_uniquifier: Uniquifier,
    /// 1 from OpenAFS.
    pub residency_mask: u32,
    /// Modification time as clients set it (`st_mtime`).
    pub client_mod_time: UnixTime,
    /// Time of the last change of any kind, by the server's clock.
    pub server_mod_time: UnixTime,
    /// 0 from OpenAFS.
    pub sync_counter: u32,
    /// Read locks held, or -1 for one write lock.
    pub lock_count: i32,
    /// In a bulk call's entry, why there is no status; else 0.
    pub error_code: i32,
}

// spec: afs-rpc#status
impl Encode for FetchStatus {
    fn encode(&self, out: &mut BytesMut) {
        let [length_high, length_low] = halves(self.length);
        let [version_high, version_low] = halves(self.data_version.0);
        self.interface_version.encode(out);
        self.file_type.encode(out);
        self.link_count.encode(out);
        length_low.encode(out);
        version_low.encode(out);
        self.author.encode(out);
        self.owner.encode(out);
        self.caller_access.encode(out);
        self.anonymous_access.encode(out);
        self.unix_mode_bits.encode(out);
        self.parent_vnode.encode(out);
        self.parent_uniquifier.encode(out);
        self.residency_mask.encode(out);
        self.client_mod_time.encode(out);
        self.server_mod_time.encode(out);
        self.group.encode(out);
        self.sync_counter.encode(out);
        version_high.encode(out);
        self.lock_count.encode(out);
        length_high.encode(out);
        self.error_code.encode(out);
    }
}

impl Decode for FetchStatus {
    const MIN_LEN: usize = 84;
    const MAX_LEN: usize = 84;

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Self::decode_words(input).map_err(|error| error.within("FetchStatus"))
    }
}

impl FetchStatus {
    /// The only interface version in use.
    pub const INTERFACE_VERSION: u32 = 1;

    fn decode_words(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut status = Self {
            interface_version: input.read()?,
            file_type: input.read()?,
            link_count: input.read()?,
            ..Self::default()
        };
        let length_low: u32 = input.read()?;
        let version_low: u32 = input.read()?;
        status.author = input.read()?;
        status.owner = input.read()?;
        status.caller_access = input.read()?;
        status.anonymous_access = input.read()?;
        status.unix_mode_bits = input.read()?;
        status.parent_vnode = input.read()?;
        status.parent_uniquifier = input.read()?;
        status.residency_mask = input.read()?;
        status.client_mod_time = input.read()?;
        status.server_mod_time = input.read()?;
        status.group = input.read()?;
        status.sync_counter = input.read()?;
        status.data_version = DataVersion(join(input.read()?, version_low));
        status.lock_count = input.read()?;
        status.length = join(input.read()?, length_low);
        status.error_code = input.read()?;
        Ok(status)
    }

    /// Whether it is a symlink without execute bits, which AFS clients take for a mount point.
    #[must_use]
    // spec: volumes#symbolic-links-and-mount-points
    pub fn is_mount_point(&self) -> bool {
        self.file_type == FileType::Symlink && self.unix_mode_bits & 0o111 == 0
    }
}

fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The high and the low word.
fn halves(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    [
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
    ]
}

/// Which attributes to set, and to what (6 words). A field counts if its bit is in `mask`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct StoreStatus {
    /// Bits `SET_*`, and [`StoreStatus::FSYNC`].
    pub mask: u32,
    /// Modification time to set.
    pub client_mod_time: UnixTime,
    /// Owner to set; administrators only.
    pub owner: PtsId,
    /// Group to set; administrators only.
    pub group: PtsId,
    /// Permission bits to set.
    pub unix_mode_bits: u32,
    /// Ignored by every server.
    pub seg_size: u32,
}

impl StoreStatus {
    /// `client_mod_time` counts.
    pub const SET_MOD_TIME: u32 = 1;
    /// `owner` counts.
    pub const SET_OWNER: u32 = 2;
    /// `group` counts.
    pub const SET_GROUP: u32 = 4;
    /// `unix_mode_bits` counts.
    pub const SET_MODE: u32 = 8;
    /// `seg_size` counts.
    pub const SET_SEG_SIZE: u32 = 16;
    /// The data is to be on stable storage before the reply.
    pub const FSYNC: u32 = 0x400;
}

/// The strength of a promise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub enum CallBackType {
    /// None; also seen in failed entries of bulk calls.
    #[default]
    #[xdr(case = 0)]
    None,
    /// For one client only.
    #[xdr(case = 1)]
    Exclusive,
    /// What servers promise: word will be sent before the data changes.
    #[xdr(case = 2)]
    Shared,
    /// The promise is over.
    #[xdr(case = 3)]
    Dropped,
    /// A type AFS-3 does not define.
    #[xdr(default)]
    Other(u32),
}

/// A promise to tell the client before a file changes (3 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct CallBack {
    /// 1.
    pub version: u32,
    /// **Seconds from now**, not a time of day.
    // spec: afs-rpc#promises
    pub expires_in: u32,
    /// How strong it is.
    pub kind: CallBackType,
}

/// About the volume of the files in a reply (6 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct VolSync {
    /// When this instance of the volume was made. It changes when the volume is released or
    /// restored, and everything cached of it is then in doubt.
    pub creation_date: UnixTime,
    /// 0 from every server known.
    pub spare: [u32; 5],
}
