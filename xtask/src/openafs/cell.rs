//! A cell on disk and its daemons: folders, start, stop.
//!
//! Debian's programs look for their files in fixed places. Each of them runs in a mount
//! namespace of its own, in which these places show the cell's folders instead, so the
//! host's own configuration and partitions are neither read nor written.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::kerberos;
use super::keytab;
use super::netns::Pair;
use crate::sh;

/// Where Debian installs the daemons.
const DAEMONS: &str = "/usr/lib/openafs";
/// How long a service may take to answer after its start.
const PATIENCE: Duration = Duration::from_secs(40);

/// What a command sees and where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Role {
    /// The client's namespace and configuration, without keys
    Client,
    /// The servers' namespace, configuration and keys
    Server,
    /// The client's namespace with the servers' keys: `vos … -localauth` over the link
    Admin,
}

/// A cell: everything later commands must know, kept in its folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) dir: PathBuf,
    pub(super) name: String,
    pub(super) pair: Pair,
    /// How its servers run.
    pub(super) setup: Setup,
    /// Process ids of the daemons, by name.
    pub(super) daemons: Vec<(String, u32)>,
}

/// How the servers of a cell run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    /// Nobody's identity is asked for: everybody is an administrator.
    pub(super) noauth: bool,
    /// The daemons are started and watched by OpenAFS's overseer.
    pub(super) overseer: bool,
    /// A Kerberos realm comes with the cell.
    pub(super) kerberos: bool,
    /// Letters of the partitions.
    pub(super) partitions: Vec<char>,
}

/// The file in a cell's folder that holds the above.
const STATE: &str = "state.json";

impl Cell {
    /// Makes the folders of a new cell and its configuration.
    pub(super) fn create(dir: &Path, name: &str, pair: Pair, setup: Setup) -> Result<Self> {
        let cell = Self {
            dir: dir.to_owned(),
            name: name.to_owned(),
            pair,
            setup,
            daemons: Vec::new(),
        };
        let folders = [
            "client/etc",
            "server/etc/server",
            "server/lib/local",
            "server/lib/db",
            "server/log",
            "empty",
        ];
        for folder in folders {
            make_folder(&dir.join(folder))?;
        }
        for letter in &cell.setup.partitions {
            let partition = dir.join(format!("server/vicep{letter}"));
            make_folder(&partition)?;
            // A partition that is no mount point of its own is used only so.
            write(&partition.join("AlwaysAttach"), "")?;
        }
        // Anyone may make clients; only root sees the keys.
        for secret in ["server/etc", "server/lib/local", "server/lib/db"] {
            private(&dir.join(secret))?;
        }
        cell.write_configuration()?;
        cell.save()?;
        Ok(cell)
    }

    fn write_configuration(&self) -> Result<()> {
        let (name, address) = (&self.name, &self.pair.server_address);
        let servers = format!(">{name}\t#a test cell\n{address}\t#afs1.{name}\n");
        // The database servers look their own name up and refuse a loopback address.
        let mut hosts = format!("127.0.0.1 localhost\n{address} afs1.{name} afs1\n");
        if let Some(client) = self.pair.client_address.as_ref().filter(|a| *a != address) {
            hosts.push_str(&format!("{client} client.{name} client\n"));
        }
        let files = [
            ("client/etc/ThisCell", format!("{name}\n")),
            ("client/etc/CellServDB", servers.clone()),
            ("server/etc/ThisCell", format!("{name}\n")),
            ("server/etc/CellServDB", servers.clone()),
            ("server/etc/server/ThisCell", format!("{name}\n")),
            ("server/etc/server/CellServDB", servers),
            ("server/etc/server/UserList", "admin\n".to_owned()),
            ("server/lib/local/NetInfo", format!("{address}\n")),
            ("hosts", hosts),
            ("empty/resolv.conf", String::new()),
            ("enter", ENTER.to_owned()),
        ];
        for (path, text) in files {
            write(&self.dir.join(path), &text)?;
        }
        if self.setup.noauth {
            write(&self.dir.join("server/lib/local/NoAuth"), "")?;
        }
        Ok(())
    }

