//! `vos move`, step by step, and dumps of what changed.

use afar_fileserver::volumes::Intent;
use afar_types::error::{VBUSY, VMOVED};
use afar_types::{PartitionId, TransactionFlags, UnixTime, VolumeId, VolumeType};

use crate::{
    A, AttachFlags, B, FINISHED, RW, Site, TEMP, UNFINISHED, assert_same, code, cookie, new_file,
    next_second, noise, text, tree, write,
};

const NONE: VolumeId = VolumeId(0);

/// Moves the read-write volume while `meanwhile` changes it, in the steps and order of OpenAFS's
/// `vos move` (UV_MoveVolume2), without those in the VLDB.
async fn move_volume(
    from: &Site,
    to: &Site,
    partition: PartitionId,
    meanwhile: impl AsyncFnOnce(),
) {
    let (source, destination) = (&from.vol, &to.vol);
    // A clone, which is dumped while the volume is in use.
    let transaction = from.begin(RW, AttachFlags::BUSY).await;
    let clone = source.clone(transaction, NONE, 1, text("move-clone-temp"), TEMP);
    clone.await.unwrap();
    let name = source.get_name(transaction).await.unwrap().name;
    from.end(transaction).await;
    let clone = from.begin(TEMP, AttachFlags::OFFLINE).await;
    from.set_flags(clone, UNFINISHED).await;
    let status = source.get_status(clone).await.unwrap().status;
    let from_date = UnixTime(status.creation_date.0 - 2);

    let name = std::str::from_utf8(name.as_bytes()).unwrap();
    let made = destination
        .create_volume(partition, text(name), 0, RW, RW)
        .await
        .unwrap();
    to.set_flags(made.transaction, UNFINISHED).await;
    let cookie = || cookie(name, VolumeType::ReadWrite, NONE);
    let full = source.forward(clone, UnixTime(0), to.address(), made.transaction, cookie());
    full.await.unwrap();
    from.end(clone).await;
    let half = to.volume(partition, RW).state().unwrap();
    assert!(
        half.destroy_me && !half.in_service,
        "it could come on line half moved"
    );

    meanwhile().await;

    let transaction = from.begin(RW, AttachFlags::BUSY).await;
    let changes = source.forward(
        transaction,
        from_date,
        to.address(),
        made.transaction,
        cookie(),
    );
    changes.await.unwrap();
    from.set_flags(transaction, TransactionFlags::OUT_OF_SERVICE)
        .await;
    to.set_flags(made.transaction, FINISHED).await;
    to.end(made.transaction).await;

    if from.address() != to.address() {
        source
            .set_forwarding(transaction, 0x0100_007f)
            .await
            .unwrap();
    }
    source.delete_volume(transaction).await.unwrap();
    from.end(transaction).await;
    let clone = from.begin(TEMP, AttachFlags::OFFLINE).await;
    source.delete_volume(clone).await.unwrap();
    from.end(clone).await;
}

/// Changes of every kind.
fn change(volume: &afar_store::Volume) {
    let root = volume.root();
    let src = volume.lookup(root, b"src").unwrap();
    new_file(volume, src, "new", &noise(300_000, 5));
    volume.remove_file(src, b"file.3").unwrap();
    volume.rename(src, b"file.4", root, b"moved").unwrap();
    let file = volume.lookup(src, b"file.9").unwrap();
    write(volume, file, b"other data");
}

/// What the read-write volume is to be after a move.
fn expected(volume: &afar_store::Volume, other: &Site) -> afar_store::Volume {
    let mut stream = Vec::new();
    volume
        .dump(&mut stream, &afar_store::DumpOptions::default())
        .unwrap();
    let options = afar_store::RestoreOptions::new(VolumeId(12)).name("expected");
    other.partition(B).restore(&stream[..], &options).unwrap();
    other.volume(B, VolumeId(12))
}

#[tokio::test(flavor = "multi_thread")]
async fn to_another_server_and_back() {
    let (one, two) = (Site::new().await, Site::new().await);
    let volume = one.filled().await;
    let aside = Site::new().await;
    let mut whole = None;
    move_volume(&one, &two, B, async || {
        next_second().await;
        // Clients go on where the volume still is.
        one.volumes.enter(RW, Intent::Change).unwrap();
        change(&volume);
        whole = Some(expected(&volume, &aside));
    })
    .await;
    let moved = two.volume(B, RW);
    assert_same(&whole.unwrap(), &moved);
    assert!(moved.state().unwrap().online);
    assert_eq!(moved.state().unwrap().name, "user.ann");
    assert_eq!(one.volumes.enter(RW, Intent::Read).err().unwrap().0, VMOVED);
    assert!(!one.partition(A).has_volume(RW).unwrap());
    assert!(!one.partition(A).has_volume(TEMP).unwrap());
    let entered = two.volumes.enter(RW, Intent::Change).unwrap();
    new_file(&entered.volume, moved.root(), "at home", b"!");
    drop(entered);

    let before = tree(&moved);
    // Back again, from where it is now.
    two.send_back(&one).await;
    assert!(tree(&one.volume(A, RW)) == before);
    one.volumes.enter(RW, Intent::Change).unwrap();
}

