//! A machine whose address changes, and one behind a NAT that forgets: what others change is seen soon.

use std::fs;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::site::{CELL, Mounted, Process, Site, can_mount, soon, told};

/// The NAT of these tests forgets after so long, as many do.
const NAT_FORGETS: Duration = Duration::from_secs(30);

/// A network namespace, until this is dropped.
struct Space(String);

impl Space {
    fn new(name: &str) -> Self {
        let name = format!("afar-{name}-{}", std::process::id());
        ip(&["netns", "add", &name]);
        let space = Self(name);
        space.ip(&["link", "set", "lo", "up"]);
        space
    }

    /// Runs `ip` in it.
    fn ip(&self, words: &[&str]) {
        ip(&[&["-n", &self.0], words].concat());
    }

    /// Has a command run in it.
    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.0));
        command.arg(program);
        command
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _gone = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().unwrap();
    assert!(output.status.success(), "ip {words:?}: {}", told(&output));
}

/// A wire between here and a namespace, with these addresses at its ends.
fn wire(space: &Space, device: &str, here: &str, there: &str) {
    let peer = ["type", "veth", "peer", "name", "far0", "netns", &space.0];
    let words = [&["link", "add", device], &peer[..]].concat();
    // Each test has a name and a network of its own, as tests run side by side; the kernel removes
    // what a run before this one left a moment after its namespace.
    soon("the name of the wire is free", || {
        let output = Command::new("ip").args(&words).output().unwrap();
        let told = told(&output);
        assert!(
            output.status.success() || told.contains("File exists"),
            "{told}"
        );
        output.status.success()
    });
    ip(&["addr", "add", here, "dev", device]);
    ip(&["link", "set", device, "up"]);
    space.ip(&["addr", "add", there, "dev", "far0"]);
    space.ip(&["link", "set", "far0", "up"]);
}

/// A wire between a router and a namespace, which has all its routes there.
fn beyond(router: &Space, space: &Space, network: &str) {
    let [near, far] = [1, 2].map(|host| format!("{network}.{host}"));
    let peer = ["type", "veth", "peer", "name", "far0", "netns", &space.0];
    router.ip(&[&["link", "add", "in0"], &peer[..]].concat());
    router.ip(&["addr", "add", &format!("{near}/24"), "dev", "in0"]);
    router.ip(&["link", "set", "in0", "up"]);
    space.ip(&["addr", "add", &format!("{far}/24"), "dev", "far0"]);
    space.ip(&["link", "set", "far0", "up"]);
    space.ip(&["route", "add", "default", "via", &near]);
    run(router, "sysctl", &["-qw", "net.ipv4.ip_forward=1"]);
}

fn run(space: &Space, program: &str, words: &[&str]) {
    let output = space.inside(program).args(words).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
}

/// Whether routers can be told what to do with packets; says so if not.
fn has_nft() -> bool {
    let found = Command::new("nft").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: there is no nft");
    }
    found
}

/// A cell at an address, in which anybody may do anything.
fn site(address: &'static str) -> Site {
    let site = Site::new(address);
    let root = format!("/afs/{CELL}");
    site.say(&[
        "fs",
        "setacl",
        &root,
        "system:anyuser",
        "rlidwk",
        "--localauth",
    ]);
    site
}

/// A mount by a machine in a namespace, over the network.
fn mount(site: &Site, space: &Space) -> Mounted {
    mount_by(site, space.inside(env!("CARGO_BIN_EXE_afar")))
}

/// The same by this program.
fn mount_by(site: &Site, mut command: Command) -> Mounted {
    let place = site.place("far");
    command.env("AFAR_RUN_DIR", site.path("far-run"));
    command.args(["mount", "--noauth", "--no-dns", "--foreground", "--server"]);
    command.arg(site.address()).arg("--cache");
    command.arg(site.path("cache-far")).arg(CELL).arg(&place);
    let mut process = Process::start(command);
    process.until("is mounted on");
    Mounted::of(process, place)
}

