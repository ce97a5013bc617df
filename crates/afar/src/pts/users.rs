//! How users of a cell without a KDC prove who they are: their passwords and SSH keys. OpenAFS's
//! `pts` has nothing of this.

use std::fmt;
use std::path::{Path, PathBuf};

use afar_admin::Servers;
use afar_admin::pts::{self, PtsError};
use afar_login::password::NewPassword;
use afar_login::sshkey::SshKey;
use afar_rpc::RpcError;
use afar_rpc::users::{PasswordMessage, SshKeyLine, SshKeyLines};
use afar_types::PtsId;
use afar_types::error::{PRPERM, RX_INVALID_OPERATION};
use anyhow::{Context, bail, ensure};
use clap::Args;
use serde::Serialize;
use zeroize::Zeroizing;

use super::{Outcome, Pts, PtsCommon};
use crate::afs_args::OWN;
use crate::{output, password};

/// How a new user will authenticate.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NewCredentials {
    /// Ask for a password with which the user can log in where there is no KDC
    #[arg(long, help_heading = OWN, conflicts_with = "password_stdin")]
    pub(super) password: bool,
    /// Read the password from standard input
    #[arg(long, help_heading = OWN)]
    pub(super) password_stdin: bool,
    /// A public SSH key (.pub) with which the user can log in
    #[arg(long, help_heading = OWN, value_name = "FILE")]
    pub(super) ssh_key: Option<PathBuf>,
}

/// Options of `pts setpassword`.
#[derive(Debug, Args)]
pub(crate) struct SetpasswordArgs {
    /// user name
    #[arg(long, value_name = "user name", required = true)]
    name: String,
    /// Read the password from standard input
    #[arg(long)]
    password_stdin: bool,
    #[command(flatten)]
    pub(super) common: PtsCommon,
}

/// Options of `pts sshkeys`.
#[derive(Debug, Args)]
pub(crate) struct SshkeysArgs {
    /// user name
    #[arg(long, value_name = "user name", required = true)]
    name: String,
    /// Allow logging in as the user with this public key (.pub)
    #[arg(long, value_name = "FILE")]
    add: Option<PathBuf>,
    /// Remove this key
    #[arg(long, value_name = "FINGERPRINT")]
    remove: Option<String>,
    #[command(flatten)]
    pub(super) common: PtsCommon,
}

/// A key that may stand for a user.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    name: &'a str,
    fingerprint: String,
    comment: &'a str,
    key: String,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.key.split(' ').next().unwrap_or_default();
        write!(f, "{} {kind} {}", self.fingerprint, self.comment)
    }
}

/// Credentials that were asked for and read, before anything is changed.
pub(super) struct Ready {
    password: Option<Zeroizing<String>>,
    key: Option<SshKey>,
}

impl NewCredentials {
    /// Asks for the password and reads the key of a user that is to be made.
    pub(super) fn read(&self, names: &[String]) -> anyhow::Result<Ready> {
        let any = self.password || self.password_stdin || self.ssh_key.is_some();
        ensure!(
            !any || names.len() == 1,
            "a password or key is for one user; create the users one by one"
        );
        let password = match names {
            [name] if self.password => Some(password::ask_new(name)?),
            [_] if self.password_stdin => Some(password::from_stdin()?),
            _ => None,
        };
        let key = self.ssh_key.as_deref().map(read_key).transpose()?;
        Ok(Ready { password, key })
    }
}

impl Ready {
    /// Gives them to the user who was made.
    pub(super) async fn set(&self, servers: &Servers, name: &str, id: PtsId) -> anyhow::Result<()> {
        let made = || {
            format!(
                "the user {name} exists now, but cannot log in yet; try `pts setpassword` or `pts \
                 sshkeys`"
            )
        };
        if let Some(password) = &self.password {
            set_password(servers, id, password)
                .await
                .with_context(made)?;
        }
        if let Some(key) = &self.key {
            set_keys(servers, id, std::slice::from_ref(key))
                .await
                .with_context(made)?;
        }
        Ok(())
    }
}

fn read_key(path: &Path) -> anyhow::Result<SshKey> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the key {}", path.display()))?;
    SshKey::parse(&text).with_context(|| format!("{}", path.display()))
}

