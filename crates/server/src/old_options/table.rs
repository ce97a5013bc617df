//! The options, as of OpenAFS's sources (`src/viced/viced.c`, `src/vlserver/vlserver.c`,
//! `src/ptserver/ptserver.c`, `src/volser/volmain.c`, `src/vol/salvager.c`, `src/vol/salvaged.c`; 1.8 and
//! the branch after it).

use afar_types::PrAccess;
use anyhow::{Context, bail};

use super::Takes::{MaybeNumber, Nothing, Number, OneOf, Word, Words};
use super::{Meaning, OldOption, Takes};
use crate::config::Config;

/// fileserver and dafileserver.
pub(super) const FILE: u8 = 1;
/// vlserver.
pub(super) const VL: u8 = 2;
/// ptserver.
pub(super) const PT: u8 = 4;
/// volserver and davolserver.
pub(super) const VOL: u8 = 8;
/// salvager, dasalvager, salvageserver.
pub(super) const SALVAGE: u8 = 16;
/// Those that answer clients.
const SERVERS: u8 = FILE | VL | PT | VOL;
/// All.
const ALL: u8 = SERVERS | SALVAGE;

/// Programs by their names.
pub(super) const PROGRAMS: &[(&str, u8)] = &[
    ("fileserver", FILE),
    ("dafileserver", FILE),
    ("vlserver", VL),
    ("ptserver", PT),
    ("volserver", VOL),
    ("davolserver", VOL),
    ("salvager", SALVAGE),
    ("dasalvager", SALVAGE),
    ("salvageserver", SALVAGE),
    ("salvaged", SALVAGE),
];

const fn needless(name: &'static str, of: u8, takes: Takes, why: &'static str) -> OldOption {
    let meaning = Meaning::Needless(why);
    OldOption {
        name,
        of,
        takes,
        meaning,
    }
}

const fn instead(name: &'static str, of: u8, takes: Takes, what: &'static str) -> OldOption {
    let meaning = Meaning::Instead(what);
    OldOption {
        name,
        of,
        takes,
        meaning,
    }
}

const fn refused(name: &'static str, of: u8, takes: Takes, what: &'static str) -> OldOption {
    let meaning = Meaning::Refused(what);
    OldOption {
        name,
        of,
        takes,
        meaning,
    }
}

const fn set(
    name: &'static str,
    of: u8,
    takes: Takes,
    set: fn(&mut Config, &[String]) -> anyhow::Result<String>,
) -> OldOption {
    let meaning = Meaning::Set(set);
    OldOption {
        name,
        of,
        takes,
        meaning,
    }
}

/// The largest number OpenAFS reads.
const INT_MAX: i64 = i32::MAX as i64;
/// Any number.
const ANY: Takes = Number(0, INT_MAX);
/// Any number, or -1 for none.
const OR_NONE: Takes = Number(-1, INT_MAX);

const AUDIT: &str = "who did what is in the log, as its part audit: `afar config explain log`";
const LOG: &str =
    "the log goes to standard error, where systemd's journal takes it: journalctl -u afar";
const DETAIL: &str =
    "how much is logged is `log` in the configuration, such as \"info,afar_rx=debug\"";
const TASKS: &str =
    "a call is a task, not a thread; files.max_calls bounds the number of calls at a time";
const CACHE: &str = "this is read from the system's page cache, which grows and shrinks by itself";
const SIZES: &str = "no cache or table has a size to choose";
const ATTACH: &str = "a volume is opened when it is used, and costs memory only as long";
const HELD: &str = "the volume server takes a volume between two steps of the file server, and waits for no \
                    client";
const STATE: &str = "callback promises are saved at each stop and loaded at the next start; to \
                     make clients drop them, remove `callbacks` in the directory data";
const FRAMES: &str = "the packet size of each path is found by probing";
const COUNTERS: &str = "calls are always counted";
const QUOTA: &str = "quotas are exact; give a volume more with `fs setquota`";
const STATS: &str = "counters of a volume's use stay with the volume";
const SYNC: &str = "what is acknowledged is on the disk; partition.X.durability allows less";
const DATABASE: &str = "databases are in the directory data";
const SALVAGER: &str = "there is no salvager, because changes are atomic; `afar store check` \
                        checks a partition";

