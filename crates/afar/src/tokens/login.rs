//! `afar login`: a token from a ticket, from a KDC with a password, or from the cell's own login
//! service.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use afar_cell::{Client, Config};
use afar_login::Fingerprint;
use afar_login::uri::CellUri;
use afar_net::Endpoint;
use afar_security::libkrb5::{Krb5, Krb5Error, realms_of};
use afar_security::tokens::{Held, Store};
use afar_server::local_cell;
use afar_types::CellName;
use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use tokio::runtime::{Builder, Runtime};
use zeroize::Zeroizing;

use super::find::Finder;
use super::keep::keep;
use super::service;
use crate::{advice, password};

/// Options of `afar login`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "An existing ticket is used without asking for a password. Without one, the command \
    asks a KDC, if the cell has one, and then the cell's login service. With a line it asks only \
    the login service."
)]
pub(crate) struct LoginArgs {
    /// The user, NAME or NAME@REALM [default: that of the tickets, or your local name]; for a cell that
    /// is not known yet, also the line afar://… that `afar up` prints
    #[arg(value_name = "USER | LINE", num_args = 0..=2)]
    who: Vec<String>,
    /// The cell [default: that of ThisCell, or the one that runs on this machine]
    #[arg(long, short)]
    pub(super) cell: Option<CellName>,
    /// The Kerberos realm of the cell [default: as krb5.conf says, or the cell in upper case]
    #[arg(long, short = 'k')]
    realm: Option<String>,
    /// The ticket cache to use [default: that of KRB5CCNAME]
    #[arg(long, value_name = "NAME")]
    pub(super) ccache: Option<String>,
    /// Log in to the cell's own service with an SSH key, of the agent or of this file
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(super) ssh_key: Option<Option<PathBuf>>,
    /// Read the password from standard input, and ignore existing tickets
    #[arg(long)]
    password_stdin: bool,
    /// The host of the cell's own login service [default: its database servers]. If the cell is not
    /// known here, this server goes into your own CellServDB
    #[arg(long, value_name = "HOST[:PORT]")]
    server: Option<String>,
    /// The fingerprint of that service's key; the command remembers it
    #[arg(long, value_name = "SHA256:…")]
    fingerprint: Option<Fingerprint>,
    /// Read this CellServDB
    #[arg(long, value_name = "FILE", env = "AFAR_CELLSERVDB")]
    pub(super) cellservdb: Option<PathBuf>,
}

/// Gets a token and keeps it.
pub(crate) fn login(args: &LoginArgs) -> anyhow::Result<ExitCode> {
    let words = Words::of(args)?;
    let cell = words.line.as_ref().map(|line| line.cell().clone());
    let cell = cell.or_else(|| args.cell.clone());
    let cell = cell.or_else(super::this_cell).context(
        "no cell is named, and no ThisCell file names one; give --cell, or the line afar://… that \
         `afar up` prints",
    )?;
    let login = Login {
        args,
        place: words.place(args)?,
        by_line: words.line.is_some(),
        user: words.user,
        finder: Finder {
            store: Store::new(),
            realm: args.realm.clone(),
            ccache: args.ccache.clone(),
            hosts: Vec::new(),
            other: None,
        },
        runtime: Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime; has a limit on threads been reached?")?,
        cell,
    };
    let held = login.gain()?;
    keep(&login.finder.store, &held)?;
    Ok(ExitCode::SUCCESS)
}

/// The user and the cell that the positional arguments name.
#[derive(Debug)]
struct Words {
    user: Option<String>,
    line: Option<CellUri>,
}

impl Words {
    fn of(args: &LoginArgs) -> anyhow::Result<Self> {
        let (mut user, mut line) = (None, None);
        for word in &args.who {
            if word.contains("://") {
                let read: CellUri = word.parse()?;
                let second = line.replace(read).is_some();
                ensure!(
                    !second,
                    "two cells' lines are given; log in to one cell at a time"
                );
            } else {
                ensure!(
                    !word.is_empty() && !word.contains(char::is_control),
                    "{word:?} is not a user name; give your name in the cell"
                );
                if let Some(first) = user.replace(word.clone()) {
                    bail!("two users are named, {first:?} and {word:?}; log in as one at a time");
                }
            }
        }
        let words = Self { user, line };
        words.check(args)?;
        Ok(words)
    }

