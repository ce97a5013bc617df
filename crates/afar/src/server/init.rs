//! `afar server init`: from an empty machine, or from a cell that `afar up` has begun, to a server that
//! runs by itself.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use afar_login::uri::CellUri;
use afar_server::config::{Config, DEFAULT_PATH, DataDir, Listen, Partition};
use afar_server::made::Made;
use afar_server::units::{self, Units};
use afar_server::{Process, private};
use afar_types::{CellName, PartitionId};
use anyhow::{Context, bail, ensure};
use clap::Args;
use serde::Serialize;

use super::up;
use crate::output::Output;

/// Where the databases of a server lie.
const DATA: &str = "/var/lib/afar";
/// Letters of AFS partitions.
const LETTERS: std::ops::RangeInclusive<char> = 'a'..='z';

/// Options of `afar server init`.
#[derive(Debug, Args)]
#[command(
    about = "Set up a production cell: configuration, key, root volumes, login service and units",
    after_help = "Example, on an empty machine:\n  afar server init --cell example.org\n\
    and to let systemd run the cell that `afar up` has created in a directory:\n  \
    afar server init --from /var/lib/afar"
)]
pub(crate) struct InitArgs {
    /// The cell's name: a domain that you own, or home.arpa at home
    #[arg(long)]
    cell: Option<CellName>,
    /// Take over the cell that `afar up` has created in this directory
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["cell", "data", "partition", "listen"]
    )]
    from: Option<PathBuf>,
    /// The configuration to write
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH, env = "AFAR_CONFIG")]
    config: PathBuf,
    /// The directory for databases and keys
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// A partition for volumes, such as a=/vicepa; may be repeated [default: existing directories
    /// /vicepa to /vicepz, else vicepa in the data directory]
    #[arg(long, value_name = "LETTER=DIR")]
    partition: Vec<String>,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::UNSPECIFIED.into())]
    listen: IpAddr,
    /// Write systemd's units to this directory [default: /etc/systemd/system where systemd runs]
    #[arg(long, value_name = "DIR")]
    units: Option<PathBuf>,
    /// Do not let systemd start the server
    #[arg(long)]
    no_start: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was begun.
#[derive(Debug, Serialize)]
struct Begun {
    cell: String,
    listen: IpAddr,
    config: PathBuf,
    data: PathBuf,
    partitions: Vec<(String, PathBuf)>,
    keys: Vec<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<String>,
    units: Vec<PathBuf>,
    started: bool,
}

impl fmt::Display for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cell       {}, listening on {}", self.cell, self.listen)?;
        writeln!(f, "config     {}", self.config.display())?;
        writeln!(f, "data       {}", self.data.display())?;
        for (id, path) in &self.partitions {
            writeln!(f, "partition  {id} in {}", path.display())?;
        }
        for path in &self.keys {
            writeln!(f, "key        {}", path.display())?;
        }
        for unit in &self.units {
            writeln!(f, "unit       {}", unit.display())?;
        }
        let (config, login) = (self.config.display(), self.login.as_deref());
        match (self.started, self.units.is_empty()) {
            (true, _) => writeln!(f, "running    systemctl status afar")?,
            (false, false) => writeln!(f, "start      systemctl enable --now afar")?,
            (false, true) => writeln!(f, "start      afar server --config {config}")?,
        }
        writeln!(f, "next       afar pts createuser $USER --password")?;
        write!(
            f,
            "elsewhere  afar login {}",
            login.unwrap_or("--cell CELL --server HOST")
        )
    }
}

/// Begins a server.
///
/// # Errors
/// What is there already, or cannot be made; what was made until then is taken away again.
pub(super) fn run(args: &InitArgs) -> anyhow::Result<ExitCode> {
    private::files();
    let path = std::path::absolute(&args.config)
        .with_context(|| format!("--config {}: no path", args.config.display()))?;
    ensure!(
        !path.exists(),
        "{} exists already, so this machine has a server; change that file, or name another with \
         --config",
        path.display()
    );
    let config = match &args.from {
        Some(dir) => taken(dir)?,
        None => fresh(args)?,
    };
    let cell = config.cell()?;
    let mut made = Made::default();
    made.file(&path);
    made.dir(&config.data.0);
    for partition in config.partition.values() {
        made.dir(&partition.path);
    }
    let login = begin(&path, &config)?;
    let exe = std::env::current_exe().context("cannot find the path of this program")?;
    let units = Units {
        exe: &exe,
        config: &path,
        paths: places(&config),
    };
    let written = units::write(&units, args.units.as_deref(), &mut made)?;
    made.keep();
    let started = !args.no_start && units::start(&written)?;
    let partitions = config.partitions()?.into_iter();
    let begun = Begun {
        cell: cell.to_string(),
        listen: config.listen.0,
        config: path.clone(),
        data: config.data.0.clone(),
        partitions: partitions
            .map(|(id, partition)| (id.to_string(), partition.path.clone()))
            .collect(),
        keys: afar_server::key_files(&config),
        login: login.map(|uri| uri.to_string()),
        units: written,
        started,
    };
    Output::new(args.json, None)?.report(&begun)?;
    Ok(ExitCode::SUCCESS)
}

