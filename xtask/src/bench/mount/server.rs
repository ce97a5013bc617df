//! The servers files are on: a cell at the server's end of a link, and beside it an SSH server and an
//! NFS server that give the same files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::bench::cell::site::{self, Site};
use crate::bench::link::{End, Place};
use crate::bench::openafs::OpenAfs;
use crate::bench::process::{self, Process};
use crate::sh;

/// What the servers of a cell are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Origin {
    /// The unmodified file server of Debian's OpenAFS
    Openafs,
    /// afar's
    Afar,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Openafs => "OpenAFS's server",
            Self::Afar => "afar's server",
        })
    }
}

const OPENAFS_CELL: &str = "openafs.example";
const OPENAFS_VOLUME: &str = "test.open";
const SSH_PORT: &str = "2222";
/// Putting files there takes no longer.
const FILL_LIMIT: Duration = Duration::from_secs(900);

/// A cell with a volume everybody may write to, and a folder that others export; gone when dropped.
pub(super) struct Server<'a> {
    pub(super) place: &'a Place,
    pub(super) afar: PathBuf,
    pub(super) cell: &'static str,
    pub(super) volume: &'static str,
    /// The folder of the clients' configuration.
    pub(super) etc: PathBuf,
    dir: PathBuf,
    /// Those that give out the folder, once they were wanted.
    ssh: Option<Process>,
    nfs: Option<Process>,
    _servers: Servers<'a>,
}

