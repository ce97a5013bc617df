//! Servers and clients at the ends of a link.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::bench::hash;
use crate::bench::link::{End, Place};
use crate::bench::process::{self, Cpu, Process};
use crate::sh;

pub(in crate::bench) const CELL: &str = "bench.example";
/// Where the volume that everybody may write to is mounted.
pub(in crate::bench) const VOLUME: &str = "bench";
/// A server is up after this time, or never.
const START_LIMIT: Duration = Duration::from_secs(20);
/// A quick command takes no longer.
const SHORT: Duration = Duration::from_secs(60);

/// A cell of afar at an end of a link, with a volume that everybody may write to. Gone
/// when dropped.
pub(in crate::bench) struct Site<'a> {
    place: &'a Place,
    afar: PathBuf,
    dir: PathBuf,
    address: String,
    end: End,
    server: Option<Process>,
}

impl<'a> Site<'a> {
    /// Starts a new cell.
    ///
    /// # Errors
    /// It does not start.
    pub(in crate::bench) fn up(place: &'a Place, afar: &Path) -> Result<Self> {
        Self::up_at(place, afar, End::Server)
    }

    /// The same at either end.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn up_at(place: &'a Place, afar: &Path, end: End) -> Result<Self> {
        let name = format!("afar-bench-cell-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        }
        fs::create_dir_all(dir.join("etc"))?;
        let address = place.address(end).to_owned();
        fs::write(dir.join("etc/ThisCell"), CELL)?;
        let servers = format!(">{CELL} #bench\n{address} #{address}\n");
        fs::write(dir.join("etc/CellServDB"), servers)?;
        let mut site = Self {
            place,
            afar: afar.to_path_buf(),
            dir,
            address: address.clone(),
            end,
            server: None,
        };
        site.start()?;
        site.administer(&["vos", "create", &address, "a", VOLUME, "-maxquota", "0"])?;
        let mount = format!("/afs/{CELL}/{VOLUME}");
        site.administer(&["fs", "mkmount", &mount, VOLUME, "--localauth"])?;
        site.administer(&[
            "fs",
            "setacl",
            &mount,
            "system:anyuser",
            "rlidwka",
            "--localauth",
        ])?;
        Ok(site)
    }

    /// Starts the server on what is there.
    fn start(&mut self) -> Result<()> {
        let mut command = self.place.command(self.end, &self.afar);
        command.arg("up").arg(self.dir.join("cell"));
        command.args([
            "--cell",
            CELL,
            "--listen",
            &self.address,
            "--insecure-noauth",
        ]);
        command.env("AFAR_RUN_DIR", self.dir.join("run"));
        self.server = Some(Process::start(command)?);
        let begun = Instant::now();
        while self.administer(&["vos", "examine", "root.afs"]).is_err() {
            if begun.elapsed() > START_LIMIT {
                bail!("afar's servers are not up after {START_LIMIT:?}");
            }
            process::pause(Duration::from_millis(50))?;
        }
        Ok(())
    }

    /// Ends the server, empties the kernel's caches and starts it again.
    pub(super) fn cool(&mut self) -> Result<()> {
        self.stop()?;
        sh::capture(&mut Command::new("sync"))?;
        fs::write("/proc/sys/vm/drop_caches", "3").context("emptying the kernel's caches")?;
        self.start()
    }

    /// Restarts the server with other values in its configuration: section (none for the top), key, value.
    ///
    /// # Errors
    /// The configuration has no such key, or the server does not start.
    pub(in crate::bench) fn configure(&mut self, values: &[(&str, &str, &str)]) -> Result<()> {
        self.stop()?;
        let file = self.dir.join("cell/afar.toml");
        let mut text = fs::read_to_string(&file).context("reading the cell's configuration")?;
        for (section, key, value) in values {
            let found = with_value(&text, section, key, value);
            text =
                found.with_context(|| format!("no {key} in [{section}] of {}", file.display()))?;
        }
        fs::write(&file, text).context("writing the cell's configuration")?;
        self.start()
    }

    /// A number that the server shows among its metrics; `None` if it shows no such.
    ///
    /// # Errors
    /// The server does not show its metrics.
    pub(in crate::bench) fn metric(&self, name: &str) -> Result<Option<f64>> {
        metric(&self.dir.join("run").join(CELL).join("metrics.sock"), name)
    }

