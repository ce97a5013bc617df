//! What people do with files.

use std::path::Path;
use std::process::Command;

use crate::site::{Site, can_mount, told};

/// Runs a script of the shell in a folder.
fn shell(folder: &Path, script: &str) -> String {
    let output = Command::new("sh")
        .args(["-euc", script])
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}: {text}{}", told(&output));
    text
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn git_commits_clones_and_finds_nothing_wrong() {
    if !can_mount() || !has("git") {
        return;
    }
    let site = Site::new("127.84.0.61");
    let mount = site.mount("a");
    let setting = "git config user.name A && git config user.email a@b.c && git config gc.auto 0";
    shell(
        &mount.path(""),
        &format!(
            "git init -q -b main one && cd one && {setting}
             for d in 1 2 3; do mkdir $d; for f in 1 2 3 4 5 6 7 8 9; do
                 seq $d 100 > $d/$f; done; done
             git add . && git commit -qm first
             git mv 1 4 && git rm -qr 2 && git commit -qm second
             git gc -q && git fsck --strict
             cd .. && git clone -q one two && cd two && {setting}
             test $(git rev-list --count HEAD) = 2 && git status --porcelain | wc -l
             echo more >> 3/1 && git commit -qam third && git push -q origin HEAD:other
             cd ../one && git merge -q other && git fsck --strict && git diff --exit-code
             rm -rf ../two"
        ),
    );
    mount.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn archives_are_unpacked_and_packed_the_same() {
    if !can_mount() || !has("tar") {
        return;
    }
    let site = Site::new("127.84.0.62");
    let mount = site.mount("a");
    let local = site.place("local");
    shell(
        &local,
        "mkdir -p tree/a tree/b/c && seq 20000 > tree/a/large && ln -s large tree/a/link
         for n in $(seq 200); do echo $n > tree/b/c/$n; done && chmod 755 tree/b/c/7
         tar --sort=name -cf tree.tar tree && cp -a tree copied",
    );
    let archive = local.join("tree.tar");
    let script = format!(
        "tar -xf {0} && diff -r tree {1} && test -x tree/b/c/7 && test ! -x tree/b/c/8
         tar --sort=name --format=gnu -cf again.tar tree && tar -df {0}
         cp -a tree other && diff -r tree other && mv other moved && rm -r moved && ls",
        archive.display(),
        local.join("copied").display()
    );
    assert_eq!(shell(&mount.path(""), &script), "again.tar\ntree\n");
    mount.stop();
    std::fs::remove_dir_all(site.path("cache-a")).unwrap();
    let mount = site.mount("a");
    let script = format!("diff -r tree {}", local.join("copied").display());
    shell(&mount.path(""), &script);
    mount.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_program_is_built_and_runs() {
    if !can_mount() || !has("make") || !has("cc") {
        return;
    }
    let site = Site::new("127.84.0.63");
    let mount = site.mount("a");
    let makefile = "prog: main.o part.o\n\tcc -o $@ $^\n%.o: %.c part.h\n\tcc -c -o $@ $<\n";
    std::fs::write(mount.path("Makefile"), makefile).unwrap();
    std::fs::write(mount.path("part.h"), "int part(void);\n").unwrap();
    std::fs::write(mount.path("part.c"), "int part(void) { return 42; }\n").unwrap();
    let main =
        "#include <stdio.h>\n#include \"part.h\"\nint main(void) { printf(\"%d\\n\", part()); }\n";
    std::fs::write(mount.path("main.c"), main).unwrap();
    // AFS keeps whole seconds: what changes within the same one is not newer.
    let script = "make -s -j2 && ./prog && make -q && sleep 1.1
        touch part.h && ! make -q && make -s && ./prog";
    assert_eq!(shell(&mount.path(""), script), "42\n42\n");
    mount.stop();
}
