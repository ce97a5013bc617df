//! What is mounted where, as the kernel tells it, and taking it away.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

/// The kernel's table for this process.
const MOUNTINFO: &str = "/proc/self/mountinfo";
/// The type of our mounts: of FUSE, subtype afar.
pub(super) const KIND: &str = "fuse.afar";
/// What is mounted where all cells are.
pub(super) const DYNROOT: &str = "dynroot";
/// Unmounts for those who are not root.
const FUSERMOUNT: &str = "fusermount3";

/// A mount.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mounted {
    /// Its type, such as `fuse.afar` or `ext4`.
    pub(super) kind: String,
    /// What is mounted.
    pub(super) source: String,
    /// The number of its device, such as `0:41`.
    pub(super) device: String,
}

/// The mount on top at this place, if one begins there.
pub(super) fn at(place: &Path) -> anyhow::Result<Option<Mounted>> {
    let table = std::fs::read(MOUNTINFO)
        .with_context(|| format!("cannot read {MOUNTINFO}; is /proc mounted?"))?;
    Ok(find(&table, place))
}

/// Whether the device with this number is mounted somewhere, as far as this process sees.
pub(super) fn is_mounted(device: &str) -> anyhow::Result<bool> {
    let table = std::fs::read(MOUNTINFO)
        .with_context(|| format!("cannot read {MOUNTINFO}; is /proc mounted?"))?;
    Ok(mounts(&table).any(|(_, mounted)| mounted.device == device))
}

/// Where the list of cells is mounted.
pub(crate) fn dynamic_roots() -> Vec<PathBuf> {
    roots(&std::fs::read(MOUNTINFO).unwrap_or_default())
}

/// Our mounts that are on top at their places, each with what is mounted.
pub(super) fn ours() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let table = std::fs::read(MOUNTINFO)
        .with_context(|| format!("cannot read {MOUNTINFO}; is /proc mounted?"))?;
    let ours = mounts(&table).filter(|(place, mounted)| {
        mounted.kind == KIND && find(&table, place).as_ref() == Some(mounted)
    });
    Ok(ours
        .map(|(place, mounted)| (place, mounted.source))
        .collect())
}

/// The places of our mounts.
pub(crate) fn mount_places() -> anyhow::Result<Vec<PathBuf>> {
    let mut places: Vec<_> = ours()?.into_iter().map(|(place, _)| place).collect();
    places.sort();
    Ok(places)
}

/// The place of the mount of ours that a path is in, if it is in one.
pub(crate) fn mount_of(path: &Path) -> Option<PathBuf> {
    let table = std::fs::read(MOUNTINFO).ok()?;
    // What is at its end may be gone, or be a mount that nobody serves.
    let path = path.canonicalize().ok().or_else(|| absolute(path).ok())?;
    place_in(&table, &path)
}

fn place_in(table: &[u8], path: &Path) -> Option<PathBuf> {
    let places = path.ancestors();
    let mut mounted = places.filter_map(|place| Some((place, find(table, place)?)));
    let (place, mounted) = mounted.next()?;
    (mounted.kind == KIND).then(|| place.to_owned())
}

fn roots(table: &[u8]) -> Vec<PathBuf> {
    let dynamic = mounts(table).filter(|(place, mounted)| {
        let is_root = mounted.kind == KIND && mounted.source == DYNROOT;
        is_root && find(table, place).as_ref() == Some(mounted)
    });
    dynamic.map(|(place, _)| place).collect()
}

/// The path below `/afs` of what is in a mount of ours; `None` if a path is in no such mount, or in one
/// of a volume that is not at the root of its cell.
pub(crate) fn path_in_afs(path: &Path) -> Option<PathBuf> {
    let table = std::fs::read(MOUNTINFO).ok()?;
    in_afs(&table, path).or_else(|| {
        // It may lead there by symlinks.
        let parent = path.parent()?.canonicalize().ok()?;
        in_afs(&table, &parent.join(path.file_name()?))
    })
}

fn in_afs(table: &[u8], path: &Path) -> Option<PathBuf> {
    // The longest of the places it is below is where it is.
    let places = path.ancestors();
    let mut mounted = places.filter_map(|place| Some((place, find(table, place)?)));
    let (place, mounted) = mounted.next()?;
    let inside = path.strip_prefix(place).ok()?;
    if mounted.kind != KIND || mounted.source.contains(':') {
        return None;
    }
    let top = Path::new("/afs");
    Some(match mounted.source.as_str() {
        DYNROOT => top.join(inside),
        cell => top.join(format!(".{cell}")).join(inside),
    })
}

