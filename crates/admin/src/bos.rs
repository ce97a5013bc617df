//! What a server's overseer tells: which processes there are, and how they are.

use std::io::{self, Write};

use afar_net::AbortCode;
use afar_rpc::{RpcError, bozo};
use afar_types::{BozoState, BozoStatus, BozoText, BozoTime, error};

/// BOZO: the number is past the end of the list.
// spec: afs-rpc#the-overseer
const BZDOM: AbortCode = AbortCode(error::BZDOM);
/// The same of administrators: what the file of them is read with answers 1.
const USERS_END: AbortCode = AbortCode(1);
/// Lists end by themselves; this is for servers that never say so.
const LIST_MAX: i32 = 1000;
/// The number by which the program is asked for that is told of exits.
const NOTIFIER: i32 = 999;

/// A process, or a group of processes, of a server.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Its name, such as `fs`.
    pub name: String,
    /// Its type, such as `simple`.
    pub kind: String,
    /// Its history.
    pub history: BozoStatus,
    /// What it is doing.
    pub state: BozoState,
    /// More about that, or nothing.
    pub description: String,
    /// The program that failed last, or nothing.
    pub failed: String,
    /// Its commands.
    pub commands: Vec<String>,
    /// The program that is told of exits.
    pub notifier: Option<String>,
}

/// Names of a server's processes.
///
/// # Errors
/// When the server does not answer, or refuses.
pub async fn instance_names(server: &bozo::Client) -> Result<Vec<String>, RpcError> {
    list(async |number| {
        let reply = server.enumerate_instance(number).await?;
        Ok(text(&reply.instance))
    })
    .await
}

/// All about a process.
///
/// # Errors
/// When the server does not answer, or has no process of that name.
pub async fn instance(server: &bozo::Client, name: &BozoText) -> Result<Instance, RpcError> {
    let info = server.get_instance_info(name.clone()).await?;
    let status = server.get_status(name.clone()).await?;
    let commands = list(async |number| {
        let reply = server.get_instance_parm(name.clone(), number).await?;
        Ok(text(&reply.parameter))
    });
    let notifier = server.get_instance_parm(name.clone(), NOTIFIER);
    let strings = server.get_instance_strings(name.clone());
    Ok(Instance {
        name: text(name),
        kind: text(&info.kind),
        history: info.status,
        state: status.state,
        description: text(&status.description),
        commands: commands.await?,
        // Not every process has one, and older overseers do not know the question.
        notifier: notifier.await.ok().map(|reply| text(&reply.parameter)),
        failed: strings
            .await
            .map_or_else(|_| String::new(), |reply| text(&reply.error_name)),
    })
}

/// The name of the server's cell, and its database servers.
///
/// # Errors
/// When the server does not answer, or refuses.
pub async fn hosts(server: &bozo::Client) -> Result<(String, Vec<String>), RpcError> {
    let cell = text(&server.get_cell_name().await?.name);
    let hosts = list(async |number: i32| {
        let reply = server.get_cell_host(number.cast_unsigned()).await?;
        Ok(text(&reply.name))
    });
    Ok((cell, hosts.await?))
}

/// Names of the server's administrators.
///
/// # Errors
/// When the server does not answer, or refuses.
pub async fn users(server: &bozo::Client) -> Result<Vec<String>, RpcError> {
    let ask = async |number| Ok(text(&server.list_s_users(number).await?.name));
    list_until(USERS_END, ask).await
}

/// When the server restarts its processes: all, and those with a new program.
///
/// # Errors
/// When the server does not answer, or refuses.
pub async fn restart_times(server: &bozo::Client) -> Result<[BozoTime; 2], RpcError> {
    let all = server.get_restart_time(1).await?.time;
    let new = server.get_restart_time(2).await?.time;
    Ok([all, new])
}

/// The server's keys, as far as they are told, and why no more of them.
pub async fn keys(server: &bozo::Client) -> (Vec<bozo::list_keys::Reply>, Result<(), RpcError>) {
    let mut found = Vec::new();
    for number in 0..LIST_MAX {
        match server.list_keys(number).await {
            Ok(key) => found.push(key),
            Err(error) if error.code() == BZDOM => break,
            Err(error) => return (found, Err(error)),
        }
    }
    (found, Ok(()))
}

/// Writes a log of the server, up to the NUL that ends it.
///
/// # Errors
/// When the server does not answer, or refuses; inside, what the writer says.
pub async fn log(
    server: &bozo::Client,
    name: BozoText,
    out: &mut impl Write,
) -> Result<io::Result<()>, RpcError> {
    let mut data = server.get_log(name).await?;
    while let Some(chunk) = data.chunk().await? {
        let end = chunk.iter().position(|byte| *byte == 0);
        if let Err(error) = out.write_all(&chunk[..end.unwrap_or(chunk.len())]) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

/// What is asked for by number, from 0 until the server says that there is no more.
async fn list(ask: impl AsyncFn(i32) -> Result<String, RpcError>) -> Result<Vec<String>, RpcError> {
    list_until(BZDOM, ask).await
}

async fn list_until(
    end: AbortCode,
    ask: impl AsyncFn(i32) -> Result<String, RpcError>,
) -> Result<Vec<String>, RpcError> {
    let mut found = Vec::new();
    for number in 0..LIST_MAX {
        match ask(number).await {
            Ok(text) => found.push(text),
            Err(error) if error.code() == end => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn text(text: &BozoText) -> String {
    String::from_utf8_lossy(text.as_bytes()).into_owned()
}
