//! Modes and times set here.

use std::sync::Arc;
use std::time::SystemTime;

use afar_types::{BatchOperation, FetchStatus, FileType, Rights, StoreStatus, UnixTime};

use super::{Change, Here, settled, with_rights};
use crate::model::error::Errno;
use crate::model::rights::rights;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;

impl Cache {
    /// Sets attributes here, if what they are of is leased to this machine. Returns the status then. None: it takes a
    /// call.
    pub(crate) async fn set_here(
        &self,
        (user, uid): (&User, u32),
        vnode: &Arc<Vnode>,
        attributes: StoreStatus,
    ) -> Option<FetchStatus> {
        let (line, site) = self.leased_soon(vnode).await?;
        line.room().await;
        let here = Here::lock(&line, &site);
        self.try_set(here, (user, uid), vnode, attributes).ok()?
    }

    fn try_set(
        &self,
        mut here: Here<'_>,
        (user, uid): (&User, u32),
        vnode: &Arc<Vnode>,
        attributes: StoreStatus,
    ) -> Result<Option<FetchStatus>, Errno> {
        let known = {
            let state = vnode.lock();
            settled(&state).and_then(|status| with_rights(&state, user, status))
        };
        let Some(status) = known else {
            return Ok(None);
        };
        let sets = |bit| attributes.mask & bit != 0;
        // Of the others the server alone knows who may set them.
        let plain = attributes.mask & !(StoreStatus::SET_MODE | StoreStatus::SET_MOD_TIME) == 0
            && (!sets(StoreStatus::SET_MODE) || attributes.unix_mode_bits <= 0o777)
            && status.unix_mode_bits & 0o7000 == 0;
        // spec: afs-rpc#rights
        let may = match status.file_type {
            FileType::File => rights(&status).contains(Rights::WRITE),
            FileType::Directory => {
                let has = rights(&status);
                has.contains(Rights::INSERT) || has.contains(Rights::DELETE)
            }
            _ => false,
        };
        let Some(under) = here.lease(vnode, &status).filter(|_| plain && may) else {
            return Ok(None);
        };
        let now = UnixTime::from(SystemTime::now());
        self.note_change(
            &mut here,
            Change {
                user: uid,
                operation: BatchOperation::StoreStatus {
                    target: vnode.fid.into(),
                    attributes,
                },
                under: vec![under],
                touched: vec![Arc::clone(vnode)],
                makes: None,
                removes: None,
                bytes: 0,
                at: now,
            },
        )?;
        let mut after = FetchStatus {
            server_mod_time: now,
            ..status
        };
        if sets(StoreStatus::SET_MODE) {
            after.unix_mode_bits = attributes.unix_mode_bits;
        }
        if sets(StoreStatus::SET_MOD_TIME) {
            after.client_mod_time = attributes.client_mod_time;
        }
        vnode.lock().set_status(after);
        Ok(Some(after))
    }
}
