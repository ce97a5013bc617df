//! Client and server, over TLS on loopback.

mod hostile;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use afar_security::keys::Key;
use afar_security::ticket;
use afar_security::{EncryptionKey, EncryptionType, KeyRing, TicketPolicy, kvno};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::Fingerprint;
use crate::client::{LoginError, Server, SshKeys, Trust, Trusted};
use crate::password::{NewPassword, Setup};
use crate::server::{Certificate, Directory, DirectoryError, LoginConfig, LoginServer, User};
use crate::sshkey::SshKey;

const CELL: &str = "home.arpa";
const LIFETIME: Duration = Duration::from_secs(36_000);

/// Users in memory.
#[derive(Clone)]
struct Users {
    setup: Arc<Setup>,
    users: Arc<Mutex<HashMap<String, User>>>,
}

impl Directory for Users {
    fn canonical(&self, name: &str) -> String {
        let lower = name.to_ascii_lowercase();
        lower.trim_end_matches("@home.arpa").to_owned()
    }

    fn find(&self, name: &str) -> Result<Option<User>, DirectoryError> {
        Ok(self.users.lock().get(name).cloned())
    }

    fn setup(&self) -> Result<Setup, DirectoryError> {
        Setup::of_octets(&self.setup.to_octets()).map_err(DirectoryError::new)
    }
}

impl Users {
    fn set(&self, name: &str, id: i32, password: Option<&[u8]>, keys: &[SshKey]) {
        let password = password.map(|password| {
            let (new, request) = NewPassword::begin(password).unwrap();
            new.finish(&self.setup.register(id, &request).unwrap())
                .unwrap()
        });
        let user = User {
            id,
            name: name.to_owned(),
            password,
            keys: keys.to_vec(),
        };
        self.users.lock().insert(name.to_owned(), user);
    }
}

/// A login service, and what belongs to it.
struct Service {
    users: Users,
    keys: Arc<KeyRing>,
    address: SocketAddr,
    fingerprint: Fingerprint,
    dir: TempDir,
    task: JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Service {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let users = Users {
            setup: Arc::new(Setup::generate()),
            users: Arc::default(),
        };
        let key = EncryptionKey::random(EncryptionType::Aes256Sha1);
        let keys = Arc::new(KeyRing::of([Key { kvno: 3, key }]));
        let names = [CELL.to_owned()];
        let certificate = Certificate::open_or_make(&dir.path().join("login.pem"), &names);
        let certificate = certificate.unwrap();
        let fingerprint = certificate.fingerprint();
        let config = LoginConfig {
            cell: CELL.parse().unwrap(),
            realm: "HOME.ARPA".to_owned(),
            lifetime: LIFETIME,
            keys: Arc::clone(&keys),
            certificate,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(LoginServer::new(config, users.clone()).serve(listener));
        Self {
            users,
            keys,
            address,
            fingerprint,
            dir,
            task,
        }
    }

    fn server(&self) -> Server {
        Server {
            cell: CELL.parse().unwrap(),
            host: self.address.ip().to_string(),
            port: self.address.port(),
        }
    }

    async fn trusted(&self) -> Trusted {
        let trust = Trust {
            fingerprint: Some(self.fingerprint),
            ..Trust::default()
        };
        self.server().trust(&trust, |_| false).await.unwrap()
    }
}

fn seconds() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u32::try_from(since.unwrap().as_secs()).unwrap()
}

#[tokio::test]
async fn a_password_gives_a_token_that_servers_take() {
    let service = Service::start().await;
    service.users.set("alice", 7, Some(b"correct horse"), &[]);
    let trusted = service.trusted().await;
    for name in ["alice", "ALICE", "alice@home.arpa"] {
        let granted = trusted.with_password(name, b"correct horse", None).await;
        let granted = granted.unwrap();
        assert_eq!(granted.client.to_string(), "alice@HOME.ARPA");
        assert_eq!(granted.service, ["afs", CELL]);
        let token = &granted.token;
        assert_eq!(token.kvno, kvno::K5);
        assert!(token.end.abs_diff(seconds() + 36_000) < 60);
        let (policy, now) = (TicketPolicy::default(), SystemTime::now());
        let opened = ticket::open(token.kvno, &token.ticket, &service.keys, &policy, now).unwrap();
        assert_eq!(opened.client.to_string(), "alice@HOME.ARPA");
        assert_eq!(opened.key, token.key);
        assert_eq!(ticket::session_key(&granted.session).unwrap(), token.key);
        assert!(!format!("{granted:?}").contains("octets"));
    }
    let short = Some(Duration::from_secs(600));
    let granted = trusted.with_password("alice", b"correct horse", short);
    let token = granted.await.unwrap().token;
    assert_eq!(token.end - token.start, 600);
    let long = Some(Duration::from_secs(1 << 30));
    let granted = trusted.with_password("alice", b"correct horse", long);
    let token = granted.await.unwrap().token;
    assert_eq!(token.end - token.start, 36_000);
}

