//! What a user can do about an error.
//!
//! Libraries' errors say what failed, on which object and why. The next step, with the commands and options of this
//! program, is said here and only here: a match over all variants of each library's errors, so that a new variant
//! does not compile before somebody has thought about its user.

use std::borrow::Cow;
use std::error::Error as StdError;

use afar_cache::CacheError;
use afar_cell::{ANONYMOUS, Error as CellError, NoRoom, PathCause, PathError};
use afar_dbserver::kv::DbError;
use afar_dbserver::pr::PrError;
use afar_fuse::MountError;
use afar_link::Error as LinkError;
use afar_login::client::{KeyProblem, LoginError};
use afar_login::uri::CellUriError;
use afar_net::AbortCode;
use afar_rpc::RpcError;
use afar_security::ccache::CcacheError;
use afar_security::keys::KeyError;
use afar_security::libkrb5::{Krb5Error, Krb5Problem};
use afar_security::tokens::{STORE_VARIABLE, StoreError as TokenError};
use afar_server::local_cell;
use afar_store::{NoPartition, StoreError};
use afar_transfer::{Error as TransferError, PatternProblem, Remedy};
use afar_types::error::errno::EDQUOT;
use afar_types::error::errno_of;

/// UDP port of volume location servers.
const VL_PORT: u16 = 7003;

/// A next step, if there is one.
type Advice = Option<Cow<'static, str>>;

/// An error with its causes, and what to do about it, in one line.
pub(crate) fn told(error: &anyhow::Error) -> String {
    with(format!("{error:#}"), error.chain().find_map(of))
}

