//! `afar up` and `afar server` as their users see them: a cell made, stopped and started again,
//! sockets handed over, readiness told, configurations refused.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const AFAR: &str = env!("CARGO_BIN_EXE_afar");
const CELL: &str = "test.example";

/// A folder for a cell, and the address it is to have: AFS's ports are fixed, so each test has a
/// loopback address of its own.
struct Site {
    dir: TempDir,
    address: &'static str,
}

impl Site {
    fn new(address: &'static str) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            address,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(AFAR);
        command.env("AFAR_RUN_DIR", self.path("run"));
        command
    }

    fn up(&self) -> Command {
        let mut command = self.command();
        command.arg("up").arg(self.path("cell"));
        command.args(["--cell", CELL, "--listen", self.address]);
        command
    }

    /// Runs a command that must succeed; what it prints.
    fn say(&self, words: &[&str]) -> String {
        let output = self.command().args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server, killed when dropped.
struct Server {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Server {
    fn start(mut command: Command) -> Self {
        command.stderr(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let (keep, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                // Nobody listens any more once the test has seen enough.
                let _gone = keep.send(line);
            }
        });
        Self { child, lines }
    }

    /// Waits for a line with this in it.
    fn until(&self, text: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(Duration::from_secs(20)) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("no line with {text:?}: {seen:#?}"),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn stop(mut self) {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already when it was stopped.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

#[test]
fn a_cell_is_made_written_to_stopped_and_there_again() {
    let site = Site::new("127.83.0.1");
    let root = format!("/afs/{CELL}");
    let server = Server::start(site.up());
    server.until("is up at 127.83.0.1");
    assert_eq!(site.say(&["ls", &root]), "");
    std::fs::write(site.path("hello"), "Hello.\n").unwrap();
    let hello = site.path("hello");
    // Without a token nobody may write, and the message tells the way.
    let refused = site
        .command()
        .arg("cp")
        .arg(&hello)
        .arg(&root)
        .output()
        .unwrap();
    assert!(!refused.status.success());
    assert!(told(&refused).contains("--localauth"), "{}", told(&refused));
    let hello = hello.to_str().unwrap().to_owned();
    site.say(&["cp", "--localauth", &hello, &format!("{root}/hello")]);
    // More than the 5000 KiB that OpenAFS gives a volume.
    std::fs::write(site.path("film"), vec![7; 7 << 20]).unwrap();
    let film = site.path("film").to_str().unwrap().to_owned();
    site.say(&["cp", "--localauth", &film, &format!("{root}/film")]);
    site.say(&["vos", "create", site.address, "a", "user.ann"]);
    site.say(&["pts", "createuser", "ann"]);
    site.say(&[
        "fs",
        "mkmount",
        &format!("{root}/ann"),
        "user.ann",
        "--localauth",
    ]);
    // Two servers of one cell would be in each other's way.
    let second = site.up().output().unwrap();
    assert!(!second.status.success());
    assert!(
        told(&second).contains("running already"),
        "{}",
        told(&second)
    );
    server.stop();

    let server = Server::start(site.up());
    server.until("is up at");
    assert_eq!(site.say(&["cat", &format!("{root}/hello")]), "Hello.\n");
    assert_eq!(site.say(&["ls", &root]), "ann\nfilm\nhello\n");
    assert!(site.say(&["vos", "listvldb"]).contains("user.ann"));
    assert!(
        site.say(&["pts", "examine", "ann"])
            .contains("Name: ann, id: 1000,")
    );
    let status = site.say(&["bos", "status", site.address]);
    assert!(
        status.contains("Instance fs, currently running normally."),
        "{status}"
    );
    server.stop();
}

#[test]
fn nobody_administers_over_the_network() {
    let site = Site::new("127.83.0.2");
    let server = Server::start(site.up());
    server.until("is up at");
    let away = |words: &[&str]| {
        let mut command = Command::new(AFAR);
        command.env("AFAR_RUN_DIR", site.path("none")).args(words);
        command.args(["-noauth", "--vl-server", site.address]);
        command.output().unwrap()
    };
    let listed = away(&["vos", "listvldb"]);
    assert!(listed.status.success(), "{}", told(&listed));
    for words in [
        &["vos", "create", site.address, "a", "user.eve"] as &[&str],
        &["vos", "remove", "-id", "root.cell"],
        &["vos", "zap", site.address, "a", "536870912"],
        &["pts", "createuser", "eve"],
    ] {
        let refused = away(words);
        assert!(!refused.status.success(), "{words:?} was done");
    }
    assert!(
        site.say(&["vos", "examine", "root.cell"])
            .contains("On-line")
    );
    server.stop();
}

#[test]
fn a_service_manager_hands_over_sockets_and_is_told() {
    let site = Site::new("127.83.0.3");
    if Command::new("systemd-socket-activate")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("skipped: systemd-socket-activate is not installed (package systemd)");
        return;
    }
    let notified = UnixDatagram::bind(site.path("notify")).unwrap();
    notified
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut command = Command::new("systemd-socket-activate");
    command.arg("-d");
    for port in [7000, 7002, 7003, 7005, 7007] {
        command.args(["-l", &format!("{}:{port}", site.address)]);
    }
    command.arg(format!(
        "--setenv=AFAR_RUN_DIR={}",
        site.path("run").display()
    ));
    command.arg(format!(
        "--setenv=NOTIFY_SOCKET={}",
        site.path("notify").display()
    ));
    command.args([AFAR, "up"]).arg(site.path("cell"));
    command.args(["--cell", CELL, "--listen", site.address]);
    let server = Server::start(command);
    server.until(":7007 as");
    // What comes before the server runs waits in the socket.
    let mut client = Command::new(AFAR);
    client.args(["vos", "listvldb", "-noauth", "--vl-server", site.address]);
    let listed = client
        .env("AFAR_RUN_DIR", site.path("none"))
        .output()
        .unwrap();
    assert!(listed.status.success(), "{}", told(&listed));
    let mut message = [0; 64];
    let size = notified.recv(&mut message).unwrap();
    assert_eq!(message[..size].trim_ascii(), b"READY=1");
    server.stop();
    let size = notified.recv(&mut message).unwrap();
    assert_eq!(message[..size].trim_ascii(), b"STOPPING=1");
}

#[test]
fn a_configuration_is_explained_and_mistakes_are_refused() {
    let site = Site::new("127.83.0.4");
    let keys = site.say(&["config", "explain"]);
    assert!(
        keys.contains("files.max_callbacks") && keys.contains("range:"),
        "{keys}"
    );
    let file = site.path("afar.toml");
    let serve = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let mut command = site.command();
        command.arg("server").arg("--config").arg(&file).args(more);
        command.output().unwrap()
    };
    let partition = |path: &Path| {
        let listen = site.address;
        format!("cell = \"{CELL}\"\nlisten = \"{listen}\"\n[partition.a]\npath = {path:?}\n")
    };
    for (text, more, says) in [
        ("cel = 1", &[] as &[&str], "cel"),
        (
            &partition(&site.path("a")),
            &["-vhashsize", "40"],
            "6 to 28",
        ),
        // With nothing else to serve there is nothing to go on with.
        (
            &format!(
                "roles = [\"file\", \"vol\"]\ndata = {:?}\n{}[location]\nservers = [\"127.83.0.4\"]\n\
                 [protection]\nservers = [\"127.83.0.4\"]\n",
                site.path("data"),
                partition(&site.path("not/there"))
            ),
            &[],
            "nor its parent exists",
        ),
    ] {
        let refused = serve(text, more);
        assert!(!refused.status.success());
        assert!(told(&refused).contains(says), "{says}: {}", told(&refused));
    }
}

#[test]
fn old_options_are_answered_and_everybody_is_warned_of() {
    let site = Site::new("127.83.0.5");
    let file = site.path("afar.toml");
    let text = format!(
        "cell = \"{CELL}\"\ndata = {data:?}\nlisten = \"{}\"\ninsecure_noauth = true\n\
         [partition.a]\npath = {a:?}\n[partition.b]\npath = {b:?}\n",
        site.address,
        data = site.path("data"),
        a = site.path("a"),
        b = site.path("b"),
    );
    std::fs::write(&file, text).unwrap();
    let mut command = site.command();
    command
        .arg("server")
        .arg("--config")
        .arg(&file)
        .args(["-p", "128", "-busyat", "600"]);
    let server = Server::start(command);
    server.until("-p 128: not needed");
    // Never less than without a word.
    server.until("-busyat 600: ignored; files.max_calls is 4096");
    server.until("insecure_noauth: every caller");
    server.until("there is no key of the cell");
    server.until("registered");
    let parts = site.say(&["vos", "listpart", site.address]);
    assert!(parts.contains("/vicepa     /vicepb"), "{parts}");
    // A volume moves between the partitions of one server.
    site.say(&["vos", "create", site.address, "a", "user.ann"]);
    site.say(&[
        "vos",
        "move",
        "user.ann",
        site.address,
        "a",
        site.address,
        "b",
    ]);
    assert!(
        site.say(&["vos", "examine", "user.ann"])
            .contains("/vicepb")
    );
    server.stop();
}

#[test]
fn a_socket_is_used_for_the_server_that_is_named_only() {
    let site = Site::new("127.83.0.6");
    let first = Server::start(site.up());
    first.until("is up at");
    let second = "127.83.0.7";
    let file = site.path("second.toml");
    let text = format!(
        "cell = \"{CELL}\"\nroles = [\"file\", \"vol\", \"bos\"]\ndata = {data:?}\nrun = {run:?}\n\
         listen = \"{second}\"\n[partition.a]\npath = {a:?}\n[location]\nservers = [\"{first}\"]\n\
         [protection]\nservers = [\"{first}\"]\n[security]\nkeys = [{keys:?}]\n",
        first = site.address,
        data = site.path("data2"),
        run = site.path("run").join("second"),
        a = site.path("second"),
        keys = site.path("cell/data/KeyFileExt"),
    );
    std::fs::write(&file, text).unwrap();
    let mut command = site.command();
    command.arg("server").arg("--config").arg(&file);
    let server = Server::start(command);
    server.until("registered");
    site.say(&["vos", "create", second, "a", "x"]);
    let listed = |address| site.say(&["vos", "listvol", address, "a"]);
    assert!(listed(second).contains("\nx "), "{}", listed(second));
    assert!(
        !listed(site.address).contains("\nx "),
        "{}",
        listed(site.address)
    );
    let examined = site.say(&["vos", "examine", "x"]);
    assert!(
        examined.contains("On-line") && examined.contains(second),
        "{examined}"
    );
    site.say(&["vos", "create", site.address, "a", "y"]);
    assert!(listed(site.address).contains("\ny ") && !listed(second).contains("\ny "));
    site.say(&["vos", "move", "y", site.address, "a", second, "a"]);
    assert!(listed(second).contains("\ny "));
    // Nobody else's socket is used for one that does not run.
    server.stop();
    // A site is noted there all the same.
    site.say(&["vos", "addsite", second, "a", "x"]);
    let sites = site.say(&["vos", "listvldb", "x"]);
    assert!(sites.contains("RO Site"), "{sites}");
    let mut command = site.command();
    command.args(["vos", "listvol", "127.83.0.8", "a", "-noresolve"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let ended = child.try_wait().unwrap();
    assert!(
        ended.is_none_or(|status| !status.success()),
        "another server answered"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    first.stop();
}

#[test]
fn what_nobody_reads_ends_no_command() {
    let site = Site::new("127.83.0.11");
    for words in [&["vos", "help"] as &[&str], &["vos", "create"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = |out: Stdio, err: Stdio| {
            let mut command = site.command();
            command.args(words).stdout(out).stderr(err);
            command.status().unwrap().code()
        };
        let read = status(Stdio::null(), Stdio::null());
        let other = writer.try_clone().unwrap();
        assert_eq!(status(writer.into(), other.into()), read, "{words:?}");
    }
}

/// Fills all pages of a database but those that begin it with noise.
fn spoil(database: &Path) {
    let file = std::fs::File::options().write(true).open(database).unwrap();
    let len = file.metadata().unwrap().len();
    for page in 2..len / 4096 {
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 4096], page * 4096).unwrap();
    }
}

#[test]
fn what_is_damaged_is_left_out_told_and_gone_back_from() {
    let site = Site::new("127.83.0.9");
    let server = Server::start(site.up());
    server.until("is up at");
    site.say(&["vos", "create", site.address, "a", "user.ann"]);
    site.say(&["pts", "createuser", "ann"]);
    server.stop();
    for (service, other, query) in [
        (
            "vl",
            &["pts", "examine", "ann"] as &[&str],
            &["vos", "listvldb"] as &[&str],
        ),
        ("pt", &["vos", "listvldb"], &["pts", "examine", "ann"]),
    ] {
        let expected = {
            let server = Server::start(site.up());
            server.until("is up at");
            let expected = site.say(query);
            server.stop();
            expected
        };
        spoil(&site.path("cell/data").join(service).join("data.mdb"));
        let server = Server::start(site.up());
        let line = server.until("is damaged and not served");
        assert!(
            line.contains("data.mdb: page ") && line.contains("--restore"),
            "{line}"
        );
        server.until("is up at");
        site.say(other);
        assert!(
            site.say(&["vos", "listvol", site.address, "a"])
                .contains("user.ann")
        );
        server.stop();
        let config = site.path("cell/afar.toml");
        let config = config.to_str().unwrap();
        site.say(&["server", "--config", config, "--restore", service]);
        let server = Server::start(site.up());
        server.until("is up at");
        assert_eq!(site.say(query), expected);
        server.stop();
    }
    // Of a partition.
    spoil(&site.path("cell/vicepa/meta/data.mdb"));
    let server = Server::start(site.up());
    let line = server.until("/vicepa is not served");
    assert!(line.contains("data.mdb: page "), "{line}");
    server.until("is up at");
    site.say(&["vos", "listvldb"]);
    site.say(&["pts", "examine", "ann"]);
    server.stop();
}

#[test]
fn a_partition_whose_disk_is_not_mounted_is_left_alone_and_told() {
    let site = Site::new("127.83.0.44");
    let (a, b) = (site.path("a"), site.path("b"));
    let file = site.path("afar.toml");
    let text = format!(
        "cell = \"{CELL}\"\ndata = {data:?}\nlisten = \"{}\"\n[partition.a]\npath = {a:?}\n\
         [partition.b]\npath = {b:?}\n[partition.c]\npath = {c:?}\n",
        site.address,
        data = site.path("data"),
        c = site.path("not/there"),
    );
    std::fs::write(&file, text).unwrap();
    let start = || {
        let mut command = site.command();
        command.arg("server").arg("--config").arg(&file);
        Server::start(command)
    };
    let parts = || site.say(&["vos", "listpart", site.address]);
    std::fs::create_dir_all(b.join("lost+found")).unwrap();
    let server = start();
    // A slip in a path stops nothing else, and makes nothing.
    server.until("/vicepc is not served: neither the directory");
    server.until("registered");
    assert!(!site.path("not").exists());
    site.say(&["vos", "create", site.address, "a", "user.ann"]);
    site.say(&["vos", "create", site.address, "b", "user.bob"]);
    server.stop();
    let disk = site.path("disk");
    std::fs::rename(&b, &disk).unwrap();
    for is_there in [true, false] {
        if is_there {
            std::fs::create_dir(&b).unwrap();
        }
        let server = start();
        let line = server.until("/vicepb is not served");
        assert!(
            line.contains("is empty, but was not before") && line.contains("afar store init"),
            "{line}"
        );
        let line = server.until("1 volume of the VLDB");
        assert!(
            line.contains("/vicepb") && line.contains("user.bob"),
            "{line}"
        );
        // The other partition and the databases are there, and nothing was made.
        assert!(
            site.say(&["vos", "listvol", site.address])
                .contains("user.ann")
        );
        assert!(parts().contains("/vicepa") && !parts().contains("/vicepb"));
        // Nobody takes what cannot be seen now for gone.
        for words in [
            &["vos", "syncserv", site.address][..],
            &["vos", "remove", site.address, "b", "user.bob"],
        ] {
            let refused = site.command().args(words).output().unwrap();
            assert!(!refused.status.success(), "{words:?}: {}", told(&refused));
        }
        let entry = site.say(&["vos", "listvldb", "user.bob"]);
        assert!(entry.contains("partition /vicepb RW Site"), "{entry}");
        site.say(&["pts", "listentries"]);
        server.stop();
        if is_there {
            assert!(std::fs::read_dir(&b).unwrap().next().is_none());
            std::fs::remove_dir(&b).unwrap();
        }
    }
    assert!(!b.exists());
    std::fs::rename(&disk, &b).unwrap();
    let server = start();
    server.until("registered");
    assert!(
        site.say(&["vos", "listvol", site.address, "b"])
            .contains("user.bob")
    );
    server.stop();
    // A partition that is to be empty is one by the user's own word.
    std::fs::remove_dir_all(&b).unwrap();
    site.say(&["store", "init", b.to_str().unwrap()]);
    let server = start();
    server.until("registered");
    assert!(parts().contains("/vicepb"));
    server.stop();
}

#[test]
fn a_hangup_reads_the_configuration_again_and_ends_nothing() {
    let site = Site::new("127.83.0.45");
    let file = site.path("afar.toml");
    let write = |more: &str| {
        let text = format!(
            "cell = \"{CELL}\"\ndata = {data:?}\nlisten = \"{}\"\n{more}\n[partition.a]\npath = {a:?}\n",
            site.address,
            data = site.path("data"),
            a = site.path("a"),
        );
        std::fs::write(&file, text).unwrap();
    };
    write("");
    let mut command = site.command();
    command.arg("server").arg("--config").arg(&file);
    let server = Server::start(command);
    server.until("registered");
    server.signal(Signal::HUP);
    server.until("nothing has changed");
    // A mistake changes nothing.
    write("colour = 1");
    server.signal(Signal::HUP);
    let line = server.until("keeping the previous configuration");
    assert!(line.contains("colour"), "{line}");
    write(
        "log = \"info,afar_rx=warn\"\n[security]\nsuperusers = [\"ann\"]\n[files]\nmax_calls = 5000",
    );
    server.signal(Signal::HUP);
    let line = server.until("files.max_calls has changed");
    assert!(line.contains("the next start"), "{line}");
    server.until("log is taken");
    server.until("security.superusers is taken");
    assert!(
        site.say(&["bos", "listusers", site.address])
            .contains("ann")
    );
    write("log = \"error\"");
    server.signal(Signal::HUP);
    // Nothing is said any more; and everything is written down at the end.
    site.say(&["vos", "create", site.address, "a", "user.ann"]);
    server.stop();
    assert!(site.path("data/callbacks").exists());
}

#[test]
fn a_terminal_that_goes_ends_a_cell_in_good_order() {
    let site = Site::new("127.83.0.46");
    let mut server = Server::start(site.up());
    server.until("is up at");
    server.signal(Signal::HUP);
    assert!(server.child.wait().unwrap().success());
    assert!(site.path("cell/data/callbacks").exists());
}

#[test]
fn a_service_manager_hears_that_the_server_lives() {
    let site = Site::new("127.83.0.47");
    let notified = UnixDatagram::bind(site.path("notify")).unwrap();
    notified
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut command = site.up();
    command.env("NOTIFY_SOCKET", site.path("notify"));
    command.env("WATCHDOG_USEC", "200000");
    let mut server = Server::start(command);
    let mut lives = 0;
    let mut message = [0; 64];
    while lives < 3 {
        let size = notified.recv(&mut message).unwrap();
        lives += usize::from(message[..size].trim_ascii() == b"WATCHDOG=1");
    }
    // It asks to be started again by the way it ends.
    site.say(&["bos", "restart", site.address, "-all"]);
    assert_eq!(server.child.wait().unwrap().code(), Some(75));
    let unit = include_str!("../../../dist/systemd/afar.service");
    assert!(unit.contains("RestartForceExitStatus=75"));
}

#[test]
fn what_bos_changes_is_changed_and_what_it_cannot_it_says() {
    let site = Site::new("127.83.0.48");
    let mut command = site.up();
    command.args(["--log", "warn,audit=info"]);
    let server = Server::start(command);
    server.until("is up at");
    let bos = |words: &[&str]| site.say(&[&["bos", words[0], site.address], &words[1..]].concat());
    let refused = |words: &[&str]| {
        let words = [&["bos", words[0], site.address], &words[1..]].concat();
        let output = site.command().args(&words).output().unwrap();
        assert!(!output.status.success(), "{words:?}");
        told(&output)
    };
    let keys = bos(&["listkeys"]);
    assert!(
        keys.contains("key 1 has cksum ") && keys.ends_with("All done.\n"),
        "{keys}"
    );
    bos(&["adduser", "ann", "bob.admin"]);
    assert_eq!(bos(&["listusers"]).trim_end(), "SUsers are: ann bob.admin");
    assert!(refused(&["adduser", "ann"]).contains("failed to add user 'ann'"));
    bos(&["removeuser", "ann"]);
    assert_eq!(bos(&["listusers"]).trim_end(), "SUsers are: bob.admin");
    assert!(refused(&["removeuser", "ann"]).contains("(no such user)"));
    let log = bos(&["getlog", "/usr/afs/logs/FileLog"]);
    assert!(log.starts_with("Fetching log file '/usr/afs/logs/FileLog'...\n"));
    assert!(log.contains("BOZO.add_s_user"), "{log}");
    assert!(bos(&["getlog", "SalvageLog"]).contains("afar store check"));
    refused(&["getlog", "/etc/shadow"]);
    assert!(bos(&["getdate", "fileserver"]).contains("/usr/afs/bin/fileserver dated "));
    assert!(bos(&["getdate", "nothing"]).contains("does not exist"));
    for (verb, says) in [
        ("salvage", "no salvage is needed"),
        ("exec", "run no commands"),
        ("stop", "systemctl"),
        ("addkey", "afar keys"),
        ("install", "packages"),
    ] {
        let said = refused(&[verb, "-whatever", "x"]);
        assert!(
            said.starts_with("bos: ") && said.contains(says),
            "{verb}: {said}"
        );
    }
    // Without a service manager it starts again by itself.
    bos(&["restart", "-all"]);
    server.until("is up at");
    site.say(&["ls", &format!("/afs/{CELL}")]);
    assert_eq!(bos(&["listusers"]).trim_end(), "SUsers are: bob.admin");
    server.stop();
}

/// The permission bits of all below a directory that others have.
fn open_to_others(dir: &Path, found: &mut Vec<PathBuf>) {
    use std::os::unix::fs::PermissionsExt;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        if metadata.permissions().mode() & 0o077 != 0 {
            found.push(path.clone());
        }
        if metadata.is_dir() {
            open_to_others(&path, found);
        }
    }
}

#[test]
fn nobody_else_on_the_machine_reads_what_servers_write() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new("127.83.0.10");
    let run = || {
        let server = Server::start(site.up());
        server.until("is up at");
        site.say(&["vos", "create", site.address, "a", "user.ann"]);
        site.say(&["vos", "remove", "-id", "user.ann"]);
        server.stop();
        let mut found = Vec::new();
        open_to_others(&site.path("cell"), &mut found);
        found
    };
    assert_eq!(run(), [] as [PathBuf; 0]);
    // What an older server left is mended.
    for name in ["data", "data/vl", "vicepa", "vicepa/seg", "vicepa/meta"] {
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(site.path("cell").join(name), open).unwrap();
    }
    for name in [
        "data/vl/data.mdb",
        "data/KeyFileExt",
        "vicepa/meta/log.0",
        "vicepa/format",
    ] {
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(site.path("cell").join(name), open).unwrap();
    }
    assert_eq!(run(), [] as [PathBuf; 0]);
    // Everybody may read where the server is.
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let place = site.path("run").join(CELL);
    assert_eq!(
        (mode(place.clone()), mode(place.join("CellServDB"))),
        (0o755, 0o644)
    );
}

#[test]
#[ignore = "needs root: it becomes somebody else"]
fn a_process_leaves_no_core_and_is_not_traced() {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let owner = |debug: bool| {
        let mut command = Command::new(AFAR);
        command
            .args(["rxperf", "server", "-p", "7911"])
            .uid(NOBODY)
            .gid(NOBODY);
        if debug {
            command.env("AFAR_DEBUG_PROCESS", "1");
        }
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(500));
        // Files of processes that can be traced are their user's, of others root's.
        let owner = std::fs::metadata(format!("/proc/{}/environ", child.id()))
            .unwrap()
            .uid();
        child.kill().unwrap();
        child.wait().unwrap();
        owner
    };
    assert_eq!((owner(false), owner(true)), (0, NOBODY));
}