/// Has another machine change what this one knows; it must be seen.
fn change(here: &Mounted, far: &Mounted, text: &str) {
    fs::write(here.path("file"), text).unwrap();
    fs::write(here.path("dir").join(text), "").unwrap();
    soon(text, || {
        fs::read(far.path("file")).is_ok_and(|read| read == text.as_bytes())
            && far.path("dir").join(text).exists()
    });
}

/// What is known at both before something happens.
fn know(here: &Mounted, far: &Mounted) {
    fs::write(here.path("file"), "at first").unwrap();
    fs::create_dir(here.path("dir")).unwrap();
    soon("the folder", || fs::read_dir(far.path("dir")).is_ok());
    change(here, far, "before");
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_machine_whose_address_changes_goes_on_hearing_of_changes() {
    if !can_mount() {
        return;
    }
    let space = Space::new("moves");
    wire(&space, "afarmv0", "10.77.81.1/24", "10.77.81.2/24");
    let site = site("10.77.81.1");
    let (here, far) = (site.mount("near"), mount(&site, &space));
    know(&here, &far);
    // A new address beside the old one, which then goes.
    space.ip(&["addr", "add", "10.77.81.3/24", "dev", "far0"]);
    space.ip(&["addr", "del", "10.77.81.2/24", "dev", "far0"]);
    space.ip(&["addr", "replace", "10.77.81.3/24", "dev", "far0"]);
    thread::sleep(Duration::from_secs(1));
    change(&here, &far, "moved");
    // None for a while, in which something is changed.
    space.ip(&["addr", "flush", "dev", "far0"]);
    fs::write(here.path("dir/away"), "").unwrap();
    thread::sleep(Duration::from_secs(1));
    space.ip(&["addr", "add", "10.77.81.4/24", "dev", "far0"]);
    soon("what was changed meanwhile", || {
        far.path("dir/away").exists()
    });
    change(&here, &far, "back");
    far.stop();
    here.stop();
}

/// The location server stays where it is; the file server's machine gets another address.
#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_server_is_found_at_its_new_address() {
    if !can_mount() {
        return;
    }
    let space = Space::new("server");
    wire(&space, "afarmv2", "10.77.83.1/24", "10.77.83.2/24");
    let site = site("10.77.83.1");
    let mut server = Server::start(&site, &space);
    let volume = ["vos", "create", "10.77.83.2", "a", "away", "--localauth"];
    soon("the server is known", || {
        let created = site.command().args(volume).status();
        created.is_ok_and(|done| done.success())
    });
    let root = format!("/afs/.{CELL}");
    site.say(&[
        "fs",
        "mkmount",
        &format!("{root}/away"),
        "away",
        "-rw",
        "--localauth",
    ]);
    let keys = site.path("cell/data/KeyFileExt");
    let rights = ["fs", "setacl", &format!("{root}/away"), "system:anyuser"];
    let by_keys = ["rlidwk", "--localauth", "--keys", keys.to_str().unwrap()];
    site.say(&[&rights[..], &by_keys[..]].concat());
    let here = mount_by(&site, Command::new(env!("CARGO_BIN_EXE_afar")));
    fs::write(here.path("away/file"), "before").unwrap();
    space.ip(&["addr", "add", "10.77.83.3/24", "dev", "far0"]);
    space.ip(&["addr", "del", "10.77.83.2/24", "dev", "far0"]);
    space.ip(&["addr", "replace", "10.77.83.3/24", "dev", "far0"]);
    let moved = Instant::now();
    fs::write(here.path("away/file"), "after").unwrap();
    assert_eq!(fs::read_dir(here.path("away")).unwrap().count(), 1);
    assert!(
        moved.elapsed() < Duration::from_secs(15),
        "{:?}",
        moved.elapsed()
    );
    assert_eq!(fs::read(here.path("away/file")).unwrap(), b"after");
    // It is started again before the machine has an address, and gets one later.
    server.stop();
    space.ip(&["addr", "flush", "dev", "far0"]);
    let mut server = Server::start(&site, &space);
    thread::sleep(Duration::from_secs(1));
    space.ip(&["addr", "add", "10.77.83.4/24", "dev", "far0"]);
    let got = Instant::now();
    fs::write(here.path("away/file"), "again").unwrap();
    assert!(
        got.elapsed() < Duration::from_secs(15),
        "{:?}",
        got.elapsed()
    );
    here.stop();
    server.stop();
}

