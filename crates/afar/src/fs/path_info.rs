//! `fs pathinfo`: what a mount knows of a path, and what it has of it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use afar_cache::{PathInfo, xattr_name};
use clap::Args;
use rustix::io::Errno;
use serde::Serialize;

use super::or_here;
use super::report::Report;
use crate::mount::attribute;
use crate::store::short_kind;
use crate::top::{short_bytes, shown};

/// Options of `fs pathinfo`.
#[derive(Debug, Args)]
pub(crate) struct PathInfoArgs {
    /// dir/file path
    #[arg(long, value_name = "dir/file path")]
    path: Vec<PathBuf>,
    /// Print the result as JSON, one object a line
    #[arg(long, help_heading = "Options of afar's own")]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    path: &'a str,
    cell: &'a str,
    volume: VolumeShown<'a>,
    fid: String,
    kind: &'a str,
    is_mount_point: bool,
    mount_point: Option<&'a str>,
    data_version: Option<u64>,
    length: u64,
    servers: Vec<ServerShown>,
    cached: Cached,
    promised_seconds: Option<u64>,
}

#[derive(Debug, Serialize)]
struct VolumeShown<'a> {
    id: u32,
    name: &'a str,
    r#type: &'static str,
}

#[derive(Debug, Serialize)]
struct ServerShown {
    address: String,
    is_up: bool,
    in_use: bool,
}

#[derive(Debug, Serialize)]
struct Cached {
    clean_bytes: u64,
    clean_ranges: u64,
    dirty_bytes: u64,
    dirty_ranges: u64,
}

/// Asks the mounts these paths are in.
pub(super) fn run(args: &PathInfoArgs) -> anyhow::Result<ExitCode> {
    let mut report = Report::new(args.json, false);
    for path in or_here(&args.path) {
        let shown_path = path.display().to_string();
        match ask(&path) {
            Ok(info) => {
                let object = object(&shown_path, &info);
                report.either(&object, || text(&shown_path, &info))?;
            }
            Err(error) => {
                let why = why(error, || is_in_mount(&path));
                report.say(&format!("fs: {shown_path}: {why}\n"))?;
            }
        }
    }
    report.finish()
}

fn ask(path: &Path) -> Result<PathInfo, Errno> {
    let text = attribute(path, xattr_name::PATH_INFO)?;
    text.parse().map_err(|_| Errno::BADMSG)
}

/// Whether a path is in a mount of afar, of any version.
fn is_in_mount(path: &Path) -> bool {
    attribute(path, xattr_name::CACHE).is_ok()
}

fn why(error: Errno, is_in_mount: impl Fn() -> bool) -> String {
    match error {
        Errno::NODATA | Errno::OPNOTSUPP if is_in_mount() => {
            "the mount knows nothing of it: it is in no volume, or the mount is of an older version".to_owned()
        }
        Errno::NODATA | Errno::OPNOTSUPP => {
            "it is in no mount of afar, and only a mount has a cache and promises; `afar mount` makes one, and \
             `afar fs examine`, `whereis` and `getfid` ask the servers without"
                .to_owned()
        }
        Errno::BADMSG => "the mount's answer is not understood; is it of another version?".to_owned(),
        Errno::NOTCONN => "nobody serves this mount any more; `afar umount` removes it".to_owned(),
        error => std::io::Error::from(error).to_string(),
    }
}

fn object<'a>(path: &'a str, info: &'a PathInfo) -> Shown<'a> {
    let in_use = info.server_in_use();
    Shown {
        path,
        cell: &info.cell,
        volume: VolumeShown {
            id: info.fid.volume.0,
            name: &info.volume,
            r#type: short_kind(info.volume_type),
        },
        fid: info.fid.to_string(),
        kind: &info.kind,
        is_mount_point: info.mount_point.is_some(),
        mount_point: info.mount_point.as_deref(),
        data_version: info.data_version.map(|version| version.0),
        length: info.length,
        servers: (info.servers.iter())
            .map(|(address, is_up)| ServerShown {
                address: address.to_string(),
                is_up: *is_up,
                in_use: Some(*address) == in_use,
            })
            .collect(),
        cached: Cached {
            clean_bytes: info.clean.0,
            clean_ranges: info.clean.1,
            dirty_bytes: info.dirty.0,
            dirty_ranges: info.dirty.1,
        },
        promised_seconds: info.promised_seconds,
    }
}

