//! What comes before it is asked for: it spares calls, and is as right as what was asked for.

use std::time::Duration;

use afar_cache::Errno;

use crate::world::{Machine, World};

/// A directory with so many files, each of these bytes.
async fn filled(machine: &Machine, directory: &str, files: usize, data: &[u8]) {
    filled_by(machine, directory, 0..files, data).await;
}

/// The same with these files, made in this order.
async fn filled_by(
    machine: &Machine,
    directory: &str,
    files: impl Iterator<Item = usize>,
    data: &[u8],
) {
    machine.mkdir(directory).await.unwrap();
    for number in files {
        let path = format!("{directory}/{number:03}");
        machine.put(&path, data).await.unwrap();
    }
}

#[tokio::test]
async fn names_looked_up_in_a_row_come_by_fifty_to_a_call() {
    let world = World::new().await;
    let maker = world.cache().await;
    filled(&maker, "listed", 200, b"x").await;
    filled_by(&maker, "named", (0..200).rev(), b"x").await;
    for directory in ["listed", "named"] {
        let machine = world.cache().await;
        let none = machine.attr(&format!("{directory}/none")).await;
        assert_eq!(none.err(), Some(Errno::ENOENT));
        let before = quiet(&machine).await;
        for number in 0..200 {
            let attr = machine.attr(&format!("{directory}/{number:03}")).await;
            assert_eq!(attr.unwrap().size, 1);
        }
        let calls = machine.calls() - before;
        assert!(calls <= 16, "{calls} calls for 200 names");
    }
}

#[tokio::test]
async fn a_directory_that_is_looked_into_comes_with_what_is_in_it() {
    let world = World::new().await;
    let maker = world.cache().await;
    for directory in ["one", "two", "three"] {
        filled(&maker, directory, 20, b"x").await;
    }
    filled(&maker, "large", 200, b"x").await;
    let machine = world.cache().await;
    machine.attr("none").await.unwrap_err();
    for (directory, last) in [("one", 19), ("two", 19), ("three", 19), ("large", 40)] {
        machine.attr(&format!("{directory}/007")).await.unwrap();
        let before = quiet(&machine).await;
        for number in [8, last] {
            let path = format!("{directory}/{number:03}");
            machine.attr(&path).await.unwrap();
        }
        assert_eq!(machine.calls(), before, "{directory}");
    }
    // Not all of a large one.
    let before = machine.calls();
    machine.attr("large/199").await.unwrap();
    assert_eq!(machine.calls() - before, 1);
}

