//! Many callers at once.

use std::sync::Arc;

use afar_fileserver::volumes::Intent;
use afar_rpc::afsvol;
use afar_types::{UnixTime, VolumeType};

use crate::{
    A, AttachFlags, BK, FINISHED, RO, RW, Site, TEMP, VolumeId, assert_same, cookie, text,
};

/// Does something at random that a tool could do, and whether it worked: failures are what the
/// others cause.
async fn step(vol: &afsvol::Client, random: &mut fastrand::Rng, dump: &[u8]) -> bool {
    let id = [RW, RO, BK, TEMP][random.usize(..4)];
    let flags = [AttachFlags::BUSY, AttachFlags::OFFLINE][random.usize(..2)];
    let begun = if id == TEMP && random.bool() {
        let made = vol
            .create_volume(A, text("temporary"), 0, VolumeId(0), TEMP)
            .await;
        made.map(|made| made.transaction)
    } else {
        let begun = vol.trans_create(id, A, flags).await;
        begun.map(|begun| begun.transaction)
    };
    let Ok(transaction) = begun else {
        return false;
    };
    let other = [RO, BK, TEMP][random.usize(..3)];
    let kind = if other == BK { 2 } else { 1 };
    let outcome = match random.u8(..7) {
        0 => vol
            .clone(transaction, VolumeId(0), kind, text("clone"), other)
            .await
            .map(|_| ()),
        1 => vol.re_clone(transaction, other).await.map(|_| ()),
        2 if id != RW => vol.delete_volume(transaction).await.map(|_| ()),
        3 => vol.set_flags(transaction, FINISHED).await.map(|_| ()),
        4 if id == TEMP => match vol
            .restore(transaction, 0, cookie("t", VolumeType::ReadWrite, RO))
            .await
        {
            Ok(mut upload) => {
                let sent = upload.send(dump.to_vec().into()).await;
                let finished = upload.finish().await;
                sent.and_then(|()| finished.map(|_| ()))
            }
            Err(error) => Err(error),
        },
        5 => match vol.dump(transaction, UnixTime(0)).await {
            Ok(mut dump) => loop {
                match dump.chunk().await {
                    Ok(Some(_)) => {}
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            },
            Err(error) => Err(error),
        },
        _ => vol.list_volumes(A, 1).await.map(|_| ()),
    };
    vol.end_trans(transaction).await.unwrap();
    outcome.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_their_quarrels() {
    let site = Site::new().await;
    let volume = site.filled().await;
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let dump = Arc::new(site.dump(transaction, 0).await);
    site.end(transaction).await;
    let mut tasks = Vec::new();
    for seed in 0..8 {
        let (vol, dump) = (site.connect(), Arc::clone(&dump));
        tasks.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut done = 0;
            for _ in 0..300 {
                done += usize::from(step(&vol, &mut random, &dump).await);
            }
            done
        }));
    }
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    assert!(done > 50, "{done}");
    assert!(site.vol.monitor().await.unwrap().transactions.is_empty());
    drop(site.volumes.enter(RW, Intent::Change).unwrap());
    for id in [RW, RO, BK, TEMP] {
        assert_eq!(site.volumes.held(id), None);
        if id != RW && site.partition(A).has_volume(id).unwrap() {
            let transaction = site.begin(id, AttachFlags::OFFLINE).await;
            site.vol.delete_volume(transaction).await.unwrap();
            site.end(transaction).await;
        }
    }
    // The volume went through all of it as it was.
    let options = afar_store::RestoreOptions::new(VolumeId(12)).name("expected");
    site.partition(A).restore(&dump[..], &options).unwrap();
    assert_same(&site.volume(A, VolumeId(12)), &volume);
}
