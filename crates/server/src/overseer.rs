//! What `bos status` and its kin are told: the roles of this process, as OpenAFS's overseer would
//! tell of its programs.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use afar_net::AbortCode;
use afar_rpc::{Caller, Calls, DownloadSink, bozo};
use afar_security::keys::KeyInfo;
use afar_telemetry::Registry;
use afar_types::error::{self, errno};
use afar_types::{BozoKey, BozoKeyInfo, BozoState, BozoStatus, BozoText, BozoTime, UnixTime};
use tokio::sync::Notify;

use crate::config::Role;
use crate::log::last_lines;
use crate::security::Security;
use crate::userlist;

/// BOZO: there is nothing of that name.
const BZNOENT: AbortCode = AbortCode(error::BZNOENT);
/// BOZO: the number is past the end of the list.
const BZDOM: AbortCode = AbortCode(error::BZDOM);
/// What ends the list of administrators, other than every other list.
const END_OF_USERS: AbortCode = AbortCode(1);
/// BOZO: only for administrators.
const BZACCESS: AbortCode = AbortCode(error::BZACCESS);

/// EPERM: what the configuration says is changed there.
const NOT_HERE: AbortCode = AbortCode(errno::EPERM);
/// ENOENT: there is no such log, or user.
const ENOENT: AbortCode = AbortCode(errno::ENOENT);
/// EEXIST: there is such a user.
const EEXIST: AbortCode = AbortCode(errno::EEXIST);
/// EINVAL: that is no name.
const EINVAL: AbortCode = AbortCode(errno::EINVAL);
/// EIO.
const EIO: AbortCode = AbortCode(errno::EIO);

/// The logs of OpenAFS's servers, which are all one here.
const LOGS: [&[u8]; 7] = [
    b"BosLog",
    b"FileLog",
    b"PtLog",
    b"SalvageLog",
    b"SalsrvLog",
    b"VLLog",
    b"VolserLog",
];
/// What OpenAFS's `bos salvage` calls the salvager's process.
const SALVAGE: &[u8] = b"salvage-tmp";
/// What the log of a salvage says.
const NO_SALVAGE: &str = "afar has no salvager, and needs none: changes are atomic. `afar store \
                          check` checks a partition.\n";

/// The status of a server.
#[derive(Debug)]
pub(crate) struct Overseer {
    cell: String,
    security: Arc<Security>,
    database_hosts: Vec<String>,
    instances: Vec<Instance>,
    started: UnixTime,
    /// When the program was installed.
    installed: UnixTime,
    /// Told when the server is to start again.
    restart: Arc<Notify>,
    calls: Calls,
}

/// What the overseer of OpenAFS calls a process, or a group of them.
#[derive(Debug)]
struct Instance {
    name: &'static str,
    kind: &'static str,
    status: &'static str,
    programs: Vec<&'static str>,
}

impl Overseer {
    /// Of a server with these roles that has just started.
    pub(crate) fn new(
        cell: String,
        database_hosts: Vec<String>,
        roles: &[Role],
        security: Arc<Security>,
        restart: Arc<Notify>,
        registry: &Registry,
    ) -> Self {
        let simple = |role: Role| Instance {
            name: role.program(),
            kind: "simple",
            status: "",
            programs: vec![role.program()],
        };
        let mut instances = Vec::new();
        for role in [Role::Pt, Role::Vl] {
            if roles.contains(&role) {
                instances.push(simple(role));
            }
        }
        if roles.contains(&Role::File) {
            instances.push(Instance {
                name: "fs",
                kind: "fs",
                status: "file server running",
                programs: vec![Role::File.program(), Role::Vol.program()],
            });
        }
        Self {
            calls: Calls::new(bozo::INTERFACE, registry),
            cell,
            security,
            database_hosts,
            instances,
            started: UnixTime::from(SystemTime::now()),
            installed: installed(),
            restart,
        }
    }

    /// Has the whole server start again: its services are one process.
    fn start_again(&self, caller: &Caller) -> Result<(), AbortCode> {
        administers(caller)?;
        tracing::info!("asked to start again");
        self.restart.notify_one();
        Ok(())
    }

    fn instance(&self, name: &BozoText) -> Result<&Instance, AbortCode> {
        let found = self
            .instances
            .iter()
            .find(|instance| instance.name.as_bytes() == name.as_bytes());
        found.ok_or(BZNOENT)
    }
}

/// Whether a caller may administer this machine's servers.
pub(crate) fn administers(caller: &Caller) -> Result<(), AbortCode> {
    if caller.identity.is_superuser() {
        Ok(())
    } else {
        Err(BZACCESS)
    }
}