impl Site {
    /// Moves the volume from the second partition to the first of another server, at once.
    async fn send_back(&self, to: &Self) {
        let transaction = self.begin_on(B, RW, AttachFlags::BUSY).await;
        let made = to
            .vol
            .create_volume(A, text("user.ann"), 0, RW, RW)
            .await
            .unwrap();
        let cookie = cookie("user.ann", VolumeType::ReadWrite, NONE);
        let forward = self.vol.forward(
            transaction,
            UnixTime(0),
            to.address(),
            made.transaction,
            cookie,
        );
        forward.await.unwrap();
        to.set_flags(made.transaction, FINISHED).await;
        to.end(made.transaction).await;
        self.vol.delete_volume(transaction).await.unwrap();
        self.end(transaction).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn to_another_partition_of_the_same_server() {
    let site = Site::new().await;
    let volume = site.filled().await;
    let aside = Site::new().await;
    let mut whole = None;
    move_volume(&site, &site, B, async || {
        next_second().await;
        // Clients get the volume that is whole.
        let entered = site.volumes.enter(RW, Intent::Change).unwrap();
        assert!(entered.volume.lookup(volume.root(), b"src").is_ok());
        drop(entered);
        change(&volume);
        whole = Some(expected(&volume, &aside));
    })
    .await;
    let moved = site.volume(B, RW);
    assert_same(&whole.unwrap(), &moved);
    assert!(!site.partition(A).has_volume(RW).unwrap());
    let entered = site.volumes.enter(RW, Intent::Change).unwrap();
    assert!(std::sync::Arc::ptr_eq(
        entered.volume.partition(),
        &site.partition(B)
    ));
}

#[tokio::test]
async fn clients_keep_to_the_volume_they_had() {
    let site = Site::new().await;
    // On the last partition, and nobody has asked for it so far.
    let new = afar_store::NewVolume::new(RW, "user.ann");
    let volume = site.partition(B).create_volume(&new).unwrap();
    new_file(&volume, volume.root(), "mine", b"!");
    let made = site.vol.create_volume(A, text("user.ann"), 0, RW, RW);
    let made = made.await.unwrap().transaction;
    let entered = site.volumes.enter(RW, Intent::Change).unwrap();
    assert!(entered.volume.lookup(volume.root(), b"mine").is_ok());
    drop(entered);
    // Given up: what they had is all there is.
    site.vol.delete_volume(made).await.unwrap();
    site.end(made).await;
    let entered = site.volumes.enter(RW, Intent::Change).unwrap();
    assert!(entered.volume.lookup(volume.root(), b"mine").is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_read_on_while_it_is_dumped() {
    let site = Site::new().await;
    let volume = site.filled().await;
    new_file(&volume, volume.root(), "larger", &noise(30 << 20, 3));
    let before = expected(&volume, &site);
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let mut dump = site.vol.dump(transaction, UnixTime(0)).await.unwrap();
    let mut stream = dump.chunk().await.unwrap().unwrap().to_vec();
    site.volumes.enter(RW, Intent::Read).unwrap();
    assert_eq!(
        site.volumes.enter(RW, Intent::Change).err().unwrap().0,
        VBUSY
    );
    // A change that the transaction does not keep away is not in the dump, and does not wait.
    change(&volume);
    while let Some(piece) = dump.chunk().await.unwrap() {
        stream.extend_from_slice(&piece);
    }
    site.end(transaction).await;
    let options = afar_store::RestoreOptions::new(VolumeId(13)).name("restored");
    site.partition(B).restore(&stream[..], &options).unwrap();
    assert_same(&before, &site.volume(B, VolumeId(13)));
}

#[tokio::test]
async fn unchanged_directories_can_be_left_out() {
    let site = Site::new().await;
    let volume = site.filled().await;
    next_second().await;
    next_second().await;
    let since = UnixTime::from(std::time::SystemTime::now());
    let large = volume.lookup(volume.root(), b"large").unwrap();
    write(&volume, large, b"changed");
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let with = site.dump(transaction, since.0).await;
    let flags = afar_rpc::afsvol::OMIT_DIRECTORIES;
    let mut dump = site.vol.dump_v2(transaction, since, flags).await.unwrap();
    let mut without = 0;
    while let Some(piece) = dump.chunk().await.unwrap() {
        without += piece.len();
    }
    let size = site.vol.get_size(transaction, since).await.unwrap().size;
    assert_eq!(size, with.len() as u64);
    // Two directories of 2048 bytes at least.
    assert!(without + 4096 <= with.len(), "{without} and {}", with.len());
}

#[tokio::test]
async fn an_incremental_dump_needs_what_it_builds_on() {
    let (one, two) = (Site::new().await, Site::new().await);
    let volume = one.filled().await;
    next_second().await;
    let since = UnixTime::from(std::time::SystemTime::now());
    change(&volume);
    let made = two
        .vol
        .create_volume(A, text("user.ann"), 0, NONE, RW)
        .await
        .unwrap();
    let transaction = one.begin(RW, AttachFlags::BUSY).await;
    let cookie = cookie("user.ann", VolumeType::ReadWrite, NONE);
    let forward = one
        .vol
        .forward(transaction, since, two.address(), made.transaction, cookie);
    // The dump is not well formed for this volume, says the other server, and so does this one.
    assert_eq!(code(forward.await), 1_492_325_122);
    assert_eq!(two.volume(A, RW).state().unwrap().file_count, 1);
}
