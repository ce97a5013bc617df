use std::io;
use std::sync::{Arc, Mutex};

use afar_net::Identity;
use afar_types::{Fid, PtsId, StoreStatus, TransactionId, UnixTime};
use afar_xdr::{Opaque, XdrString, to_bytes};
use tracing_subscriber::fmt::MakeWriter;

use super::*;
use crate::{INTERFACES, afsvol, bozo, pr, rxafs, users, vl};

/// A log that is kept.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// What is logged from this level on.
fn logged(level: Level, work: impl FnOnce()) -> String {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(log.clone())
        .with_ansi(false)
        .without_time()
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    let text = log.0.lock().unwrap().clone();
    String::from_utf8(text).unwrap()
}

fn caller(identity: Identity) -> Caller {
    Caller {
        peer: "192.0.2.7:7001".parse().unwrap(),
        service: pr::SERVICE,
        identity,
    }
}

/// At once, without data.
fn ended<A>(result: &Result<A, AbortCode>) -> End<'_, A> {
    End::new(Instant::now(), None, result)
}

fn new_entry(name: &str, result: Result<pr::new_entry::Reply, AbortCode>) {
    let request = pr::new_entry::Request {
        name: XdrString::new(name).unwrap(),
        flag: 0,
        owner: PtsId(0),
    };
    let arguments = to_bytes(&request);
    let caller = caller(Identity::User("ann".into()));
    let end = ended(&result);
    record::<pr::new_entry::Request, _>(pr::new_entry::OPERATION, &caller, &arguments, &end);
}

fn fetch_status(result: Result<(), AbortCode>) {
    let request = rxafs::fetch_status::Request {
        fid: Fid::new(7, 8, 9),
    };
    let (operation, arguments) = (rxafs::fetch_status::OPERATION, to_bytes(&request));
    let caller = caller(Identity::Anonymous);
    record::<rxafs::fetch_status::Request, _>(operation, &caller, &arguments, &ended(&result));
}

#[test]
fn a_change_is_told_with_who_from_where_what_and_how_it_went() {
    let reply = pr::new_entry::Reply { id: PtsId(5) };
    let line = logged(Level::INFO, || new_entry("bob", Ok(reply)));
    for part in [
        "INFO audit: done",
        "who=ann",
        "from=192.0.2.7:7001",
        "operation=PR.new_entry",
        "object={name=bob flag=0 owner=0}",
        "answer={id=5}",
        "code=0",
    ] {
        assert!(line.contains(part), "{part:?} is missing: {line}");
    }
    let line = logged(Level::INFO, || new_entry("bob", Err(AbortCode(267_269))));
    assert!(line.contains("refused") && line.contains("code=267269"));
    assert_eq!(
        logged(Level::WARN, || new_entry("bob", Err(AbortCode(1)))),
        ""
    );
}

#[test]
fn data_is_told_with_its_bytes_and_each_call_with_its_time() {
    let operation = afsvol::dump::OPERATION;
    let request = afsvol::dump::Request {
        transaction: TransactionId(7),
        from_date: UnixTime(0),
    };
    let line = logged(Level::INFO, || {
        let (caller, result) = (caller(Identity::Superuser), Ok(()));
        let mut end = End::new(Instant::now(), Some(123_456_789), &result);
        end.took = Duration::from_micros(1_250_000);
        record::<afsvol::dump::Request, _>(operation, &caller, &to_bytes(&request), &end);
    });
    assert!(
        line.contains(" bytes=123456789 seconds=1.250000 code=0"),
        "{line}"
    );
    let line = logged(Level::INFO, || new_entry("bob", Err(AbortCode(1))));
    assert!(
        !line.contains("bytes=") && line.contains(" seconds=0.0"),
        "{line}"
    );
}

#[test]
fn hostile_names_stay_within_their_field_of_one_line() {
    let hostile = "eve\n INFO audit: done who=root code=0 \u{1b}[2J\u{202e}\"";
    let reply = || Ok(pr::new_entry::Reply { id: PtsId(5) });
    // As the name of a new user, and as that of the caller.
    let as_argument = logged(Level::INFO, || new_entry(hostile, reply()));
    let as_caller = logged(Level::INFO, || {
        let caller = caller(Identity::User(hostile.into()));
        let request = pr::new_entry::Request {
            name: XdrString::new("bob").unwrap(),
            flag: 0,
            owner: PtsId(0),
        };
        let (arguments, result) = (to_bytes(&request), reply());
        let end = ended(&result);
        record::<pr::new_entry::Request, _>(pr::new_entry::OPERATION, &caller, &arguments, &end);
    });
    for line in [as_argument, as_caller] {
        assert_eq!(line.lines().count(), 1, "{line:?}");
        assert!(!line.trim_end().contains(char::is_control), "{line:?}");
        assert!(!line.contains('\u{202e}'), "{line:?}");
        // It stands between quotes, with its own escaped.
        let (_, rest) = line.split_once("\"eve\\n INFO").unwrap();
        assert!(rest.contains("\\\""), "{line:?}");
    }
}