/// The name of a user.
fn name(name: &BozoText) -> io::Result<String> {
    let name = String::from_utf8(name.as_bytes().to_vec());
    name.map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The code for what became of a list of users.
pub(crate) fn code(error: &io::Error) -> AbortCode {
    match error.kind() {
        io::ErrorKind::NotFound => ENOENT,
        io::ErrorKind::AlreadyExists => EEXIST,
        io::ErrorKind::InvalidInput => EINVAL,
        _ => EIO,
    }
}

/// When this program was put where it is; 0 if that is not known.
fn installed() -> UnixTime {
    let program = std::env::current_exe().and_then(|path| path.metadata()?.modified());
    program.map_or(UnixTime(0), UnixTime::from)
}

/// The element a client asks for by number.
fn nth<T>(list: &[T], number: impl TryInto<usize>) -> Result<&T, AbortCode> {
    let number = number.try_into().map_err(|_| BZDOM)?;
    list.get(number).ok_or(BZDOM)
}

fn text(text: &str) -> Result<BozoText, AbortCode> {
    BozoText::new(text.as_bytes()).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)
}

impl bozo::Service for Overseer {
    fn calls(&self) -> Option<&Calls> {
        Some(&self.calls)
    }

    async fn get_status(
        &self,
        _: &Caller,
        request: bozo::get_status::Request,
    ) -> Result<bozo::get_status::Reply, AbortCode> {
        Ok(bozo::get_status::Reply {
            state: BozoState::Normal,
            description: text(self.instance(&request.instance)?.status)?,
        })
    }

    async fn enumerate_instance(
        &self,
        _: &Caller,
        request: bozo::enumerate_instance::Request,
    ) -> Result<bozo::enumerate_instance::Reply, AbortCode> {
        let instance = nth(&self.instances, request.number)?;
        Ok(bozo::enumerate_instance::Reply {
            instance: text(instance.name)?,
        })
    }

    async fn get_instance_info(
        &self,
        _: &Caller,
        request: bozo::get_instance_info::Request,
    ) -> Result<bozo::get_instance_info::Reply, AbortCode> {
        let instance = self.instance(&request.instance)?;
        Ok(bozo::get_instance_info::Reply {
            kind: text(instance.kind)?,
            status: BozoStatus {
                goal: 1,
                file_goal: 1,
                process_start_time: self.started,
                process_starts: i32::try_from(instance.programs.len()).unwrap_or(1),
                ..BozoStatus::default()
            },
        })
    }

    async fn get_instance_parm(
        &self,
        _: &Caller,
        request: bozo::get_instance_parm::Request,
    ) -> Result<bozo::get_instance_parm::Reply, AbortCode> {
        let instance = self.instance(&request.instance)?;
        Ok(bozo::get_instance_parm::Reply {
            parameter: text(nth(&instance.programs, request.number)?)?,
        })
    }

    async fn list_s_users(
        &self,
        _: &Caller,
        request: bozo::list_s_users::Request,
    ) -> Result<bozo::list_s_users::Reply, AbortCode> {
        let users = self.security.superusers();
        let user = nth(&users, request.number).map_err(|_| END_OF_USERS)?;
        Ok(bozo::list_s_users::Reply { name: text(user)? })
    }

    async fn list_keys(
        &self,
        caller: &Caller,
        request: bozo::list_keys::Request,
    ) -> Result<bozo::list_keys::Reply, AbortCode> {
        administers(caller)?;
        let keys = self.security.keys().list();
        let usable: Vec<_> = keys.into_iter().filter(KeyInfo::is_usable).collect();
        let key = nth(&usable, request.number)?;
        let changed = std::fs::metadata(&key.source).and_then(|file| file.modified());
        Ok(bozo::list_keys::Reply {
            kvno: i32::try_from(key.kvno).map_err(|_| EINVAL)?,
            // It leaves this machine for nobody.
            key: BozoKey::default(),
            info: BozoKeyInfo {
                modified: changed.map_or(UnixTime(0), UnixTime::from),
                checksum: key.checksum,
                ..BozoKeyInfo::default()
            },
        })
    }

    async fn add_s_user(
        &self,
        caller: &Caller,
        request: bozo::add_s_user::Request,
    ) -> Result<bozo::add_s_user::Reply, AbortCode> {
        administers(caller)?;
        self.security
            .change_users(|path| userlist::add(path, &name(&request.name)?))?;
        Ok(bozo::add_s_user::Reply {})
    }

    async fn delete_s_user(
        &self,
        caller: &Caller,
        request: bozo::delete_s_user::Request,
    ) -> Result<bozo::delete_s_user::Reply, AbortCode> {
        administers(caller)?;
        let name = name(&request.name).map_err(|error| code(&error))?;
        let removed = self
            .security
            .change_users(|path| userlist::remove(path, &name));
        match removed {
            Err(ENOENT) if self.security.superusers().contains(&name) => {
                tracing::warn!("{name} is one of security.superusers: remove the name there");
                Err(NOT_HERE)
            }
            removed => removed.map(|()| bozo::delete_s_user::Reply {}),
        }
    }

