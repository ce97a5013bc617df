//! A machine whose address changes, and one behind a NAT that forgets: what others change is seen soon.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

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
    ip(&[&["link", "add", device], &peer[..]].concat());
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
    let place = site.place("far");
    let mut command = space.inside(env!("CARGO_BIN_EXE_afar"));
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
    wire(&router, "afarmv2", "10.77.83.1/24", "10.77.83.2/24");
    beyond(&router, &space, "10.88.83");
    ip(&["route", "add", "10.88.83.0/24", "via", "10.77.83.2"]);
    let rules = "table ip n { chain o { type filter hook output priority 0; icmp type \
                 destination-unreachable drop; }; }";
    run(&router, "nft", &[rules]);
    let site = site("10.77.83.1");
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