    fn stop(&mut self) -> Result<()> {
        if let Some(server) = self.server.take() {
            server.finish()?;
        }
        Ok(())
    }

    /// The server's address.
    pub(in crate::bench) fn address(&self) -> &str {
        &self.address
    }

    /// The processor time its server has used so far.
    pub(in crate::bench) fn cpu(&self) -> Cpu {
        self.server.as_ref().map(Process::cpu).unwrap_or_default()
    }

    /// A file or folder of the site.
    pub(in crate::bench) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Runs a command of afar's as the cell's administrator.
    pub(in crate::bench) fn administer(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.afar);
        command.args(words);
        command.env("AFAR_RUN_DIR", self.dir.join("run"));
        sh::capture(&mut command)
    }

    /// A command of afar's at the client's end, which knows the cell by its CellServDB alone.
    pub(in crate::bench) fn client(&self, words: &[&str]) -> Command {
        let mut command = self.place.command(End::Client, &self.afar);
        command.args(words);
        command
            .arg("--cellservdb")
            .arg(self.dir.join("etc/CellServDB"));
        command.env("AFAR_RUN_DIR", self.dir.join("none"));
        command
    }

    /// Puts a file that cannot be compressed into the volume; returns what it hashes to.
    pub(in crate::bench) fn fill(&self, name: &str, mib: u32) -> Result<String> {
        let path = self.path("filler");
        let sha256 = noise(&path, mib)?;
        let target = format!("/afs/{CELL}/{VOLUME}/{name}");
        let source = path.to_str().context("a path that is not UTF-8")?;
        self.administer(&["cp", "--localauth", source, &target])?;
        fs::remove_file(&path)?;
        Ok(sha256)
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            crate::output::note(&format!("stopping the cell: {error:#}"));
        }
        // What cannot be removed is in the system's folder for such files.
        fs::remove_dir_all(&self.dir).ok();
    }
}

/// A number that a server shows at this socket; `None` if it shows no such.
///
/// # Errors
/// The server does not show its metrics.
pub(in crate::bench) fn metric(socket: &Path, name: &str) -> Result<Option<f64>> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("connecting to {}", socket.display()))?;
    stream.set_read_timeout(Some(SHORT))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .context("reading the server's metrics")?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.and_then(|value| value.trim().parse().ok()))
}

/// A configuration with another value of a key that it has.
fn with_value(text: &str, section: &str, key: &str, value: &str) -> Option<String> {
    let (mut at, mut found) = ("", false);
    let mut out = String::new();
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            at = name;
        }
        let is_meant = at == section
            && line
                .split_once('=')
                .is_some_and(|(name, _)| name.trim() == key);
        if is_meant {
            found = true;
            out += &format!("{key} = {value}\n");
        } else {
            out += line;
            out.push('\n');
        }
    }
    found.then_some(out)
}

/// A stock program of OpenAFS at the client's end of a link, with the configuration in `etc`.
pub(super) fn stock(place: &Place, etc: &Path, words: &[&str]) -> Command {
    let mut command = place.command(End::Client, "unshare".as_ref());
    command.args(["-m", "sh", "-c"]);
    command.arg("mount --bind \"$0\" /etc/openafs && exec \"$@\"");
    command.arg(etc).args(words);
    command
}

/// The time a command takes that must succeed.
pub(super) fn seconds(command: Command, limit: Duration) -> Result<f64> {
    Ok(Process::start(command)?.succeed(limit)?.time.as_secs_f64())
}

/// Runs a short command that must succeed.
pub(super) fn short(command: Command) -> Result<String> {
    Ok(Process::start(command)?.succeed(SHORT)?.out)
}

/// Makes a file of random bytes; returns what it hashes to.
pub(in crate::bench) fn noise(path: &Path, mib: u32) -> Result<String> {
    let mut random = File::open("/dev/urandom")?.take(u64::from(mib) << 20);
    let mut file = File::create(path).with_context(|| format!("making {}", path.display()))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = random.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        file.write_all(&buffer[..read])?;
    }
    Ok(hash::hex(hasher))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_replaced_in_its_section_only() {
        let text = "port = 1\n[oob]\nenabled = false\nport = 2\n[x]\nport = 3\n";
        assert_eq!(
            with_value(text, "oob", "port", "9").unwrap(),
            "port = 1\n[oob]\nenabled = false\nport = 9\n[x]\nport = 3\n"
        );
        assert_eq!(with_value(text, "", "enabled", "true"), None);
    }
}
