//! The audit: an event for each operation that changes or administers something, and for each
//! that was refused for lack of rights. Changes of files give one where the log asks for the level DEBUG, and what only
//! reads where it asks for TRACE.
//!
//! The events have the target [`TARGET`] and these fields:
//!
//! - `who`: the name the caller has proved to have, `superuser`, or `anonymous`
//! - `from`: its address
//! - `uid`, `pid`: for which user and process of its machine the client says to ask, if it does
//! - `operation`: interface and operation, such as `PR.add_to_group`
//! - `object`: the arguments, readable and shortened; not of interfaces that are not known here
//! - `answer`: the same of the results of a change
//! - `bytes`: of data that went with it, such as of a dump; not of operations without
//! - `seconds`: how long it took
//! - `code`: what the call was aborted with, 0 if it was not

mod readable;

use std::fmt::{self, Debug, Write};
use std::time::{Duration, Instant};

use afar_net::AbortCode;
use afar_types::error::errno::{EACCES, EPERM};
use afar_types::error::{BZACCESS, PRPERM, VL_PERM, VOLSERBAD_ACCESS, uae_to_errno};
use afar_xdr::{Decode, Decoder};
use bytes::Bytes;
use tracing::Level;

use readable::{is_plain, readable};

use crate::{Asker, Caller, Operation};

/// The target of the events: what a log filter calls them.
pub const TARGET: &str = "audit";

/// Bytes of arguments or results that an event has.
const SHOWN: usize = 240;
/// Bytes of their `Debug` text that are read for that.
const READ: usize = 4096;
/// The same where a user's number comes first, and what is nobody's business then.
const READ_ID: usize = "{ id: PtsId(2147483647)".len();

/// What is known of an interface's operations.
struct Rule {
    interface: &'static str,
    /// Bytes of the `Debug` text of arguments and results that are read.
    read: usize,
    /// Those that change nothing; all others do.
    queries: &'static [&'static str],
}

/// The interfaces that are known here. In others than these every operation changes something.
const RULES: &[Rule] = &[
    Rule {
        interface: "RXAFS",
        read: READ,
        queries: &[
            "fetch_data",
            "fetch_acl",
            "fetch_status",
            "old_set_lock",
            "old_extend_lock",
            "old_release_lock",
            "get_statistics",
            "give_up_call_backs",
            "get_volume_info",
            "get_volume_status",
            "get_root_volume",
            "check_token",
            "get_time",
            "n_get_volume_info",
            "bulk_status",
            "set_lock",
            "extend_lock",
            "release_lock",
            "x_stats_version",
            "get_x_stats",
            "lookup",
            "flush_cps",
            "inline_bulk_status",
            "fetch_data64",
            "give_up_all_call_backs",
            "get_capabilities",
            "call_back_rx_conn_addr",
            "get_statistics64",
            "fetch_tree",
            "keep_leases",
            "claim_leases",
            "fetch_following",
            "fetch_files",
        ],
    },
    Rule {
        interface: "RXAFSCB",
        read: READ,
        queries: &[
            "call_back",
            "init_call_back_state",
            "probe",
            "get_lock",
            "get_ce",
            "x_stats_version",
            "get_x_stats",
            "init_call_back_state2",
            "who_are_you",
            "init_call_back_state3",
            "probe_uuid",
            "get_server_prefs",
            "get_cell_serv_db",
            "get_local_cell",
            "get_cache_config",
            "get_ce64",
            "get_cell_by_num",
            "tell_me_about_yourself",
            "recall_leases",
        ],
    },
    Rule {
        interface: "VL",
        read: READ,
        queries: &[
            "get_entry_by_id",
            "get_entry_by_name_o",
            "list_entry",
            "list_attributes",
            "linked_list",
            "get_stats",
            "probe_server",
            "get_addrs",
            "get_entry_by_id_n",
            "get_entry_by_name_n",
            "list_entry_n",
            "list_attributes_n",
            "linked_list_n",
            "get_entry_by_name_u",
            "get_addrs_u",
            "list_attributes_n2",
        ],
    },
    Rule {
        interface: "PR",
        read: READ,
        queries: &[
            "where_is_it",
            "dump_entry",
            "name_to_id",
            "id_to_name",
            "get_cps",
            "list_max",
            "list_entry",
            "list_elements",
            "is_a_member_of",
            "list_owned",
            "get_cps2",
            "get_host_cps",
            "list_entries",
            "list_super_groups",
        ],
    },
    Rule {
        interface: "AFSVol",
        read: READ,
        queries: &[
            "get_flags",
            "get_nth_volume",
            "get_name",
            "get_status",
            "list_partitions",
            "list_volumes",
            "monitor",
            "partition_info",
            "list_one_volume",
            "x_list_volumes",
            "x_list_one_volume",
            "x_list_partitions",
            "get_size",
            "partition_info64",
            "oob_offer",
        ],
    },
    Rule {
        interface: "BOZO",
        read: READ,
        queries: &[
            "get_status",
            "enumerate_instance",
            "get_instance_info",
            "get_instance_parm",
            "list_s_users",
            "get_cell_name",
            "get_cell_host",
            "get_dates",
            "get_restart_time",
            "get_instance_strings",
            "get_restricted_mode",
        ],
    },
    Rule {
        interface: "VOTE",
        read: READ,
        queries: &["debug_old", "debug", "s_debug", "x_debug", "xs_debug"],
    },
    Rule {
        interface: "EYES",
        read: READ,
        queries: &["snapshot"],
    },
    Rule {
        interface: "USERS",
        read: READ_ID,
        queries: &["register_start", "list_keys"],
    },
];

