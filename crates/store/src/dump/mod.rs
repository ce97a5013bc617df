//! The AFS dump stream: its bytes, read and written.
//!
//! A dump holds a volume's header and its vnodes with their data, in tagged fields
//! (`docs/formats/dump.md`). [`DumpReader`] and [`DumpWriter`] turn it into values and back over
//! any stream, in constant memory: file data passes through in the caller's pieces, and nothing is
//! allocated because a length says so. The writer gives the bytes OpenAFS 1.8 gives for the same
//! values. Neither knows the store.
//!
//! ```
//! use std::io::Read;
//!
//! use afar_store::dump::{
//!     DumpHeader, DumpReader, DumpWriter, Limits, VnodeFields, VnodeKind, VnodeRecord, VolumeHeader,
//! };
//! use afar_types::{Uniquifier, UnixTime, VnodeId, VolumeId};
//!
//! let header = DumpHeader {
//!     volume: VolumeId(536_870_915),
//!     name: b"user.ada".to_vec(),
//!     from: UnixTime(0),
//!     to: UnixTime(1_700_000_000),
//! };
//! let mut writer = DumpWriter::new(Vec::new(), &header)?;
//! writer.volume_header(&VolumeHeader::new(header.volume, b"user.ada"))?;
//! let mut note = VnodeFields::new(VnodeKind::File);
//! note.length = Some(5);
//! writer.vnode(&VnodeRecord {
//!     vnode: VnodeId(2),
//!     uniquifier: Uniquifier(7),
//!     body: Some(note),
//! })?;
//! writer.data(b"hello")?;
//! let stream = writer.finish()?;
//!
//! let (mut reader, found) = DumpReader::new(&stream[..], Limits::default())?;
//! assert_eq!(found, header);
//! assert_eq!(reader.volume_header()?.id, header.volume);
//! while let Some(record) = reader.next_vnode()? {
//!     let mut content = String::new();
//!     reader.data().read_to_string(&mut content)?;
//!     assert_eq!((record.vnode, &*content), (VnodeId(2), "hello"));
//! }
//! reader.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod fields;
mod format;
mod limits;
mod reader;
mod seen;
mod source;
mod writer;

pub use error::{DumpError, DumpProblem};
pub use fields::{DumpHeader, VnodeFields, VnodeKind, VnodeRecord, VolumeHeader};
pub use format::{ACL_SIZE, DATA_MAX, MESSAGE_MAX, NAME_MAX, SYMLINK_MAX};
pub use limits::Limits;
pub use reader::{Data, DumpReader};
pub use writer::DumpWriter;

#[cfg(test)]
mod tests;
