//! A medium held to a rate, by a cgroup of the block controller.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// Version 1 of cgroups.
const V1: &str = "/sys/fs/cgroup/blkio";
/// Version 2 of cgroups.
const V2: &str = "/sys/fs/cgroup";

/// A cgroup whose processes read from a device so fast and no faster. Removed when dropped.
pub(super) struct Medium {
    group: PathBuf,
}

impl Medium {
    /// Makes one for the device that a directory is on; else says why it cannot be made.
    pub(super) fn make(dir: &Path, bytes_per_second: u64) -> Result<Self, String> {
        let device = device(dir)?;
        let (top, file, line) = if Path::new(V1)
            .join("blkio.throttle.read_bps_device")
            .exists()
        {
            (
                V1,
                "blkio.throttle.read_bps_device",
                format!("{device} {bytes_per_second}"),
            )
        } else {
            let controllers = fs::read_to_string(Path::new(V2).join("cgroup.controllers"));
            if !controllers.is_ok_and(|all| all.split_whitespace().any(|one| one == "io")) {
                return Err("the kernel offers no cgroup that limits block devices".to_owned());
            }
            write(&Path::new(V2).join("cgroup.subtree_control"), "+io")?;
            (V2, "io.max", format!("{device} rbps={bytes_per_second}"))
        };
        let group = Path::new(top).join(format!("afar-store-bench-{}", std::process::id()));
        fs::create_dir(&group).map_err(|e| format!("making {}: {e}", group.display()))?;
        let medium = Self { group };
        write(&medium.group.join(file), &line)?;
        Ok(medium)
    }

    /// Holds a process to the rate.
    ///
    /// # Errors
    /// Why that cannot be done.
    pub(super) fn hold(&self, pid: u32) -> Result<(), String> {
        write(&self.group.join("cgroup.procs"), &pid.to_string())
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.group) {
            crate::output::note(&format!("{} is left behind: {error}", self.group.display()));
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("writing {text:?} to {}: {e}", path.display()))
}

/// The whole disk's device number, as the kernel writes it.
fn device(dir: &Path) -> Result<String, String> {
    let metadata = fs::metadata(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let (major, minor) = (major(metadata.dev()), minor(metadata.dev()));
    let place = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if !place.exists() {
        return Err(format!("{} is on no block device", dir.display()));
    }
    if !place.join("partition").exists() {
        return Ok(format!("{major}:{minor}"));
    }
    // Only whole disks are throttled; a partition's lies below its disk's.
    let disk = fs::canonicalize(&place).map(|path| path.join("../dev"));
    let device = disk.and_then(fs::read_to_string);
    device
        .map(|text| text.trim().to_owned())
        .map_err(|e| format!("{}: {e}", place.display()))
}
