//! What a server takes from its configuration when it is told to read it again (SIGHUP), and what waits
//! for the next start.
//!
//! Changed files of keys, a UserList and OpenAFS's `krb.conf` are noticed without being told.

use std::path::PathBuf;

use crate::config::Config;
use crate::log::set_log;
use crate::process::Process;

/// Keys that are taken without a restart.
const TAKEN: [&str; 3] = ["log", "security.realms", "security.superusers"];

/// A configuration that can be read again.
pub struct Reload {
    file: PathBuf,
    /// As it was read last, before a command line changed it.
    read: Config,
}

impl Reload {
    /// Of what was read from a file.
    pub fn of(config: &Config) -> Option<Self> {
        Some(Self {
            file: config.file.clone()?,
            read: config.clone(),
        })
    }

    /// Reads the file again, takes what can be taken, and logs what became of each key that has changed. A
    /// file with a mistake changes nothing.
    pub fn run(&mut self, process: &Process) {
        if let Err(error) = self.try_run(process) {
            // What is wrong with TOML is told in several lines.
            let error = format!("{error:#}").lines().collect::<Vec<_>>().join(" ");
            tracing::error!("keeping the previous configuration: {error}");
        }
    }

    fn try_run(&mut self, process: &Process) -> anyhow::Result<()> {
        let config = Config::read(&self.file)?;
        let changed = changed(&self.read, &config)?;
        if changed.iter().any(|key| key == "log") {
            set_log(&config.log.0)?;
        }
        process.security().reload(&config);
        for key in &changed {
            if TAKEN.contains(&key.as_str()) {
                tracing::info!("{key} is taken from {}", self.file.display());
            } else {
                tracing::warn!(
                    "{key} has changed in {}; it waits for the next start",
                    self.file.display()
                );
            }
        }
        if changed.is_empty() {
            tracing::info!("nothing has changed in {}", self.file.display());
        }
        // What waits for a start is told of at each reading.
        self.read.log = config.log;
        self.read.security.realms = config.security.realms;
        self.read.security.superusers = config.security.superusers;
        Ok(())
    }
}

/// The keys in which two configurations differ.
fn changed(old: &Config, new: &Config) -> anyhow::Result<Vec<String>> {
    let mut keys = Vec::new();
    let (old, new) = (toml::Value::try_from(old)?, toml::Value::try_from(new)?);
    differ("", Some(&old), Some(&new), &mut keys);
    Ok(keys)
}

fn differ(
    place: &str,
    old: Option<&toml::Value>,
    new: Option<&toml::Value>,
    keys: &mut Vec<String>,
) {
    if old == new {
        return;
    }
    let tables = [old, new].map(|value| value.and_then(toml::Value::as_table));
    if tables.iter().all(Option::is_none) {
        keys.push(place.to_owned());
        return;
    }
    let mut names: Vec<&String> = tables
        .iter()
        .flatten()
        .flat_map(|table| table.keys())
        .collect();
    names.sort();
    names.dedup();
    for name in names {
        let place = match place {
            "" => name.clone(),
            place => format!("{place}.{name}"),
        };
        let [old, new] = tables.map(|table| table.and_then(|table| table.get(name)));
        differ(&place, old, new, keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_that_differs_is_named() {
        let config = |more: &str| {
            Config::parse(&format!(
                "cell = \"a.org\"\n{more}\n[partition.a]\npath = \"/a\""
            ))
            .unwrap()
        };
        let old = config("log = \"info\"\n[files]\nmax_calls = 100");
        assert_eq!(changed(&old, &old).unwrap(), Vec::<String>::new());
        let new =
            config("run = \"/run/x\"\n[files]\nmax_calls = 200\n[partition.b]\npath = \"/b\"");
        assert_eq!(
            changed(&old, &new).unwrap(),
            [
                "files.max_calls",
                "partition.b.durability",
                "partition.b.path",
                "run"
            ]
        );
    }
}