fn find(table: &[u8], place: &Path) -> Option<Mounted> {
    let at_place = mounts(table).filter(|(at, _)| at == place);
    // Of several mounts at a place the last is on top.
    at_place.map(|(_, mounted)| mounted).last()
}

/// All mounts, each with its place.
fn mounts(table: &[u8]) -> impl Iterator<Item = (PathBuf, Mounted)> {
    table.split(|&octet| octet == b'\n').filter_map(parse)
}

/// A line: `36 35 98:0 /root /place options [optional fields] - type source superblock-options`.
fn parse(line: &[u8]) -> Option<(PathBuf, Mounted)> {
    let mut fields = line.split(|&octet| octet == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let place = PathBuf::from(unescaped(fields.nth(1)?));
    let mut rest = fields.skip_while(|&field| field != b"-").skip(1);
    let mut text = || Some(unescaped(rest.next()?).to_string_lossy().into_owned());
    let mounted = Mounted {
        kind: text()?,
        source: text()?,
        device,
    };
    Some((place, mounted))
}

/// Blanks, tabs, newlines and backslashes stand as three octal digits behind a backslash.
fn unescaped(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| first == b'\\');
        let code = digits.and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        match code {
            Some(code) => {
                plain.push(code);
                rest = &rest[4..];
            }
            None => {
                plain.push(first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(plain)
}

/// Whether whoever served a mount is gone.
pub(super) fn is_dead(place: &Path) -> bool {
    let answer = std::fs::symlink_metadata(place);
    matches!(answer, Err(error) if error.raw_os_error() == Some(Errno::ENOTCONN as i32))
}

/// A path from the root without asking what is at its end, as that may be a mount nobody serves.
pub(super) fn absolute(place: &Path) -> anyhow::Result<PathBuf> {
    let context = || format!("{}: no such place", place.display());
    let whole = std::path::absolute(place).with_context(context)?;
    // `absolute` leaves `..` as it is: what that means only the file system knows.
    let (Some(parent), Some(name)) = (whole.parent(), whole.file_name()) else {
        return whole.canonicalize().with_context(context);
    };
    Ok(parent.canonicalize().with_context(context)?.join(name))
}

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Refused while somebody uses it.
    Unused,
    /// Nobody finds it any more, those who use it may go on.
    Detach,
}

/// Why something could not be unmounted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Somebody uses it.
    Busy,
    /// Nothing was mounted there.
    Nothing,
}

/// Unmounts what is on top at this place.
///
/// # Errors
/// The inner for what is usual, the outer for the rest.
pub(super) fn unmount(place: &Path, manner: Manner) -> anyhow::Result<Result<(), Kept>> {
    let flags = match manner {
        Manner::Unused => MntFlags::UMOUNT_NOFOLLOW,
        Manner::Detach => MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH,
    };
    match umount2(place, flags) {
        Ok(()) => Ok(Ok(())),
        Err(Errno::EBUSY) => Ok(Err(Kept::Busy)),
        Err(Errno::EINVAL | Errno::ENOENT) => Ok(Err(Kept::Nothing)),
        Err(Errno::EPERM) => by_helper(place, manner),
        Err(error) => Err(error).with_context(|| format!("cannot unmount {}", place.display())),
    }
}

/// For users other than root, a program that may do so removes their own mounts.
fn by_helper(place: &Path, manner: Manner) -> anyhow::Result<Result<(), Kept>> {
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-u");
    if manner == Manner::Detach {
        command.arg("-z");
    }
    let output = match command.arg("--").arg(place).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "only root may unmount {} here; install {FUSERMOUNT} (Debian: fuse3), or be root",
            place.display()
        ),
        Err(error) => return Err(error).with_context(|| format!("cannot run {FUSERMOUNT}")),
    };
    if output.status.success() {
        return Ok(Ok(()));
    }
    let told = String::from_utf8_lossy(&output.stderr);
    if told.contains("busy") {
        return Ok(Err(Kept::Busy));
    }
    bail!("cannot unmount {}: {}", place.display(), told.trim_end());
}

/// The users of a mount, for a message: `bash (812), less (815)`, as far as we may see it.
pub(super) fn users(place: &Path) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let ids = processes.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let id: u32 = name.to_str()?.parse().ok()?;
        let folder = entry.path();
        uses(&folder, place).then(|| {
            let name = std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
            format!("{} ({id})", name.trim_end())
        })
    });
    ids.collect()
}

