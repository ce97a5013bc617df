//! The login service of a server with users and groups, and the service by which passwords and SSH
//! keys are set.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use afar_dbserver::pr::ProtectionServer;
use afar_dbserver::users::UserServer;
use afar_login::client::announce;
use afar_login::server::{Certificate, LoginConfig, LoginServer};
use afar_net::Service;
use afar_rpc::users;
use afar_telemetry::Registry;
use afar_types::CellName;
use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::security::Security;
use crate::sockets::Sockets;

/// The server's own certificate and key, in its data directory.
const CERTIFICATE: &str = "login.pem";

/// What the services need.
pub(crate) struct Login<'a> {
    pub(crate) cell: &'a CellName,
    pub(crate) config: &'a Config,
    pub(crate) security: &'a Security,
    /// The address a client on this machine would use.
    pub(crate) listen: IpAddr,
    /// The directory of sockets.
    pub(crate) run: &'a Path,
    /// What is counted.
    pub(crate) registry: &'a Registry,
}

impl Login<'_> {
    /// Serves both; the login service in `background`, if it is wanted and there is a key.
    pub(crate) async fn serve(
        &self,
        protection: Arc<ProtectionServer>,
        sockets: &Sockets,
        background: &mut JoinSet<()>,
    ) -> anyhow::Result<()> {
        let server = UserServer::open(protection).await?;
        let server = server.with_registry(self.registry);
        let shared = Arc::new(server.clone());
        sockets.serve(
            Service::new(users::SERVICE, users::NAME),
            self.security.private(),
            |_, identity| users::Server::shared(&shared, identity),
        );
        if !self.config.login.enabled.0 {
            return Ok(());
        }
        if self.security.keys().newest().is_none() {
            tracing::info!(
                "there is no login service, because there is no key to make tickets with"
            );
            return Ok(());
        }
        let certificate = self.certificate()?;
        let listener = self.listener()?;
        let fingerprint = certificate.fingerprint();
        let address = self.address();
        announce(self.run, address, fingerprint)
            .with_context(|| format!("cannot write to {}", self.run.display()))?;
        tracing::info!(%address, %fingerprint, "logins are served");
        let minutes = self.config.login.lifetime_minutes.0;
        let config = LoginConfig {
            cell: self.cell.clone(),
            realm: self.cell.as_str().to_ascii_uppercase(),
            lifetime: Duration::from_secs(60 * u64::from(minutes)),
            keys: Arc::clone(self.security.keys()),
            certificate,
        };
        background.spawn(LoginServer::new(config, server).serve(listener));
        Ok(())
    }

    /// The certificate that the configuration names; else one of our own, made at the first start.
    fn certificate(&self) -> anyhow::Result<Certificate> {
        let section = &self.config.login;
        let opened = match &section.certificate {
            Some(certificate) => {
                let key = section.certificate_key.as_ref().unwrap_or(certificate);
                Certificate::open(certificate, key)
            }
            None => {
                let path = self.config.data.0.join(CERTIFICATE);
                Certificate::open_or_make(&path, &[self.cell.to_string()])
            }
        };
        opened.context("the login service has no certificate; see `afar config explain login`")
    }

    /// Where a client on this machine finds the service.
    fn address(&self) -> SocketAddr {
        let section = &self.config.login;
        let own = section.listen.as_ref().map(|listen| listen.0);
        let own = own.filter(|own| !own.is_unspecified());
        SocketAddr::new(own.unwrap_or(self.listen), section.port.0)
    }

    fn listener(&self) -> anyhow::Result<TcpListener> {
        let section = &self.config.login;
        let listen = section.listen.as_ref().unwrap_or(&self.config.listen);
        let address = SocketAddr::new(listen.0, section.port.0);
        afar_tls::listen(address).with_context(|| {
            format!(
                "cannot open TCP port {address} for logins; does another program have it? \
                 (login.port = … names another, login.enabled = false turns logins off)"
            )
        })
    }
}
