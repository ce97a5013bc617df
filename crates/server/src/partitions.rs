//! Opening a server's partitions: one that cannot be served stops none of the others.
//!
//! The data directory has a note of the partitions that were served from it. A directory that is empty,
//! or gone, though its partition was served before is one whose disk is not mounted: it is refused, where
//! OpenAFS would refuse a `/vicepX` that is no mount point. Only a partition of which nothing is noted is
//! made in an empty directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afar_store::Partition;
use afar_types::PartitionId;
use anyhow::{Context, bail};

use crate::config::{self, Config};
use crate::private;

/// The note in the data directory: a line for each partition, its name and its directory.
pub(crate) const NOTE: &str = "partitions";
/// What is in a partition's directory.
const CONTENT: [&str; 4] = ["format", "lock", "meta", "seg"];
/// What a new file system has in it.
const LOST_AND_FOUND: &str = "lost+found";

/// What became of the partitions of a configuration.
pub(crate) struct Partitions {
    /// Those that are served.
    pub(crate) open: Vec<(PartitionId, Arc<Partition>)>,
    /// Those that are not, and why.
    pub(crate) refused: Vec<(PartitionId, anyhow::Error)>,
}

/// Opens the partitions that can be served, and makes those that are new.
pub(crate) fn open(config: &Config) -> anyhow::Result<Partitions> {
    let mut note = Note::read(&config.data.0);
    let (mut open, mut refused) = (Vec::new(), Vec::new());
    for (id, partition) in config.partitions()? {
        match open_one(id, partition, &note) {
            Ok(partition) => open.push((id, Arc::new(partition))),
            Err(error) => refused.push((id, error)),
        }
    }
    let configured = config.partitions()?;
    let served = open
        .iter()
        .filter_map(|(id, _)| Some((*id, configured.get(id)?.path.clone())));
    note.add(served)?;
    Ok(Partitions { open, refused })
}

fn open_one(
    id: PartitionId,
    partition: &config::Partition,
    note: &Note,
) -> anyhow::Result<Partition> {
    let (path, options) = (&partition.path, partition.options()?);
    if is_new(path)? {
        note.allows(id, path)?;
        make_dir(path)?;
        private::mend(path, &CONTENT)
            .with_context(|| format!("cannot use {} for {id}", path.display()))?;
        tracing::info!("{id}: made in {}", path.display());
        return Ok(Partition::init(path, &options)?);
    }
    private::mend(path, &CONTENT)
        .with_context(|| format!("cannot use {} for {id}", path.display()))?;
    Ok(Partition::open(path, &options)?)
}

/// Whether nothing is there that a partition could be.
fn is_new(path: &Path) -> anyhow::Result<bool> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        entries => entries.with_context(|| format!("cannot read {}", path.display()))?,
    };
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", path.display()))?;
        if entry.file_name() != LOST_AND_FOUND {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes a partition's directory, but none above it: those are a disk that is not mounted, or a slip.
fn make_dir(path: &Path) -> anyhow::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "neither the directory {} nor its parent exists; mount the disk or correct the path \
             in the configuration, or create it: mkdir -p {0}",
            path.display()
        ),
        made => made.with_context(|| {
            format!(
                "the directory {} does not exist, and cannot be created; mount the disk or \
                 correct the path in the configuration",
                path.display()
            )
        }),
    }
}

/// What was served from a data directory.
struct Note {
    file: PathBuf,
    /// None if it cannot be read: then nobody knows what is new.
    served: Result<BTreeMap<PartitionId, PathBuf>, String>,
}

impl Note {
    fn read(data: &Path) -> Self {
        let file = data.join(NOTE);
        let served = match fs::read_to_string(&file) {
            Ok(text) => text
                .lines()
                .map(|line| {
                    let (id, path) = line.split_once(' ')?;
                    Some((id.parse().ok()?, path.into()))
                })
                .collect::<Option<_>>()
                .ok_or_else(|| "a line of it is not a partition and a path".to_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error.to_string()),
        };
        Self { file, served }
    }

    /// Refuses to make a partition where one was served before.
    fn allows(&self, id: PartitionId, path: &Path) -> anyhow::Result<()> {
        let served = match &self.served {
            Ok(served) => served.get(&id),
            Err(why) => bail!(
                "{} is empty, and it is unknown whether it was a partition before, because {} \
                 cannot be read ({why}); if it is new, create it: afar store init {0}",
                path.display(),
                self.file.display(),
            ),
        };
        let Some(before) = served else {
            return Ok(());
        };
        let place = match before == path {
            true => format!("{} is empty, but was not", path.display()),
            false => format!(
                "{} is empty, and {id} was served from {}",
                path.display(),
                before.display()
            ),
        };
        bail!(
            "{place} before; is its disk not mounted? Mount it and start the server again, or, to begin \
             with an empty partition there: afar store init {}",
            path.display()
        )
    }

    /// Notes what is served now.
    fn add(&mut self, now: impl Iterator<Item = (PartitionId, PathBuf)>) -> anyhow::Result<()> {
        let mut served = self.served.clone().unwrap_or_default();
        served.extend(now);
        if self.served.as_ref() == Ok(&served) {
            return Ok(());
        }
        let mut text = String::new();
        for (id, path) in &served {
            text.push_str(&format!("{id} {}\n", path.display()));
        }
        let fresh = self.file.with_extension("new");
        fs::write(&fresh, text)
            .and_then(|()| fs::File::open(&fresh)?.sync_all())
            .and_then(|()| fs::rename(&fresh, &self.file))
            .with_context(|| format!("cannot write {}", self.file.display()))?;
        self.served = Ok(served);
        Ok(())
    }
}