/// The configuration of the cell that `afar up` has made.
fn taken(dir: &Path) -> anyhow::Result<Config> {
    let path = dir.join(up::CONFIG);
    ensure!(
        path.exists(),
        "{}: there is no cell of `afar up`, which would have {}; name its directory with --from, \
         or create a new cell with --cell",
        dir.display(),
        up::CONFIG
    );
    let config = Config::read(&path)?;
    config.check()?;
    Ok(config)
}

/// That of a new cell.
fn fresh(args: &InitArgs) -> anyhow::Result<Config> {
    let cell = args.cell.as_ref().context(
        "the cell has no name; give --cell with a domain that you own, such as example.org, or \
         home.arpa at home, or name a directory of `afar up` with --from",
    )?;
    ensure!(
        args.data.is_absolute(),
        "--data {}: give an absolute path, because units start the server in another directory",
        args.data.display()
    );
    let mut config = Config {
        cell: cell.to_string(),
        data: DataDir(args.data.clone()),
        listen: Listen(args.listen),
        ..Config::default()
    };
    for (id, path) in partitions(args)? {
        let letters = id.to_string();
        let letters = letters.trim_start_matches("/vicep").to_owned();
        let twice = config.partition.insert(letters, Partition::new(path));
        ensure!(
            twice.is_none(),
            "--partition: {id} is given twice; omit one"
        );
    }
    config.check()?;
    let (databases, keys) = (args.data.join("vl"), afar_server::own_keys(&config));
    ensure!(
        !databases.exists() && !keys.exists(),
        "{} has the databases of a cell already; take over that cell with --from, or give an \
         empty directory with --data",
        args.data.display()
    );
    Ok(config)
}

/// The partitions that are named, or are there.
fn partitions(args: &InitArgs) -> anyhow::Result<Vec<(PartitionId, PathBuf)>> {
    if args.partition.is_empty() {
        let there = LETTERS.map(|letter| (letter, PathBuf::from(format!("/vicep{letter}"))));
        let there: Vec<_> = there.filter(|(_, path)| path.is_dir()).collect();
        let there = match there.is_empty() {
            true => vec![('a', args.data.join("vicepa"))],
            false => there,
        };
        let named = |(letter, path): (char, PathBuf)| {
            let id: PartitionId = letter.to_string().parse()?;
            anyhow::Ok((id, path))
        };
        return there.into_iter().map(named).collect();
    }
    let named = |named: &String| {
        let wrong =
            || format!("--partition {named:?}: give a letter and a directory, such as a=/vicepa");
        let (letter, path) = named.split_once('=').with_context(wrong)?;
        let id = letter.parse::<PartitionId>().with_context(wrong)?;
        let path = PathBuf::from(path);
        if !path.is_absolute() {
            bail!("{}: the directory must begin with /", wrong());
        }
        Ok((id, path))
    };
    args.partition.iter().map(named).collect()
}

/// Writes the configuration, and has the server make its key, databases and root volumes; gives the line
/// for other machines.
fn begin(path: &Path, config: &Config) -> anyhow::Result<Option<CellUri>> {
    let context = || format!("cannot write {}", path.display());
    if let Some(parent) = path.parent() {
        private::public_dir(parent).with_context(context)?;
    }
    private::write_public(path, &up::text(config)?).with_context(context)?;
    super::start_log("warn")?;
    afar_server::first_key(config).context("cannot create the cell's key")?;
    // As it will be served: what does not work then does not work now.
    let config = config.clone();
    super::runtime()?.block_on(async {
        let process = Process::start(config).await?;
        let founded = process.found_cell().await;
        let login = process.login_line();
        process.stop().await?;
        founded?;
        Ok(login)
    })
}

/// What the server writes to.
fn places(config: &Config) -> Vec<PathBuf> {
    let partitions = config.partition.values();
    let partitions = partitions.map(|partition| partition.path.clone());
    std::iter::once(config.data.0.clone())
        .chain(partitions)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_named_by_letter_and_directory() {
        let args = |partition: &[&str]| InitArgs {
            cell: None,
            from: None,
            config: DEFAULT_PATH.into(),
            data: DATA.into(),
            partition: partition.iter().map(ToString::to_string).collect(),
            listen: Ipv4Addr::UNSPECIFIED.into(),
            units: None,
            no_start: true,
            json: false,
        };
        let found = partitions(&args(&["a=/srv/a", "/vicepb=/srv/b"])).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(id, path)| (id.to_string(), path))
            .collect();
        assert_eq!(found[0], ("/vicepa".to_owned(), &"/srv/a".into()));
        assert_eq!(found[1], ("/vicepb".to_owned(), &"/srv/b".into()));
        for wrong in ["", "a", "=/srv", "?=/srv", "a=srv", "a="] {
            let error = partitions(&args(&[wrong])).unwrap_err().to_string();
            assert!(error.contains(&format!("--partition {wrong:?}")), "{error}");
        }
    }
}
