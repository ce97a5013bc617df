//! Addresses of servers as users name them.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context, ensure};
use tokio::net::lookup_host;

/// The IPv4 addresses of `HOST` or `HOST:PORT`; a server without a port has this one. There may be
/// none.
///
/// # Errors
/// Those of looking the name up.
pub async fn addresses(server: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let target = if server.contains(':') {
        server.to_owned()
    } else {
        format!("{server}:{port}")
    };
    let found = lookup_host(target).await?;
    Ok(found.filter(SocketAddr::is_ipv4).collect())
}

/// The same for a server that an option names: there is at least one.
///
/// # Errors
/// Names the option, and what it takes.
pub async fn of_option(option: &str, server: &str, port: u16) -> anyhow::Result<Vec<SocketAddr>> {
    let wrong = || format!("{option} {server}: give a host's name or address, or HOST:PORT");
    let found = addresses(server, port).await.with_context(wrong)?;
    ensure!(!found.is_empty(), "{}: it has no IPv4 address", wrong());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_is_added_where_there_is_none() {
        let found = async |server| addresses(server, 7003).await.unwrap();
        assert_eq!(found("127.0.0.1").await, [([127, 0, 0, 1], 7003).into()]);
        assert_eq!(found("127.0.0.1:1").await, [([127, 0, 0, 1], 1).into()]);
        assert_eq!(found("[::1]:1").await, []);
    }

    #[tokio::test]
    async fn errors_name_the_option() {
        for (server, end) in [
            ("127.0.0.1:port", "HOST:PORT"),
            ("[::1]:1", "HOST:PORT: it has no IPv4 address"),
        ] {
            let error = of_option("--server", server, 7003).await.unwrap_err();
            let begin = format!("--server {server}: give ");
            let error = error.to_string();
            assert!(error.starts_with(&begin) && error.ends_with(end), "{error}");
        }
    }
}