/// The same of one error of a library, without its causes.
pub(crate) fn told_of(error: &(dyn StdError + 'static)) -> String {
    with(error.to_string(), of(error))
}

fn with(mut text: String, advice: Advice) -> String {
    if let Some(advice) = advice {
        text.push_str("; ");
        text.push_str(&advice);
    }
    text
}

/// What may help against an error for lack of rights: that the cell runs here and is ours.
pub(crate) fn as_administrator(error: &anyhow::Error) -> Option<String> {
    if let Some(error) = error.downcast_ref::<PathError>() {
        return match &error.cause {
            PathCause::Cell(cause) => as_administrator_of(cause, &error.path),
            _ => None,
        };
    }
    as_administrator_of(error.downcast_ref()?, &format!("{error:#}"))
}

/// The same for an error with a path, or a text that has one in it.
pub(crate) fn as_administrator_of(error: &CellError, path: &str) -> Option<String> {
    if !error.is_denied() {
        return None;
    }
    let cells = local_cell::all();
    let cell = cells
        .iter()
        .find(|cell| path.contains(cell.entry.name.as_str()) && cell.is_served(VL_PORT))?;
    Some(format!(
        "--localauth acts as the administrator of {}",
        cell.entry.name
    ))
}

/// What to do about one error of a chain.
fn of(error: &(dyn StdError + 'static)) -> Advice {
    if let Some(error) = error.downcast_ref::<PathError>() {
        of_path(&error.cause)
    } else if let Some(cause) = error.downcast_ref::<PathCause>() {
        of_path(cause)
    } else if let Some(error) = error.downcast_ref::<CellError>() {
        of_cell(error)
    } else if let Some(error) = error.downcast_ref::<TransferError>() {
        of_transfer(error)
    } else if let Some(error) = error.downcast_ref::<LoginError>() {
        of_login(error)
    } else if error.is::<CellUriError>() {
        Some("copy the whole line, as `afar up` prints it".into())
    } else if let Some(error) = error.downcast_ref::<Krb5Error>() {
        of_kerberos(error)
    } else if let Some(error) = error.downcast_ref::<CcacheError>() {
        of_ccache(error)
    } else if let Some(error) = error.downcast_ref::<TokenError>() {
        of_token(error)
    } else if let Some(error) = error.downcast_ref::<KeyError>() {
        of_key(error)
    } else if let Some(error) = error.downcast_ref::<StoreError>() {
        of_store(error)
    } else if let Some(error) = error.downcast_ref::<DbError>() {
        of_database(error)
    } else if let Some(PrError::Database(error)) = error.downcast_ref() {
        of_database(error)
    } else if let Some(error) = error.downcast_ref::<CacheError>() {
        of_cache(error)
    } else if let Some(error) = error.downcast_ref::<MountError>() {
        of_mount(error)
    } else {
        of_link(error.downcast_ref()?)
    }
}

fn of_path(cause: &PathCause) -> Advice {
    let advice = match cause {
        PathCause::Cell(error) => return of_cell(error),
        PathCause::NotAfs | PathCause::CellName(_) => "give a path that starts with /afs/CELL",
        PathCause::NotFound => "list its parent directory to see what is there",
        PathCause::NoSysname(_) => "name others with --sysname",
        PathCause::NoName => "name the entry itself",
        PathCause::CellRoot => "name something below it",
        PathCause::OutsideAfs(_) => "read that path without afar",
        PathCause::NotDirectory
        | PathCause::IsDirectory
        | PathCause::Loop
        | PathCause::MountPoint(_) => return None,
    };
    Some(advice.into())
}

fn of_cell(error: &CellError) -> Advice {
    let advice = match error {
        CellError::CellServDb { .. } => "name another file with --cellservdb",
        CellError::UnknownCell { .. } => "check its name, or name a server with --server",
        CellError::NoServers { .. } => "name one with --server",
        CellError::OutOfReach { .. } => "run the command without --localauth",
        CellError::VlUnreachable { .. } => "check the network, or name another with --server",
        CellError::NoSuchVolume { cell, volume } => {
            return Some(format!("vos examine {volume} -cell {cell} says the same").into());
        }
        CellError::NoSuchMember { .. } => "use another path to it",
        CellError::NoSite { .. } => "ask the cell's administrators",
        CellError::Volume { last, tried, .. } => return of_call(last, *tried),
        CellError::Refused(error) => return of_call(error, 1),
        CellError::Denied { who, .. } if **who == *ANONYMOUS => "afar login gets one",
        CellError::Denied { .. } => {
            "the directory's access list shows the rights (afar fs listacl)"
        }
        CellError::Token { .. } => "get another with afar login",
        CellError::Gone => "list its directory again",
        CellError::ReadOnly { cell, .. } => {
            return Some(format!("change its read-write volume, below /afs/.{cell}").into());
        }
        CellError::NoRoom(found) => return Some(of_room(found).into()),
        CellError::InDoubt(error) => {
            let check = "check before you try again";
            return Some(match of_cell(error) {
                Some(advice) => format!("{advice}; {check}").into(),
                None => check.into(),
            });
        }
        CellError::Text { .. } => "choose another",
        CellError::Directory(_) => "ask the cell's administrators to salvage its volume",
        CellError::Changing(_) => "try again",
        CellError::Vl { .. }
        | CellError::NoToken { .. }
        | CellError::Acl(_)
        | CellError::Sink(_)
        | CellError::Source(_)
        | CellError::Nonsense(_) => return None,
    };
    Some(advice.into())
}

/// What to do about a call that failed at the last of so many servers.
fn of_call(error: &RpcError, tried: usize) -> Advice {
    // Also what a server says that takes no anonymous calls.
    if error.code() == AbortCode::RX_INVALID_OPERATION {
        return Some("a token may be needed: see afar tokens, afar login".into());
    }
    let advice = match error.aborted().map(|code| errno_of(code.0)) {
        None if tried > 1 => "check the network",
        None => "check the network, and whether the server runs",
        Some(Some(EDQUOT)) => "free some space, or raise the quota with afar fs setquota",
        Some(_) => return None,
    };
    Some(advice.into())
}

fn of_room(found: &NoRoom) -> &'static str {
    match found.quota.filter(|_| found.by_quota) {
        Some(_) => "make room, or raise it with `afar fs setquota PATH -max KIB`",
        None => "make room there, or move the volume to another one with `afar vos move`",
    }
}

fn of_transfer(error: &TransferError) -> Advice {
    let advice = match error {
        TransferError::Failed { cause, .. } => return of_transfer(cause),
        TransferError::Path(error) => return of_path(&error.cause),
        TransferError::PathCause(cause) => return of_path(cause),
        TransferError::Cell(error) => return of_cell(error),
        TransferError::Pattern { problem, .. } => match problem {
            PatternProblem::Nothing => "give a name or a pattern",
            PatternProblem::Bracket => "write \\[ for itself",
            PatternProblem::Range => return None,
        },
        TransferError::Refused { remedy, .. } => match (*remedy)? {
            Remedy::CreateDirectory => "create it first",
            Remedy::Recursive => "add -r to copy it recursively",
            Remedy::NameCopy => "name the copy, with -T",
            Remedy::FromCell => "copy from /afs/CELL",
            Remedy::IntoCell => "copy to a directory below /afs/CELL",
            Remedy::OtherDestination => "choose another DEST",
            Remedy::Copy => "afar cp copies what comes out of a pipe",
            Remedy::LocalProgram => "use rsync for these",
            Remedy::Delete => "add --delete to replace it",
            Remedy::RemoveMountPoint => "remove it with afar fs rmmount",
            Remedy::Again => "run this again",
            Remedy::AgainLater => "run this one again when that has ended",
        },
        TransferError::Io(_) => return None,
    };
    Some(advice.into())
}

fn of_login(error: &LoginError) -> Advice {
    let advice = match error {
        LoginError::Unreachable { .. } => {
            "is the host right, and does a firewall let the port through?"
        }
        LoginError::NotTrusted(_) => {
            "compare it with the one from the cell's administrator, and pass it with --fingerprint"
        }
        LoginError::Mismatch { .. } => "if the server really has a new key, remove the line",
        LoginError::Refused { .. } => {
            "an administrator sets them with `afar pts setpassword` and `afar pts sshkeys`"
        }
        LoginError::Wait { seconds } => return Some(format!("try again in {seconds} s").into()),
        LoginError::OtherCell { .. } => "name its cell with --cell",
        LoginError::Server { .. } => "its log says why",
        LoginError::Key { what, .. } => match what {
            KeyProblem::Format => {
                "convert it with `ssh-keygen -p -f FILE`, or add it to an SSH agent"
            }
            KeyProblem::NoAgent => {
                "start one and add the key (`ssh-add FILE`), or use an Ed25519 key"
            }
            KeyProblem::NotInAgent => "add it (`ssh-add FILE`)",
            KeyProblem::Unreadable(_) | KeyProblem::Passphrase => return None,
        },
        LoginError::Protocol { .. }
        | LoginError::Fingerprint { .. }
        | LoginError::KnownCells { .. }
        | LoginError::User(_)
        | LoginError::Password(_)
        | LoginError::KeyType(_)
        | LoginError::Agent { .. } => return None,
    };
    Some(advice.into())
}

fn of_kerberos(error: &Krb5Error) -> Advice {
    let advice = match error {
        Krb5Error::Missing(_) => "install it (Debian: libkrb5-3, Fedora: krb5-libs)",
        Krb5Error::Key { .. } => "ask the realm's administrators to allow aes256-cts for it",
        Krb5Error::Failed { .. } => match error.problem()? {
            Krb5Problem::UnknownUser => "check the user's name and realm",
            Krb5Problem::UnknownService => "name the cell's realm with --realm",
            Krb5Problem::Expired => "log in again with kinit or afar login USER",
            Krb5Problem::NoCache => "get one with kinit or afar login USER",
            Krb5Problem::UnknownRealm => "name the realm with --realm, or its KDC in krb5.conf",
            Krb5Problem::Unreachable => "check the network",
            Krb5Problem::WrongPassword => return None,
        },
    };
    Some(advice.into())
}

fn of_ccache(error: &CcacheError) -> Advice {
    match error {
        CcacheError::OtherUser { .. } => Some("name another cache with --ccache".into()),
        CcacheError::File { .. } | CcacheError::Foreign(_) | CcacheError::Format { .. } => None,
    }
}

fn of_token(error: &TokenError) -> Advice {
    let another = match error {
        TokenError::Damaged { .. } => {
            return Some("remove it with afar logout, and log in again".into());
        }
        TokenError::File { .. } => "name another directory for tokens with",
        TokenError::Unsafe { .. } => "remove it, or name another directory with",
        TokenError::Keyring(_) => "name a directory for tokens with",
        TokenError::Entry(_) => return None,
    };
    Some(format!("{another} {STORE_VARIABLE}").into())
}

fn of_key(error: &KeyError) -> Advice {
    let advice = match error {
        KeyError::Read { .. } => "does it exist, and may this user read it?",
        KeyError::NoKeyFile { .. } => "is it a KeyFileExt or a keytab?",
        KeyError::Damaged { .. } => {
            "copy the file again from an intact one, for example on another server of the cell"
        }
        KeyError::Write { .. } => "may this user write in its folder?",
        KeyError::Exists { .. } => "use a higher kvno, or remove that key first",
        KeyError::Missing { .. } => "list its keys to see what there is",
        KeyError::Des(_) => "use aes256-cts-hmac-sha1-96",
        KeyError::Unusable { .. } => "use aes256-cts-hmac-sha1-96 with 32 bytes",
        KeyError::NoKey { .. } => "import the cell's keytab, or generate a key",
        KeyError::NoSuchTicket { .. } => return None,
    };
    Some(advice.into())
}

fn of_store(error: &StoreError) -> Advice {
    let advice = match error {
        StoreError::OverQuota(..) => "raise it, or remove files",
        StoreError::NewerClone(..) => "remove that first",
        StoreError::Corrupt { .. } => "run `afar store check`",
        StoreError::Damaged { .. } => "restore its meta/ from a copy, or its volumes from dumps",
        StoreError::NotPartition { why, .. } => match why {
            NoPartition::Unmarked(_) => "`afar store init` creates one",
            NoPartition::Version { .. } => "use a newer afar",
            NoPartition::NotEmpty {
                interrupted: true, ..
            } => "if an interrupted init left it, remove meta, seg and lock and try again",
            NoPartition::Base | NoPartition::Database(_) | NoPartition::Empty => {
                "restore meta/ from a copy"
            }
            NoPartition::Foreign
            | NoPartition::NotEmpty {
                interrupted: false, ..
            } => return None,
        },
        StoreError::Stopped { .. } => "check the disk, then restart",
        StoreError::NoVolume(_)
        | StoreError::Offline(_)
        | StoreError::VolumeExists(_)
        | StoreError::NoVnode(_)
        | StoreError::ReadOnly(_)
        | StoreError::NotFound(_)
        | StoreError::Exists(_)
        | StoreError::BadName { .. }
        | StoreError::NotDirectory(_)
        | StoreError::IsDirectory(_)
        | StoreError::NotEmpty(_)
        | StoreError::OtherDirectory(_)
        | StoreError::Loop(_)
        | StoreError::DirectoryFull(_)
        | StoreError::TooBig(_)
        | StoreError::NoSpace(_)
        | StoreError::Conflict(_)
        | StoreError::Busy(_)
        | StoreError::NotReserved(_)
        | StoreError::VnodesExhausted(_)
        | StoreError::Read(_)
        | StoreError::Segment(_)
        | StoreError::Directory { .. }
        | StoreError::Dump(_)
        | StoreError::BadDump { .. }
        | StoreError::Locked { .. }
        | StoreError::OutOfRange { .. }
        | StoreError::Database { .. }
        | StoreError::Io { .. } => return None,
    };
    Some(advice.into())
}

fn of_database(error: &DbError) -> Advice {
    let advice = match error {
        DbError::NotReplica(_) => "give an empty directory, and load an export of this one",
        DbError::Damaged { .. } => {
            "stop the server, and go back to the last copy with `afar server --restore`"
        }
        DbError::TooLarge { .. } => "change less at a time",
        DbError::Open { .. }
        | DbError::Format { .. }
        | DbError::NoCopy { .. }
        | DbError::Rows { .. }
        | DbError::Key(_)
        | DbError::NoQuorum
        | DbError::Fault
        | DbError::Closed => return None,
    };
    Some(advice.into())
}

fn of_cache(error: &CacheError) -> Advice {
    let advice = match error {
        CacheError::Storage { .. } => "name another directory, or empty it",
        CacheError::InUse { .. } => "name another directory, or end that mount",
        CacheError::Newer { .. } => {
            "use a newer version, name another directory, or empty it if everything written is \
             stored"
        }
        CacheError::Root { source, .. } => return of_cell(source),
    };
    Some(advice.into())
}

fn of_mount(error: &MountError) -> Advice {
    let advice = match error {
        MountError::NoFuse => {
            "load the kernel's module (modprobe fuse), or give the container the device"
        }
        MountError::NoFusermount { .. } => {
            "install it (Debian, Ubuntu: apt install fuse3; Fedora: dnf install fuse3), or be root \
             and omit auto_unmount"
        }
        MountError::AllowOther => "omit allow_other, or be root",
        MountError::Refused { .. } | MountError::Ended { .. } => return None,
    };
    Some(advice.into())
}

fn of_link(error: &LinkError) -> Advice {
    Some(match error {
        LinkError::NotRoot(_) => "run it again with sudo".into(),
        LinkError::NoTun => {
            "load the kernel module tun, or pass the device into the container".into()
        }
        LinkError::Exists { name, .. } => format!("afar link down {name} removes it").into(),
        LinkError::NotFound(_) => "afar link ls lists those that exist".into(),
        LinkError::NotRunning(name) => format!("afar link down {name}, then up again").into(),
        LinkError::BadName(_)
        | LinkError::BadOption(_)
        | LinkError::Start { .. }
        | LinkError::Io { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anyhow::Context;

    use super::*;

    #[test]
    fn the_next_step_comes_last_whatever_is_around_its_error() {
        let gone = || CellError::Gone;
        let text = "it no longer exists; list its directory again";
        assert_eq!(told_of(&gone()), text);
        let path = PathError {
            path: "/afs/a.org/x".to_owned(),
            cause: gone().into(),
        };
        assert_eq!(told_of(&path), format!("/afs/a.org/x: {text}"));
        let transfer = TransferError::Failed {
            what: "x".to_owned(),
            cause: Box::new(TransferError::Path(path)),
        };
        assert_eq!(
            told(&anyhow::Error::new(transfer)),
            "x: /afs/a.org/x: it no longer exists; list its directory again"
        );
        let result: Result<(), _> = Err(gone());
        let around = result.context("cannot read").unwrap_err().context("y");
        assert_eq!(told(&around), format!("y: cannot read: {text}"));
        assert_eq!(told(&anyhow::anyhow!("no")), "no");
    }

    #[test]
    fn what_failed_and_what_to_do_are_told() {
        let cell = || "a.org".parse().unwrap();
        let texts = [
            (
                told_of(&CellError::NoServers {
                    cell: cell(),
                    looked: "/x".to_owned(),
                }),
                "cell a.org has no server in /x; name one with --server",
            ),
            (
                told_of(&CellError::InDoubt(Box::new(CellError::NoServers {
                    cell: cell(),
                    looked: "/x".to_owned(),
                }))),
                "cell a.org has no server in /x; the change may have been made; \
                 name one with --server; check before you try again",
            ),
            (
                told_of(&StoreError::NotPartition {
                    path: "/x".into(),
                    why: NoPartition::Unmarked(Arc::new(std::io::ErrorKind::NotFound.into())),
                }),
                "/x: not a partition (entity not found reading its file \"format\"); `afar store \
                 init` creates one",
            ),
            (
                told_of(&LoginError::Wait { seconds: 7 }),
                "too many attempts have failed; try again in 7 s",
            ),
            (
                told_of(&TransferError::Refused {
                    why: "x is a directory".to_owned(),
                    remedy: Some(Remedy::Recursive),
                }),
                "x is a directory; add -r to copy it recursively",
            ),
            (
                told_of(&LinkError::NotRunning("wan".to_owned())),
                "the emulator of link wan is not running; afar link down wan, then up again",
            ),
        ];
        for (text, expected) in texts {
            assert_eq!(text, expected);
        }
    }
}
