//! What AFS knows of files beyond what Linux asks: as extended attributes.

use std::sync::Arc;

use afar_types::{Acl, VolumeType};
use bytes::Bytes;

use crate::access::rights;
use crate::cache::Cache;
use crate::error::Errno;
use crate::inodes::{Place, Spot};
use crate::types::{Ino, Who};
use crate::users::User;
use crate::vnode::Vnode;

/// Names of the attributes everything has.
const NAMES: [&str; 7] = [
    "afs.cell",
    "afs.fid",
    "afs.volume",
    "afs.acl",
    "afs.access",
    "afs.data_version",
    "afs.servers",
];
/// The attribute of the roots of volumes reached through mount points.
const MOUNT_POINT: &str = "afs.mountpoint";

impl Cache {
    /// An extended attribute: `afs.fid`, `afs.cell`, `afs.volume`, `afs.acl`, `afs.mountpoint`,
    /// `afs.data_version`, `afs.access`, `afs.servers`; and those of the cache, which are not listed:
    /// `afs.cache`, `afs.cachesize`, `afs.storebehind`, `afs.serverprefs`, `afs.vlserverprefs`.
    ///
    /// # Errors
    /// [`ENODATA`](Errno::ENODATA) when there is none of this name; others as servers say.
    pub async fn getxattr(&self, who: Who, ino: Ino, name: &[u8]) -> Result<Bytes, Errno> {
        if let Some(text) = self.setting(name).await {
            return Ok(text);
        }
        let user = self.user(who.uid).await;
        let inode = self.inode(ino)?;
        let Place::Vnode(spot) = &inode.place else {
            return Err(Errno::ENODATA);
        };
        let volume = &spot.mount.volume;
        let text = match name {
            b"afs.cell" => volume.cell_name().to_string(),
            b"afs.fid" => spot.vnode.fid.to_string(),
            b"afs.volume" => self.volume_name(&user, spot).await,
            b"afs.data_version" => self
                .fresh(&user, &spot.vnode)
                .await?
                .data_version
                .to_string(),
            b"afs.access" => {
                let status = self.rights_for(&user, &spot.vnode, |_| false).await?;
                rights(&status).to_string()
            }
            b"afs.acl" => return self.acl(&user, spot).await,
            b"afs.servers" => {
                let sites = volume.sites();
                let sites = sites.iter().map(|site| site.address().to_string());
                sites.collect::<Vec<_>>().join(" ")
            }
            b"afs.mountpoint" if is_root(spot) => spot.mount.text.clone().ok_or(Errno::ENODATA)?,
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
        let Place::Vnode(spot) = &inode.place else {
            return Ok(Vec::new());
        };
        let mut names: Vec<Vec<u8>> = NAMES.iter().map(|name| (*name).into()).collect();
        if is_root(spot) && spot.mount.text.is_some() {
            names.push(MOUNT_POINT.into());
        }
        Ok(names)
    }

    /// Sets an extended attribute: `afs.acl`; `afs.flush` and `afs.flushvolume` drop what is cached of
    /// the file or of all its volume, whatever they are set to; `afs.checkvolumes` has volumes looked
    /// up again. Root's to set are `afs.cachesize` and `afs.storebehind`, in octets, and
    /// `afs.serverprefs` and `afs.vlserverprefs`, lines of an address and a rank.
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
        if let Some(changed) = self.change_setting(who, name, value).await {
            return changed;
        }
        let user = self.user(who.uid).await;
        let spot = self.spot(ino)?;
        match name {
            b"afs.acl" => {}
            b"afs.flush" | b"afs.flushvolume" => {
                self.drop_cached(&spot.vnode, name == b"afs.flushvolume");
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
        let acl = Acl::parse(value).map_err(|_| Errno::EINVAL)?;
        let (client, vnode) = (&user.client, &spot.vnode);
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
            self.0.storage.forget(&vnode.key());
        }
        drop(state);
        self.0.breaks.invalidate(vnode);
    }

    /// The name of the volume something is in; its number if nobody tells the name.
    async fn volume_name(&self, user: &User, spot: &Spot) -> String {
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

/// Whether something is the root of the volume it is in.
fn is_root(spot: &Spot) -> bool {
    let fid = spot.vnode.fid;
    fid == afar_types::Fid::root(fid.volume)
}
