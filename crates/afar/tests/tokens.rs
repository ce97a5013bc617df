//! Tokens as users see them: made of tickets in a cache, kept, listed, used, refused, forgotten; and
//! administrators with a server's keys.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "the tests of rights need more of it")]
#[path = "rights/cell.rs"]
mod cell;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use afar_security::ccache::{Ccache, Credential, Name};
use afar_security::ticket::{Mint, mint};
use afar_security::tokens::{Held, Store};
use tempfile::TempDir;

use cell::{CELL, Cell, REALM};

/// A machine of a user's, from which no socket of the server is reached.
struct Laptop {
    dir: TempDir,
    ccache: bool,
}

impl Laptop {
    fn new(cell: &Cell) -> Self {
        let dir = TempDir::new().unwrap();
        let server = cell.address();
        let text = format!(">{CELL} #a cell\n{server} #its server\n");
        fs::write(dir.path().join("CellServDB"), text).unwrap();
        Self { dir, ccache: true }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn afar(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_afar"));
        command
            .args(words)
            .env("AFAR_RUN_DIR", self.path("run"))
            .env("AFAR_TOKENS", self.path("tokens"))
            .env("AFAR_CELLSERVDB", self.path("CellServDB"))
            .env("KRB5_CONFIG", "/dev/null")
            .env_remove("KRB5CCNAME");
        if self.ccache {
            let name = format!("FILE:{}", self.path("cc").display());
            command.env("KRB5CCNAME", name);
        }
        command.output().unwrap()
    }

    /// Puts a ticket of the cell's into the user's cache, as a KDC's would be there.
    fn ticket(&self, cell: &Cell, user: &str) {
        let now = now();
        let request = Mint {
            client: user,
            realm: REALM,
            cell: CELL,
            start: now - 60,
            end: now + 3600,
        };
        let minted = mint(&cell.keys(), &request).unwrap();
        let credential = Credential {
            client: Name::new(&[user], REALM),
            server: Name::new(&["afs", CELL], REALM),
            key: minted.session,
            authenticated: request.start,
            start: request.start,
            end: request.end,
            renew_till: 0,
            flags: minted.flags,
            ticket: minted.ticket,
        };
        Ccache::store(&self.path("cc"), &credential).unwrap();
    }

    /// Tries to write a file in the directory of this user.
    fn write(&self, owner: &str, options: &[&str]) -> Output {
        let file = self.path("text");
        fs::write(&file, "text").unwrap();
        let target = format!("/afs/{CELL}/{owner}/");
        let words = [&["cp", file.to_str().unwrap(), &target], options].concat();
        self.afar(&words)
    }
}

fn now() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_secs().try_into().unwrap()
}

