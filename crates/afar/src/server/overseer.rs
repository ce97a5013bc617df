//! What `bos status` and its kin are told: the roles of this process, as OpenAFS's overseer would
//! tell of its programs.

use std::sync::Arc;
use std::time::SystemTime;

use afar_net::AbortCode;
use afar_rpc::{Caller, DownloadSink, bozo};
use afar_types::{BozoState, BozoStatus, BozoText, BozoTime, UnixTime};

use super::config::Role;
use super::security::Security;

/// BOZO: there is nothing of that name.
const BZNOENT: AbortCode = AbortCode(39_425);
/// BOZO: the number is past the end of the list.
const BZDOM: AbortCode = AbortCode(39_429);
/// What ends the list of administrators, other than every other list.
const END_OF_USERS: AbortCode = AbortCode(1);
/// BOZO: only for administrators.
const BZACCESS: AbortCode = AbortCode(39_430);

/// ENOENT: there is no such log.
const NO_LOG: AbortCode = AbortCode(2);

/// The status of a server.
#[derive(Debug)]
pub(super) struct Overseer {
    cell: String,
    security: Arc<Security>,
    database_hosts: Vec<String>,
    instances: Vec<Instance>,
    started: UnixTime,
    /// When the program was installed.
    installed: UnixTime,
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
    pub(super) fn new(
        cell: String,
        database_hosts: Vec<String>,
        roles: &[Role],
        security: Arc<Security>,
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
            cell,
            security,
            database_hosts,
            instances,
            started: UnixTime::from(SystemTime::now()),
            installed: installed(),
        }
    }

    fn instance(&self, name: &BozoText) -> Result<&Instance, AbortCode> {
        let found = self
            .instances
            .iter()
            .find(|instance| instance.name.as_bytes() == name.as_bytes());
        found.ok_or(BZNOENT)
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
        _: bozo::list_keys::Request,
    ) -> Result<bozo::list_keys::Reply, AbortCode> {
        Err(if caller.identity.is_superuser() {
            BZDOM
        } else {
            BZACCESS
        })
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
        _: bozo::get_log::Request,
        _: &mut DownloadSink<'_>,
    ) -> Result<bozo::get_log::Reply, AbortCode> {
        // What is logged goes to standard error, which no file here has.
        Err(if caller.identity.is_superuser() {
            NO_LOG
        } else {
            BZACCESS
        })
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
