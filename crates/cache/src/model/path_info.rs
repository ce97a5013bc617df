//! What a mount knows of a path, for `afar fs pathinfo`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use afar_types::{DataVersion, Fid, VolumeType};

/// What a mount knows of a path, from its memory: no server is asked for it, but to go through a mount point into which
/// nobody went. Its text has a name and a value on each line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathInfo {
    /// The cell it is in.
    pub cell: String,
    /// Its identifier, with the number of its volume.
    pub fid: Fid,
    /// The name of its volume.
    pub volume: String,
    /// Which member of its group the volume is.
    pub volume_type: VolumeType,
    /// What it is: `directory`, `file`, `symlink`, or `unknown`.
    pub kind: String,
    /// The text of the mount point that leads to it, if it is the root of a volume and was reached through one.
    pub mount_point: Option<String>,
    /// The version of its data, as a server told it last.
    pub data_version: Option<DataVersion>,
    /// Bytes of its data, those not yet stored included.
    pub length: u64,
    /// The file servers of its volume, the one to ask first in front, and whether each is up.
    pub servers: Vec<(SocketAddr, bool)>,
    /// Bytes of this version that are in the cache, and in how many ranges.
    pub clean: (u64, u64),
    /// Bytes that were written and are not stored yet, and in how many ranges.
    pub dirty: (u64, u64),
    /// For how many seconds a server's promise to tell of changes still holds.
    pub promised_seconds: Option<u64>,
}

impl PathInfo {
    /// The server that is asked: the first that is up, else the first.
    #[must_use]
    pub fn server_in_use(&self) -> Option<SocketAddr> {
        let up = self.servers.iter().find(|(_, up)| *up);
        up.or_else(|| self.servers.first())
            .map(|(address, _)| *address)
    }
}

/// The type of a volume, as in listings.
fn type_name(kind: VolumeType) -> &'static str {
    match kind {
        VolumeType::ReadWrite => "RW",
        VolumeType::ReadOnly => "RO",
        VolumeType::Backup => "BK",
    }
}

/// A text of a server or of a user as part of a line: nothing in it ends the line.
fn in_line(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

impl fmt::Display for PathInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cell {}", self.cell)?;
        writeln!(f, "fid {}", self.fid)?;
        writeln!(f, "volume {}", in_line(&self.volume))?;
        writeln!(f, "type {}", type_name(self.volume_type))?;
        writeln!(f, "kind {}", self.kind)?;
        if let Some(text) = &self.mount_point {
            writeln!(f, "mountpoint {}", in_line(text))?;
        }
        if let Some(version) = self.data_version {
            writeln!(f, "version {version}")?;
        }
        writeln!(f, "length {}", self.length)?;
        for (address, up) in &self.servers {
            writeln!(f, "server {address} {}", if *up { "up" } else { "down" })?;
        }
        writeln!(f, "clean {} {}", self.clean.0, self.clean.1)?;
        writeln!(f, "dirty {} {}", self.dirty.0, self.dirty.1)?;
        if let Some(seconds) = self.promised_seconds {
            writeln!(f, "promise {seconds}")?;
        }
        Ok(())
    }
}

/// A text that does not tell what a mount knows of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not what a mount tells of a path")]
pub struct PathInfoError;

impl FromStr for PathInfo {
    type Err = PathInfoError;

