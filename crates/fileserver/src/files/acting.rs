//! What a caller may do with vnodes: looking at them with the rights there are, in a commit of its own or among
//! others.

use afar_net::AbortCode;
use afar_store::{StoreError, VnodeStatus, Vnodes};
use afar_types::{AclRecord, Fid, FileType};

use super::visit::{Visit, failed};
use crate::abort::errno;
use crate::access::Grant;

/// A vnode and what the caller may do with it.
pub(super) struct Look {
    pub(super) vnode: VnodeStatus,
    pub(super) grant: Grant,
    /// The directory's own ACL, or that of the directory it is in.
    pub(super) acl: AclRecord,
}

/// A caller at the vnodes of a volume.
pub(super) struct Acting<'a> {
    pub(super) visit: &'a Visit,
    pub(super) vnodes: &'a mut dyn Vnodes,
    /// The ACL that was read last, as most vnodes of a call are in one directory.
    pub(super) acl: &'a mut Option<(Fid, AclRecord)>,
}

impl Acting<'_> {
    /// A vnode and what the caller may do with it.
    pub(super) fn look(&mut self, fid: Fid) -> Result<Look, AbortCode> {
        if fid.vnode.0 == 0 {
            return Err(AbortCode(errno::EINVAL));
        }
        let mut retried = false;
        loop {
            let vnode = self.vnode(fid)?;
            let directory = match vnode.file_type {
                FileType::Directory => fid,
                _ => Fid {
                    volume: self.vnodes.volume(),
                    vnode: vnode.parent,
                    uniquifier: vnode.parent_uniquifier,
                },
            };
            let acl = match self.acl(directory) {
                // It was moved, and the directory it was in removed, in between.
                Err(StoreError::NoVnode(_)) if directory != fid && !retried => {
                    retried = true;
                    continue;
                }
                acl => acl.map_err(failed)?,
            };
            let person = &self.visit.person;
            let grant = Grant::of(&acl, person).on(&vnode, person);
            return Ok(Look { vnode, grant, acl });
        }
    }

    /// A directory and what the caller may do with it.
    pub(super) fn directory(&mut self, fid: Fid) -> Result<Look, AbortCode> {
        let look = self.look(fid)?;
        if look.vnode.file_type != FileType::Directory {
            return Err(AbortCode(errno::ENOTDIR));
        }
        Ok(look)
    }

    /// A vnode's attributes.
    pub(super) fn vnode(&mut self, fid: Fid) -> Result<VnodeStatus, AbortCode> {
        self.vnodes.status(fid).map_err(failed)
    }

    fn acl(&mut self, directory: Fid) -> Result<AclRecord, StoreError> {
        if let Some((known, acl)) = &*self.acl
            && *known == directory
        {
            return Ok(acl.clone());
        }
        let acl = self.vnodes.acl(directory)?;
        *self.acl = Some((directory, acl.clone()));
        Ok(acl)
    }
}
