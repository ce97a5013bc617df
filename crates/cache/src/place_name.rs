//! Names by which volumes and files are reached without a mount point.
//!
//! As in OpenAFS's dynamic root the directory `.:mount` is in the top directory, and neither is listed nor
//! lists anything: `CELL:VOLUME` in it is the root of a volume by name or number, and
//! `CELL:VOLUME:VNODE:UNIQUIFIER` the file or directory with that identifier.

use std::fmt;
use std::str::FromStr;

use afar_cell::MountPoint;
use afar_types::{CellName, FetchStatus, Fid, Rights, VolumeType};

use crate::access::rights;
use crate::cache::Cache;
use crate::error::Errno;
use crate::inodes::Spot;
use crate::status::MADE_UP_VALID;
use crate::types::{Entry, Ino};
use crate::users::User;

/// The name of the directory of all volumes.
pub const VOLUMES: &str = ".:mount";

/// A name in [`VOLUMES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceName {
    /// The cell.
    pub cell: CellName,
    /// What is reached in it.
    pub object: Object,
}

/// What a [`PlaceName`] stands for in its cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// The root of a volume: its name, with suffix, or its number. A name without suffix is that of the
    /// read-write volume.
    Volume(String),
    /// Something by its identifier.
    Fid(Fid),
}

impl fmt::Display for PlaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.cell)?;
        match &self.object {
            Object::Volume(volume) => f.write_str(volume),
            Object::Fid(fid) => {
                let (volume, vnode, uniquifier) = (fid.volume.0, fid.vnode.0, fid.uniquifier.0);
                write!(f, "{volume}:{vnode}:{uniquifier}")
            }
        }
    }
}

/// A text that is no [`PlaceName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("neither CELL:VOLUME nor CELL:VOLUME:VNODE:UNIQUIFIER")]
pub struct PlaceNameError;

impl FromStr for PlaceName {
    type Err = PlaceNameError;

    fn from_str(text: &str) -> Result<Self, PlaceNameError> {
        let mut parts = text.split(':');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let cell = next().and_then(|cell| cell.parse().ok());
        let (cell, volume) = cell.zip(next()).ok_or(PlaceNameError)?;
        let object = match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => Object::Volume(volume.to_owned()),
            (Some(vnode), Some(uniquifier), None) => {
                let number = |text: &str| text.parse().map_err(|_| PlaceNameError);
                let fid = Fid::new(number(volume)?, number(vnode)?, number(uniquifier)?);
                Object::Fid(fid)
            }
            _ => return Err(PlaceNameError),
        };
        Ok(Self { cell, object })
    }
}

impl Cache {
    /// The directory of all volumes.
    pub(crate) fn volumes_entry(&self) -> Entry {
        Entry {
            attr: self.made_up(Ino::VOLUMES),
            generation: 0,
            valid: MADE_UP_VALID,
        }
    }

    /// What a name in the directory of all volumes stands for.
    pub(crate) async fn place_named(
        &self,
        user: &User,
        name: &[u8],
    ) -> Result<(Spot, FetchStatus), Errno> {
        let text = std::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
        let place: PlaceName = text.parse().map_err(|_| Errno::ENOENT)?;
        match place.object {
            Object::Volume(volume) => {
                let root = self.named_root(&place.cell, &volume).await?;
                let status = self.fresh(user, &root.vnode).await?;
                Ok((root, status))
            }
            Object::Fid(fid) => self.by_fid(user, &place.cell, fid).await,
        }
    }

    /// The root of a volume by its name or number.
    async fn named_root(&self, cell: &CellName, volume: &str) -> Result<Spot, Errno> {
        // It is reached as by a mount point of the read-write kind, which stands in no volume.
        let point = MountPoint::parse(format!("%{cell}:{volume}").as_bytes());
        let point = point.map_err(|_| Errno::ENOENT)?;
        let client = &self.0.client;
        let found = async {
            let known = client.cell(cell).await?;
            let wanted = point.wanted(VolumeType::ReadWrite, true);
            client.volume(&known, &point.volume, wanted).await
        };
        let found = found.await.map_err(|error| {
            tracing::debug!(%point, %error, "no such volume");
            Errno::of(&error)
        })?;
        Ok(self.volume_root(found))
    }

    /// Something by its identifier.
    pub(crate) async fn spot_of(&self, cell: &CellName, fid: Fid) -> Result<Spot, Errno> {
        let root = self.named_root(cell, &fid.volume.to_string()).await?;
        Ok(self.beside(&root, fid))
    }

    /// The same, and through it if it is a mount point. No directory on the path to it
    /// requires rights, so the user must have some to it.
    async fn by_fid(
        &self,
        user: &User,
        cell: &CellName,
        fid: Fid,
    ) -> Result<(Spot, FetchStatus), Errno> {
        let spot = self.spot_of(cell, fid).await?;
        let may = |status: &FetchStatus| {
            let has = rights(status);
            [Rights::LOOKUP, Rights::READ, Rights::ADMINISTER]
                .iter()
                .any(|&right| has.contains(right))
        };
        let status = self.rights_for(user, &spot.vnode, may).await?;
        if !may(&status) {
            return Err(Errno::EACCES);
        }
        self.through(user, spot, status).await
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_of_two_forms() {
        let cell: CellName = "a.example".parse().unwrap();
        let name = |object| PlaceName {
            cell: cell.clone(),
            object,
        };
        for (text, place) in [
            (
                "a.example:root.cell",
                name(Object::Volume("root.cell".to_owned())),
            ),
            ("a.example:5:1:2", name(Object::Fid(Fid::new(5, 1, 2)))),
        ] {
            assert_eq!(text.parse(), Ok(place.clone()));
            assert_eq!(place.to_string(), text);
        }
        for wrong in [
            "",
            ":",
            "a.example",
            "a.example:",
            ":v",
            "/:v",
            "a.example:v:1:2",
            "a.example:5:1",
            "a.example:5:1:2:3",
            "a.example:5::2",
            "a.example:5:1:4294967296",
        ] {
            assert_eq!(wrong.parse::<PlaceName>(), Err(PlaceNameError), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_name_that_comes_back_or_none(text in "[a-z.0-9:%/]{0,40}") {
            if let Ok(place) = text.parse::<PlaceName>() {
                prop_assert_eq!(place.to_string().parse(), Ok(place));
            }
        }
    }
}