    /// Whether options do not say otherwise than the line.
    fn check(&self, args: &LoginArgs) -> anyhow::Result<()> {
        let Some(line) = &self.line else {
            return Ok(());
        };
        ensure!(
            args.server.is_none() && args.fingerprint.is_none(),
            "the line {line} names the server and its key; omit --server and --fingerprint"
        );
        if let Some(cell) = args.cell.as_ref().filter(|cell| *cell != line.cell()) {
            bail!(
                "the line {line} is of cell {}, but --cell names {cell}; omit --cell, or use the \
                 line that the server of {cell} prints",
                line.cell()
            );
        }
        Ok(())
    }

    /// The server that is named, and its key if that is.
    fn place(&self, args: &LoginArgs) -> anyhow::Result<NamedServer> {
        if let Some(line) = &self.line {
            return Ok(NamedServer {
                server: Some((line.host().to_owned(), line.port())),
                fingerprint: Some(line.fingerprint()),
            });
        }
        let server = args.server.as_deref().map(host_and_port).transpose()?;
        Ok(NamedServer {
            server,
            fingerprint: args.fingerprint,
        })
    }
}

/// What `--server` names.
fn host_and_port(named: &str) -> anyhow::Result<(String, u16)> {
    let wrong = || anyhow!("--server {named:?}: give a host's name or address, or HOST:PORT");
    let (host, port) = match named.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host, port.parse().map_err(|_| wrong())?),
        _ => (named, afar_login::PORT),
    };
    let strange = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '@' | '#');
    ensure!(
        !host.is_empty() && port != 0 && !host.contains(strange),
        wrong()
    );
    Ok((host.to_owned(), port))
}

/// A login service that is named.
#[derive(Debug)]
pub(super) struct NamedServer {
    /// Its host and port.
    pub(super) server: Option<(String, u16)>,
    /// Its key.
    pub(super) fingerprint: Option<Fingerprint>,
}

/// A login under way.
pub(super) struct Login<'a> {
    pub(super) args: &'a LoginArgs,
    pub(super) place: NamedServer,
    /// Whether a line named the place.
    pub(super) by_line: bool,
    user: Option<String>,
    pub(super) cell: CellName,
    pub(super) runtime: Runtime,
    finder: Finder,
}

