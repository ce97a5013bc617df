//! What a server answers when it is asked for a whole tree (docs/protocol/trees.md).

use afar_xdr::{BytesMut, Decode, DecodeError, Encode, Opaque, from_bytes};

use crate::{CallBack, FetchStatus, Fid, VolSync};

/// Bytes of the largest file, or directory, that an answer has with its data.
// spec: trees#items
pub const TREE_DATA_MAX: usize = 64 << 10;
/// Bytes of the longest item, without its length.
const ITEM_MAX: usize = <TreeItem as Decode>::MAX_LEN;
/// Bytes of a length.
const LENGTH: usize = 4;

/// A part of the answer.
// spec: trees#items
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum TreeItem {
    /// A directory with its pages.
    #[xdr(case = 1)]
    Directory(TreeNode),
    /// Anything without its data.
    #[xdr(case = 2)]
    Status {
        /// What it is.
        fid: Fid,
        /// Its status.
        status: FetchStatus,
        /// The promise.
        callback: CallBack,
    },
    /// A file or symlink with its data.
    #[xdr(case = 3)]
    File(TreeNode),
    /// A directory that is to be asked for by itself.
    #[xdr(case = 4)]
    Left {
        /// The directory.
        fid: Fid,
    },
    /// The end.
    #[xdr(case = 5)]
    End {
        /// The volume's times.
        vol_sync: VolSync,
    },
}

/// Something with its data.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TreeNode {
    /// What it is.
    pub fid: Fid,
    /// Its status.
    pub status: FetchStatus,
    /// The promise.
    pub callback: CallBack,
    /// All of its data, of the version that the status tells.
    pub data: Opaque<TREE_DATA_MAX>,
}

/// What came is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// It ends amidst an item, or before its end, or goes on behind it.
    #[error("a tree that is cut off or does not end")]
    Cut,
    /// An item is longer than any.
    #[error("an item of {0} bytes")]
    TooLong(u32),
    /// An item cannot be read.
    #[error(transparent)]
    Damaged(#[from] DecodeError),
}

impl TreeItem {
    /// Appends the item with its length before it.
    pub fn append(&self, out: &mut BytesMut) {
        let at = out.len();
        0_u32.encode(out);
        self.encode(out);
        let length = u32::try_from(out.len() - at - LENGTH).unwrap_or(u32::MAX);
        out[at..at + LENGTH].copy_from_slice(&length.to_be_bytes());
    }

    /// The items of a whole answer but for its end, and the volume's times.
    ///
    /// # Errors
    /// When these bytes are no answer.
    pub fn all(mut data: &[u8]) -> Result<(Vec<Self>, VolSync), TreeError> {
        let mut items = Vec::new();
        loop {
            let (length, rest) = data.split_first_chunk().ok_or(TreeError::Cut)?;
            let announced = u32::from_be_bytes(*length);
            let length = usize::try_from(announced).unwrap_or(usize::MAX);
            if length > ITEM_MAX {
                return Err(TreeError::TooLong(announced));
            }
            let (item, rest) = rest.split_at_checked(length).ok_or(TreeError::Cut)?;
            match from_bytes(item)? {
                Self::End { vol_sync } if rest.is_empty() => return Ok((items, vol_sync)),
                Self::End { .. } => return Err(TreeError::Cut),
                item => items.push(item),
            }
            data = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<TreeItem> {
        let fid = Fid::new(7, 1, 1);
        let node = |data: &[u8]| TreeNode {
            fid,
            status: FetchStatus::default(),
            callback: CallBack::default(),
            data: Opaque::new(data.to_vec()).unwrap(),
        };
        vec![
            TreeItem::Directory(node(&[1; 2048])),
            TreeItem::File(node(b"abc")),
            TreeItem::Left { fid },
        ]
    }

    fn written(items: &[TreeItem]) -> BytesMut {
        let mut out = BytesMut::new();
        for item in items {
            item.append(&mut out);
        }
        out
    }

    #[test]
    fn an_answer_reads_as_it_was_written() {
        let vol_sync = VolSync::default();
        let mut items = some();
        items.push(TreeItem::End { vol_sync });
        let bytes = written(&items);
        assert_eq!(TreeItem::all(&bytes), Ok((some(), vol_sync)));
        for cut in 0..bytes.len() {
            assert_eq!(TreeItem::all(&bytes[..cut]), Err(TreeError::Cut), "{cut}");
        }
        items.push(TreeItem::Left {
            fid: Fid::default(),
        });
        assert_eq!(TreeItem::all(&written(&items)), Err(TreeError::Cut));
    }

    #[test]
    fn absurd_lengths_are_refused() {
        let error = TreeItem::all(&[0xff; 8]).unwrap_err();
        assert_eq!(error, TreeError::TooLong(u32::MAX));
    }
}