/// Whether a process has its working directory, root, program or an open file below `place`.
fn uses(process: &Path, place: &Path) -> bool {
    let leads_below = |link: &Path| {
        // The link tells without asking the mount itself.
        std::fs::read_link(link).is_ok_and(|target| {
            target.as_os_str().as_bytes().starts_with(b"/") && target.starts_with(place)
        })
    };
    let open = std::fs::read_dir(process.join("fd"));
    ["cwd", "root", "exe"]
        .iter()
        .any(|name| leads_below(&process.join(name)))
        || open.is_ok_and(|open| open.flatten().any(|file| leads_below(&file.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        90 22 0:41 / /mnt/a\\040b rw,nosuid,nodev - fuse.afar a.org rw,user_id=0\n\
        91 22 0:42 / /afs rw - afs none rw\n\
        92 91 0:43 / /afs rw,nosuid shared:7 master:2 - fuse.afar dynroot rw\n\
        torn li";

    #[test]
    fn mounts_are_found_by_their_place_the_upper_first() {
        let at = |place: &str| find(TABLE, Path::new(place)).map(|it| (it.kind, it.source));
        let some = |kind: &str, source: &str| Some((kind.to_owned(), source.to_owned()));
        assert_eq!(at("/mnt/a b"), some("fuse.afar", "a.org"));
        assert_eq!(at("/afs"), some("fuse.afar", "dynroot"));
        assert_eq!(at("/"), some("ext4", "/dev/vda"));
        assert_eq!(at("/mnt"), None);
    }

    #[test]
    fn lists_of_cells_are_found_where_they_are_on_top() {
        assert_eq!(roots(TABLE), [Path::new("/afs")]);
        let covered = [TABLE, b"\n93 92 0:44 / /afs rw - fuse.afar a.org rw"].concat();
        assert_eq!(roots(&covered), [] as [&Path; 0]);
    }

    #[test]
    fn paths_in_mounts_are_known_as_those_of_all_cells() {
        let path = |path: &str| in_afs(TABLE, Path::new(path));
        let some = |path: &str| Some(PathBuf::from(path));
        assert_eq!(path("/mnt/a b"), some("/afs/.a.org"));
        assert_eq!(path("/mnt/a b/c/d"), some("/afs/.a.org/c/d"));
        assert_eq!(path("/afs/b.org/c"), some("/afs/b.org/c"));
        assert_eq!(path("/mnt/a bc"), None);
        assert_eq!(path("/home"), None);
        let volume = b"90 22 0:41 / /mnt rw - fuse.afar a.org:user.ann rw";
        assert_eq!(in_afs(volume, Path::new("/mnt/x")), None);
    }

    #[test]
    fn the_mount_that_a_path_is_in_is_the_nearest_one() {
        let place = |path: &str| place_in(TABLE, Path::new(path));
        let some = |path: &str| Some(PathBuf::from(path));
        assert_eq!(place("/mnt/a b"), some("/mnt/a b"));
        assert_eq!(place("/mnt/a b/c/d"), some("/mnt/a b"));
        assert_eq!(place("/afs/b.org/c"), some("/afs"));
        assert_eq!(place("/home"), None);
        let covered = [TABLE, b"\n93 92 0:44 / /afs/b.org rw - tmpfs none rw"].concat();
        assert_eq!(place_in(&covered, Path::new("/afs/b.org/c")), None);
        assert_eq!(place_in(&covered, Path::new("/afs/c")), some("/afs"));
    }

    #[test]
    fn escapes_are_read_and_bad_ones_kept() {
        for (field, plain) in [
            ("a\\040b\\134", "a b\\"),
            ("\\9", "\\9"),
            ("\\400", "\\400"),
        ] {
            assert_eq!(unescaped(field.as_bytes()), plain);
        }
    }

    #[test]
    fn places_need_not_exist_but_their_parents() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        assert_eq!(
            absolute(&dir.path().join("none/")).unwrap(),
            real.join("none")
        );
        absolute(&dir.path().join("none/none")).unwrap_err();
        assert_eq!(absolute(Path::new("/")).unwrap(), Path::new("/"));
    }

    #[test]
    fn who_has_a_file_open_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let own = format!("({})", std::process::id());
        let found = |place: &Path| users(place).iter().any(|user| user.ends_with(&own));
        assert!(!found(&place));
        let open = std::fs::File::create(place.join("file")).unwrap();
        assert!(found(&place));
        drop(open);
    }
}
