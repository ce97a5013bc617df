//! The operations, as clients call them. What goes wrong has the protection server's codes.

use afar_login::password::Record;
use afar_login::sshkey::SshKey;
use afar_net::AbortCode;
use afar_rpc::users::{self, PasswordMessage, Service, SshKeyLine, SshKeyLines};
use afar_rpc::{Caller, Calls};
use afar_types::PtsId;

use super::rows::Credentials;
use super::{UserServer, rows};
use crate::pr::{PrError, now, refuse};

impl UserServer {
    /// Changes a user's means of authentication, if the caller may.
    async fn change(
        &self,
        caller: &Caller,
        id: PtsId,
        change: impl Fn(&mut Credentials, u32) + Send + 'static,
    ) -> Result<(), AbortCode> {
        let (protection, identity) = (self.protection.clone(), caller.identity.clone());
        let now = now();
        let written = self.protection.database().write(move |rows| {
            protection.check_own(rows.view(), &identity, id)?;
            let mut credentials = rows::credentials(rows.view(), id)?;
            change(&mut credentials, now);
            rows::put(rows, id, &credentials)
        });
        written.await.map_err(|error: PrError| refuse(&error))
    }

    /// A user's means of authentication, if the caller may know them.
    fn look(&self, caller: &Caller, id: PtsId) -> Result<Credentials, AbortCode> {
        let found = self.protection.database().read(|rows| {
            self.protection.check_own(*rows, &caller.identity, id)?;
            rows::credentials(*rows, id)
        });
        found.map_err(|error: PrError| refuse(&error))
    }
}

fn bad_argument<E>(_: E) -> AbortCode {
    PrError::BadArgument.code()
}

impl Service for UserServer {
    fn calls(&self) -> Option<&Calls> {
        Some(&self.calls)
    }

    async fn register_start(
        &self,
        caller: &Caller,
        request: users::register_start::Request,
    ) -> Result<users::register_start::Reply, AbortCode> {
        self.look(caller, request.id)?;
        let setup = self.read_setup().map_err(|error| refuse(&error))?;
        let response = setup
            .register(request.id.0, &request.request)
            .map_err(bad_argument)?;
        let response = PasswordMessage::new(response).map_err(bad_argument)?;
        Ok(users::register_start::Reply { response })
    }

    async fn register_finish(
        &self,
        caller: &Caller,
        request: users::register_finish::Request,
    ) -> Result<users::register_finish::Reply, AbortCode> {
        Record::of_octets(&request.record).map_err(bad_argument)?;
        let record = request.record;
        self.change(caller, request.id, move |credentials, now| {
            credentials.password = record.clone();
            credentials.password_changed = now;
        })
        .await?;
        Ok(users::register_finish::Reply {})
    }

    async fn set_keys(
        &self,
        caller: &Caller,
        request: users::set_keys::Request,
    ) -> Result<users::set_keys::Reply, AbortCode> {
        let canonical = |line: &SshKeyLine| {
            let line = std::str::from_utf8(line.as_bytes()).map_err(bad_argument)?;
            let key = SshKey::parse(line).map_err(bad_argument)?;
            SshKeyLine::new(key.to_string()).map_err(bad_argument)
        };
        let keys = request.keys.iter().map(canonical);
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let keys = SshKeyLines::new(keys).map_err(bad_argument)?;
        self.change(caller, request.id, move |credentials, now| {
            credentials.keys = keys.clone();
            credentials.keys_changed = now;
        })
        .await?;
        Ok(users::set_keys::Reply {})
    }

    async fn list_keys(
        &self,
        caller: &Caller,
        request: users::list_keys::Request,
    ) -> Result<users::list_keys::Reply, AbortCode> {
        let known = self.look(caller, request.id)?;
        Ok(users::list_keys::Reply {
            keys: known.keys,
            password_changed: known.password_changed,
            keys_changed: known.keys_changed,
        })
    }

    async fn remove(
        &self,
        caller: &Caller,
        request: users::remove::Request,
    ) -> Result<users::remove::Reply, AbortCode> {
        self.change(caller, request.id, |credentials, _| {
            *credentials = Credentials::default();
        })
        .await?;
        Ok(users::remove::Reply {})
    }
}
