//! What AFS knows of files beyond what Linux asks: as extended attributes.

use std::sync::Arc;

use afar_types::{Acl, VolumeType};
use bytes::Bytes;

use crate::model::error::Errno;
use crate::model::place::{Referent, Spot};
use crate::model::rights::rights;
use crate::model::types::{Ino, Who};
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::model::xattr_name;
use crate::ops::cache::Cache;

impl Cache {
    /// An [extended attribute](xattr_name); those of the cache are not listed.
    ///
    /// # Errors
    /// [`ENODATA`](Errno::ENODATA) when there is none of this name; others as servers say.
    pub async fn getxattr(&self, who: Who, ino: Ino, name: &[u8]) -> Result<Bytes, Errno> {
        let name = named(name, Errno::ENODATA)?;
        if let Some(text) = self.setting(name).await {
            return Ok(text);
        }
        if let Some(place) = name.strip_prefix(xattr_name::HELD) {
            let place = place.parse().map_err(|_| Errno::EINVAL)?;
            let held = self.held(who, &place).await;
            return Ok(held.ok_or(Errno::ENODATA)?.to_string().into());
        }
        if let Some(place) = name.strip_prefix(xattr_name::HELD_VERSION) {
            let place = place.parse().map_err(|_| Errno::EINVAL)?;
            let version = self.held_version(who, &place).await;
            return Ok(version.ok_or(Errno::ENODATA)?.to_string().into());
        }
        let user = self.user(who.uid).await;
        let inode = self.visit(&user, ino).await?;
        let Referent::Vnode(spot) = &inode.place else {
            return Err(Errno::ENODATA);
        };
        let volume = &spot.mount.volume;
        let text = match name {
            xattr_name::CELL => volume.cell_name().to_string(),
            xattr_name::FID => spot.vnode.fid.to_string(),
            xattr_name::VOLUME => self.volume_name(&user, spot).await,
            xattr_name::DATA_VERSION => self
                .fresh(&user, &spot.vnode)
                .await?
                .data_version
                .to_string(),
            xattr_name::ACCESS => {
                // Nothing is enough, so that they are the user's own and not anybody's.
                let status = self.rights_for(&user, &spot.vnode, |_| false).await?;
                rights(&status).to_string()
            }
            xattr_name::PATH_INFO => self.path_info(&user, spot).await.to_string(),
            xattr_name::ACL => return self.acl(&user, spot).await,
            xattr_name::SERVERS => {
                let sites = volume.sites();
                let sites = sites.iter().map(|site| site.address().to_string());
                sites.collect::<Vec<_>>().join(" ")
            }
            xattr_name::MOUNT_POINT if is_root(spot) => {
                spot.mount.text.clone().ok_or(Errno::ENODATA)?
            }
            _ => return Err(Errno::ENODATA),
        };
        Ok(text.into())
    }

    /// The names of the extended attributes.
    ///
    /// # Errors
    /// As servers say.
    pub async fn listxattr(&self, who: Who, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        let _ = who;
        let inode = self.inode(ino)?;
        let Referent::Vnode(spot) = &inode.place else {
            return Ok(Vec::new());
        };
        let mut names = Vec::from(xattr_name::LISTED.map(Vec::from));
        if is_root(spot) && spot.mount.text.is_some() {
            names.push(xattr_name::MOUNT_POINT.into());
        }
        Ok(names)
    }

