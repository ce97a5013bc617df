//! What can be configured, what it does, and what it is now.

use anyhow::ensure;

use crate::config::Config;

/// What is to be known of a key of the configuration.
#[derive(Debug)]
pub struct Explanation {
    /// Section and name.
    pub key: &'static str,
    /// What it does, and what more or less of it costs.
    pub meaning: &'static str,
    /// What may be written.
    pub range: &'static str,
    /// What it is where nothing is written.
    pub default: Option<String>,
    /// What it is in the configuration that was asked about.
    pub value: Option<String>,
}

/// A key of the configuration.
struct Key {
    /// Section and name.
    name: &'static str,
    /// What may be written.
    range: &'static str,
    /// What it does, and what more or less of it costs.
    meaning: &'static str,
}

const fn key(name: &'static str, range: &'static str, meaning: &'static str) -> Key {
    Key {
        name,
        range,
        meaning,
    }
}

/// Every key. A test holds it against what is understood.
const KEYS: &[Key] = &[
    key(
        "cell",
        "a cell's name",
        "The cell this server is of. There is no default.",
    ),
    key(
        "roles",
        "some of \"vl\", \"pt\", \"file\", \"vol\", \"bos\"",
        "What this server does: volume locations (UDP port 7003), users and groups (7002), files \
         (7000), volumes (7005), status for `bos` (7007). A file server needs both file and vol.",
    ),
    key(
        "data",
        "a directory",
        "The directory of the databases, and of the state that the server keeps between runs.",
    ),
    key(
        "run",
        "a directory",
        "The directory of the sockets for administration on this machine. Every user who may enter \
         it is an administrator. By default /run/afar/CELL, or for users other than root \
         afar/CELL in $XDG_RUNTIME_DIR.",
    ),
    key(
        "listen",
        "an address of this machine",
        "The address to listen on. 127.0.0.1 keeps everything on this machine.",
    ),
    key(
        "addresses",
        "up to 15 IPv4 addresses",
        "The addresses that the location servers tell clients. By default the listen address, or \
         if that is 0.0.0.0 all addresses of the machine except loopback.",
    ),
    key(
        "monitors",
        "addresses",
        "Hosts that, like this machine, see everything when they ask for a server's state (rxdebug). Other hosts \
         do not see the numbers with which they could take over connections.",
    ),
    key(
        "log",
        "off, error, warn, info, debug, trace; or by part, such as \"info,afar_rx=debug\"",
        "What the server logs to standard error, and so to systemd's journal. The part audit logs \
         changes, administration and refusals with their callers at info, changes of files at debug, \
         and every call at trace.",
    ),
    key(
        "insecure_noauth",
        "true or false",
        "Let every caller administer this server. For tests, in a network of their own; the server \
         warns of it at each start.",
    ),
    key(
        "location.servers",
        "HOST or HOST:PORT, several",
        "Volume location servers of the cell, afar's or OpenAFS's, if this server is not one. The \
         file server registers its addresses there.",
    ),
    key(
        "location.restricted_query",
        "true or false",
        "Whether only administrators may list the database of volume locations.",
    ),
    key(
        "protection.servers",
        "HOST or HOST:PORT, several",
        "Protection servers of the cell, afar's or OpenAFS's, if this server is not one. The file \
         server asks them for users and groups.",
    ),
    key(
        "protection.restricted",
        "true or false",
        "Whether only administrators may change users and groups. Otherwise users may create groups of their own.",
    ),
    key(
        "protection.restrict_anonymous",
        "true or false",
        "Whether anonymous callers may only translate names and numbers.",
    ),
    key(
        "protection.group_depth",
        "1 to 64",
        "How many levels of groups in groups count.",
    ),
    key(
        "protection.user_access",
        "five letters as `pts examine` shows them, or an octal number",
        "Default rights to see a user.",
    ),
    key(
        "protection.group_access",
        "five letters as `pts examine` shows them, or an octal number",
        "Default rights to see and change a group.",
    ),
    key(
        "database.etcd",
        "HOST:PORT, several",
        "Members of the etcd cluster through which the databases of several servers agree. Without \
         it the databases are this server's alone. Needs a build with the feature `etcd`.",
    ),
    key(
        "files.max_calls",
        "10 to 1048576",
        "Maximum number of calls in progress. Further calls wait, and get VBUSY if too many wait.",
    ),
    key(
        "files.max_callbacks",
        "10000 to 4294967295",
        "Maximum number of callback promises to clients. Each takes at most 100 bytes while it \
         lasts. Beyond the maximum the server breaks the oldest.",
    ),
    key(
        "files.leases",
        "true or false",
        "Whether clients of afar may keep changes to themselves until somebody else asks for the file (leases). The \
         server then asks them first, which takes 20 s at most, and after a restart it waits as long for what they have.",
    ),
    key(
        "volumes.idle_seconds",
        "30 to 86400",
        "How long a volume transaction (of `vos`) may be idle before the server ends it.",
    ),
    key(
        "volumes.restricted_query",
        "true or false",
        "Whether only administrators may list volumes.",
    ),
    key(
        "security.keys",
        "files: KeyFileExt of OpenAFS, keytabs with keys of afs/CELL",
        "The cell's keys, with which servers decrypt tickets. By default KeyFileExt in the directory \
         data; if that has no key, and OpenAFS on this machine is of the same cell, \
         /etc/openafs/server/KeyFileExt. The server notices a changed file without a restart. \
         Without any key all callers are anonymous. See `afar keys`.",
    ),
    key(
        "security.realms",
        "names of Kerberos realms",
        "Realms whose users are users of this cell, in addition to the one with the cell's name in \
         capitals. Users of other realms are called USER@REALM.",
    ),
    key(
        "security.superusers",
        "users: NAME, NAME.INSTANCE or NAME@REALM",
        "Users who may administer volumes and volume locations on this server. To administer users \
         and groups they need membership in system:administrators.",
    ),
    key(
        "security.userlist",
        "a file",
        "An OpenAFS UserList: more superusers, one a line, which `bos adduser` and `bos removeuser` \
         change. By default UserList in the directory data. The server notices a changed file.",
    ),
    key(
        "security.allow_dotted_principals",
        "true or false",
        "Whether to admit users whose Kerberos name has a dot. Then `a.b` and `a/b` are the same \
         user.",
    ),
    key(
        "security.danger_allow_des",
        "true or false",
        "Whether to accept tickets under single DES, which anybody with some time can forge.",
    ),
    key(
        "security.minimum.file",
        "\"none\", \"clear\", \"auth\" or \"crypt\"",
        "Minimum security of callers of the file server: none; prove their identity; also protect \
         the first bytes of each packet; encrypt. From \"clear\" on the server refuses anonymous \
         callers. Administration on this machine is not affected.",
    ),
    key(
        "security.minimum.vol",
        "\"none\", \"clear\", \"auth\" or \"crypt\"",
        "The same for the volume server.",
    ),
    key(
        "security.minimum.vl",
        "\"none\", \"clear\", \"auth\" or \"crypt\"",
        "The same for the location server. Unmodified clients ask it anonymously.",
    ),
    key(
        "security.minimum.pt",
        "\"none\", \"clear\", \"auth\" or \"crypt\"",
        "The same for the protection server.",
    ),
    key(
        "security.minimum.bos",
        "\"none\", \"clear\", \"auth\" or \"crypt\"",
        "The same for the status requests of `bos`.",
    ),
    key(
        "login.enabled",
        "true or false",
        "Whether users may log in here with a password or an SSH key, where there is no KDC. The \
         service runs if this server has the role pt and the cell has a key. See `afar pts createuser`.",
    ),
    key(
        "login.listen",
        "an address of this machine",
        "The address to listen on for logins, if it differs from listen.",
    ),
    key(
        "login.port",
        "1 to 65535",
        "The TCP port for logins. Clients use 7002 unless told otherwise.",
    ),
    key(
        "login.certificate",
        "a file in PEM",
        "A certificate for TLS, with its chain, such as one for this host's name from a public \
         authority. By default login.pem in the directory data, which the first start creates; \
         clients know it by its fingerprint.",
    ),
    key(
        "login.certificate_key",
        "a file in PEM",
        "The certificate's private key, if it is in another file.",
    ),
    key(
        "login.lifetime_minutes",
        "5 to 43200 (30 days)",
        "Lifetime of the tokens that a login gives. They stay valid until they expire, even if the \
         user is removed.",
    ),
    key(
        "oob.enabled",
        "true or false",
        "Whether afar's clients may fetch and store large files by TLS on TCP, out of band: encrypted at any level of \
         security. Volumes go so, too, between servers that have this. \
         Clients that cannot reach the port, or to which Rx brings twice as much, use Rx.",
    ),
    key(
        "oob.port",
        "1 to 65535",
        "The TCP port for that. If another program has it, the server warns, and clients use Rx.",
    ),
    key(
        "metrics.listen",
        "an address and TCP port, such as \"127.0.0.1:9109\"",
        "Where Prometheus finds what the server counts, at /metrics. By default nowhere: only the \
         socket metrics.sock in the run directory shows it. The port asks nobody for a password and \
         tells names of volumes and users, so name an address that only monitoring reaches.",
    ),
    key(
        "web.listen",
        "an address and TCP port, such as \"127.0.0.1:9110\"",
        "Where browsers find a page that shows the server and its cell at a glance. By default nowhere: only \
         the socket web.sock in the run directory shows it. Addresses that other machines reach need \
         web.token. There is no TLS, so put a proxy that has it before the port.",
    ),
    key(
        "web.token",
        "a file",
        "A token of 16 characters or more, which viewers of the page at web.listen enter as password, \
         with any user. Others must not be able to read the file. The server reads it when it starts.",
    ),
    key(
        "net.receive_buffer",
        "65536 to 1073741824 bytes",
        "Receive buffer of a UDP socket. The kernel's net.core.rmem_max may allow less; then the log \
         says so.",
    ),
    key(
        "net.send_buffer",
        "65536 to 1073741824 bytes",
        "Send buffer of a UDP socket; the kernel's limit is net.core.wmem_max.",
    ),
    key(
        "net.memory",
        "67108864 to 1099511627776 bytes",
        "Memory that all clients together can make the servers use: data that clients have not taken \
         or servers have not read yet, calls, connections. Beyond this, servers stop reading from \
         the store, shrink windows, and let calls wait or answer VBUSY. One address, or user, gets \
         a part of the free memory. By default an eighth of the machine's memory, 512 MiB at most.",
    ),
    key(
        "net.idle_seconds",
        "10 to 86400",
        "How long a call may go on without the client sending or taking 32 KiB of data, or the rest. \
         Then the call ends. Users have twice as long, administrators ten times.",
    ),
    key(
        "partition.X.path",
        "a directory",
        "The directory of partition X (a to z, aa to iu), which clients call /vicepX. The first start \
         creates the partition if the directory is missing or empty; later starts take that for a \
         disk that is not mounted, and do not serve the partition.",
    ),
    key(
        "partition.X.durability",
        "\"full\", \"metadata\" or \"async\"",
        "What a completed operation survives: power loss; power loss except for file data of the \
         last seconds; the end of the process.",
    ),
];

