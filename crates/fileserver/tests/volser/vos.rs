//! What OpenAFS's `vos` prints of a server. Skipped, saying so, where it is missing or no network
//! namespace can be made.

use std::path::Path;
use std::process::{Command, Output};

use afar_net::{Config, Endpoint};
use afar_types::{TransactionFlags, UnixTime, VolumeChanges};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use crate::{A, AttachFlags, RO, RW, Site, VolserConfig, VolumeId, VolumeType, text};

const ADDRESS: &str = "10.9.0.1";

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

/// Runs this where nothing else is on port 7005: in a network namespace of its own.
fn in_a_namespace(work: impl FnOnce() + Send + 'static) {
    let done = std::thread::spawn(|| {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return skipped(&format!("no network namespace can be made: {error}"));
        }
        let address = format!("{ADDRESS}/32");
        let ip = |words: &[&str]| Command::new("ip").args(words).status();
        let up = ip(&["link", "set", "lo", "up"]);
        let added = ip(&["addr", "add", &address, "dev", "lo"]);
        match (up, added) {
            (Ok(up), Ok(added)) if up.success() && added.success() => work(),
            other => skipped(&format!("the namespace cannot be set up: {other:?}")),
        }
    });
    done.join().unwrap();
}

fn printed(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    format!("{out}{}", String::from_utf8_lossy(&output.stderr))
}

/// What `vos` prints, in UTC.
async fn vos(config: &Path, words: &str) -> String {
    let mut command = Command::new("vos");
    command.args(words.split_whitespace());
    command.args(["-server", ADDRESS, "-noauth", "-config"]);
    command.arg(config).env("TZ", "UTC");
    let run = tokio::task::spawn_blocking(move || command.output());
    printed(&run.await.unwrap().unwrap())
}

async fn session(config: TempDir) {
    let address = format!("{ADDRESS}:7005").parse().unwrap();
    let endpoint = Endpoint::bind(address, Config::default()).unwrap();
    let site = Site::at(endpoint, VolserConfig::default()).await;
    site.create(A, RW, "user.ann").await;
    site.clone_of(RW, RO, VolumeType::ReadOnly, "user.ann.readonly")
        .await;
    let transaction = site.begin(RO, AttachFlags::OFFLINE).await;
    site.set_flags(transaction, TransactionFlags::OUT_OF_SERVICE)
        .await;
    site.end(transaction).await;
    let transaction = site.begin(RW, AttachFlags::BUSY).await;
    let changes = VolumeChanges {
        max_quota: Some(77),
        creation_date: Some(UnixTime(1_000_000_000)),
        update_date: Some(UnixTime(1_100_000_000)),
        day_use: Some(5),
        ..VolumeChanges::default()
    };
    site.vol.set_info(transaction, changes).await.unwrap();
    site.end(transaction).await;

    let vos = async |words| vos(config.path(), words).await;
    assert_eq!(vos("listpart").await, LISTPART);
    assert_eq!(vos("listvol -partition a").await, LISTVOL);
    let long = vos("listvol -partition a -long").await;
    let long: Vec<_> = long
        .lines()
        .filter(|line| !line.contains("    Copy "))
        .collect();
    assert_eq!(long[1..9].join("\n"), LONG);
    let free = vos("partinfo -partition b").await;
    assert!(
        free.starts_with("Free space on partition /vicepb: "),
        "{free}"
    );
    assert_eq!(
        vos("status").await,
        format!("No active transactions on {ADDRESS}\n")
    );

    let made = site
        .vol
        .create_volume(A, text("half"), 0, VolumeId(0), VolumeId(536_871_000));
    made.await.unwrap();
    let status = vos("status").await;
    assert!(status.contains("transaction: 6  created: "), "{status}");
    assert!(
        status.contains("\nvolume: 536871000  partition: /vicepa  procedure: CreateVolume\n"),
        "{status}"
    );
    assert!(
        vos("listvol -partition a")
            .await
            .contains("**** Volume 536871000 is busy ****")
    );
}

const LISTPART: &str = "\
The partitions on the server are:
    /vicepa     /vicepb \n\
Total: 2
";

const LISTVOL: &str = "\
Total number of volumes on server 10.9.0.1 partition /vicepa: 2 
user.ann                          536870912 RW          2 K On-line
user.ann.readonly                 536870913 RO          2 K Off-line

Total volumes onLine 1 ; Total volumes offLine 1 ; Total busy 0

";

const LONG: &str = "\
user.ann                          536870912 RW          2 K  On-line
    10.9.0.1 /vicepa 
    RWrite  536870912 ROnly  536870913 Backup          0 
    MaxQuota         77 K 
    Creation    Sun Sep  9 01:46:40 2001
    Backup      Never
    Last Update Tue Nov  9 11:33:20 2004
    5 accesses in the past day (i.e., vnode references)";

#[test]
fn vos_prints_what_it_does_of_others() {
    if Command::new("vos").arg("help").output().is_err() {
        return skipped("vos is not installed");
    }
    in_a_namespace(|| {
        let config = TempDir::new().unwrap();
        std::fs::write(config.path().join("ThisCell"), "example.org\n").unwrap();
        let servers = format!(">example.org #a cell\n{ADDRESS} #one\n");
        std::fs::write(config.path().join("CellServDB"), servers).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(session(config));
    });
}