fn text(path: &str, info: &PathInfo) -> String {
    let mut lines = vec![
        ("cell", info.cell.clone()),
        (
            "volume",
            format!(
                "{} {} {}",
                info.fid.volume.0,
                shown(&info.volume),
                short_kind(info.volume_type)
            ),
        ),
        ("fid", info.fid.to_string()),
        ("kind", shown(&info.kind)),
    ];
    let point = info.mount_point.as_deref().map(shown);
    lines.push(("mount point", point.unwrap_or_else(|| "no".to_owned())));
    let version = info.data_version.map(|version| version.0.to_string());
    let version = version.unwrap_or_else(|| "unknown".to_owned());
    lines.push(("data version", version));
    lines.push(("length", bytes(info.length)));
    let in_use = info.server_in_use();
    for (address, up) in &info.servers {
        let state = match (Some(*address) == in_use, up) {
            (true, true) => " (in use)",
            (true, false) => " (in use, does not answer)",
            (false, true) => "",
            (false, false) => " (does not answer)",
        };
        lines.push(("server", format!("{address}{state}")));
    }
    lines.push(("cached clean", ranges(info.clean)));
    lines.push(("cached dirty", ranges(info.dirty)));
    let promise = info.promised_seconds.map(|left| format!("{left} s more"));
    lines.push(("promise", promise.unwrap_or_else(|| "none".to_owned())));
    let lines = lines.into_iter();
    let lines = lines.map(|(name, value)| format!("  {name:<14}{value}\n"));
    format!("{}\n{}", shown(path), lines.collect::<String>())
}

fn ranges((count, ranges): (u64, u64)) -> String {
    match ranges {
        0 => "nothing".to_owned(),
        1 => bytes(count),
        ranges => format!("{} in {ranges} ranges", bytes(count)),
    }
}

/// Bytes, and about how much that is.
fn bytes(count: u64) -> String {
    match count {
        0..=999 => format!("{count} bytes"),
        count => format!("{count} bytes ({})", short_bytes(count)),
    }
}

#[cfg(test)]
mod tests {
    use afar_types::{DataVersion, Fid, VolumeType};

    use super::*;

    fn info() -> PathInfo {
        PathInfo {
            cell: "a.example".to_owned(),
            fid: Fid::new(536_870_915, 2, 7),
            volume: "user.\u{1b}".to_owned(),
            volume_type: VolumeType::ReadWrite,
            kind: "file".to_owned(),
            mount_point: None,
            data_version: Some(DataVersion(12)),
            length: 500,
            servers: vec![
                ("192.0.2.1:7000".parse().unwrap(), false),
                ("192.0.2.2:7000".parse().unwrap(), true),
            ],
            clean: (400, 2),
            dirty: (0, 0),
            promised_seconds: Some(90),
        }
    }

    #[test]
    fn all_that_is_known_has_a_line_and_names_are_harmless() {
        let text = text("/afs/x", &info());
        assert_eq!(
            text,
            "/afs/x\n  cell          a.example\n  volume        536870915 user.\\u{1b} RW\n  \
             fid           536870915.2.7\n  kind          file\n  mount point   no\n  data version  12\n  \
             length        500 bytes\n  server        192.0.2.1:7000 (does not answer)\n  \
             server        192.0.2.2:7000 (in use)\n  cached clean  400 bytes in 2 ranges\n  \
             cached dirty  nothing\n  promise       90 s more\n"
        );
        let unknown = PathInfo {
            mount_point: Some("#user.ann.".to_owned()),
            data_version: None,
            promised_seconds: None,
            ..info()
        };
        let text = super::text("/afs/x", &unknown);
        for line in [
            "mount point   #user.ann.\n",
            "data version  unknown\n",
            "promise       none\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn the_object_has_the_same() {
        let info = info();
        let json = serde_json::to_value(object("/afs/x", &info)).unwrap();
        assert_eq!(json["fid"], "536870915.2.7");
        assert_eq!(json["volume"]["type"], "RW");
        assert_eq!(json["servers"][1]["in_use"], true);
        assert_eq!(json["cached"]["clean_bytes"], 400);
        assert_eq!(json["promised_seconds"], 90);
        assert_eq!(json["is_mount_point"], false);
    }

    #[test]
    fn without_a_mount_it_is_said_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let error = ask(dir.path()).unwrap_err();
        let text = why(error, || is_in_mount(dir.path()));
        assert!(text.contains("in no mount of afar"), "{text}");
        assert!(text.contains("fs examine"), "{text}");
        assert!(why(Errno::NODATA, || true).contains("in no volume"));
        let none = ask(&dir.path().join("none")).unwrap_err();
        assert!(why(none, || false).contains("No such file"), "{none}");
    }
}
