//! Figures of the format (AFS-3 dump version 1, OpenAFS `volser/dump.h`).

/// Opens the dump header.
pub(super) const TAG_DUMP_HEADER: u8 = 1;
/// Opens the volume header.
pub(super) const TAG_VOLUME_HEADER: u8 = 2;
/// Opens a vnode.
pub(super) const TAG_VNODE: u8 = 3;
/// Ends the dump.
pub(super) const TAG_DUMP_END: u8 = 4;
/// Tags up to this one end the fields of a section.
pub(super) const TAG_SECTION_LAST: u8 = 20;
/// Says that the tag after it may not be skipped.
pub(super) const TAG_CRITICAL: u8 = 0x7e;

/// Follows [`TAG_DUMP_HEADER`].
pub(super) const MAGIC_BEGIN: u32 = 0xb3a1_1322;
/// Follows [`TAG_DUMP_END`].
pub(super) const MAGIC_END: u32 = 0x3a21_4b6e;
/// The only version there has been.
pub(super) const VERSION: u32 = 1;

/// Bytes of a directory's access list, as the stream carries it.
pub const ACL_SIZE: usize = 192;
/// Longest volume name OpenAFS keeps, in bytes.
pub const NAME_MAX: usize = 31;
/// Longest message of a volume OpenAFS keeps, in bytes.
pub const MESSAGE_MAX: usize = 127;
/// Longest target of a symbolic link or mount point, in bytes.
pub const SYMLINK_MAX: u64 = 1024;
/// Longest file: file sizes are signed in OpenAFS.
pub const DATA_MAX: u64 = i64::MAX as u64;

/// Whose fields they are: one tag means different things in different sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    DumpHeader,
    VolumeHeader,
    Vnode,
}

/// What follows a field's tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Byte,
    Short,
    Word,
    /// Bytes up to a NUL.
    Text,
    /// A short that counts the words after it.
    Words,
    /// [`ACL_SIZE`] bytes.
    Acl,
    /// A word with the length of the data after it.
    Data,
    /// Two words with the length of the data after them, the high one first.
    LongData,
}

impl Section {
    /// The form of a field this section is known to have.
    pub(super) const fn form(self, tag: u8) -> Option<Form> {
        match self {
            Self::DumpHeader => match tag {
                b'v' => Some(Form::Word),
                b'n' => Some(Form::Text),
                b't' => Some(Form::Words),
                _ => None,
            },
            Self::VolumeHeader => match tag {
                b'b' | b's' | b't' => Some(Form::Byte),
                b'i' | b'v' | b'u' | b'p' | b'c' | b'q' | b'm' | b'd' | b'f' | b'a' | b'o'
                | b'C' | b'A' | b'U' | b'E' | b'B' | b'D' | b'Z' | b'V' => Some(Form::Word),
                b'n' | b'O' | b'M' => Some(Form::Text),
                b'W' => Some(Form::Words),
                _ => None,
            },
            Self::Vnode => match tag {
                b't' => Some(Form::Byte),
                b'l' | b'b' => Some(Form::Short),
                b'v' | b'm' | b'a' | b'o' | b'g' | b'p' | b's' => Some(Form::Word),
                b'A' => Some(Form::Acl),
                b'f' => Some(Form::Data),
                b'h' => Some(Form::LongData),
                _ => None,
            },
        }
    }
}

/// What follows a tag that is not known, so that it can be skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// A length, and as many bytes.
    Counted,
    /// A word.
    Word,
    /// Nothing.
    Bare,
}

/// How to skip a tag that a section does not know; `None` if that cannot be told.
///
/// Capital letters that are older than this rule are excepted, in every section as OpenAFS does:
/// their fields do not begin with a length.
pub(super) const fn unknown_form(tag: u8) -> Option<Unknown> {
    match tag {
        b'A' | b'C' | b'D' | b'E' | b'M' | b'O' | b'U' | b'W' | b'Z' => None,
        21..=0x60 => Some(Unknown::Counted),
        0x61..=0x7a => Some(Unknown::Word),
        0x7b..=0x7f => Some(Unknown::Bare),
        _ => None,
    }
}
