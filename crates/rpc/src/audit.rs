//! The audit: an event for each operation that changes or administers something, and for each
//! that was refused for lack of rights. Other operations give one where the log asks for them.
//!
//! The events have the target [`TARGET`] and these fields:
//!
//! - `who`: the name the caller has proved to have, `superuser`, or `anonymous`
//! - `from`: its address
//! - `operation`: interface and operation, such as `PR.add_to_group`
//! - `object`: the arguments, readable and shortened; not of interfaces that are not known here
//! - `answer`: the same of the results of a change
//! - `code`: what the call was aborted with, 0 if it was not

mod readable;

use std::fmt::{self, Debug, Write};

use afar_net::AbortCode;
use afar_types::error::errno::{EACCES, EPERM};
use afar_types::error::{BZACCESS, PRPERM, VL_PERM, VOLSERBAD_ACCESS, uae_to_errno};
use afar_xdr::{Decode, Decoder};
use bytes::Bytes;
use tracing::Level;

use readable::readable;

use crate::{Caller, Operation};

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

/// The interfaces for administration. In others than these every operation changes something,
/// unless it is one of [`UNAUDITED`].
const RULES: &[Rule] = &[
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
        interface: "USERS",
        read: READ_ID,
        queries: &["register_start", "list_keys"],
    },
];

/// Interfaces whose users go about their daily work, all of it.
const UNAUDITED: &[&str] = &["RXAFS", "RXAFSCB"];

/// Whether an operation is worth an event each time: it changes or administers something.
pub(crate) const fn is_audited(interface: &str, operation: &str) -> bool {
    if contains(UNAUDITED, interface) {
        return false;
    }
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

/// Tells of an operation that has been served. `arguments` are those of the request, as it came.
pub(crate) fn record<Q: Decode + Debug, A: Debug>(
    operation: &'static Operation,
    caller: &Caller,
    arguments: &Bytes,
    result: &Result<A, AbortCode>,
) {
    let refused = result
        .as_ref()
        .is_err_and(|code| is_refusal(operation.interface, *code));
    let notable = operation.is_audited || refused;
    // Without a listener this costs a comparison.
    let wanted = if notable {
        tracing::enabled!(target: TARGET, Level::INFO)
    } else {
        tracing::enabled!(target: TARGET, Level::DEBUG)
    };
    if !wanted {
        return;
    }
    let read = match rule(operation.interface) {
        Some(rule) => rule.read,
        None if contains(UNAUDITED, operation.interface) => READ,
        None => 0,
    };
    let object = (read > 0).then(|| Q::decode(&mut Decoder::new(arguments)));
    let object = object
        .and_then(Result::ok)
        .map(|request| shown(&request, read));
    let answer = result.as_ref().ok().filter(|_| read > 0 && notable);
    let event = Event {
        operation,
        caller,
        object,
        answer: answer
            .map(|answer| shown(answer, read))
            .filter(|text| !text.is_empty()),
        code: result.as_ref().err().map_or(0, |code| code.0),
    };
    event.emit(notable, refused);
}

/// What an event tells.
struct Event<'a> {
    operation: &'static Operation,
    caller: &'a Caller,
    object: Option<String>,
    answer: Option<String>,
    code: i32,
}

impl Event<'_> {
    fn emit(&self, notable: bool, refused: bool) {
        macro_rules! emit {
            ($level:ident) => {
                tracing::event!(
                    target: TARGET,
                    Level::$level,
                    who = %self.caller.identity,
                    from = %self.caller.peer,
                    operation = %format_args!("{}.{}", self.operation.interface, self.operation.name),
                    object = self.object.as_ref().map(tracing::field::display),
                    answer = self.answer.as_ref().map(tracing::field::display),
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
        if notable {
            emit!(INFO);
        } else {
            emit!(DEBUG);
        }
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
