//! How many files clients make in a second, by batches and by single calls.
//!
//! `batches [BATCHES [FOLDER]]`, 100 and the folder of temporary files by default, prints its figures as JSON. Each
//! batch makes a directory with files in it. The calls are real Rx on loopback, and what is answered is on the disk.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use afar_fileserver::hosts::{Hosts, HostsConfig};
use afar_fileserver::protection::Protection;
use afar_fileserver::server::FileServer;
use afar_fileserver::volumes::Volumes;
use afar_net::{Config, Endpoint, RxNull};
use afar_rpc::{Identity, rxafs};
use afar_store::{NewVolume, Partition, PartitionOptions};
use afar_types::{
    AfsUuid, BATCH_OPERATIONS, BatchChange, BatchChanges, BatchMake, BatchOperation, BatchVnode,
    Fid, FileName, StoreStatus, VolumeId,
};
use afar_xdr::{FixedOpaque, Opaque, to_bytes};
use bytes::Bytes;
use serde_json::json;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const VOLUME: VolumeId = VolumeId(1);

fn make(directory: BatchVnode, name: &str) -> Result<BatchMake> {
    Ok(BatchMake {
        directory,
        name: FileName::new(name)?,
        attributes: StoreStatus::default(),
        wanted: BatchVnode::default(),
    })
}

/// The operations of a batch: a directory of this name, full of files.
fn operations(directory: &str) -> Result<Bytes> {
    let root = Fid::root(VOLUME);
    let mut operations = vec![BatchOperation::MakeDir(make(root.into(), directory)?)];
    for number in 1..BATCH_OPERATIONS {
        let file = make(BatchVnode::made_by(0), &format!("file-{number}"))?;
        operations.push(BatchOperation::Create(file));
    }
    let changes = operations.into_iter().map(BatchChange::from);
    Ok(to_bytes(&BatchChanges::new(changes.collect::<Vec<_>>())?))
}

/// A client with a socket of its own.
struct Client {
    files: rxafs::Client,
    series: [u8; 16],
    number: u64,
    _endpoint: Endpoint,
}

impl Client {
    async fn new(server: &Endpoint) -> Result<Self> {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse()?, Config::default())?;
        let connection = endpoint.connect(server.local_addr(), rxafs::SERVICE, Arc::new(RxNull));
        let mut series = [0; 16];
        fastrand::fill(&mut series);
        let mut client = Self {
            files: rxafs::Client::new(connection),
            series,
            number: 0,
            _endpoint: endpoint,
        };
        let nothing = to_bytes(&BatchChanges::default());
        client.batch(nothing).await?;
        Ok(client)
    }

    async fn batch(&mut self, operations: Bytes) -> Result<()> {
        let length = u32::try_from(operations.len())?;
        let series = FixedOpaque(self.series);
        let note = Opaque::default();
        let begun = self.files.batch(VOLUME, series, self.number, length, note);
        let mut call = begun.await?;
        call.send(operations).await?;
        let reply = call.finish().await?;
        if let Some(failed) = reply.results.iter().find(|result| result.code != 0) {
            return Err(format!("an operation failed with {}", failed.code).into());
        }
        self.number += 1;
        Ok(())
    }

    async fn batches(mut self, all: Vec<Bytes>) -> Result<()> {
        for operations in all {
            self.batch(operations).await?;
        }
        Ok(())
    }
}

fn per_second(made: usize, since: Instant) -> f64 {
    let made = u32::try_from(made).unwrap_or(u32::MAX);
    (f64::from(made) / since.elapsed().as_secs_f64()).round()
}

async fn measure(count: usize, folder: PathBuf) -> Result<serde_json::Value> {
    let directory = tempfile::tempdir_in(folder)?;
    let partition = Partition::init(directory.path(), &PartitionOptions::default())?;
    let volumes = vec![("/vicepa".parse()?, Arc::new(partition))];
    let volumes = Arc::new(Volumes::new(volumes));
    let (_, partition) = volumes.partitions().next().ok_or("no partition")?;
    let volume = NewVolume::new(VOLUME, "bench").max_quota(0);
    volumes.create(partition, &volume)?;
    let hosts = Hosts::new(HostsConfig::new(AfsUuid::from_random([7; 16])));
    let server = FileServer::new(volumes, hosts, Arc::new(Protection::new(Vec::new())));
    let endpoint = Endpoint::bind("127.0.0.1:0".parse()?, Config::default())?;
    let service = server.service(endpoint.clone());
    let service = rxafs::Server::with_identity(service, Identity::Superuser);
    endpoint.serve(rxafs::SERVICE, rxafs::NAME, service);
    endpoint.stats().await;

    let all = |client: &str| {
        let name = |number| operations(&format!("{client}-{number}"));
        (0..count).map(name).collect::<Result<Vec<_>>>()
    };
    let made = count * (BATCH_OPERATIONS - 1);
    let one = (Client::new(&endpoint).await?, all("one")?);
    let begun = Instant::now();
    one.0.batches(one.1).await?;
    let by_one = per_second(made, begun);

    let mut clients = Vec::new();
    for client in ["a", "b", "c", "d"] {
        clients.push((Client::new(&endpoint).await?, all(client)?));
    }
    let begun = Instant::now();
    let running = clients
        .into_iter()
        .map(|(client, all)| tokio::spawn(client.batches(all)));
    let running: Vec<_> = running.collect();
    for client in running {
        client.await??;
    }
    let by_four = per_second(made * 4, begun);

    let single = Client::new(&endpoint).await?;
    let singly = 2_000;
    let begun = Instant::now();
    for number in 0..singly {
        let name = FileName::new(format!("single-{number}"))?;
        let root = Fid::root(VOLUME);
        let created = single.files.create_file(root, name, StoreStatus::default());
        created.await?;
    }
    Ok(json!({
        "creates_per_s": by_one,
        "creates_of_four_per_s": by_four,
        "single_creates_per_s": per_second(singly, begun),
    }))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "figures are what this program is for")]
async fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let count = words.next().map_or(Ok(100), |word| word.parse())?;
    let folder = words.next().map_or_else(std::env::temp_dir, PathBuf::from);
    println!("{}", measure(count, folder).await?);
    Ok(())
}
