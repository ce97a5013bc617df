//! The configuration of a server: one TOML file, whose keys `afar config explain` lists.

mod metrics;
mod security;
mod web;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use afar_store::{Durability, PartitionOptions};
use afar_types::{CellName, PartitionId};
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

pub use databases::{GroupAccess, GroupDepth, LocationSection, ProtectionSection, UserAccess};
pub use login::{Enabled, LoginSection, Minutes, Port};
pub use metrics::MetricsSection;
pub use oob::{OobEnabled, OobPort, OobSection};
pub use security::{Floor, Minimum, SecuritySection};
pub use web::WebSection;

/// Where `afar server` looks for its configuration.
pub const DEFAULT_PATH: &str = "/etc/afar/afar.toml";

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The file server (port 7000).
    File,
    /// The volume server (port 7005).
    Vol,
    /// The volume location server (port 7003).
    Vl,
    /// The protection server (port 7002).
    Pt,
    /// The overseer's status (port 7007).
    Bos,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Vl, Self::Pt, Self::File, Self::Vol, Self::Bos];

    /// The UDP port AFS clients expect it on.
    pub const fn port(self) -> u16 {
        match self {
            Self::File => 7000,
            Self::Pt => 7002,
            Self::Vl => 7003,
            Self::Vol => 7005,
            Self::Bos => 7007,
        }
    }

    /// What OpenAFS calls the program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::File => "fileserver",
            Self::Vol => "volserver",
            Self::Vl => "vlserver",
            Self::Pt => "ptserver",
            Self::Bos => "bosserver",
        }
    }
}

/// The configuration file. A key that is missing has its default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The cell's name.
    pub cell: String,
    /// What this server does.
    pub roles: Roles,
    /// Where databases and what the server remembers lie.
    pub data: DataDir,
    /// Where the sockets for local administration lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<PathBuf>,
    /// The address to listen on.
    pub listen: Listen,
    /// Addresses clients are told of.
    pub addresses: Vec<Ipv4Addr>,
    /// Addresses that `rxdebug` tells everything.
    pub monitors: Vec<IpAddr>,
    /// What is logged.
    pub log: LogFilter,
    /// Whether everybody is an administrator.
    pub insecure_noauth: bool,
    /// Volume locations: here, or at others.
    pub location: LocationSection,
    /// Users and groups: here, or at others.
    pub protection: ProtectionSection,
    /// Where the databases are kept.
    pub database: Database,
    /// The file server.
    pub files: Files,
    /// The volume server.
    pub volumes: Volumes,
    /// The identities that callers can have, and how they prove them.
    pub security: SecuritySection,
    /// The service for logins.
    pub login: LoginSection,
    /// Files by TCP, out of band.
    pub oob: OobSection,
    /// What the server counts.
    pub metrics: MetricsSection,
    /// The page of the server.
    pub web: WebSection,
    /// UDP sockets.
    pub net: Net,
    /// Partitions by letter.
    pub partition: BTreeMap<String, Partition>,
    /// The file it was read from.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

macro_rules! with_default {
    ($(#[$doc:meta])* $name:ident($ty:ty) = $default:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $ty);

        impl Default for $name {
            fn default() -> Self {
                Self($default)
            }
        }
    };
}

// Behind the macro, which they use.
mod databases;
mod login;
mod oob;

with_default! {
    /// Roles of a server: all.
    Roles(Vec<Role>) = Role::ALL.to_vec()
}
with_default! {
    /// The data directory.
    DataDir(PathBuf) = PathBuf::from("/var/lib/afar")
}
with_default! {
    /// The address to listen on: all.
    Listen(IpAddr) = Ipv4Addr::UNSPECIFIED.into()
}
with_default! {
    /// What is logged, in the form of `tracing`.
    LogFilter(String) = "info".to_owned()
}
with_default! {
    /// Calls in progress before others get VBUSY.
    MaxCalls(u32) = 4096
}
with_default! {
    /// Promises kept.
    MaxCallbacks(u64) = 64 << 20
}
with_default! {
    /// Whether clients get leases.
    LeasesOn(bool) = true
}
with_default! {
    /// Bytes of a socket buffer.
    BufferSize(u32) = 8 << 20
}
with_default! {
    /// Bytes that clients may make the servers keep.
    Memory(u64) = default_memory()
}
with_default! {
    /// Seconds a client may leave a call alone.
    IdleLimit(u32) = 60
}
with_default! {
    /// Seconds a volume transaction may be idle.
    IdleSeconds(u32) = 600
}

/// Where the databases are kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Database {
    /// etcd members; none: this server alone.
    pub etcd: Vec<String>,
}