/// Interfaces whose users go about their daily work, all of it.
const UNAUDITED: &[&str] = &["RXAFS", "RXAFSCB"];

/// Whether an operation is worth an event each time: it changes or administers something, and not as daily work.
pub(crate) const fn is_audited(interface: &str, operation: &str) -> bool {
    !contains(UNAUDITED, interface) && changes(interface, operation)
}

/// Whether an operation changes or administers something.
pub(crate) const fn changes(interface: &str, operation: &str) -> bool {
    match rule(interface) {
        Some(rule) => !contains(rule.queries, operation),
        None => true,
    }
}

const fn rule(interface: &str) -> Option<&'static Rule> {
    let mut row = 0;
    while row < RULES.len() {
        if equal(RULES[row].interface, interface) {
            return Some(&RULES[row]);
        }
        row += 1;
    }
    None
}

const fn contains(list: &[&str], text: &str) -> bool {
    let mut row = 0;
    while row < list.len() {
        if equal(list[row], text) {
            return true;
        }
        row += 1;
    }
    false
}

/// The operator does not work in constants.
const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Whether a code says that the caller lacks a right. Errno values do so in RXAFS; elsewhere 1 is the
/// end of a list.
fn is_refusal(interface: &str, code: AbortCode) -> bool {
    match code.0 {
        PRPERM | VL_PERM | VOLSERBAD_ACCESS | BZACCESS => true,
        code => {
            let is_errno = matches!(uae_to_errno(code).unwrap_or(code), EPERM | EACCES);
            is_errno && interface == "RXAFS"
        }
    }
}

/// How an operation ended.
pub(crate) struct End<'a, A> {
    took: Duration,
    data: Option<u64>,
    result: &'a Result<A, AbortCode>,
}

impl<'a, A> End<'a, A> {
    /// One that began then, with so many bytes of data if it is of a kind that has some.
    pub(crate) fn new(began: Instant, data: Option<u64>, result: &'a Result<A, AbortCode>) -> Self {
        Self {
            took: began.elapsed(),
            data,
            result,
        }
    }
}

/// Tells of an operation that has been served. `arguments` are those of the request, as it came.
pub(crate) fn record<Q: Decode + Debug, A: Debug>(
    operation: &'static Operation,
    caller: &Caller,
    arguments: &Bytes,
    end: &End<'_, A>,
) {
    let result = end.result;
    let code = result.as_ref().err().copied();
    let Some(Notice {
        level,
        refused,
        notable,
    }) = notice(operation, code)
    else {
        return;
    };
    let read = rule(operation.interface).map_or(0, |rule| rule.read);
    let mut input = Decoder::new(arguments);
    let request = Q::decode(&mut input).ok();
    let asker = request.as_ref().and_then(|_| Asker::read(input.rest()));
    let object = request.filter(|_| read > 0);
    let object = object.map(|request| shown(&request, read));
    let answer = result.as_ref().ok().filter(|_| read > 0 && notable);
    let event = Event {
        operation,
        caller,
        asker,
        object,
        answer: answer
            .map(|answer| shown(answer, read))
            .filter(|text| !text.is_empty()),
        data: end.data,
        took: end.took,
        code: code.map_or(0, |code| code.0),
    };
    event.emit(level, refused);
}