/// Explains the keys of these names and sections, or all; with their values in a configuration.
///
/// # Errors
/// There is no such key.
pub fn explain(wanted: &[String], config: Option<&Config>) -> anyhow::Result<Vec<Explanation>> {
    let written = config.map(toml::Value::try_from).transpose()?;
    let defaults = toml::Value::try_from(Config::default())?;
    for wanted in wanted {
        ensure!(
            KEYS.iter().any(|key| is_wanted(key.name, wanted)),
            "there is no key {wanted}; `afar config explain` lists all"
        );
    }
    let keys = KEYS
        .iter()
        .filter(|key| wanted.is_empty() || wanted.iter().any(|wanted| is_wanted(key.name, wanted)));
    let explained = keys.map(|key| Explanation {
        key: key.name,
        meaning: key.meaning,
        range: key.range,
        default: value(&defaults, key.name),
        value: written.as_ref().and_then(|file| value(file, key.name)),
    });
    Ok(explained.collect())
}

fn is_wanted(key: &str, wanted: &str) -> bool {
    key == wanted
        || key
            .strip_prefix(wanted)
            .is_some_and(|rest| rest.starts_with('.'))
}

/// The value of a key as it would be written; of a partition's, one for each.
fn value(config: &toml::Value, key: &str) -> Option<String> {
    let mut places = vec![(String::new(), config)];
    for part in key.split('.') {
        let mut next = Vec::new();
        for (name, place) in places {
            if part == "X" {
                let table = place.as_table()?;
                next.extend(table.iter().map(|(x, inner)| (format!("{x}: "), inner)));
            } else if let Some(inner) = place.get(part) {
                next.push((name, inner));
            }
        }
        places = next;
    }
    let texts: Vec<String> = places
        .iter()
        .map(|(name, place)| format!("{name}{place}"))
        .filter(|text| text != "\"\"")
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::Partition;

    fn leaves(prefix: &str, value: &toml::Value, found: &mut BTreeSet<String>) {
        match value {
            toml::Value::Table(table) => {
                for (name, inner) in table {
                    let name = if prefix == "partition" { "X" } else { name };
                    let dot = if prefix.is_empty() { "" } else { "." };
                    leaves(&format!("{prefix}{dot}{name}"), inner, found);
                }
            }
            _ => {
                found.insert(prefix.to_owned());
            }
        }
    }

    #[test]
    fn every_key_that_is_understood_is_explained() {
        let mut config = Config {
            run: Some("/run/afar/x".into()),
            ..Config::default()
        };
        config.login.listen = Some(config.listen.clone());
        config.login.certificate = Some("/etc/afar/login.pem".into());
        config.login.certificate_key = Some("/etc/afar/login.key".into());
        config.metrics.listen = Some(([127, 0, 0, 1], 9109).into());
        config.web.listen = Some(([127, 0, 0, 1], 9110).into());
        config.web.token = Some("/etc/afar/web.token".into());
        config.security.userlist = Some("/etc/afar/UserList".into());
        config
            .partition
            .insert("a".into(), Partition::new("/vicepa".into()));
        let mut understood = BTreeSet::new();
        leaves("", &toml::Value::try_from(config).unwrap(), &mut understood);
        let explained: BTreeSet<String> = KEYS.iter().map(|key| key.name.to_owned()).collect();
        assert_eq!(understood, explained);
    }

    #[test]
    fn values_are_shown_as_they_are_written() {
        let config = toml::Value::try_from(Config::default()).unwrap();
        assert_eq!(value(&config, "files.max_calls").unwrap(), "4096");
        assert_eq!(value(&config, "cell"), None);
        assert_eq!(value(&config, "partition.X.path"), None);
        assert!(is_wanted("files.max_calls", "files"));
        assert!(!is_wanted("files.max_calls", "fil"));
    }
}
