//! `vos release`: one dump to several sites.

use std::net::Ipv4Addr;
use std::time::Duration;

use afar_fileserver::volser::VolserConfig;
use afar_net::{AbortCode, Call, Endpoint, Handler};
use afar_rpc::{Identity, afsvol};
use afar_types::{
    DestServer, Destinations, ReplicaDest, TransactionId, UnixTime, VolumeId, VolumeType,
};

use crate::{
    A, AttachFlags, B, ENOENT, FINISHED, RO, RW, Site, assert_same, bind, code, cookie, new_file,
    next_second, noise, text,
};

const RX_CALL_TIMEOUT: i32 = -3;
const ENOTCONN: i32 = 107;

/// A transaction at a site on the read-only volume, which is made if it is not there.
async fn site_of(site: &Site) -> ReplicaDest {
    let begun = site.vol.trans_create(RO, B, AttachFlags::OFFLINE).await;
    let transaction = match begun {
        Ok(begun) => begun.transaction,
        Err(_) => {
            let name = text("user.ann.readonly");
            let made = site.vol.create_volume(B, name, 1, RW, RO).await;
            made.unwrap().transaction
        }
    };
    ReplicaDest {
        transaction,
        server: site.address(),
    }
}

async fn forward(
    site: &Site,
    transaction: TransactionId,
    from: UnixTime,
    destinations: Vec<ReplicaDest>,
) -> Vec<i32> {
    let destinations = Destinations::new(destinations).unwrap();
    let cookie = cookie("user.ann.readonly", VolumeType::ReadOnly, RO);
    let sent = site
        .vol
        .forward_multiple(transaction, from, destinations, 0, cookie);
    sent.await.unwrap().results.to_vec()
}

/// Brings the sites up to date, as `vos release` does without the VLDB; gives each one's code.
async fn release(site: &Site, sites: &[&Site], from: UnixTime) {
    let clone = site.begin(RO, AttachFlags::BUSY).await;
    let mut destinations = Vec::new();
    for site in sites {
        destinations.push(site_of(site).await);
    }
    let results = forward(site, clone, from, destinations.clone()).await;
    assert_eq!(results, vec![0; sites.len()]);
    for (site, destination) in sites.iter().zip(destinations) {
        let transaction = destination.transaction;
        let name = text("user.ann.readonly");
        let ids = site
            .vol
            .set_ids_types(transaction, name, 1, RW, RO, VolumeId(0));
        ids.await.unwrap();
        site.set_flags(transaction, FINISHED).await;
        site.end(transaction).await;
    }
    site.end(clone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn to_three_sites_in_full_and_then_what_changed() {
    let home = Site::new().await;
    let sites = [Site::new().await, Site::new().await, Site::new().await];
    let sites = [&sites[0], &sites[1], &sites[2]];
    let volume = home.filled().await;
    home.clone_of(RW, RO, VolumeType::ReadOnly, "user.ann.readonly")
        .await;
    release(&home, &sites, UnixTime(0)).await;
    for site in sites {
        let released = site.volume(B, RO);
        assert_same(&home.volume(A, RO), &released);
        let state = released.state().unwrap();
        assert_eq!((state.kind, state.parent), (VolumeType::ReadOnly, RW));
        assert!(state.online);
        assert_eq!(&*state.name, "user.ann.readonly");
        // Restored with the date of the release, by which clients compare the sites.
        assert_eq!(
            state.creation_date,
            home.volume(A, RO).state().unwrap().creation_date
        );
    }

    next_second().await;
    let since = volume.state().unwrap().update_date;
    let src = volume.lookup(volume.root(), b"src").unwrap();
    new_file(&volume, src, "new", &noise(300_000, 5));
    volume.remove_file(src, b"file.3").unwrap();
    let transaction = home.begin(RW, AttachFlags::BUSY).await;
    home.vol.re_clone(transaction, RO).await.unwrap();
    home.end(transaction).await;
    for site in sites {
        site.broken.take();
    }
    release(&home, &sites, UnixTime(since.0 - 2)).await;
    for site in sites {
        assert_same(&home.volume(A, RO), &site.volume(B, RO));
        assert_eq!(site.broken.take(), [RO]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_fails_does_not_stop_the_others() {
    let home = Site::new().await;
    let sites = [Site::new().await, Site::new().await];
    home.filled().await;
    home.clone_of(RW, RO, VolumeType::ReadOnly, "user.ann.readonly")
        .await;
    let clone = home.begin(RO, AttachFlags::BUSY).await;
    let nowhere = DestServer {
        port: 1 << 20,
        ..DestServer::new(Ipv4Addr::LOCALHOST)
    };
    let unknown = ReplicaDest {
        transaction: TransactionId(99),
        server: sites[1].address(),
    };
    let destinations = vec![
        ReplicaDest {
            server: nowhere,
            ..unknown
        },
        site_of(&sites[0]).await,
        unknown,
        site_of(&sites[1]).await,
    ];
    let results = forward(&home, clone, UnixTime(0), destinations).await;
    assert_eq!(results, [ENOTCONN, 0, ENOENT, 0]);
    for site in &sites {
        assert_same(&home.volume(A, RO), &site.volume(B, RO));
    }
    // Where all fail each has its code.
    let results = forward(&home, clone, UnixTime(0), vec![unknown, unknown]).await;
    assert_eq!(results, [ENOENT, ENOENT]);
    assert!(
        forward(&home, clone, UnixTime(0), Vec::new())
            .await
            .is_empty()
    );
    let cookie = cookie("user.ann.readonly", VolumeType::ReadOnly, RO);
    let one = home.vol.forward(
        clone,
        UnixTime(0),
        unknown.server,
        unknown.transaction,
        cookie,
    );
    assert_eq!(code(one.await), ENOENT);
}

/// Takes calls and never reads them.
struct Stuck;

impl Handler for Stuck {
    async fn handle(&self, _: &mut Call) -> Result<(), AbortCode> {
        std::future::pending().await
    }
}

fn stuck() -> (Endpoint, ReplicaDest) {
    let endpoint = bind();
    endpoint.serve(afsvol::SERVICE, "stuck", Stuck);
    let server = DestServer {
        port: endpoint.local_addr().port().into(),
        ..DestServer::new(Ipv4Addr::LOCALHOST)
    };
    let transaction = TransactionId(1);
    (
        endpoint,
        ReplicaDest {
            transaction,
            server,
        },
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_takes_nothing_is_left_behind() {
    let config = VolserConfig::default().stall_limit(Duration::from_millis(500));
    let home = Site::with(config, Identity::Superuser).await;
    let site = Site::new().await;
    let volume = home.filled().await;
    // More than all queues on the way to one destination hold.
    new_file(&volume, volume.root(), "larger", &noise(40 << 20, 3));
    home.clone_of(RW, RO, VolumeType::ReadOnly, "user.ann.readonly")
        .await;
    let clone = home.begin(RO, AttachFlags::BUSY).await;
    let (_endpoint, stuck) = stuck();
    let destinations = vec![stuck, site_of(&site).await];
    let results = forward(&home, clone, UnixTime(0), destinations).await;
    assert_eq!(results, [RX_CALL_TIMEOUT, 0]);
    assert_same(&home.volume(A, RO), &site.volume(B, RO));
}