    /// Reads the state of the cell in this folder.
    pub(super) fn load(dir: &Path) -> Result<Self> {
        let path = dir.join(STATE);
        let text = fs::read_to_string(&path).with_context(|| {
            format!(
                "no cell in {} (start one: cargo xtask openafs up)",
                dir.display()
            )
        })?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    fn save(&self) -> Result<()> {
        let path = self.dir.join(STATE);
        let text = serde_json::to_string_pretty(self).context("encoding the cell's state")?;
        write(&path, &text)
    }

    /// A command that will run in this cell.
    pub(super) fn command(&self, role: Role, words: &[&str]) -> Command {
        let mut command = self.enter(role, &[]);
        command.args(words);
        command
    }

    /// Runs one of OpenAFS's administration commands with the servers' key, or without where
    /// nobody asks for it.
    pub(super) fn admin(&self, words: &[&str]) -> Result<String> {
        let option = if self.setup.noauth {
            "-noauth"
        } else {
            "-localauth"
        };
        sh::capture(self.command(Role::Server, words).arg(option))
    }

    /// The beginning of a command in a role: network namespace, mount namespace, mounts.
    fn enter(&self, role: Role, unshare_more: &[&str]) -> Command {
        let namespace = match role {
            Role::Server => &self.pair.server,
            Role::Client | Role::Admin => &self.pair.client,
        };
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{namespace}"))
            .args([
                "--",
                "unshare",
                "--mount",
                "--uts",
                "--propagation",
                "private",
            ])
            .args(unshare_more)
            .args(["--", "sh", "-e"])
            .arg(self.dir.join("enter"))
            .arg(&self.dir)
            .arg(if role == Role::Client {
                "client"
            } else {
                "server"
            });
        command
    }

    /// Makes the servers' key, starts all daemons in the order they need each other, and
    /// waits until each of them answers.
    pub(super) fn start(&mut self, fs_args: &[&str]) -> Result<()> {
        // Servers that have a key use it for calls to each other, whatever they ask of others.
        if !self.setup.noauth {
            self.make_key()?;
        }
        if self.setup.kerberos {
            let arguments = kerberos::kdc_arguments(self);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            self.spawn("krb5kdc", &arguments)?;
            wait_for("the KDC", || kerberos::probe(self))?;
        }
        if self.setup.overseer {
            self.start_overseer()?;
        }
        self.start_daemon("ptserver", "ptserver", &[])?;
        self.start_daemon("vlserver", "vlserver", &[])?;
        // A file server that starts before the databases can be written sleeps 30 seconds
        // and registers minutes later.
        for port in ["7002", "7003"] {
            let cell = self.clone();
            let address = self.pair.server_address.clone();
            wait_for("the database servers' quorum", move || {
                let query = ["udebug", &address, port];
                let text = sh::capture(&mut cell.command(Role::Server, &query))?;
                if !text.contains("Recovery state 1f") {
                    bail!("port {port} has no sync site yet");
                }
                Ok(())
            })?;
        }
        if self.setup.overseer {
            self.oversee_file_server(fs_args)?;
        } else {
            self.spawn("dafileserver", fs_args)?;
            self.spawn("davolserver", &[])?;
            self.spawn("salvageserver", &[])?;
        }
        let address = self.pair.server_address.clone();
        wait_for("the file server", || {
            self.admin(&["vos", "partinfo", &address]).map(drop)?;
            let listed = self.admin(&["vos", "listaddrs"])?;
            if !listed.contains(&address) && !listed.contains("afs1") {
                bail!("the file server has not registered its address yet");
            }
            sh::capture(&mut self.command(Role::Client, &["rxdebug", &address, "7000", "-version"]))
                .map(drop)
        })
    }

    /// Starts the overseer and waits until it answers.
    fn start_overseer(&mut self) -> Result<()> {
        let args: &[&str] = if self.setup.noauth {
            // Without it the overseer removes the file that says so.
            &["-nofork", "-noauth"]
        } else {
            &["-nofork"]
        };
        self.spawn("bosserver", args)?;
        let address = self.pair.server_address.clone();
        wait_for("the overseer", || {
            self.admin(&["bos", "status", &address]).map(drop)
        })
    }

    /// Starts a daemon that needs no others beside it, under the overseer if there is one.
    fn start_daemon(&mut self, instance: &str, program: &str, args: &[&str]) -> Result<()> {
        if !self.setup.overseer {
            return self.spawn(program, args);
        }
        let address = self.pair.server_address.as_str();
        let line = command_line(program, args);
        let words = ["bos", "create", address, instance, "simple", "-cmd", &line];
        self.admin(&words).map(drop)
    }

    /// Has the overseer start the file server and the programs that belong to it.
    fn oversee_file_server(&self, fs_args: &[&str]) -> Result<()> {
        let address = self.pair.server_address.as_str();
        let mut words = vec!["bos", "create", address, "dafs", "dafs"];
        let lines = [
            command_line("dafileserver", fs_args),
            command_line("davolserver", &[]),
            command_line("salvageserver", &[]),
            command_line("dasalvager", &[]),
        ];
        for line in &lines {
            words.extend(["-cmd", line]);
        }
        self.admin(&words).map(drop)
    }

    /// Makes the servers' key, in a key table and from there in KeyFileExt: the realm's, if there
    /// is one.
    fn make_key(&self) -> Result<()> {
        let realm = kerberos::realm(self);
        let path = self.dir.join("server/etc/rxkad.keytab");
        if self.setup.kerberos {
            kerberos::create(self, &path)?;
        } else {
            let mut key = [0_u8; keytab::KEY_BYTES];
            fs::File::open("/dev/urandom")
                .and_then(|mut source| source.read_exact(&mut key))
                .context("reading /dev/urandom")?;
            fs::write(&path, keytab::encode(&realm, &["afs", &self.name], &key))
                .with_context(|| format!("writing {}", path.display()))?;
        }
        let (kvno, enctype) = (keytab::KVNO.to_string(), keytab::ENCTYPE.to_string());
        let mut add = self.command(
            Role::Server,
            &["asetkey", "add", "rxkad_krb5", &kvno, &enctype],
        );
        sh::capture(add.arg(&path).arg(format!("afs/{}@{realm}", self.name))).map(drop)
    }

    /// Starts a daemon that outlives this program. It is the first process of a process
    /// namespace, so whatever it leaves behind ends with it.
    fn spawn(&mut self, name: &str, args: &[&str]) -> Result<()> {
        let log = self.dir.join("server/log").join(format!("{name}.out"));
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("opening {}", log.display()))?;
        let copy = log.try_clone().context("copying a log's handle")?;
        let mut command = self.enter(Role::Server, &["--pid", "--fork", "--kill-child"]);
        command.arg(name).args(args);
        command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(copy)
            .current_dir("/")
            .process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        self.daemons.push((name.to_owned(), child.id()));
        self.save()
    }

