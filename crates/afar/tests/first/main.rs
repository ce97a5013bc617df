//! The first hour with a cell: what is said, what the defaults are, and what goes wrong without harm.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod site;

use std::fs::{self, File};
use std::net::UdpSocket;
use std::time::{Duration, SystemTime};

use site::{CELL, Server, Site, told};

#[test]
fn what_is_up_says_how_to_log_in_and_what_to_do_next() {
    let site = Site::new("127.86.0.1");
    let server = Server::start(site.up(CELL));
    let lines = server.until("afar fs mkmount");
    let said = lines.join("\n");
    for part in [
        &format!("cell {CELL} is up at {}", site.address),
        &format!("data:  {}", site.text("cell")),
        &format!(
            "login: afar login USER afar://{CELL}@{}#SHA256:",
            site.address
        ),
        "next:  afar pts createuser",
        "afar vos create",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(lines.len(), 6, "{said}");
    server.stop();
}

#[test]
fn users_begin_where_people_do_and_volumes_are_without_limit() {
    let site = Site::new("127.86.0.2");
    let server = site.start();
    assert_eq!(
        site.say(&["pts", "createuser", "ann"]),
        "User ann has id 1000\n"
    );
    assert_eq!(
        site.say(&["pts", "createuser", "bob"]),
        "User bob has id 1001\n"
    );
    assert_eq!(
        site.say(&["pts", "creategroup", "ann:friends", "-owner", "ann"]),
        "group ann:friends has id -206\n"
    );
    let help = site.say(&["pts", "--help"]);
    assert!(
        help.contains("setpassword") && help.contains("sshkeys"),
        "{help}"
    );
    let help = site.say(&["pts", "help"]);
    assert!(
        help.contains("setpassword") && help.contains("sshkeys"),
        "{help}"
    );

    let made = site.say(&["vos", "create", site.address, "a", "free"]);
    assert!(made.contains("\nIt has no quota;"), "{made}");
    let made = site.say(&[
        "vos",
        "create",
        site.address,
        "a",
        "tight",
        "-maxquota",
        "200",
    ]);
    assert!(!made.contains("quota"), "{made}");
    let quota = |name: &str| {
        let shown = site.say(&["vos", "examine", name]);
        let line = shown.lines().find(|line| line.contains("MaxQuota"));
        line.unwrap().split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(
        (quota("free"), quota("tight")),
        ("0".to_owned(), "200".to_owned())
    );
    server.stop();
}

#[test]
fn what_has_no_room_is_told_with_its_need_and_leaves_nothing() {
    let site = Site::new("127.86.0.3");
    let server = site.start();
    site.say(&[
        "vos",
        "create",
        site.address,
        "a",
        "tight",
        "-maxquota",
        "300",
    ]);
    let dir = format!("/afs/{CELL}/tight");
    site.say(&["fs", "mkmount", "--localauth", &dir, "tight"]);
    let file = |name: &str, length: u64| {
        let file = File::create(site.path(name)).unwrap();
        file.set_len(length).unwrap();
        site.text(name)
    };
    let empty = || {
        let listed = site.say(&["ls", "-a", "--localauth", &dir]);
        let left = listed.lines().filter(|name| ![".", ".."].contains(name));
        assert_eq!(left.count(), 0, "{listed}");
    };
    for length in [500_000, 3 << 20] {
        let source = file("source", length);
        let said = site.fails(&["cp", "--localauth", &source, &format!("{dir}/copy")]);
        for part in [
            "volume tight",
            &format!("{length} bytes"),
            "quota of 307200 bytes",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        empty();
    }
    fs::create_dir(site.path("tree")).unwrap();
    file("tree/long", 40 << 20);
    let said = site.fails(&["sync", "--localauth", &site.text("tree"), &dir]);
    assert!(
        said.contains("volume tight") && said.contains("41943040 bytes"),
        "{said}"
    );
    empty();
    // What fits does.
    let small = file("small", 100_000);
    site.say(&["cp", "--localauth", &small, &format!("{dir}/small")]);
    server.stop();
}

#[test]
fn a_first_start_that_fails_leaves_nothing_in_the_way() {
    let site = Site::new("127.86.0.4");
    let taken = UdpSocket::bind((site.address, 7005)).unwrap();
    for there in [false, true] {
        if there {
            fs::create_dir(site.path("cell")).unwrap();
        }
        let failed = site.up("wrong.example").output().unwrap();
        assert!(!failed.status.success());
        assert!(told(&failed).contains("7005"), "{}", told(&failed));
        assert_eq!(site.path("cell").exists(), there);
        assert!(!site.path("run/wrong.example").exists());
    }
    assert_eq!(fs::read_dir(site.path("cell")).unwrap().count(), 0);
    drop(taken);
    site.start().stop();
    // What was started once stays.
    let taken = UdpSocket::bind((site.address, 7005)).unwrap();
    assert!(!site.up(CELL).output().unwrap().status.success());
    drop(taken);
    site.start().stop();
}

#[test]
fn what_a_dead_server_left_is_ignored_and_removed() {
    let site = Site::new("127.86.0.5");
    let run = site.path(&format!("run/{CELL}"));
    let other = site.path("CellServDB");
    fs::write(&other, ">other.example #\n192.0.2.1 #\n").unwrap();
    let cells = || {
        let mut command = site.command();
        command.args(["ls", "/afs", "--cellservdb"]).arg(&other);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let server = site.start();
    assert_eq!(cells(), format!("{CELL}\nother.example\n"));
    let old = || {
        let then = SystemTime::now() - Duration::from_secs(60);
        File::open(&run).unwrap().set_modified(then).unwrap();
    };
    old();
    assert_eq!(cells(), format!("{CELL}\nother.example\n"), "it runs");
    server.kill();
    assert_eq!(cells(), "other.example\n");
    assert!(!run.exists());
    site.start().stop();
    assert_eq!(
        cells(),
        format!("{CELL}\nother.example\n"),
        "it may be starting again"
    );
    old();
    assert_eq!(cells(), "other.example\n");
    assert!(!run.exists());
}

#[test]
fn the_servers_own_loopback_address_stands_for_the_one_others_know() {
    let site = Site::new("127.86.0.6");
    let known = "192.0.2.86";
    fs::create_dir(site.path("cell")).unwrap();
    let text = format!(
        "cell = \"{CELL}\"\ndata = {:?}\nlisten = \"{}\"\naddresses = [\"{known}\"]\nlog = \"info\"\n\
         [partition.a]\npath = {:?}\n[partition.b]\npath = {:?}\n",
        site.path("cell/data"),
        site.address,
        site.path("cell/vicepa"),
        site.path("cell/vicepb"),
    );
    fs::write(site.path("cell/afar.toml"), text).unwrap();
    let server = Server::start(site.up(CELL));
    server.until("is up at");
    let here = site.address;
    let sites = |name: &str| {
        let listed = site.say(&["vos", "listvldb", "-name", name, "-noresolve"]);
        assert!(!listed.contains(here), "{listed}");
        listed.matches(known).count()
    };
    site.say(&["vos", "create", here, "a", "data"]);
    assert_eq!(sites("data"), 1);
    site.say(&["vos", "addsite", here, "a", "data"]);
    assert_eq!(sites("data"), 2);
    site.say(&["vos", "release", "data"]);
    site.say(&["vos", "create", "127.0.0.1", "a", "moving"]);
    site.say(&["vos", "move", "moving", here, "a", here, "b"]);
    assert_eq!(sites("moving"), 1);
    site.say(&["vos", "changeloc", here, "b", "moving"]);
    assert_eq!(sites("moving"), 1);
    let dump = site.text("dump");
    site.say(&["vos", "dump", "-id", "moving", "-file", &dump]);
    site.say(&["vos", "restore", here, "a", "restored", "-file", &dump]);
    assert_eq!(sites("restored"), 1);
    // Another address of the loopback is no server's, and is not noted.
    let refused = site.run(&["vos", "changeaddr", known, "127.0.0.9"]);
    assert!(!refused.status.success());
    assert_eq!(sites("data"), 2);
    server.stop();
}
