//! Rights, and the levels of protection they need: exactly, with exactly which code.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod apart;
mod cell;
mod changes;
mod session;

use afar_security::{Level, Token};
use afar_types::PtsId;
use afar_xdr::XdrString;

use cell::{Bad, Cell, ELSEWHERE, REALM, security};
use session::{Act, Client, Content, code};

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test);
}

/// Whom the columns of the table stand for.
///
/// - `nobody` comes without a token
/// - `sam` has one of the cell's realm, but no entry among its users
/// - `ann` is a user
/// - `mal` and `eve` are of another realm; `eve` has registered
/// - `oper` is in the list of administrators of the servers (`superusers`)
/// - `root` is a member of system:administrators
/// - `server` shows a ticket printed with the cell's key, as other servers do (`-localauth`)
const WHO: [&str; 8] = [
    "nobody", "sam", "ann", "mal", "eve", "oper", "root", "server",
];

#[rustfmt::skip]
const RIGHTS: &[(Act, [&str; 8])] = {
    use Act::*;
    &[
        //                nobody      sam         ann         mal         eve         oper       root        server
        (ReadOpen,        ["ok",      "ok",       "ok",       "ok",       "ok",       "ok",      "ok",       "ok"]),
        (ReadPrivate,     ["EACCES",  "EACCES",   "ok",       "EACCES",   "EACCES",   "EACCES",  "EACCES",   "ok"]),
        (ReadUsers,       ["EACCES",  "EACCES",   "ok",       "EACCES",   "EACCES",   "ok",      "ok",       "ok"]),
        (ReadForeign,     ["EACCES",  "EACCES",   "EACCES",   "EACCES",   "ok",       "EACCES",  "EACCES",   "ok"]),
        (WriteOpen,       ["EACCES",  "EACCES",   "EACCES",   "EACCES",   "EACCES",   "EACCES",  "ok",       "ok"]),
        (WritePrivate,    ["EACCES",  "EACCES",   "ok",       "EACCES",   "EACCES",   "EACCES",  "EACCES",   "ok"]),
        (SetAcl,          ["EACCES",  "EACCES",   "ok",       "EACCES",   "EACCES",   "EACCES",  "ok",       "ok"]),
        (SetQuota,        ["EACCES",  "EACCES",   "EACCES",   "EACCES",   "EACCES",   "EACCES",  "ok",       "ok"]),
        (FlushCps,        ["EPERM",   "EPERM",    "EPERM",    "EPERM",    "EPERM",    "ok",      "EPERM",    "ok"]),
        (LookUpUser,      ["ok",      "ok",       "ok",       "ok",       "ok",       "ok",      "ok",       "ok"]),
        (ShowUser,        ["ok",      "PRPERM",   "ok",       "PRPERM",   "ok",       "ok",      "ok",       "ok"]),
        (ShowGroupsOfAnn, ["PRPERM",  "PRPERM",   "ok",       "PRPERM",   "PRPERM",   "PRPERM",  "ok",       "ok"]),
        (SetNextId,       ["PRPERM",  "PRPERM",   "PRPERM",   "PRPERM",   "PRPERM",   "PRPERM",  "ok",       "ok"]),
        (FindVolume,      ["ok",      "ok",       "ok",       "ok",       "ok",       "ok",      "ok",       "ok"]),
        (TakeVolumeId,    ["VL_PERM", "VL_PERM",  "VL_PERM",  "VL_PERM",  "VL_PERM",  "ok",      "VL_PERM",  "ok"]),
        (ListVolumes,     ["ok",      "ok",       "ok",       "ok",       "ok",       "ok",      "ok",       "ok"]),
        (WorkOnVolume,    ["VOLACCESS", "VOLACCESS", "VOLACCESS", "VOLACCESS", "VOLACCESS", "ok", "VOLACCESS", "ok"]),
        (ShowServers,     ["ok",      "ok",       "ok",       "ok",       "ok",       "ok",      "ok",       "ok"]),
        (ListKeys,        ["BZACCESS", "BZACCESS", "BZACCESS", "BZACCESS", "BZACCESS", "ok",     "BZACCESS", "ok"]),
    ]
};

/// One act at each server.
const EACH_SERVER: [Act; 5] = [
    Act::ReadOpen,
    Act::ShowUser,
    Act::FindVolume,
    Act::ListVolumes,
    Act::ShowServers,
];

