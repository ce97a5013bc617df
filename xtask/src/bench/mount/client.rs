//! The clients that are compared: each mounts the server's files again, with nothing cached.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::server::Server;
use crate::bench::link::End;
use crate::bench::process::{self, Process};
use crate::{output, sh};

/// A mount is there after this time, or never.
const MOUNT_LIMIT: Duration = Duration::from_secs(60);
/// OpenAFS's client has stored everything when nothing was sent for so long.
const QUIET: Duration = Duration::from_secs(3);

/// A way to mount the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    /// `afar mount`
    Afar,
    /// The same with --write-through: a server makes each change before the program goes on; for small files only
    AfarThrough,
    /// OpenAFS's client in user space with its default options
    Afsd,
    /// The same with -daemons 6 -chunksize 22
    AfsdTuned,
    /// sshfs from the same machine, of the same files outside AFS
    Sshfs,
    /// `NFSv4` from the same machine, of the same files outside AFS
    Nfs,
    /// rclone with a full cache over SFTP from the same machine, of the same files outside AFS; for small files only
    Rclone,
    /// bindfs: a local folder once more, which shows what each request to a file system in user space takes; for small files
    /// only
    Bindfs,
}

impl Kind {
    /// As the page names it.
    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::Afar => "afar mount",
            Self::AfarThrough => "afar mount, writing through",
            Self::Afsd => "afsd.fuse",
            Self::AfsdTuned => "afsd.fuse, tuned",
            Self::Sshfs => "sshfs",
            Self::Nfs => "NFSv4",
            Self::Rclone => "rclone",
            Self::Bindfs => "bindfs, no link",
        }
    }

    /// Whether it speaks AFS with the cell's servers.
    pub(super) fn is_afs(self) -> bool {
        !matches!(self, Self::Sshfs | Self::Nfs | Self::Rclone | Self::Bindfs)
    }

    /// Whether it is measured with little, as it would take hours otherwise.
    pub(super) fn is_slow(self) -> bool {
        self.is_openafs()
    }

    /// Whether it is one of ours.
    pub(super) fn is_afar(self) -> bool {
        matches!(self, Self::Afar | Self::AfarThrough)
    }

    fn is_openafs(self) -> bool {
        matches!(self, Self::Afsd | Self::AfsdTuned)
    }

    /// Whether closing a file does not wait until it is stored.
    fn stores_later(self) -> bool {
        self.is_openafs() || matches!(self, Self::Rclone)
    }

    /// The words for the page if it cannot be measured on this machine.
    pub(super) fn why_skipped(self) -> Option<String> {
        let why = self.missing()?;
        Some(format!("{}: {why}", self.shown()))
    }

    /// Why it cannot be measured on this machine, if so.
    pub(super) fn missing(self) -> Option<String> {
        let program = match self {
            Self::Afar | Self::AfarThrough => return None,
            Self::Afsd | Self::AfsdTuned => "afsd.fuse",
            Self::Sshfs => "sshfs",
            Self::Nfs => "ganesha.nfsd",
            Self::Rclone => "rclone",
            Self::Bindfs => "bindfs",
        };
        if !sh::has_program(program) {
            return Some(format!("{program} is not installed"));
        }
        if matches!(self, Self::Sshfs | Self::Rclone) && !sh::has_program("sshd") {
            return Some("sshd is not installed".to_owned());
        }
        let systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let nfs = systems.split_whitespace().any(|system| system == "nfs4");
        if self == Self::Nfs && !nfs && !sh::succeeds(Command::new("modprobe").arg("nfsv4")) {
            return Some(
                "this kernel has no NFS client, neither built in nor as a module".to_owned(),
            );
        }
        None
    }
}

/// A mount with nothing cached, gone when dropped.
pub(super) struct Mounted {
    kind: Kind,
    point: PathBuf,
    /// Where files are made.
    pub(super) root: PathBuf,
    process: Option<Process>,
    namespace: Option<String>,
}

