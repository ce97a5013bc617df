//! Somebody at the cell's servers, and what one can do there.

use std::net::Ipv4Addr;
use std::sync::Arc;

use afar_cell::CallbackService;
use afar_net::{ClientSecurity, Config, Connection, Endpoint, ServiceId};
use afar_rpc::{RpcError, afsvol, bozo, pr, rxafs, vl};
use afar_types::error::{errno, errno_to_uae};
use afar_types::{
    AclText, AttachFlags, BozoText, Fid, FileName, PartitionId, PrName, PrNamesAsked, PtsId,
    StoreStatus, StoreVolumeStatus, VolumeId, VolumeName,
};
use afar_xdr::XdrString;
use bytes::Bytes;

use crate::cell::Cell;

/// What there is in the cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Content {
    pub(crate) volume: VolumeId,
    /// Anyone reads it, administrators write it.
    pub(crate) open: Fid,
    /// A directory of ann's alone, and a file in it.
    pub(crate) private: Fid,
    pub(crate) secret: Fid,
    /// What users of the cell read.
    pub(crate) users: Fid,
    /// What users of the other realm read.
    pub(crate) foreign: Fid,
}

/// A client's endpoint.
pub(crate) struct Client {
    endpoint: Endpoint,
    _callbacks: CallbackService,
}

impl Client {
    pub(crate) fn new() -> Self {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
        let callbacks = CallbackService::start(&endpoint);
        Self {
            endpoint,
            _callbacks: callbacks,
        }
    }

    /// Connections to all servers.
    pub(crate) fn session(&self, cell: &Cell, security: &Arc<dyn ClientSecurity>) -> Session {
        self.session_at(cell.address(), security)
    }

    /// Connections to all servers at an address.
    pub(crate) fn session_at(
        &self,
        address: Ipv4Addr,
        security: &Arc<dyn ClientSecurity>,
    ) -> Session {
        let connect = |port: u16, service: ServiceId| -> Connection {
            self.endpoint
                .connect((address, port).into(), service, Arc::clone(security))
        };
        Session {
            files: rxafs::Client::new(connect(7000, rxafs::SERVICE)),
            users: pr::Client::new(connect(7002, pr::SERVICE)),
            places: vl::Client::new(connect(7003, vl::SERVICE)),
            volumes: afsvol::Client::new(connect(7005, afsvol::SERVICE)),
            overseer: bozo::Client::new(connect(7007, bozo::SERVICE)),
        }
    }
}

/// Somebody's connections.
pub(crate) struct Session {
    pub(crate) files: rxafs::Client,
    pub(crate) users: pr::Client,
    pub(crate) places: vl::Client,
    pub(crate) volumes: afsvol::Client,
    pub(crate) overseer: bozo::Client,
}

pub(crate) const PRIVATE: &str = "1\n0\nann\t127\n";

/// What one can do: the rows of the tables of rights.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    ReadOpen,
    ReadPrivate,
    ReadUsers,
    ReadForeign,
    WriteOpen,
    WritePrivate,
    SetAcl,
    SetQuota,
    FlushCps,
    LookUpUser,
    ShowUser,
    ShowGroupsOfAnn,
    SetNextId,
    FindVolume,
    TakeVolumeId,
    ListVolumes,
    WorkOnVolume,
    ShowServers,
    ListKeys,
}

impl Session {
    /// Does something; the code it ends with, 0 if it is done.
    pub(crate) async fn act(&self, act: Act, content: &Content) -> i32 {
        let result = match act {
            Act::ReadOpen => self.read(content.open).await,
            Act::ReadPrivate => self.read(content.secret).await,
            Act::ReadUsers => self.read(content.users).await,
            Act::ReadForeign => self.read(content.foreign).await,
            Act::WriteOpen => self.write(content.open).await,
            Act::WritePrivate => self.write(content.secret).await,
            Act::SetAcl => self.set_acl(content.private, PRIVATE).await,
            Act::SetQuota => self.set_quota(content.volume).await,
            Act::FlushCps => {
                let none = afar_xdr::List::new(Vec::new()).unwrap();
                let flushed = self.files.flush_cps(none, Default::default(), 0);
                flushed.await.map(drop)
            }
            Act::LookUpUser => {
                let names = PrNamesAsked::new(vec![PrName::new("ann").unwrap()]).unwrap();
                self.users.name_to_id(names).await.map(drop)
            }
            Act::ShowUser => self.users.list_entry(PtsId(1)).await.map(drop),
            Act::ShowGroupsOfAnn => self.users.get_cps(PtsId(1)).await.map(drop),
            Act::SetNextId => self.users.set_max(PtsId(1000), 0).await.map(drop),
            Act::FindVolume => {
                let name = VolumeName::new("root.cell").unwrap();
                self.places.get_entry_by_name_u(name).await.map(drop)
            }
            Act::TakeVolumeId => self.places.get_new_volume_id(1).await.map(drop),
            Act::ListVolumes => {
                let all = self.volumes.x_list_volumes(PartitionId::default(), 1);
                all.await.map(drop)
            }
            Act::WorkOnVolume => self.work(content.volume).await,
            Act::ShowServers => {
                let name = BozoText::new("fs").unwrap();
                self.overseer.get_status(name).await.map(drop)
            }
            Act::ListKeys => self.overseer.list_keys(0).await.map(drop),
        };
        result.map_or_else(|error| error.code().0, |()| 0)
    }

