//! Transactions whose clients are gone.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use afar_fileserver::volser::VolserConfig;
use afar_net::{AbortCode, Endpoint, RxNull};
use afar_rpc::{Caller, Identity, vl};
use afar_types::{AttachFlags, NvldbEntry, PartitionId, SiteFlags, TransactionFlags, VolumeId};

use crate::transactions::clients;
use crate::{A, B, RW, Site, TEMP, UNFINISHED, bind, text};

const PATIENCE: Duration = Duration::from_secs(20);

/// Ends when so many transactions are left.
async fn left(site: &Site, number: usize) {
    let fewer = async {
        while site.vol.monitor().await.unwrap().transactions.len() > number {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, fewer).await.unwrap();
}

#[tokio::test]
async fn a_transaction_ends_with_its_client() {
    let site = Site::new().await;
    site.create(A, RW, "one").await;
    site.create(A, TEMP, "other").await;
    let stays = site.begin(TEMP, AttachFlags::BUSY).await;
    let (killed, vol) = site.another_client();
    let begun = vol.trans_create(RW, A, AttachFlags::OFFLINE).await;
    begun.unwrap();
    let made = vol.create_volume(B, text("goes"), 0, VolumeId(0), VolumeId(7));
    made.await.unwrap();
    assert_ne!(clients(&site), [0, 0]);
    killed.shutdown().await;
    left(&site, 1).await;
    assert_eq!(clients(&site), [0, 0]);
    assert!(!site.partition(B).has_volume(VolumeId(7)).unwrap());
    // A client that is there is asked too, and need not answer.
    site.end(stays).await;
}

/// A location server that has one volume at one place.
struct Locations(PartitionId);

impl vl::Service for Locations {
    async fn get_entry_by_id_n(
        &self,
        _: &Caller,
        request: vl::get_entry_by_id_n::Request,
    ) -> Result<vl::get_entry_by_id_n::Reply, AbortCode> {
        let mut entry = NvldbEntry {
            n_servers: 1,
            volume_id: [request.volume, VolumeId(0), VolumeId(0)],
            ..NvldbEntry::default()
        };
        entry.server_number[0] = Ipv4Addr::LOCALHOST.into();
        entry.server_partition[0] = self.0;
        entry.server_flags[0] = SiteFlags::READ_WRITE;
        Ok(vl::get_entry_by_id_n::Reply { entry })
    }
}

async fn locations(at: PartitionId) -> Endpoint {
    let endpoint = bind();
    endpoint.serve(vl::SERVICE, vl::NAME, vl::Server::new(Locations(at)));
    endpoint.stats().await;
    endpoint
}

/// Whether a volume of partition A is in service after a client took it out and was killed, when the
/// location servers have it at this partition.
async fn is_back(located: PartitionId, flags: TransactionFlags) -> bool {
    let (locations, asking) = (locations(located).await, bind());
    let address = locations.local_addr();
    let home = asking.clone();
    let config = VolserConfig::default()
        .home(vec![Ipv4Addr::LOCALHOST], home)
        .location(move || {
            let connection = asking.connect(address, vl::SERVICE, Arc::new(RxNull));
            vec![vl::Client::new(connection)]
        });
    let site = Site::with(config, Identity::Superuser).await;
    site.create(A, RW, "one").await;
    let (killed, vol) = site.another_client();
    let transaction = vol.trans_create(RW, A, AttachFlags::BUSY).await;
    let transaction = transaction.unwrap().transaction;
    vol.set_flags(transaction, flags).await.unwrap();
    assert!(!site.volume(A, RW).state().unwrap().in_service);
    killed.shutdown().await;
    left(&site, 0).await;
    let there = site.partition(A).has_volume(RW).unwrap();
    there && site.volume(A, RW).state().unwrap().in_service
}

#[tokio::test]
async fn a_volume_is_back_in_service_where_the_location_servers_have_it() {
    let out = TransactionFlags::OUT_OF_SERVICE;
    assert!(is_back(A, out).await);
    // It has moved: the other one is the volume now.
    assert!(!is_back(B, out).await);
    // It was not to stay.
    assert!(!is_back(A, UNFINISHED).await);
}