/// Tells of an operation that was done as a part of another call, of which so much time is its share. `request` is
/// asked only if somebody listens.
pub fn record_part<Q: Debug>(
    operation: &'static Operation,
    caller: &Caller,
    took: Duration,
    data: Option<u64>,
    result: Result<(), AbortCode>,
    request: impl FnOnce() -> Q,
) {
    let code = result.err();
    let Some(Notice { level, refused, .. }) = notice(operation, code) else {
        return;
    };
    let read = rule(operation.interface).map_or(0, |rule| rule.read);
    let event = Event {
        operation,
        caller,
        asker: None,
        object: (read > 0).then(|| shown(&request(), read)),
        answer: None,
        data,
        took,
        code: code.map_or(0, |code| code.0),
    };
    event.emit(level, refused);
}

/// How an operation is told of.
struct Notice {
    level: Level,
    refused: bool,
    notable: bool,
}

/// How to tell of an operation, if somebody listens.
fn notice(operation: &Operation, code: Option<AbortCode>) -> Option<Notice> {
    let refused = code.is_some_and(|code| is_refusal(operation.interface, code));
    let notable = operation.is_audited || refused;
    // Without a listener this costs a comparison.
    let (level, wanted) = if notable {
        let wanted = tracing::enabled!(target: TARGET, Level::INFO);
        (Level::INFO, wanted)
    } else if operation.changes {
        let wanted = tracing::enabled!(target: TARGET, Level::DEBUG);
        (Level::DEBUG, wanted)
    } else {
        let wanted = tracing::enabled!(target: TARGET, Level::TRACE);
        (Level::TRACE, wanted)
    };
    wanted.then_some(Notice {
        level,
        refused,
        notable,
    })
}

/// What an event tells.
struct Event<'a> {
    operation: &'static Operation,
    caller: &'a Caller,
    asker: Option<Asker>,
    object: Option<String>,
    answer: Option<String>,
    data: Option<u64>,
    took: Duration,
    code: i32,
}

impl Event<'_> {
    fn emit(&self, level: Level, refused: bool) {
        macro_rules! emit {
            ($level:ident) => {
                tracing::event!(
                    target: TARGET,
                    Level::$level,
                    who = %who(self.caller),
                    from = %self.caller.peer,
                    uid = self.asker.map(|asker| asker.uid),
                    pid = self.asker.map(|asker| asker.pid),
                    operation = %format_args!("{}.{}", self.operation.interface, self.operation.name),
                    object = self.object.as_ref().map(tracing::field::display),
                    answer = self.answer.as_ref().map(tracing::field::display),
                    bytes = self.data,
                    seconds = %format_args!("{:.6}", self.took.as_secs_f64()),
                    code = self.code,
                    "{}",
                    match self.code {
                        0 => "done",
                        _ if refused => "refused",
                        _ => "failed",
                    }
                )
            };
        }
        match level {
            Level::INFO => emit!(INFO),
            Level::DEBUG => emit!(DEBUG),
            _ => emit!(TRACE),
        }
    }
}

/// Whom a caller has proved to be. A name is what a KDC says it is: of one with other letters than names have nothing
/// looks like a line or a field of its own.
fn who(caller: &Caller) -> String {
    match caller.identity.name() {
        Some(name) if name.is_empty() || !name.chars().all(is_plain) => format!("{name:?}"),
        Some(name) => name.to_string(),
        None => caller.identity.to_string(),
    }
}

/// Arguments or results as operators read them, of which so many bytes of the `Debug` text are read.
fn shown(value: &dyn Debug, read: usize) -> String {
    let mut debug = Limited {
        name: true,
        text: String::new(),
        limit: read,
    };
    // What does not fit is an error that says so.
    let mut whole = write!(debug, "{value:?}").is_ok();
    let mut text = readable(&debug.text);
    if text.len() > SHOWN {
        text.truncate(text.floor_char_boundary(SHOWN));
        whole = false;
    }
    if !whole {
        text.push('…');
    }
    text
}

/// Takes text until it is long enough, but for the name of a type at its beginning.
struct Limited {
    /// Whether that is still to come: `Debug` writes it in one piece.
    name: bool,
    text: String,
    limit: usize,
}

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if std::mem::take(&mut self.name) && ["Request", "Reply"].contains(&text) {
            return Ok(());
        }
        // Between name and brace there is a blank.
        let text = if self.text.is_empty() {
            text.trim_start()
        } else {
            text
        };
        let room = self.limit.saturating_sub(self.text.len());
        if text.len() <= room {
            self.text.push_str(text);
            return Ok(());
        }
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests;