    /// Sets an [extended attribute](xattr_name).
    ///
    /// # Errors
    /// [`EOPNOTSUPP`](Errno::EOPNOTSUPP) for others; [`EINVAL`](Errno::EINVAL) for text that is no
    /// access control list, or too small a size; [`EPERM`](Errno::EPERM) for settings of the cache;
    /// others as servers say.
    pub async fn setxattr(
        &self,
        who: Who,
        ino: Ino,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), Errno> {
        let name = named(name, Errno::EOPNOTSUPP)?;
        if let Some(changed) = self.change_setting(who, name, value).await {
            return changed;
        }
        let user = self.user(who.uid).await;
        let spot = self.spot(&user, ino).await?;
        match name {
            xattr_name::ACL => {}
            xattr_name::FLUSH | xattr_name::FLUSH_VOLUME => {
                self.drop_cached(&spot.vnode, name == xattr_name::FLUSH_VOLUME);
                return Ok(());
            }
            _ => return Err(Errno::EOPNOTSUPP),
        }
        if spot.mount.volume.kind() != VolumeType::ReadWrite {
            return Err(Errno::EROFS);
        }
        if !spot.vnode.fid.vnode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        // People who type the text leave the last line feed out.
        let text = [value, b"\n"].concat();
        let acl = Acl::parse(&text).map_err(|_| Errno::EINVAL)?;
        let (client, vnode) = (&user.client, &spot.vnode);
        // What was changed before may need the rights that there were.
        self.volume_sent(vnode).await?;
        let stored = client.store_acl(&vnode.volume, vnode.fid, &acl).await;
        stored.map_err(|error| self.failed(vnode, "storing an access list", &error))?;
        // Rights to all that is in it may be others now, and nobody tells us, as it was our change.
        self.0.breaks.break_volume(vnode.fid.volume);
        Ok(())
    }

    /// Drops what is cached of a file, or of all of its volume that are known, but for what is not
    /// stored yet.
    fn drop_cached(&self, vnode: &Arc<Vnode>, whole_volume: bool) {
        if !whole_volume {
            self.drop_one(vnode);
            return;
        }
        for other in self.0.vnodes.of_volume(vnode.fid.volume) {
            if other.cell() == vnode.cell() {
                self.drop_one(&other);
            }
        }
    }

    fn drop_one(&self, vnode: &Arc<Vnode>) {
        self.0.breaks.count(vnode.fid);
        let mut state = vnode.lock();
        state.promise = None;
        if let Some(rare) = state.rare.if_any() {
            (rare.pages, rare.link) = (None, None);
        }
        if state.rare.dirty.is_none() {
            // What is not stored is nowhere else.
            self.0.storage.forget(&vnode.key());
        }
        drop(state);
        self.0.breaks.invalidate(vnode);
    }

    /// The name of the volume something is in; its number if nobody tells the name.
    pub(crate) async fn volume_name(&self, user: &User, spot: &Spot) -> String {
        let volume = &spot.mount.volume;
        let asked = volume.asked();
        if asked.bytes().all(|octet| octet.is_ascii_digit()) {
            return match user.client.volume_status(volume).await {
                Ok(status) if !status.name.is_empty() => status.name,
                _ => volume.id().to_string(),
            };
        }
        let suffix = suffix_of(volume.kind());
        match asked.ends_with(suffix) {
            true => asked.to_owned(),
            false => format!("{asked}{suffix}"),
        }
    }

    async fn acl(&self, user: &User, spot: &Spot) -> Result<Bytes, Errno> {
        let vnode = &spot.vnode;
        let acl = user.client.fetch_acl(&vnode.volume, vnode.fid).await;
        let acl = acl.map_err(|error| self.failed(vnode, "asking for an access list", &error))?;
        Ok(acl.to_text().map_err(|_| Errno::EIO)?.into())
    }
}

/// What the names of such volumes end with.
fn suffix_of(kind: VolumeType) -> &'static str {
    match kind {
        VolumeType::ReadWrite => "",
        VolumeType::ReadOnly => ".readonly",
        VolumeType::Backup => ".backup",
    }
}

/// The name of an attribute. There is none that is no text.
fn named(name: &[u8], none: Errno) -> Result<&str, Errno> {
    str::from_utf8(name).map_err(|_| none)
}

/// Whether something is the root of the volume it is in.
fn is_root(spot: &Spot) -> bool {
    let fid = spot.vnode.fid;
    fid == afar_types::Fid::root(fid.volume)
}
