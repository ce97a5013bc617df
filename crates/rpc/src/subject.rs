//! What a call is about, as far as its arguments say.

use afar_types::{Fid, TransactionId, VolumeId};

/// The file or volume that the arguments of an operation name: the first one, where they name
/// several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Subject {
    /// Neither a file nor a volume.
    #[default]
    None,
    /// A file, or the directory that a name is in.
    Fid(Fid),
    /// A volume.
    Volume(VolumeId),
    /// The volume that this transaction is on, which the volume server knows.
    Transaction(TransactionId),
}

impl Subject {
    pub(crate) fn first_of(fids: &[Fid]) -> Self {
        fids.first().copied().map_or(Self::None, Self::Fid)
    }

    /// The file.
    #[must_use]
    pub fn fid(&self) -> Option<Fid> {
        match self {
            Self::Fid(fid) => Some(*fid),
            _ => None,
        }
    }

    /// The volume, also that of the file.
    #[must_use]
    pub fn volume(&self) -> Option<VolumeId> {
        match self {
            Self::Fid(fid) => Some(fid.volume),
            Self::Volume(volume) => Some(*volume),
            Self::None | Self::Transaction(_) => None,
        }
    }

    /// The transaction.
    #[must_use]
    pub fn transaction(&self) -> Option<TransactionId> {
        match self {
            Self::Transaction(transaction) => Some(*transaction),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use afar_types::{Fids, FileName};

    use super::*;
    use crate::{afsvol, pr, rxafs};

    const FID: Fid = Fid::new(7, 8, 9);

    #[test]
    fn a_request_is_about_what_its_arguments_name_first() {
        let name = || FileName::new("a").unwrap();
        let request = rxafs::rename::Request {
            old_directory: FID,
            old_name: name(),
            new_directory: Fid::new(7, 1, 1),
            new_name: name(),
        };
        assert_eq!(request.subject(), Subject::Fid(FID));
        let request = rxafs::make_dir::Request {
            directory: FID,
            name: name(),
            attributes: Default::default(),
        };
        assert_eq!(request.subject().volume(), Some(VolumeId(7)));
        let fids = Fids::new(vec![FID, Fid::root(VolumeId(8))]).unwrap();
        let request = rxafs::inline_bulk_status::Request { fids };
        assert_eq!(request.subject().fid(), Some(FID));
        let request = rxafs::bulk_status::Request {
            fids: Fids::default(),
        };
        assert_eq!(request.subject(), Subject::None);
    }

    #[test]
    fn a_volume_servers_request_is_about_a_volume_or_a_transaction() {
        let volume = VolumeId(7);
        let partition = Default::default();
        let request = afsvol::nuke_volume::Request { partition, volume };
        assert_eq!(request.subject(), Subject::Volume(volume));
        let transaction = TransactionId(3);
        let request = afsvol::end_trans::Request { transaction };
        assert_eq!(request.subject().transaction(), Some(transaction));
        assert_eq!(pr::list_max::Request {}.subject(), Subject::None);
    }
}
