//! What people do with files.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::site::{Site, can_mount, told};

/// Files of the large tree, unless `AFAR_TEST_MOUNT_TREE` says otherwise.
const TREE_FILES: u64 = 1000;

/// What git wants to know before it commits.
pub(crate) const GIT_SETTINGS: &str = "git config user.name A
    git config user.email a@b.c
    git config gc.auto 0";

/// Runs a script of the shell in a folder; each of its commands must succeed. Of commands joined by &&
/// the shell heeds only the last, so each stands alone, and one that must fail behind `not`.
pub(crate) fn shell(folder: &Path, script: &str) -> String {
    assert!(!script.contains("&&") && !script.contains("! "), "{script}");
    let script = format!("not() {{ ! \"$@\"; }}\n{script}");
    let output = Command::new("sh")
        .args(["-euc", &script])
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

pub(crate) fn has(program: &str) -> bool {
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
    shell(
        &mount.path(""),
        &format!(
            "git init -q -b main one
             cd one
             {GIT_SETTINGS}
             for d in 1 2 3; do mkdir $d; for f in 1 2 3 4 5 6 7 8 9; do
                 seq $d 100 > $d/$f; done; done
             git add .
             git commit -qm first
             git mv 1 4
             git rm -qr 2
             git commit -qm second
             git gc -q
             git fsck --strict
             cd ..
             git clone -q one two
             cd two
             {GIT_SETTINGS}
             test $(git rev-list --count HEAD) = 2
             test -z \"$(git status --porcelain)\"
             echo more >> 3/1
             git commit -qam third
             git push -q origin HEAD:other
             cd ../one
             git merge -q other
             git fsck --strict
             git diff --exit-code
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
        "mkdir -p tree/a tree/b/c
         seq 20000 > tree/a/large
         ln -s large tree/a/link
         for n in $(seq 200); do echo $n > tree/b/c/$n; done
         chmod 755 tree/b/c/7
         tar --sort=name -cf tree.tar tree
         cp -a tree copied",
    );
    let archive = local.join("tree.tar");
    let script = format!(
        "tar -xf {0}
         diff -r tree {1}
         test -x tree/b/c/7
         not test -x tree/b/c/8
         tar --sort=name --format=gnu -cf again.tar tree
         tar -df {0}
         cp -a tree other
         diff -r tree other
         mv other moved
         rm -r moved
         ls",
        archive.display(),
        local.join("copied").display()
    );
    assert_eq!(shell(&mount.path(""), &script), "again.tar\ntree\n");
    mount.stop();
    fs::remove_dir_all(site.path("cache-a")).unwrap();
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
    fs::write(mount.path("Makefile"), makefile).unwrap();
    fs::write(mount.path("part.h"), "int part(void);\n").unwrap();
    fs::write(mount.path("part.c"), "int part(void) { return 42; }\n").unwrap();
    let main =
        "#include <stdio.h>\n#include \"part.h\"\nint main(void) { printf(\"%d\\n\", part()); }\n";
    fs::write(mount.path("main.c"), main).unwrap();
    // AFS keeps whole seconds: what changes within the same one is not newer.
    let script = "make -s -j2
        ./prog
        make -q
        sleep 1.1
        touch part.h
        not make -q
        make -s
        ./prog";
    assert_eq!(shell(&mount.path(""), script), "42\n42\n");
    mount.stop();
}

/// Large content by its hash, read-only, behind symlinks; small databases of its own; locks; content
/// that is moved, copied and linked between checkouts.
#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn git_annex_keeps_moves_and_checks_content() {
    if !can_mount() || !has("git") || !has("git-annex") {
        return;
    }
    let site = Site::new("127.84.0.64");
    let mount = site.mount("a");
    let home = site.place("home");
    let script = format!(
        "export HOME={}
         git init -q -b main one
         cd one
         {GIT_SETTINGS}
         git annex init -q one
         for n in 1 2 3 4 5 6 7 8; do seq $n $((n * 20000)) > large$n; done
         cp large1 same
         git annex add -q -J2 .
         git commit -qm first
         test $(readlink large1) = $(readlink same)
         git annex fsck -q
         cd ..
         git clone -q one two
         cd two
         {GIT_SETTINGS}
         git annex init -q two
         not test -e large3
         git annex get -q -J2 .
         seq 3 60000 | cmp - large3
         git annex unlock -q large4
         echo more >> large4
         git annex add -q large4
         git annex lock -q large4
         git commit -qam second
         git annex fsck -q
         git annex drop -q large5
         not test -e large5
         git annex move -q --from origin large5
         not test -e ../one/large5
         git annex copy -q --to origin large4
         git annex sync -q
         cd ../one
         git annex sync -q
         git annex whereis large4
         git annex drop -q --force large6
         git annex fsck -q --fast large1
         git fsck --strict
         cd ..
         chmod -R u+w one two
         rm -rf one two",
        home.display()
    );
    let said = shell(&mount.path(""), &script);
    assert!(said.contains("whereis large4 (2 copies)"), "{said}");
    mount.stop();
}

/// Two machines change one database; each of them keeps it open while the other changes it.
#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_database_is_changed_by_two_mounts_in_turns_of_its_locks() {
    const CHANGES: usize = 20;
    if !can_mount() || !has("sqlite3") {
        return;
    }
    let site = Site::new("127.84.0.65");
    let mounts = [site.mount("a"), site.mount("b")];
    let sql = |place: &Path, text: &str| {
        let file = place.join("text.sql");
        fs::write(&file, text).unwrap();
        let script = format!(
            "sqlite3 -bail -cmd '.timeout 600000' db < {}",
            file.display()
        );
        shell(place, &script)
    };
    let create = "create table count (n); insert into count values (0);
                  create table change (who, n unique);";
    sql(&mounts[0].path(""), create);
    std::thread::scope(|scope| {
        for (who, mount) in mounts.iter().enumerate() {
            let place = mount.path(format!("of{who}"));
            fs::create_dir(&place).unwrap();
            std::os::unix::fs::symlink("../db", place.join("db")).unwrap();
            let change = format!(
                "begin immediate; update count set n = n + 1;
                 insert into change select {who}, n from count; commit;\n"
            );
            scope.spawn(move || sql(&place, &change.repeat(CHANGES)));
        }
    });
    let check = "pragma integrity_check; select n from count; select count(*) from change;";
    let all = 2 * CHANGES;
    for mount in &mounts {
        let found = sql(&mount.path(""), check);
        assert_eq!(found, format!("ok\n{all}\n{all}\n"));
    }
    // What several processes of one machine share in memory is of no use between two; on one it works.
    let wal = "pragma journal_mode = wal; update count set n = n + 1; select n from count;";
    let found = sql(&mounts[1].path(""), wal);
    assert_eq!(found, format!("wal\n{}\n", all + 1));
    let found = sql(
        &mounts[0].path(""),
        "pragma journal_mode = delete; select n from count;",
    );
    assert_eq!(found, format!("delete\n{}\n", all + 1));
    for mount in mounts {
        mount.stop();
    }
}

