//! Debian's packages, by an APT of our own: its lists and downloads are below one folder, and nothing of
//! the host's is read but the mirror's address and Debian's keys, so any host gets any release's packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::sh;

/// Debian's keys, on Debian and its kin.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The mirror where the host names none.
const MIRROR: &str = "http://deb.debian.org/";
/// Releases, and their suites of security fixes: kernels 6.1; 6.12; newer ones.
const SUITES: [&str; 5] = [
    "bookworm",
    "bookworm-security",
    "trixie",
    "trixie-security",
    "trixie-backports",
];

/// An APT whose state is below a folder.
pub(super) struct Apt {
    dir: PathBuf,
}

impl Apt {
    /// Makes the folder and fetches the lists of packages.
    ///
    /// # Errors
    /// The mirror cannot be reached, or the host has no APT or none of Debian's keys.
    pub(super) fn new(dir: &Path) -> Result<Self> {
        if !Path::new(KEYS).exists() {
            bail!("no {KEYS}: install debian-archive-keyring");
        }
        for folder in ["etc", "lists/partial", "cache/archives/partial"] {
            let folder = dir.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let mirror = mirror();
        let sources = SUITES.map(|suite| {
            let archive = match suite.ends_with("-security") {
                true => "debian-security",
                false => "debian",
            };
            format!("deb [signed-by={KEYS}] {mirror}{archive} {suite} main\n")
        });
        // The guest is x86-64 on whatever host; what is unpacked is verified, as a user APT cannot
        // switch to would not be able to write here. A mirror that cannot be reached is soon given up.
        let at = dir.display();
        let settings = format!(
            "Dir \"{at}\";\nDir::Etc \"{at}/etc\";\nDir::Etc::sourcelist \"sources.list\";\n\
             Dir::Etc::sourceparts \"none\";\nDir::Etc::parts \"none\";\nDir::Etc::main \"none\";\n\
             Dir::Etc::preferencesparts \"none\";\nDir::State \"{at}\";\n\
             Dir::State::status \"{at}/status\";\nDir::Cache \"{at}/cache\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\n\
             APT::Sandbox::User \"root\";\nAPT::Install-Recommends \"false\";\n\
             Acquire::Languages \"none\";\nAcquire::http::Timeout \"20\";\nAcquire::Retries \"1\";\n"
        );
        for (name, text) in [
            ("etc/sources.list", sources.concat()),
            ("apt.conf", settings),
            // No package is installed, so a download is of all that a package needs.
            ("status", String::new()),
        ] {
            fs::write(dir.join(name), text).with_context(|| format!("writing {name}"))?;
        }
        let apt = Self {
            dir: dir.to_owned(),
        };
        // Without this setting a list that could not be fetched is a warning only.
        let strict = ["update", "-q", "-o", "APT::Update::Error-Mode=any"];
        sh::capture(apt.command("apt-get").args(strict)).context("fetching Debian's lists")?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("APT_CONFIG", self.dir.join("apt.conf"))
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C");
        command
    }

    /// The newest kernel of a series (`6.12`) for common machines: `6.12.94+deb13-amd64`. `latest` is
    /// the newest of all.
    pub(super) fn kernel(&self, series: &str) -> Result<String> {
        let names = sh::capture(self.command("apt-cache").args(["pkgnames", "linux-image-"]))?;
        let names = names
            .lines()
            .filter_map(|name| name.strip_prefix("linux-image-"));
        newest(names, series)
            .map(str::to_owned)
            .with_context(|| format!("Debian has no kernel {series} now"))
    }

    /// Whether there is a package of this name.
    pub(super) fn knows(&self, package: &str) -> bool {
        sh::succeeds(self.command("apt-cache").args(["show", package]))
    }

    /// Downloads just these packages into a folder, from whatever suite has the newest.
    pub(super) fn download(&self, packages: &[&str], to: &Path) -> Result<()> {
        fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
        let mut command = self.command("apt-get");
        command
            .args(["download", "-q"])
            .args(packages)
            .current_dir(to);
        sh::capture(&mut command).map(drop)
    }

    /// Downloads packages of a suite with all that they need into a folder.
    pub(super) fn download_all(&self, packages: &[&str], suite: &str, to: &Path) -> Result<()> {
        let partial = to.join("partial");
        fs::create_dir_all(&partial).with_context(|| format!("making {}", partial.display()))?;
        let mut command = self.command("apt-get");
        command
            .args(["install", "-y", "-q", "--download-only", "-t", suite, "-o"])
            .arg(format!("Dir::Cache::archives={}", to.display()))
            .args(packages);
        sh::capture(&mut command).map(drop)
    }
}

/// The mirror that the host uses, with a slash at its end.
fn mirror() -> String {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(REPO_URI)"]);
    let all = sh::capture(&mut command).unwrap_or_default();
    let found = all.lines().find_map(|uri| uri.strip_suffix("debian/"));
    found.unwrap_or(MIRROR).to_owned()
}

/// The newest kernel for common machines in a series, or in all for `latest`.
fn newest<'a>(names: impl Iterator<Item = &'a str>, series: &str) -> Option<&'a str> {
    let begins: Vec<u32> = match series {
        "latest" => Vec::new(),
        series => numbers(series)?,
    };
    let versions = names.filter_map(|name| Some((numbers(name.strip_suffix("-amd64")?)?, name)));
    versions
        // A package with fewer numbers names a series, and needs the one with more.
        .filter(|(version, _)| version.len() > 2 && version.starts_with(&begins))
        .max()
        .map(|(_, name)| name)
}

/// The numbers in a kernel's version; nothing for one with a word in it, which is for other machines.
fn numbers(version: &str) -> Option<Vec<u32>> {
    version
        .split(['.', '+', '-'])
        .map(|part| part.trim_start_matches("deb").parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_of_a_series_is_for_common_machines() {
        let names = [
            "6.1.0-9-amd64",
            "6.1.0-47-amd64",
            "6.12-amd64",
            "6.12.9+deb13-amd64",
            "6.12.88+deb12-amd64",
            "6.12.90+deb12.1-amd64",
            "6.12.95+deb13-cloud-amd64",
            "6.12.95+deb13-amd64-unsigned",
            "7.2.12+deb13-rt-amd64",
            "7.2.9+deb13-amd64",
            "amd64",
        ];
        let find = |series| newest(names.into_iter(), series);
        assert_eq!(find("6.1"), Some("6.1.0-47-amd64"));
        assert_eq!(find("6.12"), Some("6.12.90+deb12.1-amd64"));
        assert_eq!(find("latest"), Some("7.2.9+deb13-amd64"));
        assert_eq!(find("5.10"), None);
        assert_eq!(find("nonsense"), None);
    }
}
