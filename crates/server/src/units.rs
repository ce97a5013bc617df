//! systemd's units of a server, where systemd runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::config::DEFAULT_PATH;
use crate::made::Made;
use crate::private;

const SERVICE: &str = include_str!("../../../dist/systemd/afar.service");
const SOCKET: &str = include_str!("../../../dist/systemd/afar.socket");
/// The program of the unit.
const EXE: &str = "/usr/bin/afar";
/// Where the unit lets the server write in any case.
const STATE: &str = "/var/lib/afar";
/// There where systemd is the first process.
const RUNS: &str = "/run/systemd/system";
/// Where packages put units.
const OF_PACKAGES: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];
/// Where administrators do.
const OF_ADMINISTRATORS: &str = "/etc/systemd/system";

/// What units must know of a server.
#[derive(Debug)]
pub struct Units<'a> {
    /// The program.
    pub exe: &'a Path,
    /// Its configuration.
    pub config: &'a Path,
    /// Where it writes.
    pub paths: Vec<PathBuf>,
}

impl Units<'_> {
    /// What differs from the unit as it comes; `None` if nothing does.
    fn drop_in(&self) -> anyhow::Result<Option<String>> {
        let mut text = String::new();
        if self.exe != Path::new(EXE) || self.config != Path::new(DEFAULT_PATH) {
            let (exe, config) = (plain(self.exe)?, plain(self.config)?);
            text.push_str(&format!(
                "ExecStart=\nExecStart={exe} server --config {config}\n"
            ));
        }
        let outside = self.paths.iter().filter(|path| !path.starts_with(STATE));
        let mut home = false;
        for path in outside {
            let path = plain(path)?;
            home |= ["/home", "/root", "/run/user"]
                .iter()
                .any(|home| Path::new(path).starts_with(home));
            text.push_str(&format!("ReadWritePaths={path}\n"));
        }
        if home {
            text.push_str("ProtectHome=no\n");
        }
        Ok((!text.is_empty()).then(|| format!("[Service]\n{text}")))
    }
}

/// A path as it can stand in a unit.
fn plain(path: &Path) -> anyhow::Result<&str> {
    let strange = |c: char| c.is_whitespace() || c.is_control() || "\"'\\%$;".contains(c);
    match path.to_str().filter(|text| !text.contains(strange)) {
        Some(text) => Ok(text),
        None => bail!(
            "{path:?} has blanks or special characters, which a systemd unit cannot hold; give \
             another path"
        ),
    }
}

/// Writes the units to a directory, or where systemd looks for them if it runs; none elsewhere. Those
/// that a package has brought stay what they are.
///
/// # Errors
/// Names the file that cannot be written, or the path that no unit can hold.
pub fn write(
    units: &Units<'_>,
    dir: Option<&Path>,
    made: &mut Made,
) -> anyhow::Result<Vec<PathBuf>> {
    let runs = Path::new(RUNS).is_dir();
    let dir = match dir {
        Some(dir) => dir,
        None if runs => Path::new(OF_ADMINISTRATORS),
        None => return Ok(Vec::new()),
    };
    let packaged = dir == Path::new(OF_ADMINISTRATORS)
        && OF_PACKAGES
            .iter()
            .any(|dir| Path::new(dir).join("afar.service").exists());
    let mut written = Vec::new();
    let mut put = |name: &str, text: &str| {
        let path = dir.join(name);
        made.file(&path);
        let parent = path.parent().unwrap_or(dir);
        private::public_dir(parent)
            .and_then(|()| private::write_public(&path, text))
            .with_context(|| format!("cannot write the unit {}", path.display()))?;
        written.push(path);
        anyhow::Ok(())
    };
    if !packaged {
        put("afar.service", SERVICE)?;
        put("afar.socket", SOCKET)?;
    }
    if let Some(text) = units.drop_in()? {
        put("afar.service.d/init.conf", &text)?;
    }
    Ok(written)
}

/// Has systemd run the server now and at each boot, if it runs and these are its units; whether it does.
///
/// # Errors
/// systemd does not take the units.
pub fn start(written: &[PathBuf]) -> anyhow::Result<bool> {
    let of_systemd = written
        .iter()
        .all(|path| path.starts_with(OF_ADMINISTRATORS));
    if !Path::new(RUNS).is_dir() || !of_systemd {
        return Ok(false);
    }
    for words in [
        &["daemon-reload"][..],
        &["enable", "--now", "afar.socket", "afar.service"],
    ] {
        let status = Command::new("systemctl").args(words).status();
        let status = status.context("cannot run systemctl; start the server with `afar server`")?;
        if !status.success() {
            bail!(
                "systemctl {} failed; `journalctl -u afar` says why; everything else is done",
                words.join(" ")
            );
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units<'a>(exe: &'a str, config: &'a str, paths: &[&str]) -> Units<'a> {
        Units {
            exe: Path::new(exe),
            config: Path::new(config),
            paths: paths.iter().map(PathBuf::from).collect(),
        }
    }

    #[test]
    fn a_drop_in_has_what_differs_from_the_unit() {
        assert!(SERVICE.contains(&format!("ExecStart={EXE} server --config {DEFAULT_PATH}\n")));
        let usual = units(EXE, DEFAULT_PATH, &["/var/lib/afar/data"]);
        assert_eq!(usual.drop_in().unwrap(), None);
        // In two parts, as no file names a place of one machine.
        let at_home = concat!("/", "home/ann/cell");
        let other = units("/opt/afar", DEFAULT_PATH, &[at_home, "/srv/a"]);
        let expected = format!(
            "[Service]\nExecStart=\nExecStart=/opt/afar server --config /etc/afar/afar.toml\n\
             ReadWritePaths={at_home}\nReadWritePaths=/srv/a\nProtectHome=no\n"
        );
        assert_eq!(other.drop_in().unwrap().unwrap(), expected);
        for strange in ["/srv/a b", "/srv/a\nUser=x", "/srv/%h", "/srv/$x"] {
            let error = units(EXE, DEFAULT_PATH, &[strange]).drop_in().unwrap_err();
            assert!(
                error.to_string().contains("systemd unit cannot hold"),
                "{error}"
            );
        }
    }
}
