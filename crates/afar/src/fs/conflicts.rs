//! `fs conflicts`: changes made through a mount that could not be made at their servers.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use afar_cache::Conflict;
use clap::Args;
use rustix::io::Errno;
use serde::Serialize;

use super::or_here;
use super::report::Report;
use crate::fetch::format::{Name, time};
use crate::mount::{CONFLICTS, mount_of};
use crate::top::shown;

/// Options of `fs conflicts`.
#[derive(Debug, Args)]
pub(crate) struct ConflictsArgs {
    /// dir/file path
    #[arg(long, value_name = "dir/file path")]
    path: Vec<PathBuf>,
    /// Print the result as JSON, one object a line
    #[arg(long, help_heading = "Options of afar's own")]
    json: bool,
}

/// A conflict as JSON.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    mount: &'a str,
    /// Seconds since 1970.
    time: u32,
    cell: &'a str,
    fid: String,
    verb: &'a str,
    #[serde(flatten)]
    name: Option<Name>,
    why: &'a str,
    kept: Option<String>,
}

/// What a mount tells.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    conflicts: Vec<Conflict>,
    /// Lines that are not understood.
    strange: usize,
}

/// Asks the mounts these paths are in.
pub(super) fn run(args: &ConflictsArgs) -> anyhow::Result<ExitCode> {
    let mut report = Report::new(args.json, false);
    let (mut asked, mut found) = (Vec::new(), false);
    for path in or_here(&args.path) {
        let shown_path = path.display().to_string();
        let Some(place) = mount_of(&path) else {
            report.say(&format!("fs: {shown_path}: it is in no mount of afar\n"))?;
            continue;
        };
        if asked.contains(&place) {
            continue;
        }
        let told = match ask(&place) {
            Ok(told) => told,
            Err(why) => {
                report.say(&format!("fs: {shown_path}: {why}\n"))?;
                continue;
            }
        };
        let mount = place.display().to_string();
        for conflict in &told.conflicts {
            report.either(&object(&mount, conflict), || text(conflict))?;
        }
        if told.strange > 0 {
            let strange = told.strange;
            report.say(&format!(
                "fs: {shown_path}: {strange} more are not understood; is the mount of another version?\n"
            ))?;
        }
        found |= told != Told::default();
        asked.push(place);
    }
    if !found && !asked.is_empty() && !report.is_json() {
        report.text("no conflicts\n")?;
    }
    report.finish()
}

/// What the mount at this place tells.
fn ask(place: &Path) -> Result<Told, String> {
    let text = std::fs::read(place.join(CONFLICTS)).map_err(|error| why(&error))?;
    Ok(read(&String::from_utf8_lossy(&text)))
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::PermissionDenied => {
            "only the user who mounted it and root see its conflicts, if it is not of an older version"
                .to_owned()
        }
        _ if Errno::from_io_error(error) == Some(Errno::NOTCONN) => {
            "nobody serves this mount any more; `afar umount` removes it".to_owned()
        }
        _ => error.to_string(),
    }
}

fn read(text: &str) -> Told {
    let mut told = Told::default();
    for line in text.lines() {
        match line.parse::<Conflict>() {
            Ok(conflict) => told.conflicts.push(conflict),
            Err(_) => told.strange += 1,
        }
    }
    told
}

fn object<'a>(mount: &'a str, conflict: &'a Conflict) -> Shown<'a> {
    let name = &conflict.name;
    let kept = conflict.kept.as_ref();
    Shown {
        mount,
        time: conflict.time.0,
        cell: conflict.cell.as_str(),
        fid: conflict.fid.to_string(),
        verb: &conflict.verb,
        name: (!name.is_empty()).then(|| Name::new(name)),
        why: &conflict.why,
        kept: kept.map(|path| path.display().to_string()),
    }
}

fn text(conflict: &Conflict) -> String {
    let (cell, fid) = (&conflict.cell, conflict.fid);
    let (time, verb) = (time(conflict.time), shown(&conflict.verb));
    let what = match conflict.name.is_empty() {
        true => format!("{verb} {fid}"),
        false => format!("{verb} '{}' in {fid}", conflict.name_text()),
    };
    let why = shown(&conflict.why);
    let mut text = format!("{time}  {cell}: {what}: {why}\n");
    if let Some(path) = &conflict.kept {
        let path = shown(&path.display().to_string());
        text.push_str(&format!("    its data is in {path}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use afar_types::{Fid, UnixTime};

    use super::*;

    fn made() -> Conflict {
        Conflict {
            time: UnixTime(1_795_267_507),
            cell: "a.example".parse().unwrap(),
            fid: Fid::new(5, 1, 1),
            verb: "mkdir".to_owned(),
            name: b"a\n\x1b[2J\xff".to_vec(),
            why: "it exists\u{7} already".to_owned(),
            kept: None,
        }
    }

    fn stored() -> Conflict {
        Conflict {
            fid: Fid::new(5, 2, 7),
            verb: "store".to_owned(),
            name: Vec::new(),
            kept: Some("/cache/lost+found/a.example.5.2.7".into()),
            ..made()
        }
    }

    #[test]
    fn a_conflict_has_a_line_and_names_are_harmless() {
        assert_eq!(
            text(&made()),
            "2026-11-21 13:25:07  a.example: mkdir 'a\\x0a\\x1b[2J\\xff' in 5.1.1: it exists\\u{7} already\n"
        );
        assert_eq!(
            text(&stored()),
            "2026-11-21 13:25:07  a.example: store 5.2.7: it exists\\u{7} already\n    \
             its data is in /cache/lost+found/a.example.5.2.7\n"
        );
    }

    #[test]
    fn the_object_has_the_same() {
        let json = serde_json::to_value(object("/afs", &made())).unwrap();
        assert_eq!(json["mount"], "/afs");
        assert_eq!(json["time"], 1_795_267_507);
        assert_eq!(json["cell"], "a.example");
        assert_eq!(json["fid"], "5.1.1");
        assert_eq!(json["verb"], "mkdir");
        assert_eq!(json["name"], "a\n\u{1b}[2J\u{fffd}");
        assert_eq!(json["name_hex"], "610a1b5b324aff");
        assert_eq!(json["why"], "it exists\u{7} already");
        assert!(json["kept"].is_null());
        let json = serde_json::to_value(object("/afs", &stored())).unwrap();
        assert_eq!(json["kept"], "/cache/lost+found/a.example.5.2.7");
        assert!(json.get("name").is_none());
    }

    #[test]
    fn what_a_mount_tells_is_read_and_the_rest_counted() {
        let told = format!("{}\nwhat\n{}\n", made(), stored());
        assert_eq!(
            read(&told),
            Told {
                conflicts: vec![made(), stored()],
                strange: 1
            }
        );
        assert_eq!(read(""), Told::default());
    }

    #[test]
    fn what_is_missing_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let why = ask(dir.path()).unwrap_err();
        assert!(why.contains("only the user who mounted it"), "{why}");
        assert_eq!(mount_of(dir.path()), None);
        let error = io::Error::from(Errno::NOTCONN);
        assert!(super::why(&error).contains("nobody serves"));
    }
}