impl Login<'_> {
    fn gain(&self) -> anyhow::Result<Held> {
        if let Some(file) = &self.args.ssh_key {
            return service::with_key(self, &self.user()?, file.as_deref());
        }
        let mut tried = Vec::new();
        if !self.args.password_stdin && !self.by_line {
            match self.with_ticket() {
                Ok(Some(held)) => return Ok(held),
                Ok(None) => {}
                Err(error) => tried.push(error),
            }
        }
        self.with_password(tried)
    }

    /// By a ticket that is there, if it is this user's.
    fn with_ticket(&self) -> anyhow::Result<Option<Held>> {
        let found = match self.finder.of_ticket(&self.cell) {
            Err(first) if self.args.realm.is_none() && is_of_realm(&first) => {
                // The realm may be told by the names of the cell's servers.
                let hosts = self.host_names();
                let finder = Finder {
                    hosts,
                    ..self.finder.clone()
                };
                let again = finder.of_ticket(&self.cell);
                again.map_err(|_| first)?
            }
            found => found?,
        };
        let held = found.map(|found| found.held);
        Ok(held.filter(|held| self.is_wanted(held)))
    }

    /// Whether a token is of the user who logs in.
    fn is_wanted(&self, held: &Held) -> bool {
        let (Some(wanted), Some(user)) = (&self.user, &held.user) else {
            return self.user.is_none();
        };
        let name = user
            .rsplit_once('@')
            .map_or(user.as_str(), |(name, _)| name);
        wanted == user || wanted == name
    }

    /// By a password: of the KDC, or else of the cell's own service.
    fn with_password(&self, mut tried: Vec<anyhow::Error>) -> anyhow::Result<Held> {
        let user = self.user()?;
        let password = if self.args.password_stdin {
            password::from_stdin()?
        } else {
            let prompt = format!("Password for {user} in {}: ", self.cell);
            match password::ask(&prompt) {
                Ok(password) => password,
                Err(error) => {
                    tried.push(error);
                    return Err(all(tried));
                }
            }
        };
        let own = self.place.server.is_some() || service::announced(&self.cell).is_some();
        if !own {
            match self.with_kdc(&user, &password) {
                Ok(held) => return Ok(held),
                Err(error) => tried.push(error),
            }
        }
        match service::with_password(self, &user, &password) {
            Ok(held) => Ok(held),
            Err(error) => {
                tried.push(error);
                Err(all(tried))
            }
        }
    }

    fn with_kdc(&self, user: &str, password: &Zeroizing<String>) -> anyhow::Result<Held> {
        let krb5 = Krb5::new()?;
        let cache = krb5.cache(self.args.ccache.as_deref())?;
        let realms = match user.contains('@') {
            true => Vec::new(),
            false => {
                let given = self.args.realm.as_deref();
                realms_of(&self.cell, given, Some(&krb5), &self.host_names(), None)
            }
        };
        let mut names: Vec<_> = realms
            .iter()
            .map(|realm| format!("{user}@{realm}"))
            .collect();
        if self.args.realm.is_none() {
            // The usual realm is the last one, and the only one of a full name.
            names.extend(
                krb5.full_name(user)
                    .ok()
                    .filter(|name| !names.contains(name)),
            );
        }
        let mut unreached = None;
        for name in &names {
            match cache.log_in(name, password.as_bytes()) {
                Ok(()) => {
                    let ccache = self.args.ccache.as_deref();
                    return Ok(self.finder.of_krb5(&krb5, ccache, &self.cell)?.held);
                }
                Err(error) if error.is_no_kdc() => {
                    unreached.get_or_insert(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        match unreached {
            Some(error) => Err(error.into()),
            None => bail!("{user}: there is no realm to log in to; name one with --realm"),
        }
    }

    /// The user who logs in, if no ticket names one.
    fn user(&self) -> anyhow::Result<String> {
        let own = || {
            let names = ["USER", "LOGNAME"].iter();
            names
                .filter_map(|name| std::env::var(name).ok())
                .find(|name| !name.is_empty())
        };
        let user = self.user.clone().or_else(own);
        user.context("who you are is not known here; give your name in the cell")
    }

    /// Addresses of the cell's location servers.
    pub(super) fn servers(&self) -> anyhow::Result<Vec<SocketAddr>> {
        if let Some(local) = local_cell::find(Some(&self.cell)) {
            return Ok(local.entry.servers);
        }
        self.runtime.block_on(self.listed_servers())
    }

    /// Those that CellServDB and DNS tell.
    pub(super) async fn listed_servers(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let net = afar_net::Config::default();
        let endpoint = Endpoint::bind(([0, 0, 0, 0], 0).into(), net);
        let config = Config {
            cellservdb: self.args.cellservdb.clone(),
            ..Config::default()
        };
        let endpoint = endpoint.context("cannot open a UDP socket")?;
        let client = Client::new(endpoint, config)?;
        Ok(client.cell(&self.cell).await?.servers().collect())
    }

    /// Their names, as far as there are any.
    fn host_names(&self) -> Vec<String> {
        let servers = self.servers().unwrap_or_default();
        let hosts = servers
            .iter()
            .map(SocketAddr::ip)
            .filter(|host| !host.is_loopback());
        let name = |host: IpAddr| {
            let name = dns_lookup::lookup_addr(&host).ok()?;
            name.parse::<IpAddr>().is_err().then_some(name)
        };
        hosts.filter_map(name).collect()
    }
}

/// Whether another realm may have the ticket.
fn is_of_realm(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<Krb5Error>();
    error.is_some_and(|error| error.is_unknown_service() || error.is_no_kdc())
}

/// What all ways failed with.
fn all(mut tried: Vec<anyhow::Error>) -> anyhow::Error {
    match tried.len() {
        1 => tried.remove(0),
        _ => {
            let texts: Vec<_> = tried.iter().map(advice::told).collect();
            anyhow!("{}", texts.join("; also: "))
        }
    }
}