/// The file server.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Files {
    /// Calls in progress before others get VBUSY.
    pub max_calls: MaxCalls,
    /// Promises kept.
    pub max_callbacks: MaxCallbacks,
    /// Whether clients get leases.
    pub leases: LeasesOn,
}

/// The volume server.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Volumes {
    /// Seconds a transaction may be idle.
    pub idle_seconds: IdleSeconds,
    /// Whether only administrators may list volumes.
    pub restricted_query: bool,
}

/// UDP sockets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Net {
    /// Bytes.
    pub receive_buffer: BufferSize,
    /// Bytes.
    pub send_buffer: BufferSize,
    /// Bytes in memory for what clients cause.
    pub memory: Memory,
    /// Seconds a client may leave a call alone.
    pub idle_seconds: IdleLimit,
}

impl Net {
    /// Bytes of the memory for a role's clients. Files and volumes are most of it; the others' answers
    /// are small.
    pub const fn memory_of(&self, role: Role) -> u64 {
        let sixteenths = match role {
            Role::File => 8,
            Role::Vol => 3,
            Role::Vl | Role::Pt => 2,
            Role::Bos => 1,
        };
        self.memory.0 / 16 * sixteenths
    }
}

/// An eighth of the machine's memory, from 64 to 512 MiB.
fn default_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|total| total.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let bytes = kib.unwrap_or_default() << 10;
    (bytes / 8).clamp(64 << 20, 512 << 20)
}

/// A partition.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Its directory.
    pub path: PathBuf,
    /// `full`, `metadata` or `async`.
    #[serde(default = "full")]
    pub durability: String,
}

fn full() -> String {
    "full".to_owned()
}

impl Partition {
    /// In this directory, else as by default.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            durability: full(),
        }
    }

    /// What the store is to do with it.
    pub fn options(&self) -> anyhow::Result<PartitionOptions> {
        let durability: Durability = self
            .durability
            .parse()
            .map_err(|error| anyhow::anyhow!("durability {:?}: {error}", self.durability))?;
        Ok(PartitionOptions::default().durability(durability))
    }
}

