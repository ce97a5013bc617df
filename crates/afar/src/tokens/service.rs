//! Logging in to a cell's own service, which stands in for a KDC.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;

use afar_cell::cellservdb::own_directory;
use afar_login::Fingerprint;
use afar_login::client::{
    Granted, KNOWN_CELLS, LoginError, Server, SshKeys, Trust, Trusted, Unknown, local,
};
use afar_security::ccache::{Ccache, Credential, Name};
use afar_security::tokens::Held;
use afar_server::local_cell;
use afar_types::CellName;
use anyhow::Context;
use zeroize::Zeroizing;

use super::cells;
use super::login::Login;
use crate::password;

/// Where the login service of a cell on this machine is, and by which key it is known.
pub(super) fn announced(cell: &CellName) -> Option<(SocketAddr, Fingerprint)> {
    local(&local_cell::find(Some(cell))?.run)
}

/// With a password, which the service does not get to see.
pub(super) fn with_password(
    login: &Login<'_>,
    user: &str,
    password: &Zeroizing<String>,
) -> anyhow::Result<Held> {
    let servers = servers(login)?;
    let granted = login.runtime.block_on(async {
        let trusted = trusted(login, servers).await?;
        trusted
            .with_password(name_of(user), password.as_bytes(), None)
            .await
    })?;
    held(login, granted)
}

/// With the SSH keys of an agent, or of a file.
pub(super) fn with_key(login: &Login<'_>, user: &str, file: Option<&Path>) -> anyhow::Result<Held> {
    let mut keys = match file {
        Some(path) => SshKeys::file(path, || {
            let asked = password::ask(&format!("Passphrase for {}: ", path.display()));
            asked.map_err(io::Error::other)
        })?,
        None => SshKeys::agent()?.context(
            "there is no SSH agent, or it has no key that can be used; name a key's file with \
             --ssh-key FILE",
        )?,
    };
    let servers = servers(login)?;
    let granted = login.runtime.block_on(async {
        let trusted = trusted(login, servers).await?;
        trusted.with_keys(name_of(user), &mut keys, None).await
    })?;
    held(login, granted)
}

/// The service knows users by the names they have in the cell.
fn name_of(user: &str) -> &str {
    user.split_once('@').map_or(user, |(name, _)| name)
}

/// Where the service may be, and by what it is believed there.
fn servers(login: &Login<'_>) -> anyhow::Result<Vec<(Server, Trust)>> {
    let server = |host: String, port| Server {
        cell: login.cell.clone(),
        host,
        port,
    };
    let given = login.place.fingerprint;
    let known_cells = own_directory().map(|directory| directory.join(KNOWN_CELLS));
    if let Some((host, port)) = &login.place.server {
        let trust = Trust {
            fingerprint: given,
            known_cells,
        };
        return Ok(vec![(server(host.clone(), *port), trust)]);
    }
    if let Some((address, fingerprint)) = announced(&login.cell) {
        let host = address.ip().to_string();
        let trust = Trust {
            fingerprint: Some(given.unwrap_or(fingerprint)),
            // What the server says of itself need not be remembered.
            known_cells: None,
        };
        return Ok(vec![(server(host, address.port()), trust)]);
    }
    let addresses = login.servers()?;
    let hosts = addresses.iter().map(|address| address.ip().to_string());
    let trust = Trust {
        fingerprint: given,
        known_cells,
    };
    Ok(hosts
        .map(|host| (server(host, afar_login::PORT), trust.clone()))
        .collect())
}

/// The first of these that answers, if it is believed.
async fn trusted(login: &Login<'_>, servers: Vec<(Server, Trust)>) -> Result<Trusted, LoginError> {
    let mut unreached = None;
    for (server, trust) in servers {
        match server.trust(&trust, confirm).await {
            Err(error @ LoginError::Unreachable { .. }) => {
                unreached.get_or_insert(error);
            }
            Ok(trusted) => {
                cells::learn(login, trusted.server()).await;
                return Ok(trusted);
            }
            Err(error) => return Err(error),
        }
    }
    Err(unreached.unwrap_or_else(|| LoginError::Unreachable {
        host: login.cell.to_string(),
        port: afar_login::PORT,
        source: io::ErrorKind::HostUnreachable.into(),
    }))
}

fn confirm(unknown: &Unknown) -> bool {
    let others = match unknown.others {
        0 => "",
        _ => " The servers of the cell that you have logged in to have other keys.",
    };
    let question = format!(
        "{} is not known as a server of {}. Its key has the fingerprint {}.{others}\nIs it the \
         one that the cell's administrator gave you?",
        unknown.host, unknown.cell, unknown.fingerprint
    );
    let ask = || -> io::Result<bool> {
        let mut terminal = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
        write!(terminal, "{question} (yes/no) ")?;
        let mut answer = String::new();
        BufReader::new(terminal.take(16)).read_line(&mut answer)?;
        Ok(answer.trim() == "yes")
    };
    // Where there is no terminal nobody has said yes.
    ask().unwrap_or(false)
}

/// What was granted, as it is kept; the ticket goes into the cache that was named.
fn held(login: &Login<'_>, granted: Granted) -> anyhow::Result<Held> {
    if let Some(name) = &login.args.ccache {
        let path = Ccache::path_of(name).with_context(|| {
            format!("--ccache {name}: a ticket of the cell's own service can go only to a file")
        })?;
        let realm = granted.client.realm.as_str();
        let instance = Some(granted.client.instance.as_str()).filter(|text| !text.is_empty());
        let client: Vec<_> = [granted.client.name.as_str()]
            .into_iter()
            .chain(instance)
            .collect();
        let [afs, cell] = &granted.service;
        let credential = Credential {
            client: Name::new(&client, realm),
            server: Name::new(&[afs, cell], realm),
            key: granted.session.clone(),
            authenticated: granted.token.start,
            start: granted.token.start,
            end: granted.token.end,
            renew_till: 0,
            flags: granted.flags,
            ticket: granted.token.ticket.clone(),
        };
        Ccache::store(path, &credential)?;
    }
    Ok(Held {
        cell: granted.cell,
        user: Some(granted.client.to_string()),
        vice_id: None,
        token: granted.token,
    })
}