enum Servers<'a> {
    OpenAfs(#[expect(dead_code, reason = "it is there to be dropped")] OpenAfs),
    Afar(#[expect(dead_code, reason = "it is there to be dropped")] Site<'a>),
}

impl<'a> Server<'a> {
    /// Starts a cell.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn up(place: &'a Place, afar: &Path, origin: Origin) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("afar-bench-mount-{}", std::process::id()));
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        }
        fs::create_dir_all(dir.join("export"))?;
        let (servers, cell, volume, etc) = match origin {
            Origin::Afar => {
                let site = Site::up(place, afar)?;
                let etc = site.path("etc");
                (Servers::Afar(site), site::CELL, site::VOLUME, etc)
            }
            Origin::Openafs => {
                let (openafs, said) = OpenAfs::up(place, OPENAFS_CELL, 1, &["--noauth"])?;
                let said: Value = serde_json::from_str(&said).context("what the cell told")?;
                let cellservdb = said["cellservdb"].as_str().context("no CellServDB")?;
                let etc = Path::new(cellservdb).parent().context("no folder")?;
                let etc = etc.to_owned();
                let servers = Servers::OpenAfs(openafs);
                (servers, OPENAFS_CELL, OPENAFS_VOLUME, etc)
            }
        };
        Ok(Self {
            place,
            afar: afar.to_path_buf(),
            cell,
            volume,
            etc,
            dir,
            ssh: None,
            nfs: None,
            _servers: servers,
        })
    }

    /// A file or folder for scratch.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The folder that SSH and NFS give out.
    pub(super) fn export(&self) -> PathBuf {
        self.path("export")
    }

    /// Puts a file or a tree of this machine into the volume, by a client that sits beside the
    /// server, and into the folder.
    ///
    /// # Errors
    /// It cannot be copied.
    pub(super) fn put(&self, local: &Path, name: &str) -> Result<()> {
        let mut command = self.place.command(End::Server, &self.afar);
        command.args(["cp", "-r", "--cellservdb"]);
        command.arg(self.etc.join("CellServDB")).arg(local);
        command.arg(format!("/afs/{}/{}/{name}", self.cell, self.volume));
        command.env("AFAR_RUN_DIR", self.path("none"));
        Process::start(command)?.succeed(FILL_LIMIT)?;
        let mut copy = Command::new("cp");
        copy.args(["-r", "--reflink=auto"]);
        copy.arg(local).arg(self.export().join(name));
        sh::capture(&mut copy)?;
        sh::capture(&mut Command::new("sync")).map(drop)
    }

    /// A copy of a file or a tree of the volume, by a client that sits beside the server.
    ///
    /// # Errors
    /// It cannot be copied.
    pub(super) fn get(&self, name: &str) -> Result<PathBuf> {
        let copy = self.path(&format!("copy-{name}"));
        let mut command = self.place.command(End::Server, &self.afar);
        command.args(["cp", "-r", "--cellservdb"]);
        command.arg(self.etc.join("CellServDB"));
        command.arg(format!("/afs/{}/{}/{name}", self.cell, self.volume));
        command.arg(&copy).env("AFAR_RUN_DIR", self.path("none"));
        Process::start(command)?.succeed(FILL_LIMIT)?;
        Ok(copy)
    }

    /// Whether there is something of this name, in the volume or in the folder that others give out.
    ///
    /// # Errors
    /// The volume cannot be listed.
    pub(super) fn has(&self, in_volume: bool, name: &str) -> Result<bool> {
        if !in_volume {
            return Ok(self.export().join(name).exists());
        }
        let mut command = self.place.command(End::Server, &self.afar);
        command
            .args(["ls", "--cellservdb"])
            .arg(self.etc.join("CellServDB"));
        command.arg(format!("/afs/{}/{}", self.cell, self.volume));
        command.env("AFAR_RUN_DIR", self.path("none"));
        let ended = Process::start(command)?.succeed(FILL_LIMIT)?;
        Ok(ended.out.lines().any(|line| line.trim() == name))
    }

    /// Starts an SSH server that gives the folder, unless it runs; returns the file of the key that
    /// opens it.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn ssh(&mut self) -> Result<PathBuf> {
        let key = self.path("ssh-key");
        if self.ssh.is_some() {
            return Ok(key);
        }
        for name in ["ssh-key", "ssh-host"] {
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            sh::capture(make.arg(self.path(name)))?;
        }
        fs::create_dir_all("/run/sshd").context("making /run/sshd")?;
        let config = format!(
            "Port {SSH_PORT}\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
             PermitRootLogin yes\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n",
            self.place.address(End::Server),
            self.path("ssh-host").display(),
            self.path("ssh-key.pub").display(),
        );
        let file = self.path("sshd.conf");
        fs::write(&file, config)?;
        let mut command = self.place.command(End::Server, Path::new("/usr/sbin/sshd"));
        command.args(["-D", "-e", "-f"]).arg(file);
        self.ssh = Some(Process::start(command)?);
        self.until_open(SSH_PORT)?;
        Ok(key)
    }

    /// The port of the SSH server.
    pub(super) fn ssh_port(&self) -> &'static str {
        SSH_PORT
    }

    /// Starts an NFS server that gives the folder as `/export`, unless it runs.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn nfs(&mut self) -> Result<()> {
        if self.nfs.is_some() {
            return Ok(());
        }
        let config = format!(
            "NFS_CORE_PARAM {{ Protocols = 4; Bind_addr = {}; Enable_NLM = false; \
             Enable_RQUOTA = false; }}\nNFSV4 {{ Graceless = true; }}\n\
             EXPORT {{ Export_Id = 1; Path = {}; Pseudo = /export; Access_Type = RW; \
             Squash = None; SecType = sys; FSAL {{ Name = VFS; }} }}\n",
            self.place.address(End::Server),
            self.export().display(),
        );
        let file = self.path("ganesha.conf");
        fs::write(&file, config)?;
        let mut command = self.place.command(End::Server, Path::new("ganesha.nfsd"));
        command.args(["-F", "-f"]).arg(file);
        command.arg("-L").arg(self.path("ganesha.log"));
        command.arg("-p").arg(self.path("ganesha.pid"));
        self.nfs = Some(Process::start(command)?);
        self.until_open("2049")
    }

    /// Waits until a port of the server's end can be connected to.
    fn until_open(&self, port: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            let mut probe = self.place.command(End::Server, Path::new("bash"));
            let address = self.place.address(End::Server);
            probe.args(["-c", &format!("exec 3<>/dev/tcp/{address}/{port}")]);
            if sh::succeeds(&mut probe) {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < Duration::from_secs(15),
                "nothing listens at port {port}"
            );
            process::pause(Duration::from_millis(100))?;
        }
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        drop((self.ssh.take(), self.nfs.take()));
        // What cannot be removed is in the system's folder for such files.
        fs::remove_dir_all(&self.dir).ok();
    }
}