    async fn restart_all(
        &self,
        caller: &Caller,
        _: bozo::restart_all::Request,
    ) -> Result<bozo::restart_all::Reply, AbortCode> {
        self.start_again(caller)?;
        Ok(bozo::restart_all::Reply {})
    }

    async fn re_bozo(
        &self,
        caller: &Caller,
        _: bozo::re_bozo::Request,
    ) -> Result<bozo::re_bozo::Reply, AbortCode> {
        self.start_again(caller)?;
        Ok(bozo::re_bozo::Reply {})
    }

    async fn restart(
        &self,
        caller: &Caller,
        request: bozo::restart::Request,
    ) -> Result<bozo::restart::Reply, AbortCode> {
        administers(caller)?;
        self.instance(&request.instance)?;
        self.start_again(caller)?;
        Ok(bozo::restart::Reply {})
    }

    async fn exec(
        &self,
        _: &Caller,
        _: bozo::exec::Request,
    ) -> Result<bozo::exec::Reply, AbortCode> {
        // As an overseer of OpenAFS in restricted mode.
        Err(BZACCESS)
    }

    async fn create_bnode(
        &self,
        caller: &Caller,
        request: bozo::create_bnode::Request,
    ) -> Result<bozo::create_bnode::Reply, AbortCode> {
        administers(caller)?;
        // The salvage of a volume: it is over at once, and its log says why.
        if request.instance.as_bytes() != SALVAGE {
            return Err(BZACCESS);
        }
        tracing::info!("asked for a salvage: {}", NO_SALVAGE.trim_end());
        Ok(bozo::create_bnode::Reply {})
    }

    async fn get_cell_name(
        &self,
        _: &Caller,
        _: bozo::get_cell_name::Request,
    ) -> Result<bozo::get_cell_name::Reply, AbortCode> {
        Ok(bozo::get_cell_name::Reply {
            name: text(&self.cell)?,
        })
    }

    async fn get_cell_host(
        &self,
        _: &Caller,
        request: bozo::get_cell_host::Request,
    ) -> Result<bozo::get_cell_host::Reply, AbortCode> {
        Ok(bozo::get_cell_host::Reply {
            name: text(nth(&self.database_hosts, request.number)?)?,
        })
    }

    async fn get_dates(
        &self,
        _: &Caller,
        request: bozo::get_dates::Request,
    ) -> Result<bozo::get_dates::Reply, AbortCode> {
        let path = request.path.as_bytes();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let mut programs = self
            .instances
            .iter()
            .flat_map(|instance| &instance.programs);
        // All of them are this one; none is kept of earlier ones.
        let is_ours = programs.any(|program| program.as_bytes() == name) || name == b"bosserver";
        Ok(bozo::get_dates::Reply {
            new_time: if is_ours { self.installed } else { UnixTime(0) },
            bak_time: UnixTime(0),
            old_time: UnixTime(0),
        })
    }

    async fn get_log(
        &self,
        caller: &Caller,
        request: bozo::get_log::Request,
        sink: &mut DownloadSink<'_>,
    ) -> Result<bozo::get_log::Reply, AbortCode> {
        administers(caller)?;
        let path = request.name.as_bytes();
        let log = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        if !LOGS.contains(&log) {
            return Err(ENOENT);
        }
        let mut text = match log {
            b"SalvageLog" | b"SalsrvLog" => NO_SALVAGE.into(),
            _ => last_lines(),
        };
        text.push(0);
        sink.send(text.into()).await?;
        Ok(bozo::get_log::Reply {})
    }

    async fn get_restart_time(
        &self,
        _: &Caller,
        _: bozo::get_restart_time::Request,
    ) -> Result<bozo::get_restart_time::Reply, AbortCode> {
        Ok(bozo::get_restart_time::Reply {
            time: BozoTime {
                mask: BozoTime::NEVER,
                ..BozoTime::default()
            },
        })
    }

    async fn get_instance_strings(
        &self,
        _: &Caller,
        request: bozo::get_instance_strings::Request,
    ) -> Result<bozo::get_instance_strings::Reply, AbortCode> {
        self.instance(&request.instance)?;
        Ok(bozo::get_instance_strings::Reply {
            error_name: text("")?,
            spare1: text("")?,
            spare2: text("")?,
            spare3: text("")?,
        })
    }

    async fn get_restricted_mode(
        &self,
        _: &Caller,
        _: bozo::get_restricted_mode::Request,
    ) -> Result<bozo::get_restricted_mode::Reply, AbortCode> {
        // Nothing can be installed or run through this service.
        Ok(bozo::get_restricted_mode::Reply { mode: 1 })
    }
}