fn token(cell: &Cell, who: &str) -> Option<Token> {
    Some(match who {
        "nobody" => return None,
        "mal" | "eve" => cell.token(who, ELSEWHERE),
        "server" => cell.localauth(),
        _ => cell.token(who, REALM),
    })
}

/// A cell with something in it, to which a user of another realm has come.
async fn filled(security_lines: &str) -> (Cell, Client, Content) {
    let cell = Cell::start(security_lines);
    let client = Client::new();
    let admin = security(Some(&cell.localauth()), Level::Crypt);
    let content = client.session(&cell, &admin).fill().await;
    let eve = security(token(&cell, "eve").as_ref(), Level::Crypt);
    let name = XdrString::new("eve@elsewhere.example").unwrap();
    let registers = client.session(&cell, &eve);
    let registered = registers.users.new_entry(name, 0, PtsId(0)).await.unwrap();
    assert_eq!(registered.id, PtsId(1 << 16 | (-300 & 0xffff)));
    (cell, client, content)
}

#[test]
fn everybody_may_do_what_the_table_says_at_each_level() {
    run(async {
        let (cell, client, content) = filled("superusers = [\"oper\"]\n").await;
        let mut wrong = Vec::new();
        for (column, who) in WHO.into_iter().enumerate() {
            let token = token(&cell, who);
            let levels = if token.is_some() { 3 } else { 1 };
            for level in Level::ALL.into_iter().take(levels) {
                let session = client.session(&cell, &security(token.as_ref(), level));
                for (act, row) in RIGHTS {
                    let got = session.act(*act, &content).await;
                    if got != code(row[column]) {
                        wrong.push(format!(
                            "{who}, {level}: {act:?} is {got}, not {}",
                            row[column]
                        ));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        // The audit has it, and who it was.
        let line = cell.until("who=ann");
        for part in ["audit", "refused", "from=127.0.0.1:", "operation=", "code="] {
            assert!(line.contains(part), "{part:?} is missing: {line}");
        }
        let line = cell.until("operation=VL.get_new_volume_id object={count=1} answer=");
        assert!(line.contains("done") && line.contains("code=0"), "{line}");
    });
}

#[test]
fn a_bad_ticket_is_refused_everywhere_with_the_reason() {
    run(async {
        let (cell, client, content) = filled("").await;
        for (how, word) in [
            (Bad::Expired, "EXPIRED"),
            (Bad::NotYet, "NOAUTH"),
            (Bad::OtherKey, "BADTICKET"),
            (Bad::OtherNumber, "UNKNOWNKEY"),
        ] {
            let token = cell.bad_token(how);
            for level in Level::ALL {
                let session = client.session(&cell, &security(Some(&token), level));
                for act in EACH_SERVER {
                    let got = session.act(act, &content).await;
                    assert_eq!(got, code(word), "{how:?}, {level}: {act:?}");
                }
            }
        }
    });
}

#[test]
fn who_does_less_than_the_least_is_refused() {
    run(async {
        let minimum = "[security.minimum]\nfile = \"crypt\"\npt = \"auth\"\nvl = \"clear\"\nvol = \"crypt\"\n";
        let (cell, client, content) = filled(minimum).await;
        let ann = cell.token("ann", REALM);
        #[rustfmt::skip]
        let table = [
            //                   nothing    clear        auth         crypt
            (Act::ReadPrivate, ["INVALID", "LEVELFAIL", "LEVELFAIL", "ok"]),
            (Act::ShowUser,    ["INVALID", "LEVELFAIL", "ok",        "ok"]),
            (Act::FindVolume,  ["INVALID", "ok",        "ok",        "ok"]),
            (Act::ListVolumes, ["INVALID", "LEVELFAIL", "LEVELFAIL", "ok"]),
            (Act::ShowServers, ["ok",      "ok",        "ok",        "ok"]),
        ];
        let levels = [
            None,
            Some(Level::Clear),
            Some(Level::Auth),
            Some(Level::Crypt),
        ];
        for (column, level) in levels.into_iter().enumerate() {
            let token = level.map(|_| &ann);
            let security = security(token, level.unwrap_or_default());
            let session = client.session(&cell, &security);
            for (act, row) in table {
                let got = session.act(act, &content).await;
                assert_eq!(got, code(row[column]), "{level:?}: {act:?}");
            }
        }
        // Administration on this machine goes another way.
        let listed = cell.afar(&["vos", "listvldb"]);
        assert!(listed.status.success(), "{listed:?}");
    });
}
