//! The commands around a mount: background, a second start, unmounting, mount(8).

use std::fs::{self, File};
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;

use crate::site::{CELL, Site, can_mount, is_mounted, soon, told};

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_mount_goes_to_the_background_and_umount_ends_it() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.21");
    let place = site.place("a b");
    let mount = |name: &str| {
        let mut command = site.mount_command(name);
        command.arg(CELL).arg(&place);
        command.output().unwrap()
    };
    let output = mount("a");
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(told(&output), "");
    assert!(is_mounted(&place));
    fs::write(place.join("file"), b"x").unwrap();
    // A second start says who is in the way, and what to do.
    let second = mount("b");
    assert!(!second.status.success());
    assert!(told(&second).contains("afar umount"), "{}", told(&second));

    let umount = |more: &[&str]| {
        let mut command = site.command();
        command.arg("umount").args(more).arg(&place);
        command.output().unwrap()
    };
    let open = File::open(place.join("file")).unwrap();
    let busy = umount(&[]);
    assert!(!busy.status.success());
    let own = std::process::id().to_string();
    assert!(told(&busy).contains("in use by"), "{}", told(&busy));
    assert!(told(&busy).contains(&own), "{}", told(&busy));
    drop(open);
    let done = umount(&[]);
    assert!(done.status.success(), "{}", told(&done));
    let nothing = umount(&[]);
    assert!(!nothing.status.success());
    assert!(
        told(&nothing).contains("nothing is mounted"),
        "{}",
        told(&nothing)
    );
    // The process has ended: another may have the cache.
    let again = mount("a");
    assert!(again.status.success(), "{}", told(&again));
    assert_eq!(fs::read(place.join("file")).unwrap(), b"x");
    assert!(umount(&[]).status.success());
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn what_is_wrong_is_said_before_anything_is_mounted() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.22");
    let said = |words: &[&str]| {
        let mut command = site.mount_command("a");
        let output = command.args(words).output().unwrap();
        assert!(!output.status.success(), "{words:?}");
        told(&output)
    };
    let place = site.place("a");
    let place = place.to_str().unwrap();
    let none = site.path("none");
    let none = none.to_str().unwrap();
    assert!(said(&[CELL, none]).contains("mkdir"));
    assert!(said(&["-o", "direct_io", CELL, place]).contains("direct_io"));
    assert!(said(&["--cache-size", "1Mi", CELL, place]).contains("64Mi"));
    assert!(said(&["no.such.cell.example", place]).contains("no.such.cell.example"));
    assert!(said(&[&format!("{CELL}:no.such.volume"), place]).contains("no.such.volume"));
    assert!(!is_mounted(place.as_ref()));
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn the_helper_of_mount_mounts_as_fstab_says() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.23");
    let place = site.place("a");
    let cache = site.path("cache");
    let helper = site.path("mount.afar");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_afar"), &helper).unwrap();
    let options = format!("rw,_netdev,localauth,cache={},allow_other", cache.display());
    let output = Command::new(&helper)
        .env("AFAR_RUN_DIR", site.path("run"))
        .arg(CELL)
        .arg(&place)
        .args(["-o", &options])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", told(&output));
    fs::write(place.join("file"), b"x").unwrap();
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = format!("{CELL} {} fuse.afar", place.display());
    assert!(table.contains(&line), "{table}");
    site.say(&["umount", place.to_str().unwrap()]);
    assert!(!is_mounted(&place));
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_signal_unmounts_though_somebody_is_in_there() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.24");
    let mut mount = site.mount("a");
    fs::write(mount.path("file"), b"x").unwrap();
    let open = File::open(mount.path("file")).unwrap();
    let begun = Instant::now();
    mount.process.signal(Signal::INT);
    mount.process.until("is in use");
    soon("it is unmounted", || !is_mounted(&mount.path("")));
    drop(open);
    assert!(mount.process.end());
    assert!(
        begun.elapsed().as_secs() < 9,
        "it waited though nobody used it"
    );
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn up_mounts_its_cell_and_unmounts_it_first() {
    if !can_mount() {
        return;
    }
    let mut site = Site::new("127.84.0.25");
    site.stop();
    let place = site.place("a");
    let mut command = site.up();
    command.arg("--mount").arg(&place);
    command.env("CACHE_DIRECTORY", site.path("caches"));
    let mut server = crate::site::Process::start(command);
    server.until("is mounted on");
    fs::write(place.join("file"), b"x").unwrap();
    server.signal(Signal::TERM);
    assert!(server.end(), "{:#?}", server.told());
    assert!(!is_mounted(&place));
    site.start();
    let file = format!("/afs/{CELL}/file");
    assert_eq!(site.say(&["cat", "--localauth", &file]), "x");
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn settings_of_a_cache_are_changed_while_it_is_in_use() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.26");
    let mounted = site.mount("a");
    let fs = |words: &[&str]| {
        let mut command = site.command();
        command.arg("fs").args(words).arg("-mount");
        command.arg(mounted.path(".")).output().unwrap()
    };
    let ok = |words: &[&str]| {
        let output = fs(words);
        assert!(output.status.success(), "{words:?}: {}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    // As many KiB as the line of getcacheparms tells are used.
    let used = || {
        let line = ok(&["getcacheparms"]);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(line.ends_with(" 1K byte blocks.\n"), "{line}");
        let number = |place: usize| words[place].parse::<u64>().unwrap();
        (number(2), number(7))
    };
    let (_, begun) = used();
    let data: Vec<u8> = (0..100 << 20_u32).map(|n: u32| (n / 1000) as u8).collect();
    fs::write(mounted.path("large"), &data).unwrap();
    soon("all of it is in the cache", || used().0 >= 100 << 10);
    assert_eq!(ok(&["setcachesize", "65536"]), "New cache size set.\n");
    let (kept, limit) = used();
    assert_eq!(limit, 65_536);
    assert!(kept <= limit, "{kept}");
    assert!(fs::read(mounted.path("large")).unwrap() == data);
    assert!(used().0 <= limit);
    let small = fs(&["setcachesize", "1000"]);
    assert!(!small.status.success());
    assert!(told(&small).contains("65536"), "{}", told(&small));
    ok(&["setcachesize", "-reset"]);
    assert_eq!(used().1, begun);

    let shown = ok(&["storebehind"]);
    assert_eq!(shown, "Default store asynchrony is 0 kbytes.\n");
    let set = ok(&["storebehind", "-allfiles", "64", "--json"]);
    assert_eq!(set, "{\"store_behind\":65536}\n");
    let oob = ok(&["oob"]);
    assert!(oob.contains("pieces of 1048576 bytes (1M) or more.\n"));
    assert!(oob.contains("\n127.84.0.26:7000 "), "{oob}");
    assert!(ok(&["oob", "2Mi"]).contains("pieces of 2097152 bytes"));
    let off = ok(&["oob", "-threshold", "off", "-retry", "--json"]);
    assert!(off.starts_with("{\"threshold\":null,"), "{off}");
    let wrong = fs(&["oob", "-threshold", "large"]);
    assert!(!wrong.status.success());
    // The server was met, so its rank is by the way to it: nearly none.
    let rank = |shown: &str| {
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert_eq!(words.len(), 2, "{shown}");
        assert_eq!(words[0], "127.84.0.26");
        words[1].parse::<u16>().unwrap()
    };
    let measured = rank(&ok(&["getserverprefs", "-numeric"]));
    assert!((20_000..21_000).contains(&measured), "{measured}");
    assert_eq!(ok(&["setserverprefs", "-servers", "127.84.0.26", "7"]), "");
    assert_eq!(rank(&ok(&["gp", "-numeric"])), 7);
    ok(&["sp", "-vlservers", "127.84.0.26", "9"]);
    assert_eq!(rank(&ok(&["gp", "-numeric", "-vlservers"])), 9);
    let wrong = fs(&["sp", "-servers", "127.84.0.26", "70000"]);
    assert!(!wrong.status.success());
    assert!(told(&wrong).contains("0 to 65535"), "{}", told(&wrong));
    let checked = ok(&["checkvolumes"]);
    assert_eq!(checked, "All volumeID/name mappings checked.\n");
    assert!(fs::read(mounted.path("large")).unwrap() == data);

    let outside = site
        .command()
        .args(["fs", "getcacheparms", "-mount", "/"])
        .output()
        .unwrap();
    assert!(!outside.status.success());
    assert!(
        told(&outside).contains("no mount of afar"),
        "{}",
        told(&outside)
    );
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn who_may_not_is_told_who_may() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.27");
    let mounted = site.mount("a");
    let mut command = site.command();
    command.args(["fs", "setacl"]).arg(mounted.path("."));
    let output = command.args(["system:anyuser", "none"]).output().unwrap();
    assert!(!output.status.success());
    let advice = format!("--localauth acts as the administrator of {CELL}");
    assert!(told(&output).contains(&advice), "{}", told(&output));
}
