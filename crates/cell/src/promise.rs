//! A status together with the server's promise to tell when it changes.

use std::net::SocketAddr;
use std::time::Duration;

use afar_types::{CallBack, CallBackType, FetchStatus, UnixTime, VolSync};
use tokio::time::Instant;

use crate::error::Error;

/// A status, and how long its server promised to tell of changes (AFS-3 AFSCallBack, AFSVolSync).
///
/// A promise that is broken while it is on its way here is void; whoever keeps it must look.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Promised {
    /// The status.
    pub status: FetchStatus,
    /// The server that gave it.
    pub server: SocketAddr,
    /// Until when the promise holds, counted from before it was asked for; `None` if there is none.
    pub until: Option<Instant>,
    /// When this instance of the volume was made; 0 if the server does not say.
    pub volume_made: UnixTime,
}

impl Promised {
    pub(crate) fn new(
        server: SocketAddr,
        begin: Instant,
        status: FetchStatus,
        callback: CallBack,
        vol_sync: VolSync,
    ) -> Self {
        let given = matches!(
            callback.kind,
            CallBackType::Shared | CallBackType::Exclusive
        );
        let time = Duration::from_secs(callback.expires_in.into());
        Self {
            status,
            server,
            // spec: afs-rpc#promises
            until: (given && !time.is_zero()).then(|| begin + time),
            // spec: afs-rpc#the-time-of-a-copy
            volume_made: vol_sync.creation_date,
        }
    }

    /// Itself, if its status means something to us.
    pub(crate) fn checked(self) -> Result<Self, Error> {
        checked(self.status).map(|_| self)
    }
}

/// A status that means something to us.
pub(crate) fn checked(status: FetchStatus) -> Result<FetchStatus, Error> {
    // spec: afs-rpc#status
    if status.interface_version == FetchStatus::INTERFACE_VERSION {
        Ok(status)
    } else {
        Err(Error::Nonsense("a status of another interface version"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_promises_that_last_count() {
        let begin = Instant::now();
        let until = |kind, expires_in| {
            let callback = CallBack {
                version: 1,
                expires_in,
                kind,
            };
            let server = "192.0.2.1:7000".parse().unwrap();
            let (status, sync) = (FetchStatus::default(), VolSync::default());
            Promised::new(server, begin, status, callback, sync).until
        };
        let hour = Some(begin + Duration::from_secs(3600));
        assert_eq!(until(CallBackType::Shared, 3600), hour);
        assert_eq!(until(CallBackType::Exclusive, 3600), hour);
        assert_eq!(until(CallBackType::Dropped, 3600), None);
        assert_eq!(until(CallBackType::None, 3600), None);
        assert_eq!(until(CallBackType::Shared, 0), None);
    }
}