fn said(output: &Output) -> String {
    let told = told(output);
    assert!(output.status.success(), "{told}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    told(output)
}

/// A cell with two users, who have a directory each.
fn cell() -> Cell {
    let cell = Cell::start("");
    for user in ["ann", "bob"] {
        let dir = format!("/afs/{CELL}/{user}");
        said(&cell.afar(&["pts", "createuser", user]));
        said(&cell.afar(&["mkdir", "--localauth", &dir]));
        said(&cell.afar(&["fs", "setacl", "-localauth", &dir, user, "all"]));
    }
    cell
}

#[test]
fn a_ticket_in_the_cache_makes_its_owner_somebody() {
    let (cell, mut laptop) = (cell(), None);
    let laptop = laptop.insert(Laptop::new(&cell));
    // There is no ticket yet, and one was expected.
    let text = refused(&laptop.write("ann", &[]));
    assert!(text.contains("cannot use the ticket cache"), "{text}");
    assert!(text.contains("going on as anonymous"), "{text}");
    assert!(text.contains("permission denied to anonymous"), "{text}");
    let text = refused(&laptop.write("ann", &["--auth"]));
    assert!(!text.contains("anonymous") && text.contains(CELL), "{text}");

    laptop.ticket(&cell, "ann");
    for level in ["clear", "auth", "crypt"] {
        said(&laptop.write("ann", &["--level", level]));
    }
    let text = refused(&laptop.write("bob", &[]));
    assert!(
        text.contains("permission denied to ann@RIGHTS.EXAMPLE"),
        "{text}"
    );
    let text = refused(&laptop.write("ann", &["--noauth"]));
    assert!(text.contains("permission denied to anonymous"), "{text}");
    assert!(text.lines().count() == 1, "nothing else is said: {text}");
    let error = refused(&laptop.write("ann", &["--level", "private"]));
    assert!(error.contains("clear, auth or crypt"), "{error}");
}

#[test]
fn tokens_are_kept_listed_and_forgotten() {
    let cell = cell();
    let mut laptop = Laptop::new(&cell);
    laptop.ticket(&cell, "ann");
    let login = said(&laptop.afar(&["login", "--cell", CELL]));
    assert!(
        login.starts_with("ann@RIGHTS.EXAMPLE has a token for rights.example until"),
        "{login}"
    );
    // From now on without the cache.
    laptop.ccache = false;
    said(&laptop.write("ann", &[]));
    let listed = said(&laptop.afar(&["tokens"]));
    assert!(listed.starts_with("\nTokens held by afar:\n\n"), "{listed}");
    let line = "User ann@RIGHTS.EXAMPLE's rxkad tokens for rights.example [Expires ";
    assert!(
        listed.lines().any(|found| found.starts_with(line)),
        "{listed}"
    );
    assert!(listed.ends_with("   --End of list--\n"), "{listed}");
    let json = said(&laptop.afar(&["tokens", "--json"]));
    let object: serde_json::Value = json.lines().next().unwrap().parse().unwrap();
    assert_eq!(object["user"], "ann@RIGHTS.EXAMPLE");
    assert_eq!(object["kvno"], 256);
    assert_eq!(object["expired"], false);
    let verbose = laptop.afar(&["tokens", "--verbose"]);
    assert!(
        told(&verbose).contains("KRB5CCNAME names no ticket cache"),
        "{verbose:?}"
    );

    let warned = laptop.afar(&["logout", "--cell", "elsewhere.example"]);
    assert!(
        told(&warned).contains("no tokens held for cell elsewhere.example"),
        "{warned:?}"
    );
    said(&laptop.write("ann", &[]));
    said(&laptop.afar(&["logout"]));
    let text = refused(&laptop.write("ann", &[]));
    assert!(text.contains("permission denied to anonymous"), "{text}");
    assert_eq!(said(&laptop.afar(&["tokens"])).lines().count(), 4);
}

#[test]
fn tokens_that_are_no_good_are_said_to_be() {
    let cell = cell();
    let mut laptop = Laptop::new(&cell);
    laptop.ccache = false;
    let store = Store::in_dir(&laptop.path("tokens"));
    let mut held = Held {
        cell: CELL.parse().unwrap(),
        user: Some("ann@RIGHTS.EXAMPLE".to_owned()),
        vice_id: None,
        token: cell.token("ann", REALM),
    };
    (held.token.start, held.token.end) = (now() - 7200, now() - 3600);
    store.put(&held).unwrap();
    let text = refused(&laptop.write("ann", &[]));
    let expected = "the token of ann@RIGHTS.EXAMPLE for rights.example expired at ";
    assert!(
        text.contains(expected) && text.contains("afar login"),
        "{text}"
    );
    assert!(said(&laptop.afar(&["tokens"])).contains("[>> Expired <<]"));

    // The client takes it for good, and the servers do not have its key.
    held.token = cell.bad_token(cell::Bad::OtherNumber);
    store.put(&held).unwrap();
    let text = refused(&laptop.write("ann", &[]));
    let expected = "refuse the token of ann@RIGHTS.EXAMPLE: they do not have the key";
    assert!(text.contains(expected), "{text}");
    // A ticket in the cache takes its place.
    laptop.ccache = true;
    laptop.ticket(&cell, "ann");
    said(&laptop.write("ann", &[]));
}

#[test]
fn a_servers_keys_make_administrators() {
    let cell = cell();
    let mut laptop = Laptop::new(&cell);
    laptop.ccache = false;
    let keys = cell.key_file();
    let named = ["--localauth", "--keys", keys.to_str().unwrap()];
    said(&laptop.write("ann", &named));
    let none = laptop.path("none");
    let missing = laptop.write("ann", &["--localauth", "--keys", none.to_str().unwrap()]);
    assert!(refused(&missing).contains("none"), "{missing:?}");

    let config = keys.parent().unwrap().to_str().unwrap();
    let common = ["-cell", CELL, "-localauth", "-config", config];
    let with = |words: &[&str]| laptop.afar(&[words, &common].concat());
    let server = cell.address().to_string();
    let made = with(&["pts", "createuser", "eve", "-vl-server", &server]);
    assert!(said(&made).starts_with("User eve has id"), "{made:?}");
    let address = cell.address().to_string();
    let partition = [
        "vos",
        "create",
        &address,
        "a",
        "a.volume",
        "-vl-server",
        &server,
    ];
    said(&with(&partition));
    let anonymous = [
        "pts",
        "createuser",
        "mallory",
        "-cell",
        CELL,
        "-noauth",
        "-vl-server",
        &server,
    ];
    refused(&laptop.afar(&anonymous));

    // An ordinary user may not, and an operator may, each by his ticket.
    laptop.ccache = true;
    laptop.ticket(&cell, "ann");
    let create = [
        "vos",
        "create",
        &address,
        "a",
        "b.volume",
        "-cell",
        CELL,
        "-vl-server",
        &server,
    ];
    refused(&laptop.afar(&create));
    for encrypt in [&[][..], &["-encrypt"]] {
        let examine = [
            "vos",
            "examine",
            "a.volume",
            "-cell",
            CELL,
            "-vl-server",
            &server,
        ];
        said(&laptop.afar(&[&examine, encrypt].concat()));
    }
}