    async fn read(&self, fid: Fid) -> Result<(), RpcError> {
        let mut data = self.files.fetch_data64(fid, 0, 100).await?;
        let mut text = Vec::new();
        while let Some(chunk) = data.chunk().await? {
            text.extend_from_slice(&chunk);
        }
        data.finish().await?;
        assert_eq!(text, b"Hello.");
        Ok(())
    }

    async fn write(&self, fid: Fid) -> Result<(), RpcError> {
        let plain = StoreStatus::default();
        let mut data = self.files.store_data64(fid, plain, 0, 6, 6).await?;
        data.send(Bytes::from_static(b"Hello.")).await?;
        data.finish().await.map(drop)
    }

    pub(crate) async fn set_acl(&self, directory: Fid, text: &str) -> Result<(), RpcError> {
        let text = AclText::new([text.as_bytes(), b"\0"].concat()).unwrap();
        self.files.store_acl(directory, text).await.map(drop)
    }

    async fn set_quota(&self, volume: VolumeId) -> Result<(), RpcError> {
        let none = || XdrString::new("").unwrap();
        let status = StoreVolumeStatus {
            mask: StoreVolumeStatus::SET_MAX_QUOTA,
            max_quota: 0,
            ..StoreVolumeStatus::default()
        };
        let name = XdrString::new("").unwrap();
        let set = self
            .files
            .set_volume_status(volume, status, name, none(), none());
        set.await.map(drop)
    }

    async fn work(&self, volume: VolumeId) -> Result<(), RpcError> {
        let begun = self
            .volumes
            .trans_create(volume, PartitionId::default(), AttachFlags::BUSY);
        let transaction = begun.await?.transaction;
        self.volumes.end_trans(transaction).await.map(drop)
    }

    /// Fills a new cell, as its administrator.
    pub(crate) async fn fill(&self) -> Content {
        for (id, name) in [(1, "ann"), (2, "oper"), (3, "root")] {
            let name = XdrString::new(name).unwrap();
            let made = self.users.i_new_entry(name, PtsId(id), PtsId(0));
            made.await.unwrap();
        }
        let administrators = PtsId::ADMINISTRATORS;
        let root = PtsId(3);
        self.users.add_to_group(root, administrators).await.unwrap();
        let group = XdrString::new("system:authuser@elsewhere.example").unwrap();
        let made = self.users.i_new_entry(group, PtsId(-300), PtsId(0));
        made.await.unwrap();
        let name = VolumeName::new("root.cell").unwrap();
        let entry = self.places.get_entry_by_name_n(name).await.unwrap().entry;
        let volume = entry.volume_id[0];
        let root = Fid::root(volume);
        let directory = async |name: &str, acl: &str| {
            let name = FileName::new(name).unwrap();
            let made = self.files.make_dir(root, name, StoreStatus::default());
            let fid = made.await.unwrap().fid;
            self.set_acl(fid, acl).await.unwrap();
            (fid, self.file(fid).await)
        };
        let (private, secret) = directory("private", PRIVATE).await;
        let (_, users) = directory("users", "1\n0\nsystem:authuser\t9\n").await;
        let acl = "1\n0\nsystem:authuser@elsewhere.example\t9\n";
        let (_, foreign) = directory("foreign", acl).await;
        Content {
            volume,
            open: self.file(root).await,
            private,
            secret,
            users,
            foreign,
        }
    }

    /// Makes a file with something in it.
    pub(crate) async fn file(&self, directory: Fid) -> Fid {
        let name = FileName::new("file").unwrap();
        let mode = StoreStatus {
            mask: StoreStatus::SET_MODE,
            unix_mode_bits: 0o644,
            ..StoreStatus::default()
        };
        let made = self.files.create_file(directory, name, mode);
        let fid = made.await.unwrap().fid;
        self.write(fid).await.unwrap();
        fid
    }
}

/// What the words of the tables mean.
pub(crate) fn code(word: &str) -> i32 {
    match word {
        "ok" => 0,
        // As clients are told that know these codes.
        "EACCES" => errno_to_uae(errno::EACCES).unwrap(),
        "EPERM" => errno::EPERM,
        "PRPERM" => 267_269,
        "VL_PERM" => 363_546,
        "VOLACCESS" => 1_492_325_127,
        "BZACCESS" => 39_430,
        // The end of the list.
        "BZDOM" => 39_429,
        "INVALID" => -2,
        "LEVELFAIL" => 19_270_402,
        "NOAUTH" => 19_270_405,
        "BADTICKET" => 19_270_407,
        "UNKNOWNKEY" => 19_270_408,
        "EXPIRED" => 19_270_409,
        other => panic!("{other:?} is no code"),
    }
}