pub(super) const OPTIONS: &[OldOption] = &[
    set("-busyat", FILE, Number(10, 1 << 20), |config, value| {
        raise("files.max_calls", &mut config.files.max_calls.0, value)
    }),
    set("-cb", FILE, Number(10_000, INT_MAX), |config, value| {
        let key = "files.max_callbacks";
        raise(key, &mut config.files.max_callbacks.0, value)
    }),
    set(
        "-udpsize",
        FILE | VOL,
        Number(65_536, 1 << 30),
        |config, value| {
            let key = "net.receive_buffer";
            raise(key, &mut config.net.receive_buffer.0, value)
        },
    ),
    set("-realm", FILE, Words, |config, realms| {
        config.security.realms.extend_from_slice(realms);
        Ok(format!("taken as security.realms = {realms:?}"))
    }),
    set("-allow-dotted-principals", SERVERS, Nothing, |config, _| {
        let key = "security.allow_dotted_principals";
        switch_on(key, &mut config.security.allow_dotted_principals)
    }),
    set("-noauth", VL, Nothing, |config, _| {
        switch_on("insecure_noauth", &mut config.insecure_noauth)
    }),
    set("-restricted", PT, Nothing, |config, _| {
        switch_on("protection.restricted", &mut config.protection.restricted)
    }),
    set("-restrict_anonymous", PT, Nothing, |config, _| {
        let key = "protection.restrict_anonymous";
        switch_on(key, &mut config.protection.restrict_anonymous)
    }),
    set("-groupdepth", PT, Number(1, 64), group_depth),
    set("-depth", PT, Number(1, 64), group_depth),
    set("-default_access", PT, Words, default_access),
    set(
        "-restricted_query",
        VOL,
        OneOf(&["anyuser", "admin"]),
        |config, value| {
            let key = "volumes.restricted_query";
            restrict(key, &mut config.volumes.restricted_query, value)
        },
    ),
    set(
        "-restricted_query",
        VL,
        OneOf(&["anyuser", "admin"]),
        |config, value| {
            let key = "location.restricted_query";
            restrict(key, &mut config.location.restricted_query, value)
        },
    ),
    refused(
        "-readonly",
        FILE,
        Nothing,
        "afar has no file server that only reads; serve read-only copies (`vos addsite`, `vos release`), \
         or mount the partition's disk read-only",
    ),
    refused(
        "-admin-write",
        FILE,
        Nothing,
        "this goes with -readonly, and afar has no file server that only reads; leave writing to \
         system:administrators by access lists",
    ),
    instead(
        "-implicit",
        FILE,
        Word,
        "members of system:administrators may see and change access lists everywhere, and have the \
         other rights that these give",
    ),
    instead(
        "-cve-2018-7168-enforce",
        FILE,
        Nothing,
        "old clients may still set access lists by StoreACL (134); exclude anonymous callers with \
         security.minimum.file",
    ),
    instead(
        "-saneacls",
        FILE,
        Nothing,
        "this only told clients of a promise; access lists are kept as they are set",
    ),
    instead(
        "-rxbind",
        SERVERS,
        Nothing,
        "the address to listen on is `listen` in the configuration",
    ),
    instead(
        "-config",
        SERVERS,
        Word,
        "the configuration of afar is one file; name OpenAFS's KeyFileExt in security.keys and its \
         UserList in security.userlist",
    ),
    instead("-d", SERVERS, ANY, DETAIL),
    instead("-debug", SALVAGE, Nothing, SALVAGER),
    instead("-rxdbg", FILE, Nothing, DETAIL),
    instead("-rxdbge", FILE, Nothing, DETAIL),
    instead("-trace", VL, Word, DETAIL),
    instead("-auditlog", SERVERS, Words, AUDIT),
    instead("-audit-interface", SERVERS, Word, AUDIT),
    instead("-log", VOL, Nothing, AUDIT),
    instead("-logfile", ALL, Word, LOG),
    instead("-syslog", SERVERS, MaybeNumber, LOG),
    instead("-syslog", SALVAGE, Nothing, LOG),
    instead("-syslogfacility", SALVAGE, Word, LOG),
    instead("-mrafslogs", FILE, Nothing, LOG),
    instead("-transarc-logs", ALL, Nothing, LOG),
    instead("-banner", FILE, Nothing, LOG),
    instead("-database", VL | PT, Word, DATABASE),
    instead("-db", VL | PT, Word, DATABASE),
    instead(
        "-s2scrypt",
        VOL,
        OneOf(&["always", "inherit", "never"]),
        "volumes go to other servers under security.minimum.vol, \"auth\" at least",
    ),
    instead(
        "-s2scrypt",
        VL | PT,
        OneOf(&["rxgk-crypt", "never"]),
        "database servers agree through etcd, whose own settings say how its members talk",
    ),
    instead("-spare", FILE, ANY, QUOTA),
    instead("-pctspare", FILE, Number(0, 100), QUOTA),
    instead("-clear-vol-stats", VOL, Nothing, STATS),
    needless("-preserve-vol-stats", VOL, Nothing, STATS),
    instead("-fs-state-dont-save", FILE, Nothing, STATE),
    instead("-fs-state-dont-restore", FILE, Nothing, STATE),
    needless(
        "-fs-state-verify",
        FILE,
        OneOf(&["none", "save", "restore", "both"]),
        "what is loaded after a start is always checked",
    ),
    needless(
        "-sync",
        FILE | VOL,
        OneOf(&["always", "onclose", "never"]),
        SYNC,
    ),
    needless("-L", FILE, Nothing, SIZES),
    needless("-S", FILE, Nothing, SIZES),
    needless("-smallmem", VL, Nothing, SIZES),
    needless("-p", SERVERS, Number(1, 16_384), TASKS),
    needless("-lock", FILE, Nothing, SIZES),
    needless(
        "-m",
        FILE,
        Number(0, 30),
        "what a file system keeps free is its own setting",
    ),
    needless("-b", FILE, ANY, CACHE),
    needless("-s", FILE, ANY, CACHE),
    needless("-l", FILE, ANY, CACHE),
    needless("-vc", FILE, ANY, ATTACH),
    needless("-vattachpar", FILE, ANY, ATTACH),
    needless("-vlrudisable", FILE, Nothing, ATTACH),
    needless("-vlruthresh", FILE, ANY, ATTACH),
    needless("-vlruinterval", FILE, ANY, ATTACH),
    needless("-vlrumax", FILE, ANY, ATTACH),
    needless("-unsafe-nosalvage", FILE, Nothing, SALVAGER),
    needless("-vhandle-setaside", FILE, ANY, SIZES),
    needless("-vhandle-max-cachesize", FILE, ANY, SIZES),
    needless("-vhandle-initial-cachesize", FILE, ANY, SIZES),
    needless(
        "-vhashsize",
        FILE,
        Number(6, 28),
        "volumes are found through an index on disk; no table has a size to choose",
    ),
    needless(
        "-sendsize",
        FILE,
        Number(16_384, INT_MAX),
        "data is read in pieces that fit the call's window",
    ),
    needless(
        "-hr",
        FILE,
        Number(1, 36),
        "the server asks for the groups of a host again after two hours",
    ),
    needless("-offline-timeout", FILE, OR_NONE, HELD),
    needless("-offline-shutdown-timeout", FILE, OR_NONE, HELD),
    needless(
        "-abortthreshold",
        FILE,
        ANY,
        "refusals are limited by rate for each peer, and hold up no call",
    ),
    needless(
        "-nobusy",
        FILE,
        Nothing,
        "a server that starts answers as soon as it listens",
    ),
    needless(
        "-w",
        FILE,
        ANY,
        "each kind of work in the background has its own pace",
    ),
    needless(
        "-novbc",
        FILE,
        Nothing,
        "promises are broken when their files change, not when a volume is opened",
    ),
    needless("-enable_peer_stats", SERVERS, Nothing, COUNTERS),
    needless("-enable_process_stats", SERVERS, Nothing, COUNTERS),
    needless(
        "-rxpck",
        FILE,
        ANY,
        "packets are not taken from a pool of fixed size",
    ),
    needless("-rxmaxmtu", SERVERS, ANY, FRAMES),
    needless("-nojumbo", FILE | VL | VOL, Nothing, FRAMES),
    needless("-jumbo", FILE | VL | VOL, Nothing, FRAMES),
    needless("-sleep", VOL, Word, "OpenAFS takes no notice of it either"),
    needless("-partition", SALVAGE, Word, SALVAGER),
    needless("-volumeid", SALVAGE, Word, SALVAGER),
    needless("-nowrite", SALVAGE, Nothing, SALVAGER),
    needless("-inodes", SALVAGE, Nothing, SALVAGER),
    needless("-force", SALVAGE, Nothing, SALVAGER),
    needless("-f", SALVAGE, Nothing, SALVAGER),
    needless("-oktozap", SALVAGE, Nothing, SALVAGER),
    needless("-rootinodes", SALVAGE, Nothing, SALVAGER),
    needless("-salvagedirs", SALVAGE, Nothing, SALVAGER),
    needless("-blockreads", SALVAGE, Nothing, SALVAGER),
    needless("-parallel", SALVAGE, Word, SALVAGER),
    needless("-tmpdir", SALVAGE, Word, SALVAGER),
    needless("-showlog", SALVAGE, Nothing, SALVAGER),
    needless("-showsuid", SALVAGE, Nothing, SALVAGER),
    needless("-showmounts", SALVAGE, Nothing, SALVAGER),
    needless(
        "-orphans",
        SALVAGE,
        OneOf(&["ignore", "remove", "attach"]),
        SALVAGER,
    ),
    needless("-datelogs", SALVAGE, Nothing, SALVAGER),
    needless("-DontSalvage", SALVAGE, Nothing, SALVAGER),
    needless("-forceDAFS", SALVAGE, Nothing, SALVAGER),
    needless("-client", SALVAGE, Nothing, SALVAGER),
];