/// A file server on a machine of its own, in the cell of a site.
struct Server(Child);

impl Server {
    fn start(site: &Site, space: &Space) -> Self {
        let config = site.path("server.toml");
        let text = format!(
            "cell = \"{CELL}\"\nroles = [\"file\", \"vol\", \"bos\"]\ndata = {data:?}\nrun = {run:?}\n\
             [partition.a]\npath = {part:?}\n[location]\nservers = [\"{first}\"]\n\
             [protection]\nservers = [\"{first}\"]\n[security]\nkeys = [{keys:?}]\n",
            data = site.path("data2"),
            run = site.path("run").join("second"),
            part = site.path("second"),
            first = site.address(),
            keys = site.path("cell/data/KeyFileExt"),
        );
        fs::write(&config, text).unwrap();
        let mut command = space.inside(env!("CARGO_BIN_EXE_afar"));
        command.args(["server", "--config"]).arg(config);
        Self(command.spawn().unwrap())
    }

    fn stop(&mut self) {
        // An error of either is that it has ended already.
        let _gone = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _gone = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_machine_behind_a_nat_hears_of_changes_when_it_was_idle() {
    if !can_mount() {
        return;
    }
    if !has_nft() {
        return;
    }
    let (router, space) = (Space::new("router"), Space::new("behind"));
    wire(&router, "afarmv1", "10.77.82.1/24", "10.77.82.2/24");
    beyond(&router, &space, "10.88.82");
    // A mapping takes another port each time it is made.
    let rules = "table ip n { chain p { type nat hook postrouting priority 100; oifname \"far0\" meta l4proto \
                 udp masquerade to :20000-40000 random; }; }";
    run(&router, "nft", &[rules]);
    for setting in ["timeout", "timeout_stream"] {
        let setting = format!("net.netfilter.nf_conntrack_udp_{setting}=30");
        run(&router, "sysctl", &["-qw", &setting]);
    }
    let site = site("10.77.82.1");
    let (here, far) = (site.mount("near"), mount(&site, &space));
    know(&here, &far);
    thread::sleep(NAT_FORGETS + Duration::from_secs(8));
    change(&here, &far, "after a while");
    far.stop();
    here.stop();
}

/// Of a link with a small MTU, of which nobody is told, in the middle of the path.
#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn files_come_and_go_on_a_path_that_drops_large_packets() {
    if !can_mount() {
        return;
    }
    if !has_nft() {
        return;
    }
    let (router, space) = (Space::new("narrow"), Space::new("beyond"));
    wire(&router, "afarmv3", "10.77.84.1/24", "10.77.84.2/24");
    beyond(&router, &space, "10.88.83");
    ip(&["route", "add", "10.88.83.0/24", "via", "10.77.84.2"]);
    let rules = "table ip n { chain o { type filter hook output priority 0; icmp type \
                 destination-unreachable drop; }; }";
    run(&router, "nft", &[rules]);
    let site = site("10.77.84.1");
    let here = site.mount("near");
    let data: Vec<u8> = (0..=250).cycle().take(1_000_000).collect();
    fs::write(here.path("large"), &data).unwrap();
    for mtu in ["1200", "1280", "1400"] {
        router.ip(&["link", "set", "in0", "mtu", mtu]);
        let far = mount(&site, &space);
        assert!(fs::read(far.path("large")).unwrap() == data, "{mtu}");
        fs::write(far.path(mtu), &data).unwrap();
        soon(mtu, || {
            fs::read(here.path(mtu)).is_ok_and(|read| read == data)
        });
        far.stop();
    }
    here.stop();
}