#[test]
fn daily_work_is_told_where_it_was_refused_or_somebody_looks() {
    let refused = logged(Level::INFO, || fetch_status(Err(AbortCode(13))));
    assert!(refused.contains("refused"), "{refused}");
    assert!(refused.contains("{fid={volume=7 "), "{refused}");
    // As a client is told that knows UAE codes.
    let refused = logged(Level::INFO, || fetch_status(Err(AbortCode(49_733_388))));
    assert!(refused.contains("refused"), "{refused}");
    assert_eq!(logged(Level::INFO, || fetch_status(Ok(()))), "");
    assert_eq!(
        logged(Level::INFO, || fetch_status(Err(AbortCode(103)))),
        ""
    );
    assert_eq!(logged(Level::DEBUG, || fetch_status(Ok(()))), "");
    assert!(logged(Level::TRACE, || fetch_status(Ok(()))).contains("TRACE audit: done"));
}

#[test]
fn changes_of_files_are_told_where_somebody_looks_with_the_process_that_a_client_names() {
    let make_dir = |more: &[u8]| {
        let request = rxafs::make_dir::Request {
            directory: Fid::new(7, 1, 1),
            name: XdrString::new("new").unwrap(),
            attributes: StoreStatus::default(),
        };
        let operation = rxafs::make_dir::OPERATION;
        let arguments = Bytes::from([&to_bytes(&request)[..], more].concat());
        let result = Err::<(), _>(AbortCode(17));
        let (caller, end) = (caller(Identity::User("ann".into())), ended(&result));
        record::<rxafs::make_dir::Request, _>(operation, &caller, &arguments, &end);
    };
    assert_eq!(logged(Level::INFO, || make_dir(b"")), "");
    let line = logged(Level::DEBUG, || make_dir(b""));
    assert!(line.contains("DEBUG audit: failed who=ann"), "{line}");
    assert!(!line.contains("uid="), "{line}");
    let line = logged(Level::DEBUG, || {
        make_dir(b"afar\0\0\0\x01\0\0\x03\xe8\0\0\x11\x33")
    });
    assert!(line.contains(" uid=1000 pid=4403 "), "{line}");
}

#[test]
fn the_end_of_a_list_is_no_refusal() {
    let arguments = to_bytes(&bozo::list_s_users::Request { number: 2 });
    let end = |code| {
        let (caller, result) = (caller(Identity::Anonymous), Err::<(), _>(AbortCode(code)));
        let operation = bozo::list_s_users::OPERATION;
        record::<bozo::list_s_users::Request, _>(operation, &caller, &arguments, &ended(&result));
    };
    assert_eq!(logged(Level::INFO, || end(1)), "");
    assert!(logged(Level::INFO, || end(39_430)).contains("refused"));
}

#[test]
fn long_arguments_are_cut() {
    let request = vec!["ä".repeat(100); 9];
    for read in [10, 300, READ] {
        let text = shown(&request, read);
        assert!(text.ends_with('…') && text.len() < SHOWN + 4, "{text}");
    }
    // What cannot be read is not shown.
    let operation = vl::probe_server::OPERATION;
    let line = logged(Level::TRACE, || {
        let caller = caller(Identity::Superuser);
        let short = Bytes::from_static(b"\0");
        record::<vl::get_new_volume_id::Request, _>(operation, &caller, &short, &ended(&Ok(())));
    });
    assert!(
        line.contains("who=superuser") && !line.contains("object"),
        "{line}"
    );
}

#[test]
fn nothing_of_passwords_is_told_but_whose_they_are() {
    let request = users::register_finish::Request {
        id: PtsId(5),
        record: Opaque::new(*b"secret").unwrap(),
    };
    let (operation, arguments) = (users::register_finish::OPERATION, to_bytes(&request));
    let line = logged(Level::INFO, || {
        let caller = caller(Identity::Superuser);
        let done = Ok(users::register_finish::Reply {});
        record::<users::register_finish::Request, _>(operation, &caller, &arguments, &ended(&done));
    });
    assert!(line.contains("object={id=5}"), "{line}");
    assert!(!line.contains("b\""), "{line}");
}

#[test]
fn every_query_named_here_is_an_operation() {
    for rule in RULES {
        let interface = INTERFACES.iter().find(|known| known.name == rule.interface);
        let interface = interface.unwrap();
        for query in rule.queries {
            let mut rows = interface.operations.iter();
            let row = rows.find(|row| row.name == *query);
            assert!(!row.unwrap().is_audited, "{}.{query}", rule.interface);
        }
    }
    assert!(pr::add_to_group::OPERATION.is_audited);
    assert!(!rxafs::store_acl::OPERATION.is_audited);
}