/// A film is read in order, with leaps ahead and back, by one who has nothing of it yet.
#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn what_is_read_in_order_with_leaps_is_what_was_written() {
    const LENGTH: u64 = 96 << 20;
    const PART: usize = 256 << 10;
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.66");
    let (writer, reader) = (site.mount("a"), site.mount("b"));
    let film = |offset: u64| -> Vec<u8> {
        let words = offset / 8..(offset + PART as u64) / 8;
        words
            .flat_map(|word| (word * 0x9e37_79b9).to_le_bytes())
            .collect()
    };
    let file = File::create(writer.path("film")).unwrap();
    for offset in (0..LENGTH).step_by(PART) {
        file.write_all_at(&film(offset), offset).unwrap();
    }
    drop(file);
    crate::site::soon("the film", || {
        fs::metadata(reader.path("film")).is_ok_and(|film| film.len() == LENGTH)
    });
    let file = File::open(reader.path("film")).unwrap();
    let mut part = vec![0; PART];
    let mut rng = fastrand::Rng::with_seed(1);
    let mut at = 0;
    for _ in 0..12 {
        // As much as a player reads before somebody leaps.
        for _ in 0..rng.u64(4..40) {
            file.read_exact_at(&mut part, at).unwrap();
            assert!(part == film(at), "at {at}");
            at = (at + PART as u64) % LENGTH;
        }
        at = rng.u64(0..LENGTH - PART as u64) / 8 * 8;
    }
    writer.stop();
    reader.stop();
}

/// A tree as large as one likes: that of Linux has 80,000 files.
#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_large_tree_is_unpacked_listed_compared_and_removed() {
    if !can_mount() || !has("tar") {
        return;
    }
    let number = std::env::var("AFAR_TEST_MOUNT_TREE").ok();
    let number = number.map_or(TREE_FILES, |number| number.parse().unwrap());
    let site = Site::new("127.84.0.67");
    let local = site.place("local");
    make_tree(&local.join("tree"), number);
    let mut mount = site.mount("a");
    let step = |mount: &crate::site::Mounted, what: &str, script: &str| {
        let begun = Instant::now();
        let said = shell(&mount.path(""), script);
        eprintln!("{number} files {what} in {:.1?}", begun.elapsed());
        said.trim().to_owned()
    };
    let from = local.display();
    shell(&local, "tar -cf tree.tar tree");
    step(&mount, "unpacked", &format!("tar -xf {from}/tree.tar"));
    let list = "ls -lR tree | grep -c ^-";
    assert_eq!(step(&mount, "listed", list), number.to_string());
    step(&mount, "compared", &format!("diff -r {from}/tree tree"));
    mount.stop();
    fs::remove_dir_all(site.path("cache-a")).unwrap();
    mount = site.mount("a");
    assert_eq!(step(&mount, "listed afresh", list), number.to_string());
    step(
        &mount,
        "compared afresh",
        &format!("diff -r {from}/tree tree"),
    );
    let removed = step(&mount, "removed", "rm -r tree\nls -A");
    assert_eq!(removed, "");
    mount.stop();
}

/// Files in folders of some dozens, most of them small, some a hundred times as large.
fn make_tree(top: &Path, number: u64) {
    let mut rng = fastrand::Rng::with_seed(number);
    let mut folder = top.to_owned();
    for file in 0..number {
        if file % 20 == 0 {
            folder = top.join(format!("{}/{}", file / 1000, file / 20));
            fs::create_dir_all(&folder).unwrap();
        }
        let least = 1usize << rng.u32(6..12);
        let most = least * if rng.u32(0..20) == 0 { 100 } else { 4 };
        let size = rng.usize(least..most);
        let line = format!("{file} {}\n", rng.u64(..));
        let content = line.repeat(size / line.len() + 1);
        fs::write(folder.join(format!("file-{file}.c")), &content[..size]).unwrap();
    }
}
