//! The list of cells, most of which are not there.

use std::net::UdpSocket;
use std::time::Duration;

use afar_cache::{Ino, Kind, Root};
use afar_cell::cellservdb::CellEntry;
use afar_cell::{Config, MountPoint, Wanted};
use afar_types::Fid;

use crate::world::{CELL, Machine, WHO, World, machine_of};

/// Cells of which nobody hears.
const DEAD: usize = 200;

/// A machine that lists the cell of a world among dead ones, all of which are at this socket.
async fn among_dead(world: &World, silent: &UdpSocket) -> Machine {
    let (locations, file_port) = world.servers();
    let entry = |name: String, server| CellEntry {
        name: name.parse().unwrap(),
        comment: String::new(),
        servers: vec![server],
        hosts: Vec::new(),
    };
    let dead = (0..DEAD).map(|number| format!("dead{number}.example"));
    let silent = silent.local_addr().unwrap();
    let mut cells: Vec<_> = dead.map(|name| entry(name, silent)).collect();
    cells.push(entry(CELL.to_owned(), locations));
    let config = Config {
        cells,
        only_cells: true,
        file_port,
        ..Config::default()
    };
    machine_of(config, |config| config.root = Root::Dynamic).await
}

/// Whether anything was asked there.
fn was_asked(silent: &UdpSocket) -> bool {
    silent.recv(&mut [0; 2048]).is_ok()
}

#[tokio::test]
async fn dead_cells_are_listed_with_their_attributes_at_once() {
    let world = World::new().await;
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let machine = among_dead(&world, &silent).await;
    let names = machine.list("", true).await.unwrap();
    assert_eq!(names.len(), 2 * (DEAD + 1));
    for name in &names {
        let attr = machine.attr(name).await.unwrap();
        assert_eq!((attr.kind, attr.mode & 0o777), (Kind::Dir, 0o555), "{name}");
        let again = machine.cache.getattr(WHO, attr.ino).await.unwrap();
        assert_eq!(again.ino, machine.attr(name).await.unwrap().ino, "{name}");
    }
    assert!(
        !was_asked(&silent),
        "cells were asked that nobody went into"
    );
    // A program that goes into one waits for it.
    let dead = machine.attr("dead7.example").await.unwrap().ino;
    let opened = machine.cache.opendir(WHO, dead);
    let opened = tokio::time::timeout(Duration::from_millis(500), opened).await;
    assert!(opened.is_err() && was_asked(&silent));
    // A cell that is there is the same directory before and after, and has attributes of its own then.
    let made_up = machine.attr(CELL).await.unwrap();
    machine.mkdir(&format!("{CELL}/new")).await.unwrap();
    let found = machine.cache.getattr(WHO, made_up.ino).await.unwrap();
    assert_eq!(machine.attr(CELL).await.unwrap().ino, made_up.ino);
    assert_ne!((found.mtime, found.mode), (made_up.mtime, made_up.mode));
    assert_eq!(machine.list(CELL, true).await.unwrap(), ["new"]);
}

#[tokio::test]
async fn mount_points_to_dead_cells_are_listed_at_once() {
    let world = World::new().await;
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let machine = among_dead(&world, &silent).await;
    let root = machine.fid(CELL).await;
    let numbers: Vec<u32> = root.split('.').map(|part| part.parse().unwrap()).collect();
    let fid = Fid::new(numbers[0], numbers[1], numbers[2]);
    let client = &machine.client;
    let cell = client.cell(&CELL.parse().unwrap()).await.unwrap();
    let number = fid.volume.0.to_string();
    let volume = client.volume(&cell, &number, Wanted::PreferReadWrite);
    let volume = volume.await.unwrap();
    for (name, text) in [
        ("dead", "#dead3.example:root.cell."),
        ("same", "#test.example:root.cell."),
    ] {
        let mount = MountPoint::parse(text.as_bytes()).unwrap();
        let made = client.make_mount(&volume, fid, name.as_bytes(), &mount);
        made.await.unwrap();
    }
    let dead = machine.attr(&format!("{CELL}/dead")).await.unwrap();
    assert_eq!(dead.kind, Kind::Dir);
    let again = machine.cache.getattr(WHO, dead.ino).await.unwrap();
    assert_eq!((again.kind, again.ino), (Kind::Dir, dead.ino));
    assert!(!was_asked(&silent));
    let looked = machine.cache.lookup(WHO, dead.ino, b"x");
    let looked = tokio::time::timeout(Duration::from_millis(500), looked).await;
    assert!(looked.is_err() && was_asked(&silent));
    // Mount points into the same cell are followed as ever.
    let same = machine.attr(&format!("{CELL}/same")).await.unwrap();
    assert_eq!(machine.fid(&format!("{CELL}/same")).await, root);
    assert_ne!(same.ino, Ino::ROOT);
}