/// Sets a limit that is higher than what it was.
fn raise<T>(key: &str, limit: &mut T, value: &[String]) -> anyhow::Result<String>
where
    T: Copy
        + Ord
        + std::fmt::Display
        + std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let value: T = value.concat().parse().context("not a number for this")?;
    if value <= *limit {
        return Ok(format!(
            "ignored; {key} is {limit}, which is no lower, and only the configuration lowers it"
        ));
    }
    *limit = value;
    Ok(format!("taken as {key} = {value}"))
}

fn switch_on(key: &str, switch: &mut bool) -> anyhow::Result<String> {
    *switch = true;
    Ok(format!("taken as {key} = true"))
}

/// Closes what is open to everybody; it opens nothing that the configuration closes.
fn restrict(key: &str, switch: &mut bool, value: &[String]) -> anyhow::Result<String> {
    let closed = value.concat() == "admin";
    if *switch && !closed {
        bail!("{key} = true in the configuration says otherwise; remove one of the two");
    }
    *switch = closed;
    Ok(format!("taken as {key} = {closed}"))
}

fn group_depth(config: &mut Config, value: &[String]) -> anyhow::Result<String> {
    config.protection.group_depth.0 = value.concat().parse()?;
    Ok(format!(
        "taken as protection.group_depth = {}",
        config.protection.group_depth.0
    ))
}

fn default_access(config: &mut Config, value: &[String]) -> anyhow::Result<String> {
    let [user, group] = value else {
        bail!("it takes two words, access to users and to groups, such as S---- S-M--");
    };
    for text in [user, group] {
        PrAccess::parse(text).map_err(anyhow::Error::msg)?;
    }
    config.protection.user_access.0.clone_from(user);
    config.protection.group_access.0.clone_from(group);
    Ok(format!(
        "taken as protection.user_access = {user:?} and protection.group_access = {group:?}"
    ))
}