#[tokio::test]
async fn whoever_is_refused_is_told_the_same() {
    let service = Service::start().await;
    service.users.set("alice", 7, Some(b"right"), &[]);
    service.users.set("keys.only", 8, None, &[]);
    let trusted = service.trusted().await;
    for (name, password) in [
        ("alice", &b"wrong"[..]),
        ("nobody", b"right"),
        ("keys.only", b"right"),
    ] {
        let error = trusted.with_password(name, password, None).await;
        let error = error.unwrap_err();
        assert!(
            matches!(&error, LoginError::Refused { user, .. } if user == name),
            "{error}"
        );
    }
    let empty = trusted.with_password("alice", b"", None).await.unwrap_err();
    assert!(matches!(empty, LoginError::Password(_)), "{empty}");
    let group = trusted.with_password("system:anyuser", b"x", None).await;
    assert!(matches!(group, Err(LoginError::User(_))));
}

#[tokio::test]
async fn who_guesses_has_to_wait_and_others_do_not() {
    let service = Service::start().await;
    service.users.set("alice", 7, Some(b"right"), &[]);
    service.users.set("bob", 8, Some(b"his"), &[]);
    let trusted = service.trusted().await;
    for _ in 0..5 {
        let refused = trusted.with_password("alice", b"wrong", None).await;
        assert!(matches!(refused, Err(LoginError::Refused { .. })));
    }
    let waits = trusted.with_password("alice", b"right", None).await;
    assert!(
        matches!(waits, Err(LoginError::Wait { seconds: 1 })),
        "{waits:?}"
    );
    trusted.with_password("bob", b"his", None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    trusted
        .with_password("alice", b"right", None)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_server_of_another_cell_says_so() {
    let service = Service::start().await;
    let server = Server {
        cell: "other.org".parse().unwrap(),
        ..service.server()
    };
    let trust = Trust {
        fingerprint: Some(service.fingerprint),
        ..Trust::default()
    };
    let trusted = server.trust(&trust, |_| false).await.unwrap();
    let refused = trusted.with_password("alice", b"x", None).await;
    assert!(matches!(refused, Err(LoginError::OtherCell { .. })));
}

#[tokio::test]
async fn names_that_tickets_cannot_carry_get_none() {
    let service = Service::start().await;
    // The ticket would be of rcmd.db1.
    service
        .users
        .set("host.db1.example.org", 7, Some(b"x"), &[]);
    service.users.set("root.admin", 8, Some(b"x"), &[]);
    let trusted = service.trusted().await;
    let refused = trusted.with_password("host.db1.example.org", b"x", None);
    assert!(matches!(refused.await, Err(LoginError::Server { .. })));
    let granted = trusted.with_password("root.admin", b"x", None).await;
    assert_eq!(granted.unwrap().client.to_string(), "root.admin@HOME.ARPA");
}

#[tokio::test]
async fn a_server_is_believed_once_and_for_all() {
    let service = Service::start().await;
    service.users.set("alice", 7, Some(b"x"), &[]);
    let known = service.dir.path().join("config/known_cells");
    let trust = Trust {
        known_cells: Some(known.clone()),
        fingerprint: None,
    };
    let error = service.server().trust(&trust, |_| false).await.unwrap_err();
    assert!(error.to_string().contains("SHA256:"), "{error}");
    assert!(!known.exists());
    let trusted = service.server().trust(&trust, |unknown| {
        assert_eq!(unknown.fingerprint, service.fingerprint);
        true
    });
    trusted.await.unwrap();
    let again = service.server().trust(&trust, |_| false).await.unwrap();
    again.with_password("alice", b"x", None).await.unwrap();
    let other = Service::start().await;
    let text = std::fs::read_to_string(&known).unwrap();
    let (from, to) = (service.address.to_string(), other.address.to_string());
    std::fs::write(&known, format!("# servers\n{}", text.replace(&from, &to))).unwrap();
    let error = other.server().trust(&trust, |_| true).await.unwrap_err();
    let LoginError::Mismatch { line: 2, found, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(found, other.fingerprint);
    let pinned = Trust {
        fingerprint: Some(service.fingerprint),
        ..trust
    };
    let error = other.server().trust(&pinned, |_| true).await.unwrap_err();
    assert!(matches!(error, LoginError::Fingerprint { .. }), "{error}");
}

#[tokio::test]
async fn a_fingerprint_that_was_given_is_remembered_for_the_cell() {
    let service = Service::start().await;
    let known = service.dir.path().join("config/known_cells");
    let given = Trust {
        known_cells: Some(known.clone()),
        fingerprint: Some(service.fingerprint),
    };
    for _ in 0..2 {
        service.server().trust(&given, |_| false).await.unwrap();
    }
    let text = std::fs::read_to_string(&known).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let later = Trust {
        fingerprint: None,
        ..given
    };
    service.server().trust(&later, |_| false).await.unwrap();
    // The machine has another address now.
    let place = service.address.to_string();
    std::fs::write(&known, text.replace(&place, "192.0.2.1:7002")).unwrap();
    service.server().trust(&later, |_| false).await.unwrap();
}

/// Makes a key with ssh-keygen; `None`, and says so, where that is missing.
fn ssh_key(dir: &Path, kind: &[&str], passphrase: &str) -> Option<(std::path::PathBuf, SshKey)> {
    let path = dir.join(format!("id_{}", kind[0]));
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-N", passphrase, "-C", "test", "-t"]);
    let Ok(status) = keygen.args(kind).arg("-f").arg(&path).status() else {
        eprintln!("skipped: ssh-keygen is not installed");
        return None;
    };
    assert!(status.success());
    let line = std::fs::read_to_string(path.with_extension("pub")).unwrap();
    Some((path, SshKey::parse(&line).unwrap()))
}

fn no_passphrase() -> std::io::Result<zeroize::Zeroizing<String>> {
    panic!("the key is not encrypted")
}

#[tokio::test]
async fn keys_of_files_log_in_those_they_belong_to() {
    let service = Service::start().await;
    let dir = service.dir.path();
    let mut keys = Vec::new();
    for kind in [
        &["ed25519"][..],
        &["ecdsa", "-b", "256"],
        &["rsa", "-b", "2048"],
    ] {
        let Some(key) = ssh_key(dir, kind, "") else {
            return;
        };
        keys.push(key);
    }
    // With one of RSA an agent has to sign.
    let (rsa, _) = keys.pop().unwrap();
    let error = SshKeys::file(&rsa, no_passphrase).unwrap_err();
    assert!(error.to_string().contains("an SSH agent"), "{error}");
    service.users.set("alice", 7, None, &[keys[0].1.clone()]);
    service.users.set("bob", 8, None, &[keys[1].1.clone()]);
    let trusted = service.trusted().await;
    for (path, key) in &keys {
        for (name, fits) in [
            ("alice", key != &keys[1].1),
            ("bob", key == &keys[1].1),
            ("eve", false),
        ] {
            let mut shown = SshKeys::file(path, no_passphrase).unwrap();
            let granted = trusted.with_keys(name, &mut shown, None).await;
            match granted {
                Ok(granted) if fits => assert_eq!(granted.client.name, name),
                Err(LoginError::Refused { .. }) if !fits => {}
                other => panic!("{name} with {}: {other:?}", path.display()),
            }
        }
    }
    let public = keys[0].0.with_extension("pub");
    assert!(SshKeys::file(&dir.join("login.pem"), no_passphrase).is_err());
    assert!(SshKeys::file(&dir.join("missing"), no_passphrase).is_err());
    std::fs::write(&public, "ssh-dss AAAA").unwrap();
    assert!(SshKeys::file(&public, no_passphrase).is_err());
}

#[tokio::test]
async fn an_encrypted_key_wants_its_passphrase() {
    let service = Service::start().await;
    let Some((path, key)) = ssh_key(service.dir.path(), &["ed25519"], "open sesame") else {
        return;
    };
    service.users.set("alice", 7, None, &[key]);
    let with = |text: &'static str| move || Ok(zeroize::Zeroizing::new(text.to_owned()));
    let error = SshKeys::file(&path, with("close")).unwrap_err();
    assert!(error.to_string().contains("passphrase is wrong"), "{error}");
    let mut keys = SshKeys::file(&path, with("open sesame")).unwrap();
    let trusted = service.trusted().await;
    trusted.with_keys("alice", &mut keys, None).await.unwrap();
}

/// An agent with these keys; ends when dropped.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn keys_of_an_agent_log_in() {
    let service = Service::start().await;
    let dir = service.dir.path();
    let mut keys = Vec::new();
    for kind in [&["rsa", "-b", "2048"][..], &["ed25519"]] {
        let Some(key) = ssh_key(dir, kind, "") else {
            return;
        };
        keys.push(key);
    }
    let socket = dir.join("agent");
    let agent = Command::new("ssh-agent")
        .args(["-D", "-a"])
        .arg(&socket)
        .stdout(Stdio::null())
        .spawn();
    let Ok(agent) = agent else {
        eprintln!("skipped: ssh-agent is not installed");
        return;
    };
    let _agent = Agent(agent);
    while !socket.exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(SshKeys::agent_at(&socket).unwrap().is_none(), "it is empty");
    for (path, _) in &keys {
        let added = Command::new("ssh-add")
            .arg("-q")
            .arg(path)
            .env("SSH_AUTH_SOCK", &socket)
            .stderr(Stdio::null())
            .status();
        assert!(added.unwrap().success());
    }
    service.users.set("alice", 7, None, &[keys[1].1.clone()]);
    service.users.set("bob", 8, None, &[keys[0].1.clone()]);
    let trusted = service.trusted().await;
    for name in ["alice", "bob"] {
        let mut shown = SshKeys::agent_at(&socket).unwrap().unwrap();
        trusted.with_keys(name, &mut shown, None).await.unwrap();
    }
    let mut shown = SshKeys::agent_at(&socket).unwrap().unwrap();
    let refused = trusted.with_keys("eve", &mut shown, None).await;
    assert!(matches!(refused, Err(LoginError::Refused { .. })));
}
