//! A Debian package: its tree, what dpkg is to know of it, and dpkg-deb.

use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Release;
use crate::sh;

/// A package that is being put together.
pub(super) struct Package {
    tree: PathBuf,
    name: String,
    /// What is in its control file, in this order, but for its size.
    fields: Vec<(&'static str, String)>,
    description: &'static str,
    epoch: String,
    conffiles: Vec<String>,
}

impl Package {
    /// An empty one, whose tree is below `stage`; the first line of the description is the short one.
    pub(super) fn new(
        release: &Release,
        stage: &Path,
        (name, architecture): (&str, &str),
        description: &'static str,
    ) -> Result<Self> {
        let tree = stage.join(name);
        make_folder(&tree)?;
        let fields = vec![
            ("Package", name.to_owned()),
            ("Version", release.version.clone()),
            ("Architecture", architecture.to_owned()),
            ("Maintainer", release.maintainer.clone()),
        ];
        Ok(Self {
            tree,
            name: name.to_owned(),
            fields,
            description,
            epoch: release.epoch.clone(),
            conffiles: Vec::new(),
        })
    }

    pub(super) fn field(&mut self, name: &'static str, value: impl Into<String>) {
        self.fields.push((name, value.into()));
    }

    /// Puts a copy of a file at a path, with this mode.
    pub(super) fn file(&mut self, from: &Path, to: &str, mode: u32) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        self.write(&content, to, mode)
    }

    /// The same for a file that is the administrator's to change.
    pub(super) fn conffile(&mut self, from: &Path, to: &str) -> Result<()> {
        self.conffiles.push(format!("/{to}"));
        self.file(from, to, 0o644)
    }

    /// Puts a text at a path, compressed: `.gz` is added to the name.
    pub(super) fn compressed(&mut self, content: &[u8], to: &str) -> Result<()> {
        self.write(content, to, 0o644)?;
        let mut gzip = Command::new("gzip");
        sh::capture(gzip.arg("-9n").arg(self.tree.join(to))).map(drop)
    }

    pub(super) fn link(&mut self, at: &str, target: &str) -> Result<()> {
        let at = self.tree.join(at);
        make_folder(at.parent().unwrap_or(&self.tree))?;
        symlink(target, &at).with_context(|| format!("linking {}", at.display()))
    }

    /// Adds a script that dpkg runs.
    pub(super) fn script(&mut self, from: &Path, name: &str) -> Result<()> {
        self.file(from, &format!("DEBIAN/{name}"), 0o755)
    }

    fn write(&self, content: &[u8], to: &str, mode: u32) -> Result<()> {
        let to = self.tree.join(to);
        make_folder(to.parent().unwrap_or(&self.tree))?;
        fs::write(&to, content).with_context(|| format!("writing {}", to.display()))?;
        fs::set_permissions(&to, Permissions::from_mode(mode))?;
        Ok(())
    }

    /// Makes the package in a folder, and returns its file.
    ///
    /// # Errors
    /// dpkg-deb does not like it.
    pub(super) fn build(self, out: &Path) -> Result<PathBuf> {
        let mut files = Vec::new();
        walk(&self.tree, &mut files)?;
        files.sort();
        let mut sums = String::new();
        let mut size = 0;
        for file in &files {
            let inside = file.strip_prefix(&self.tree)?;
            let about = fs::symlink_metadata(file)?;
            size += about.len().div_ceil(1024).max(1);
            if about.is_file() && !inside.starts_with("DEBIAN") {
                let said = sh::capture(Command::new("md5sum").arg(file))?;
                let sum = said.split_whitespace().next().unwrap_or_default();
                writeln!(sums, "{sum}  {}", inside.display())?;
            }
        }
        self.write(sums.as_bytes(), "DEBIAN/md5sums", 0o644)?;
        if !self.conffiles.is_empty() {
            let list: String = self.conffiles.iter().map(|it| format!("{it}\n")).collect();
            self.write(list.as_bytes(), "DEBIAN/conffiles", 0o644)?;
        }
        self.write(self.control(size).as_bytes(), "DEBIAN/control", 0o644)?;
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", "--build"]);
        build
            .arg(&self.tree)
            .arg(out)
            .env("SOURCE_DATE_EPOCH", &self.epoch);
        sh::capture(&mut build)?;
        let value = |wanted| {
            let field = self.fields.iter().find(|(name, _)| *name == wanted);
            field.map_or("", |(_, value)| value.as_str())
        };
        let (version, architecture) = (value("Version"), value("Architecture"));
        Ok(out.join(format!("{}_{version}_{architecture}.deb", self.name)))
    }

    /// The control file of a package that takes so many KiB.
    fn control(&self, size: u64) -> String {
        let fields = self
            .fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\n"));
        let mut text: String = fields.collect();
        let mut lines = self.description.lines();
        let first = lines.next().unwrap_or_default();
        text.push_str(&format!("Installed-Size: {size}\nDescription: {first}\n"));
        for line in lines {
            let line = if line.is_empty() { "." } else { line };
            text.push_str(&format!(" {line}\n"));
        }
        text
    }
}

/// Everything below a folder that is none.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => walk(&entry.path(), found)?,
            false => found.push(entry.path()),
        }
    }
    Ok(())
}

/// Makes a folder that everybody can read, whatever the umask is, and those it is in.
fn make_folder(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        make_folder(parent)?;
    }
    fs::create_dir(folder).with_context(|| format!("making {}", folder.display()))?;
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_what_was_put_in() {
        if !sh::has_program("dpkg-deb") {
            return crate::output::note("skipped: no dpkg-deb");
        }
        let dir = std::env::temp_dir().join(format!("afar-package-{}", std::process::id()));
        let release = Release {
            version: "1.2-1".to_owned(),
            architecture: "all".to_owned(),
            maintainer: "A <a@b.org>".to_owned(),
            epoch: "1".to_owned(),
            date: String::new(),
        };
        let source = dir.join("source");
        make_folder(&dir).unwrap();
        fs::write(&source, "text\n").unwrap();
        let mut package =
            Package::new(&release, &dir, ("a-b", "all"), "Short.\nLong.\n\nMore.").unwrap();
        package.field("Section", "net");
        package.conffile(&source, "etc/a/b").unwrap();
        package
            .compressed(b"page\n", "usr/share/man/man1/a.1")
            .unwrap();
        package.link("usr/bin/b", "a").unwrap();
        let file = package.build(&dir).unwrap();
        let told = sh::capture(Command::new("dpkg-deb").arg("-I").arg(&file)).unwrap();
        for line in ["Section: net", "Description: Short.", "\n  .\n", "  More."] {
            assert!(told.contains(line), "{line:?} is not in {told}");
        }
        let ask = |what: &str| {
            let mut ask = Command::new("dpkg-deb");
            sh::capture(ask.arg("-I").arg(&file).arg(what)).unwrap()
        };
        assert_eq!(ask("conffiles"), "/etc/a/b\n");
        assert!(ask("md5sums").contains("  etc/a/b\n"));
        let list = sh::capture(Command::new("dpkg-deb").arg("-c").arg(&file)).unwrap();
        for line in [
            "root/root",
            "./usr/share/man/man1/a.1.gz",
            "./usr/bin/b -> a",
        ] {
            assert!(list.contains(line), "{line} is not in {list}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