/// What to do about a server that refuses.
fn explained(error: RpcError) -> anyhow::Error {
    let hint = match error.aborted().map(|code| code.0) {
        Some(RX_INVALID_OPERATION) => {
            "; this server keeps no passwords and keys, or accepts them only encrypted: use an \
             afar server, and a token or -localauth on its machine"
        }
        Some(PRPERM) => "; only the users themselves and administrators may",
        _ => "",
    };
    anyhow::anyhow!("{error}: {}{hint}", error.cause)
}

async fn set_password(servers: &Servers, id: PtsId, password: &str) -> anyhow::Result<()> {
    let (new, request) = NewPassword::begin(password.as_bytes())?;
    let request = PasswordMessage::new(request)?;
    let answer = servers
        .users(|users| {
            let request = request.clone();
            async move { users.register_start(id, request).await }
        })
        .await
        .map_err(explained)?;
    let record = tokio::task::spawn_blocking(move || new.finish(&answer.response)).await??;
    let record = PasswordMessage::new(record.octets())?;
    servers
        .users(|users| {
            let record = record.clone();
            async move { users.register_finish(id, record).await }
        })
        .await
        .map_err(explained)?;
    Ok(())
}

async fn set_keys(servers: &Servers, id: PtsId, keys: &[SshKey]) -> anyhow::Result<()> {
    let lines = keys.iter().map(|key| SshKeyLine::new(key.to_string()));
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    let lines = SshKeyLines::new(lines).context("a user can have 32 keys; remove one first")?;
    servers
        .users(|users| {
            let lines = lines.clone();
            async move { users.set_keys(id, lines).await }
        })
        .await
        .map_err(explained)?;
    Ok(())
}

async fn keys(servers: &Servers, id: PtsId) -> anyhow::Result<Vec<SshKey>> {
    let listed = servers
        .users(|users| async move { users.list_keys(id).await })
        .await
        .map_err(explained)?;
    let lines = listed.keys.iter().map(ToString::to_string);
    Ok(lines.flat_map(|line| SshKey::parse(&line)).collect())
}

async fn id_of(servers: &Servers, name: &str) -> anyhow::Result<PtsId> {
    match pts::id(servers, name).await {
        Err(PtsError::NoEntry) => {
            bail!("there is no user {name}; `afar pts createuser` creates one")
        }
        found => found.with_context(|| format!("cannot look up the user {name}")),
    }
}

pub(super) async fn setpassword(
    pts: &mut Pts<'_>,
    args: &SetpasswordArgs,
) -> anyhow::Result<Outcome> {
    let id = id_of(pts.servers, &args.name).await?;
    // Whether the caller may is found out before the password is typed.
    keys(pts.servers, id).await?;
    let password = if args.password_stdin {
        password::from_stdin()?
    } else {
        password::ask_new(&args.name)?
    };
    set_password(pts.servers, id, &password).await?;
    if !pts.json {
        output::note(&format_args!("the password of {} is set", args.name));
    }
    Ok(Outcome::Done)
}

pub(super) async fn sshkeys(pts: &mut Pts<'_>, args: &SshkeysArgs) -> anyhow::Result<Outcome> {
    let id = id_of(pts.servers, &args.name).await?;
    let added = args.add.as_deref().map(read_key).transpose()?;
    let mut found = keys(pts.servers, id).await?;
    let before = found.len();
    if let Some(fingerprint) = &args.remove {
        found.retain(|key| key.fingerprint() != *fingerprint);
        if found.len() == before {
            bail!(
                "{} has no key {fingerprint}; without -remove this command lists the keys",
                args.name
            );
        }
    }
    if let Some(added) = added {
        // The same key with another comment takes the old one's place.
        found.retain(|key| key.fingerprint() != added.fingerprint());
        found.push(added);
    }
    if args.add.is_some() || args.remove.is_some() {
        set_keys(pts.servers, id, &found).await?;
    }
    for key in &found {
        pts.output.report(&Shown {
            name: &args.name,
            fingerprint: key.fingerprint(),
            comment: key.comment(),
            key: key.to_string(),
        })?;
    }
    Ok(Outcome::Done)
}