impl Mounted {
    /// Mounts; `name` is a word of its own among the mounts there are.
    ///
    /// # Errors
    /// It does not mount.
    pub(super) fn new(kind: Kind, server: &mut Server<'_>, name: &str) -> Result<Self> {
        let dir = server.path(&format!("client-{name}"));
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        }
        let point = dir.join("mnt");
        fs::create_dir_all(&point)?;
        fs::create_dir_all(dir.join("cache"))?;
        let mut this = Self {
            kind,
            root: match kind {
                Kind::Afar | Kind::AfarThrough => point.join(server.volume),
                Kind::Afsd | Kind::AfsdTuned => point.join(server.cell).join(server.volume),
                Kind::Sshfs | Kind::Nfs | Kind::Rclone | Kind::Bindfs => point.clone(),
            },
            point,
            process: None,
            namespace: server.place.namespace(End::Client),
        };
        let command = this.command(server, &dir)?;
        this.process = Some(Process::start(command)?);
        let begun = Instant::now();
        // A look-up of the root's entries is not part of what is measured.
        while !this.is_mounted() {
            ensure!(
                begun.elapsed() < MOUNT_LIMIT,
                "{} does not mount",
                kind.shown()
            );
            process::pause(Duration::from_millis(20))?;
        }
        let mut look = Command::new("stat");
        let looked = Process::start({
            look.arg(&this.root);
            look
        })?;
        looked.succeed(MOUNT_LIMIT)?;
        Ok(this)
    }

    fn command(&self, server: &mut Server<'_>, dir: &Path) -> Result<Command> {
        let address = server.place.address(End::Server).to_owned();
        let key = match self.kind {
            Kind::Sshfs | Kind::Rclone => server.ssh()?,
            _ => PathBuf::new(),
        };
        if self.kind == Kind::Nfs {
            server.nfs()?;
        }
        let at_client = |program: &Path| {
            // Not `afar link exec`: a mount is to be seen from outside.
            let mut command = Command::new("nsenter");
            match server.place.namespace(End::Client) {
                Some(name) => command.arg(format!("--net=/run/netns/{name}")),
                None => &mut command,
            };
            command.arg("--").arg(program);
            command
        };
        let point = &self.point;
        match self.kind {
            Kind::Afar | Kind::AfarThrough => {
                let mut command = at_client(&server.afar);
                command.args(["mount", "--foreground", "--no-dns", "--cellservdb"]);
                command.arg(server.etc.join("CellServDB"));
                command.arg("--cache").arg(dir.join("cache"));
                command.arg(server.cell).arg(point);
                if self.kind == Kind::AfarThrough {
                    command.arg("--write-through");
                }
                command.env("AFAR_RUN_DIR", dir.join("run"));
                Ok(command)
            }
            Kind::Afsd | Kind::AfsdTuned => {
                let etc = dir.join("etc");
                fs::create_dir_all(&etc)?;
                for name in ["ThisCell", "CellServDB"] {
                    fs::copy(server.etc.join(name), etc.join(name))
                        .with_context(|| format!("copying {name}"))?;
                }
                let cache = dir.join("cache");
                fs::write(
                    etc.join("cacheinfo"),
                    format!("/afs:{}:400000\n", cache.display()),
                )?;
                let mut command = at_client(Path::new("/usr/sbin/afsd.fuse"));
                command.arg("-dynroot").arg("-confdir").arg(etc);
                command.arg("-cachedir").arg(cache);
                command.arg("-mountdir").arg(point);
                if self.kind == Kind::AfsdTuned {
                    command.args(["-daemons", "6", "-chunksize", "22"]);
                }
                Ok(command)
            }
            Kind::Sshfs => {
                let mut command = at_client(Path::new("sshfs"));
                command.arg("-f").args(["-p", server.ssh_port()]);
                command.arg(format!("root@{address}:{}", server.export().display()));
                command.arg(point).arg("-o").arg(format!(
                    "IdentityFile={},StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null",
                    key.display()
                ));
                Ok(command)
            }
            Kind::Rclone => {
                let mut command = at_client(Path::new("rclone"));
                command.args(["mount", "--config", "/dev/null", "--vfs-cache-mode", "full"]);
                // Without a pause a mount would look as if it had stored everything.
                command.args(["--vfs-write-back", "1s", "--cache-dir"]);
                command.arg(dir.join("cache"));
                command.args(["--sftp-host", &address, "--sftp-port", server.ssh_port()]);
                command.args(["--sftp-user", "root", "--sftp-key-file"]);
                command.arg(key);
                command.arg(format!(":sftp:{}", server.export().display()));
                command.arg(point);
                Ok(command)
            }
            Kind::Bindfs => {
                let mut command = at_client(Path::new("bindfs"));
                command.args(["-f", "--multithreaded"]);
                command.arg(server.export()).arg(point);
                Ok(command)
            }
            Kind::Nfs => {
                let mut command = at_client(Path::new("mount.nfs4"));
                command.arg(format!("{address}:/export")).arg(point);
                Ok(command)
            }
        }
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let point = self.point.to_string_lossy();
        mounts
            .lines()
            .any(|line| line.split(' ').nth(1) == Some(point.as_ref()))
    }

    /// Waits until what was written has arrived at the server, if closing a file does not wait for
    /// that; returns for how long nothing was sent.
    ///
    /// # Errors
    /// It takes longer than `limit`.
    pub(super) fn settle(&self, limit: Duration) -> Result<Duration> {
        if !self.kind.stores_later() {
            return Ok(Duration::ZERO);
        }
        let namespace = self.namespace.as_deref().context("no link")?;
        let begun = Instant::now();
        let mut last = (sent(namespace)?, Instant::now());
        while last.1.elapsed() < QUIET {
            if begun.elapsed() > limit {
                bail!("{} still sends after {limit:?}", self.kind.shown());
            }
            process::pause(Duration::from_millis(20))?;
            let now = sent(namespace)?;
            // Keep-alives and the like are small.
            if now > last.0 + 4096 {
                last = (now, Instant::now());
            }
        }
        Ok(last.1.elapsed())
    }
}

