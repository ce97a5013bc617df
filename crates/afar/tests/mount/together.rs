//! What people of several machines do with the same files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::site::{Site, can_mount};
use crate::workloads::{GIT_SETTINGS, has, shell};

/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(300);

fn message(number: usize) -> String {
    format!("Subject: {number}\n\n").repeat(number % 50 + 1)
}

/// Delivers mail as maildrop and others do: a message gets its name when all of it is on the disk.
fn deliver(mail: &Path, who: usize, messages: usize) {
    for number in 0..messages {
        let name = format!("{number}.{who}.example");
        let tmp = mail.join("tmp").join(&name);
        fs::write(&tmp, message(number)).unwrap();
        fs::File::open(&tmp).unwrap().sync_all().unwrap();
        let new = mail.join("new").join(&name);
        if number % 2 == 0 {
            fs::rename(&tmp, &new).unwrap();
        } else {
            // AFS has links within a directory only; programs that try one move the file then.
            fs::hard_link(&tmp, &new).unwrap_err();
            fs::rename(&tmp, &new).unwrap();
        }
    }
}

/// Takes mail until all of it has come: each message has one reader.
fn take(mail: &Path, all: usize) -> BTreeSet<String> {
    let begun = Instant::now();
    let mut taken = BTreeSet::new();
    while taken.len() < all {
        assert!(begun.elapsed() < LIMIT, "{} of {all} came", taken.len());
        for entry in fs::read_dir(mail.join("new")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let seen = mail.join("cur").join(format!("{name}:2,S"));
            fs::rename(entry.path(), &seen).unwrap();
            let number = name.split('.').next().unwrap().parse().unwrap();
            assert_eq!(
                fs::read_to_string(&seen).unwrap(),
                message(number),
                "{name}"
            );
            assert!(taken.insert(name), "a message came twice");
        }
    }
    taken
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn mail_of_two_machines_comes_to_a_third() {
    const MESSAGES: usize = 60;
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.68");
    let [one, two, reader] = ["a", "b", "c"].map(|name| site.mount(name));
    for folder in ["tmp", "new", "cur"] {
        fs::create_dir_all(one.path("mail").join(folder)).unwrap();
    }
    let taken = std::thread::scope(|scope| {
        for (who, mount) in [&one, &two].into_iter().enumerate() {
            let mail = mount.path("mail");
            scope.spawn(move || deliver(&mail, who, MESSAGES));
        }
        take(&reader.path("mail"), 2 * MESSAGES)
    });
    assert_eq!(taken.len(), 2 * MESSAGES);
    for mount in [one, two, reader] {
        let count = |folder: &str| {
            fs::read_dir(mount.path("mail").join(folder))
                .unwrap()
                .count()
        };
        assert_eq!(
            [count("tmp"), count("new"), count("cur")],
            [0, 0, 2 * MESSAGES]
        );
        mount.stop();
    }
}

/// Commits to a clone of its own and pushes each, with what the other has pushed below it.
fn push(repository: &Path, clone: &Path, who: usize, commits: usize) {
    let (repository, clone) = (repository.display(), clone.display());
    let script = format!(
        "git clone -q {repository} {clone}
         cd {clone}
         {GIT_SETTINGS}
         git config pull.rebase true
         for n in $(seq {commits}); do
             seq $n 200 > of{who}-$n
             git add .
             git commit -qm \"$n of {who}\"
             until git push -q 2>/dev/null; do git pull -q; done
         done"
    );
    shell(Path::new("/"), &script);
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn two_machines_push_to_one_repository() {
    const COMMITS: usize = 5;
    if !can_mount() || !has("git") {
        return;
    }
    let site = Site::new("127.84.0.69");
    let mounts = [site.mount("a"), site.mount("b")];
    shell(
        &mounts[0].path(""),
        &format!(
            "git init -q --bare -b main shared.git
             git clone -q shared.git first
             cd first
             {GIT_SETTINGS}
             git checkout -q -b main
             echo 1 > first
             git add .
             git commit -qm first
             git push -q origin main"
        ),
    );
    let clones = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for (who, mount) in mounts.iter().enumerate() {
            let clone = clones.path().join(format!("{who}"));
            let repository = mount.path("shared.git");
            scope.spawn(move || push(&repository, &clone, who, COMMITS));
        }
    });
    for (who, mount) in mounts.into_iter().enumerate() {
        let checked = clones.path().join(format!("checked{who}"));
        let (repository, checked) = (mount.path("shared.git"), checked.display());
        let script = format!(
            "git --git-dir {0} fsck --strict
             git clone -q {0} {checked}
             cd {checked}
             ls of* | wc -l
             git rev-list --count HEAD",
            repository.display()
        );
        let told = shell(Path::new("/"), &script);
        let lines: Vec<&str> = told.lines().collect();
        let (files, commits) = ((2 * COMMITS).to_string(), (2 * COMMITS + 1).to_string());
        assert!(lines.ends_with(&[&files, &commits]), "{told}");
        mount.stop();
    }
}