#[tokio::test]
async fn removing_a_tree_that_was_not_read_takes_a_call_for_each_name() {
    let world = World::new().await;
    let (maker, remover) = (world.cache().await, world.cache().await);
    filled(&maker, "dir", 60, b"x").await;
    let names = remover.list("dir", false).await.unwrap();
    let before = remover.calls();
    for name in names {
        let path = format!("dir/{name}");
        remover.attr(&path).await.unwrap();
        remover.unlink(&path).await.unwrap();
    }
    let calls = remover.calls() - before;
    assert!(calls <= 60 + 8, "{calls} calls for 60 names");
    assert!(maker.list("dir", false).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_changed_after_it_was_prefetched_is_seen() {
    let world = World::new().await;
    let (maker, machine) = (world.cache().await, world.cache().await);
    filled(&maker, "dir", 40, b"x").await;
    for number in 0..10 {
        machine.attr(&format!("dir/{number:03}")).await.unwrap();
    }
    let before = quiet(&machine).await;
    machine.attr("dir/010").await.unwrap();
    assert_eq!(machine.calls(), before, "it was prefetched");
    maker.put("dir/011", b"longer").await.unwrap();
    maker.unlink("dir/012").await.unwrap();
    maker.rename("dir/013", "dir/014").await.unwrap();
    assert_eq!(machine.attr("dir/011").await.unwrap().size, 6);
    for gone in ["dir/012", "dir/013"] {
        assert_eq!(machine.at(gone).await.err(), Some(Errno::ENOENT));
    }
    assert_eq!(machine.fid("dir/014").await, maker.fid("dir/014").await);
}

/// Waits until no call was made for a while.
async fn quiet(machine: &Machine) -> u64 {
    let mut calls = machine.calls();
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = machine.calls();
        if now == calls {
            return calls;
        }
        calls = now;
    }
}

#[tokio::test]
async fn small_files_that_come_next_are_there_before_they_are_read() {
    let world = World::new().await;
    let maker = world.cache().await;
    let data = [7; 3000];
    filled(&maker, "listed", 60, &data).await;
    filled_by(&maker, "named", (0..60).rev(), &data).await;
    maker.put("listed/large", &vec![1; 200_000]).await.unwrap();
    for directory in ["listed", "named"] {
        let machine = world.cache().await;
        machine.list(directory, true).await.unwrap();
        let before = quiet(&machine).await;
        machine.get(&format!("{directory}/000")).await.unwrap();
        // The other call asks what others read next, and nobody has read anything.
        assert_eq!(quiet(&machine).await - before, 2, "one file tells nothing");
        for number in [1, 2] {
            machine
                .get(&format!("{directory}/{number:03}"))
                .await
                .unwrap();
        }
        let came = quiet(&machine).await - before;
        assert!(came <= 12, "{came} calls for 60 files of {directory}");
        for number in 3..60 {
            let path = format!("{directory}/{number:03}");
            assert_eq!(machine.get(&path).await.unwrap(), data);
        }
        assert_eq!(quiet(&machine).await - before, came);
        if directory == "listed" {
            machine.get("listed/large").await.unwrap();
            assert!(machine.calls() - before > came, "not the large one");
        }
    }
}

#[tokio::test]
async fn of_files_read_in_a_row_others_see_what_is_written() {
    let world = World::new().await;
    let (maker, machine) = (world.cache().await, world.cache().await);
    filled(&maker, "dir", 30, b"before").await;
    machine.list("dir", true).await.unwrap();
    for number in 0..3 {
        machine.get(&format!("dir/{number:03}")).await.unwrap();
    }
    quiet(&machine).await;
    maker.put("dir/010", b"after").await.unwrap();
    maker.unlink("dir/011").await.unwrap();
    assert_eq!(machine.get("dir/010").await.unwrap(), b"after");
    assert_eq!(machine.get("dir/011").await.err(), Some(Errno::ENOENT));
    assert_eq!(machine.get("dir/012").await.unwrap(), b"before");
}

#[tokio::test]
async fn files_read_at_random_bring_no_others() {
    let world = World::new().await;
    let (maker, machine) = (world.cache().await, world.cache().await);
    // Each budget's beginning is unused, and then there is none before some time has gone by.
    let data = [1; 100_000];
    filled(&maker, "dir", 40, &data).await;
    machine.list("dir", true).await.unwrap();
    let before = quiet(&machine).await;
    for number in [30, 3, 21, 12, 26, 17] {
        machine.get(&format!("dir/{number:03}")).await.unwrap();
    }
    let calls = quiet(&machine).await - before;
    assert!(calls <= 6 + 4, "{calls} calls for 6 files");
}

/// A tree of directories, so many in each down to this depth, with three files in each.
async fn tree(machine: &Machine, top: &str, width: usize, depth: usize) -> Vec<String> {
    let mut all = vec![top.to_owned()];
    let mut level = vec![top.to_owned()];
    machine.mkdir(top).await.unwrap();
    for _ in 0..depth {
        let mut next = Vec::new();
        for above in &level {
            for number in 0..width {
                let path = format!("{above}/{number}");
                machine.mkdir(&path).await.unwrap();
                next.push(path);
            }
        }
        all.extend(next.iter().cloned());
        level = next;
    }
    for directory in &all {
        for name in ["x", "y", "z"] {
            machine
                .put(&format!("{directory}/{name}"), b"data")
                .await
                .unwrap();
        }
    }
    all
}

#[tokio::test]
async fn who_goes_through_a_tree_finds_what_is_below_read() {
    let world = World::new().await;
    let maker = world.cache().await;
    let mut all = tree(&maker, "top", 3, 3).await;
    let machine = world.cache().await;
    // In the order in which `find` opens them.
    all.sort_unstable();
    let mut waited = 0;
    for directory in &all {
        let before = quiet(&machine).await;
        assert!(machine.list(directory, true).await.unwrap().len() >= 3);
        waited += u32::from(machine.calls() > before);
    }
    assert!(waited <= 8, "{waited} of {} directories", all.len());
    // What is changed after it was read is seen all the same.
    maker.unlink("top/2/2/2/x").await.unwrap();
    maker.mkdir("top/2/2/new").await.unwrap();
    assert_eq!(machine.list("top/2/2/2", true).await.unwrap(), ["y", "z"]);
    assert_eq!(machine.list("top/2/2", true).await.unwrap().len(), 7);
}

#[tokio::test]
async fn who_reads_a_tree_finds_the_files_of_the_next_directories() {
    let world = World::new().await;
    let maker = world.cache().await;
    let mut all = tree(&maker, "top", 3, 2).await;
    let machine = world.cache().await;
    all.sort_unstable();
    let mut waited = 0;
    for directory in &all {
        machine.list(directory, true).await.unwrap();
        for name in ["x", "y", "z"] {
            let before = quiet(&machine).await;
            let data = machine.get(&format!("{directory}/{name}")).await.unwrap();
            assert_eq!(data, b"data");
            waited += u32::from(machine.calls() > before);
        }
    }
    assert!(waited <= 8, "{waited} of {} files", 3 * all.len());
}

#[tokio::test]
async fn one_answer_tells_of_many_directories_and_their_files() {
    let world = World::new().await;
    let maker = world.cache().await;
    let mut all = tree(&maker, "top", 4, 3).await;
    all.sort_unstable();
    let lister = world.cache().await;
    let before = lister.calls();
    for directory in &all {
        assert!(lister.list(directory, true).await.unwrap().len() >= 3);
        // However fast the program is beside what is prefetched.
        quiet(&lister).await;
    }
    let calls = quiet(&lister).await - before;
    assert!(calls <= 40, "{calls} calls for {} directories", all.len());
    let reader = world.cache().await;
    let before = reader.calls();
    for directory in &all {
        reader.list(directory, true).await.unwrap();
        for name in ["x", "y", "z"] {
            let path = format!("{directory}/{name}");
            assert_eq!(reader.get(&path).await.unwrap(), b"data");
        }
        quiet(&reader).await;
    }
    let calls = quiet(&reader).await - before;
    assert!(calls <= 120, "{calls} calls for {} files", 3 * all.len());
    // What is changed after it came so is seen.
    maker.put("top/3/3/3/x", b"other data").await.unwrap();
    maker.unlink("top/3/3/3/y").await.unwrap();
    assert_eq!(reader.get("top/3/3/3/x").await.unwrap(), b"other data");
    assert_eq!(reader.list("top/3/3/3", true).await.unwrap(), ["x", "z"]);
}

/// Reads all files of these directories, in their order; returns how often it had to wait.
async fn read_through(machine: &Machine, directories: &[String], files: usize) -> u32 {
    let mut waited = 0;
    for directory in directories {
        machine.list(directory, true).await.unwrap();
        for number in 0..files {
            let before = quiet(machine).await;
            let path = format!("{directory}/{number:03}");
            assert_eq!(machine.get(&path).await.unwrap(), b"data");
            waited += u32::from(machine.calls() > before);
        }
    }
    waited
}

#[tokio::test]
async fn that_others_went_through_a_tree_before_makes_none_wait() {
    let world = World::new().await;
    let maker = world.cache().await;
    maker.mkdir("top").await.unwrap();
    let directories: Vec<_> = (0..4).map(|number| format!("top/{number}")).collect();
    for directory in &directories {
        filled(&maker, directory, 10, b"data").await;
    }
    for _ in 0..3 {
        let machine = world.cache().await;
        let waited = read_through(&machine, &directories, 10).await;
        assert!(waited <= 8, "{waited} of 40 files");
        // The server is told what was read.
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
}

#[tokio::test]
async fn what_was_for_nothing_elsewhere_makes_nobody_wait_for_each_name() {
    let world = World::new().await;
    let maker = world.cache().await;
    for directory in ["for_nothing", "in_order"] {
        filled(&maker, directory, 60, b"x").await;
    }
    let machine = world.cache().await;
    for number in [3, 1] {
        let path = format!("for_nothing/{number:03}");
        machine.attr(&path).await.unwrap();
    }
    for number in [7, 30, 45] {
        machine
            .attr(&format!("for_nothing/{number:03}"))
            .await
            .unwrap();
    }
    let before = quiet(&machine).await;
    for number in 0..60 {
        machine
            .attr(&format!("in_order/{number:03}"))
            .await
            .unwrap();
    }
    let calls = machine.calls() - before;
    assert!(calls <= 12, "{calls} calls for 60 names");
}

/// Files in directories, so many in each, in an order that no directory tells; and what is in each.
fn program(directories: usize, files: usize) -> Vec<(String, Vec<u8>)> {
    let all = directories * files;
    let number = |step: usize| step * 37 % all;
    let path = |number: usize| format!("lib{}/{:03}", number % directories, number / directories);
    let content = |number: usize| format!("content of {number}").into_bytes();
    (0..all)
        .map(|step| (path(number(step)), content(number(step))))
        .collect()
}

/// A program, made by a machine that reads nothing of it.
async fn installed(world: &World) -> Vec<(String, Vec<u8>)> {
    let (maker, program) = (world.cache().await, program(6, 10));
    for directory in 0..6 {
        maker.mkdir(&format!("lib{directory}")).await.unwrap();
    }
    for (path, content) in &program {
        maker.put(path, content).await.unwrap();
    }
    program
}

/// Starts it: reads one file after the other, the last ones when what comes by itself is there.
async fn start(machine: &Machine, program: &[(String, Vec<u8>)]) {
    for (step, (path, content)) in program.iter().enumerate() {
        assert_eq!(machine.get(path).await.unwrap(), *content, "{path}");
        if step == 2 {
            quiet(machine).await;
        }
    }
}

/// Starts it where it has not been before, and waits until the server was told in which order it reads.
async fn taught_by(world: &World, program: &[(String, Vec<u8>)]) -> Machine {
    let machine = world.cache().await;
    start(&machine, program).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    machine
}

#[tokio::test]
async fn what_another_read_before_comes_in_its_order() {
    let world = World::new().await;
    let program = installed(&world).await;
    let first = taught_by(&world, &program).await;
    let second = world.cache().await;
    start(&second, &program).await;
    let (learnt, told) = (quiet(&first).await, quiet(&second).await);
    assert!(told * 2 <= learnt, "{told} calls after {learnt}");
    // A third one is told no less than the second, which has read little itself.
    let third = world.cache().await;
    start(&third, &program).await;
    let told = quiet(&third).await;
    assert!(told * 2 <= learnt, "{told} calls after {learnt}");
}

#[tokio::test]
async fn what_came_so_is_seen_to_change() {
    let world = World::new().await;
    let program = installed(&world).await;
    let first = taught_by(&world, &program).await;
    let second = world.cache().await;
    start(&second, &program[..3]).await;
    let [changed, removed, last] = [20, 30, 59].map(|step| &program[step].0);
    first.put(changed, b"something else").await.unwrap();
    first.unlink(removed).await.unwrap();
    first.put("lib3/new", b"new").await.unwrap();
    assert_eq!(second.get(changed).await.unwrap(), b"something else");
    assert_eq!(second.get(removed).await.err(), Some(Errno::ENOENT));
    assert_eq!(second.get("lib3/new").await.unwrap(), b"new");
    assert_eq!(second.get(last).await.unwrap(), program[59].1);
}

#[tokio::test]
async fn another_program_reads_what_it_reads() {
    let world = World::new().await;
    let program = installed(&world).await;
    taught_by(&world, &program).await;
    let second = world.cache().await;
    let mut other = program.clone();
    other.reverse();
    start(&second, &other).await;
    start(&second, &program).await;
}