impl Config {
    /// Reads a file and checks what it says.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| {
            format!(
                "cannot read the configuration {}; name another with --config, or begin with \
                 `afar up`",
                path.display()
            )
        })?;
        let mut config = Self::parse(&text).with_context(|| format!("{}", path.display()))?;
        config.file = Some(path.to_owned());
        Ok(config)
    }

    /// Understands the text of a file and checks what it says.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let config: Self = toml::from_str(text)
            .map_err(|error| anyhow::anyhow!("{}", error.to_string().trim_end()))?;
        config.check()?;
        Ok(config)
    }

    /// The cell's name.
    pub fn cell(&self) -> anyhow::Result<CellName> {
        ensure!(
            !self.cell.is_empty(),
            "the cell has no name; add a line such as: cell = \"example.org\""
        );
        self.cell
            .parse()
            .with_context(|| format!("cell = {:?}", self.cell))
    }

    /// Whether this server does that.
    pub fn has(&self, role: Role) -> bool {
        self.roles.0.contains(&role)
    }

    /// Partitions by number.
    pub fn partitions(&self) -> anyhow::Result<BTreeMap<PartitionId, &Partition>> {
        let mut partitions = BTreeMap::new();
        for (name, partition) in &self.partition {
            let id: PartitionId = name
                .parse()
                .with_context(|| format!("[partition.{name}]"))?;
            if partitions.insert(id, partition).is_some() {
                bail!("[partition.{name}]: {id} is listed twice");
            }
        }
        Ok(partitions)
    }

    /// Whether what is written makes sense together.
    pub fn check(&self) -> anyhow::Result<()> {
        self.cell()?;
        ensure!(
            !self.roles.0.is_empty(),
            "roles is empty: name one at least"
        );
        self.security.check()?;
        self.login.check()?;
        self.oob.check()?;
        self.metrics.check()?;
        self.web.check()?;
        self.protection.check()?;
        for (id, partition) in self.partitions()? {
            partition.options().with_context(|| format!("{id}"))?;
        }
        let stores = self.has(Role::File) || self.has(Role::Vol);
        ensure!(
            !stores || !self.partition.is_empty(),
            "there is no partition; add one: [partition.a] and path = \"/vicepa\""
        );
        ensure!(
            self.has(Role::File) == self.has(Role::Vol),
            "the roles \"file\" and \"vol\" go together: both work on the partitions"
        );
        within("files.max_calls", self.files.max_calls.0, 10, 1 << 20)?;
        within(
            "files.max_callbacks",
            self.files.max_callbacks.0,
            10_000,
            u64::from(u32::MAX),
        )?;
        within(
            "volumes.idle_seconds",
            self.volumes.idle_seconds.0,
            30,
            86_400,
        )?;
        for (name, size) in [
            ("net.receive_buffer", &self.net.receive_buffer),
            ("net.send_buffer", &self.net.send_buffer),
        ] {
            within(name, size.0, 64 << 10, 1 << 30)?;
        }
        within("net.memory", self.net.memory.0, 64 << 20, 1 << 40)?;
        within("net.idle_seconds", self.net.idle_seconds.0, 10, 86_400)?;
        let elsewhere = |role, servers: &[String], section| {
            ensure!(
                servers.is_empty() || !self.has(role),
                "[{section}] servers names others, but this server has that role itself: remove \
                 one of the two"
            );
            Ok(())
        };
        elsewhere(Role::Vl, &self.location.servers, "location")?;
        elsewhere(Role::Pt, &self.protection.servers, "protection")?;
        if stores {
            for (role, servers, section) in [
                (Role::Vl, &self.location.servers, "location"),
                (Role::Pt, &self.protection.servers, "protection"),
            ] {
                ensure!(
                    self.has(role) || !servers.is_empty(),
                    "a file server needs to know where the cell's {}s are: [{section}] \
                     servers = [\"HOST\"]",
                    role.program()
                );
            }
        }
        Ok(())
    }
}

/// Refuses a number that is out of range, and names the range.
pub fn within<T: PartialOrd + std::fmt::Display>(
    name: &str,
    value: T,
    least: T,
    most: T,
) -> anyhow::Result<()> {
    ensure!(
        least <= value && value <= most,
        "{name} {value} is out of range: {least} to {most}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "cell = \"example.org\"\n[partition.a]\npath = \"/vicepa\"\n";

    #[test]
    fn a_small_file_is_enough() {
        let config = Config::parse(SMALL).unwrap();
        assert_eq!(config.roles.0, Role::ALL);
        assert_eq!(config.files.max_calls.0, 4096);
        assert_eq!(config.partitions().unwrap().len(), 1);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("", "no name"),
            ("cell = \"a b\"", "cell"),
            ("cell = \"example.org\"", "no partition"),
            (&SMALL.replace(".a]", ".A]"), "not a partition"),
            (&format!("rols = []\n{SMALL}"), "rols"),
            (&format!("roles = [\"file\"]\n{SMALL}"), "go together"),
            (
                &format!("roles = [\"file\", \"vol\"]\n{SMALL}"),
                "where the cell's",
            ),
            (&format!("{SMALL}[files]\nmax_calls = 3\n"), "10 to 1048576"),
            (
                &format!("{SMALL}[location]\nservers = [\"db1\"]\n"),
                "itself",
            ),
            (&format!("{SMALL}durability = \"some\"\n"), "durability"),
        ] {
            let error = format!("{:#}", Config::parse(text).unwrap_err());
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let config = Config::parse(SMALL).unwrap();
        let text = toml::to_string(&config).unwrap();
        assert_eq!(
            toml::to_string(&Config::parse(&text).unwrap()).unwrap(),
            text
        );
    }
}