/// Bytes sent so far from a network namespace.
fn sent(namespace: &str) -> Result<u64> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "cat", "/proc/net/dev"]);
    let said = sh::capture(&mut command)?;
    Ok(sent_of(&said))
}

/// The bytes that all devices but the loopback have sent.
fn sent_of(table: &str) -> u64 {
    let devices = table.lines().filter_map(|line| line.split_once(':'));
    let others = devices.filter(|(name, _)| name.trim() != "lo");
    others
        .filter_map(|(_, counts)| counts.split_whitespace().nth(8)?.parse::<u64>().ok())
        .sum()
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let umount = |lazy: &[&str]| {
            let mut command = Command::new("umount");
            sh::capture(command.args(lazy).arg(&self.point))
        };
        if self.is_mounted()
            && umount(&[]).is_err()
            && let Err(error) = umount(&["-l"])
        {
            output::note(&format!("unmounting: {error:#}"));
        }
        if let Some(process) = self.process.take() {
            if self.kind.is_afar() {
                // It ends by itself when it is unmounted.
                process.wait(Duration::from_secs(30)).ok();
            } else {
                drop(process);
            }
        }
        if self.kind.is_openafs() {
            end_daemons(&self.point);
        }
    }
}

/// OpenAFS's client leaves its process group and does not end when its mount is gone.
fn end_daemons(point: &Path) {
    let Ok(processes) = fs::read_dir("/proc") else {
        return;
    };
    let ours = point.to_string_lossy();
    for entry in processes.flatten() {
        let pid = entry.file_name().to_string_lossy().parse::<i32>().ok();
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = words.split(|octet| *octet == 0);
        let program = words.next().unwrap_or_default().ends_with(b"afsd.fuse");
        if program
            && words.any(|word| word == ours.as_bytes())
            && let Some(pid) = pid.and_then(rustix::process::Pid::from_raw)
        {
            // It may have ended meanwhile.
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_namespace_sent_is_added_up() {
        let table = "Inter-|   Receive                |  Transmit\n face |bytes\n    \
                     lo: 5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n  \
                     wan0: 10 2 0 0 0 0 0 0 1234 3 0 0 0 0 0 0\n";
        assert_eq!(sent_of(table), 1234);
    }
}