    /// Names of the daemons that have ended.
    pub(super) fn dead(&self) -> Vec<&str> {
        self.daemons
            .iter()
            .filter(|(_, pid)| !self.is_ours(*pid))
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// Whether a process id still belongs to a daemon of this cell.
    fn is_ours(&self, pid: u32) -> bool {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let dir = self.dir.as_os_str().as_encoded_bytes();
        line.split(|&byte| byte == 0).any(|word| word == dir)
    }

    /// Ends all daemons and removes the namespaces that were made for the cell.
    pub(super) fn stop(&mut self) -> Result<()> {
        for (_, pid) in &self.daemons {
            if self.is_ours(*pid) {
                sh::succeeds(Command::new("kill").args(["-KILL", &pid.to_string()]));
            }
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.daemons.iter().any(|(_, pid)| self.is_ours(*pid)) {
            if Instant::now() > deadline {
                bail!("daemons of the cell in {} do not end", self.dir.display());
            }
            sleep(Duration::from_millis(20));
        }
        self.daemons.clear();
        self.pair.remove();
        self.save()
    }
}

/// Shows the cell's folders in the places where the programs look, then runs a command.
/// Words: the cell's folder, the role, the command.
const ENTER: &str = r#"dir=$1 role=$2; shift 2
case $role in client) hostname client;; *) hostname afs1;; esac
mount --bind "$dir/$role/etc" /etc/openafs
mount --bind "$dir/hosts" /etc/hosts
[ ! -e /etc/resolv.conf ] || mount --bind "$dir/empty/resolv.conf" /etc/resolv.conf
if [ "$role" = server ]; then
  mount --bind "$dir/server/lib" /var/lib/openafs
  mount --bind "$dir/server/log" /var/log/openafs
  for partition in "$dir"/server/vicep*; do mount --bind "$partition" "/${partition##*/}"; done
fi
if [ -e "$dir/kerberos" ]; then
  export KRB5_CONFIG="$dir/kerberos/krb5.conf" KRB5_KDC_PROFILE="$dir/kerberos/kdc.conf"
fi
PATH=$PATH:/usr/sbin:/sbin:/usr/lib/openafs
exec "$@"
"#;

/// Folders of the host that must be there to be covered by the cell's.
pub(super) fn make_mount_places(setup: &Setup) -> Result<()> {
    for place in ["/etc/openafs", "/var/lib/openafs", "/var/log/openafs"] {
        make_folder(Path::new(place))?;
    }
    let mut letters = setup.partitions.iter();
    letters.try_for_each(|letter| make_folder(Path::new(&format!("/vicep{letter}"))))
}

/// A daemon with its arguments, as the overseer takes it.
fn command_line(program: &str, args: &[&str]) -> String {
    let mut line = format!("{DAEMONS}/{program}");
    for arg in args {
        line.push(' ');
        line.push_str(arg);
    }
    line
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))
}

fn private(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .with_context(|| format!("closing {} to others", path.display()))
}

/// Tries until it works or patience ends; then says what was wrong the last time.
fn wait_for(what: &str, mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error.context(format!("{what} did not come up")));
            }
            Err(_) => sleep(Duration::from_millis(100)),
        }
    }
}