    fn from_str(text: &str) -> Result<Self, PathInfoError> {
        let (mut values, mut servers) = (BTreeMap::new(), Vec::new());
        for line in text.lines() {
            let (name, value) = line.split_once(' ').ok_or(PathInfoError)?;
            match name {
                "server" => servers.push(server(value).ok_or(PathInfoError)?),
                // What a newer mount tells besides is left out.
                name => {
                    values.insert(name, value);
                }
            }
        }
        let value = |name: &str| values.get(name).copied();
        let owned = |name: &str| value(name).map(str::to_owned).ok_or(PathInfoError);
        let number = |name: &str| {
            let number = value(name).map(|text| text.parse::<u64>().map_err(|_| PathInfoError));
            number.transpose()
        };
        let pair = |name: &str| {
            let (bytes, ranges) = value(name)?.split_once(' ')?;
            Some((bytes.parse().ok()?, ranges.parse().ok()?))
        };
        Ok(Self {
            cell: owned("cell")?,
            fid: value("fid").and_then(fid).ok_or(PathInfoError)?,
            volume: owned("volume")?,
            volume_type: match value("type") {
                Some("RW") => VolumeType::ReadWrite,
                Some("RO") => VolumeType::ReadOnly,
                Some("BK") => VolumeType::Backup,
                _ => return Err(PathInfoError),
            },
            kind: owned("kind")?,
            mount_point: value("mountpoint").map(str::to_owned),
            data_version: number("version")?.map(DataVersion),
            length: number("length")?.ok_or(PathInfoError)?,
            servers,
            clean: pair("clean").ok_or(PathInfoError)?,
            dirty: pair("dirty").ok_or(PathInfoError)?,
            promised_seconds: number("promise")?,
        })
    }
}

fn server(value: &str) -> Option<(SocketAddr, bool)> {
    let (address, state) = value.split_once(' ')?;
    let up = match state {
        "up" => true,
        "down" => false,
        _ => return None,
    };
    Some((address.parse().ok()?, up))
}

/// Three numbers with dots between.
pub(super) fn fid(text: &str) -> Option<Fid> {
    let numbers: Option<Vec<u32>> = text.split('.').map(|word| word.parse().ok()).collect();
    let [volume, vnode, uniquifier] = numbers?.try_into().ok()?;
    Some(Fid::new(volume, vnode, uniquifier))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> PathInfo {
        PathInfo {
            cell: "a.example".to_owned(),
            fid: Fid::new(536_870_915, 2, 7),
            volume: "user.ann".to_owned(),
            volume_type: VolumeType::ReadWrite,
            kind: "file".to_owned(),
            mount_point: None,
            data_version: Some(DataVersion(12)),
            length: 5000,
            servers: vec![
                ("192.0.2.1:7000".parse().unwrap(), false),
                ("192.0.2.2:7000".parse().unwrap(), true),
            ],
            clean: (4096, 1),
            dirty: (0, 0),
            promised_seconds: Some(3600),
        }
    }

    #[test]
    fn what_is_told_is_understood() {
        let mut info = some();
        assert_eq!(info.to_string().parse(), Ok(info.clone()));
        info.mount_point = Some("#a.example:user.ann.".to_owned());
        (info.data_version, info.promised_seconds) = (None, None);
        info.servers.clear();
        assert_eq!(info.to_string().parse(), Ok(info.clone()));
        info.volume = "a\nserver 192.0.2.9:7000 up".to_owned();
        let told: PathInfo = info.to_string().parse().unwrap();
        assert!(told.servers.is_empty());
        info.volume = "a".to_owned();
        let newer = format!("{info}colour blue\n");
        assert_eq!(newer.parse(), Ok(info));
    }

    #[test]
    fn the_first_server_that_is_up_is_in_use() {
        let mut info = some();
        let address = |info: &PathInfo| info.server_in_use().map(|address| address.to_string());
        assert_eq!(address(&info).as_deref(), Some("192.0.2.2:7000"));
        info.servers.truncate(1);
        assert_eq!(address(&info).as_deref(), Some("192.0.2.1:7000"));
        info.servers.clear();
        assert_eq!(address(&info), None);
    }

    #[test]
    fn other_texts_are_refused() {
        let text = some().to_string();
        for (from, to) in [
            ("cell ", "cel "),
            ("type RW", "type XX"),
            ("2.7", "2"),
            ("up", "sideways"),
            ("dirty 0 0", "dirty 0"),
            ("promise 3600", "promise soon"),
        ] {
            let wrong = text.replacen(from, to, 1);
            assert_eq!(wrong.parse::<PathInfo>(), Err(PathInfoError), "{wrong}");
        }
        assert_eq!("".parse::<PathInfo>(), Err(PathInfoError));
    }
}
