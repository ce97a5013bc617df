//! Leases: what a client may keep to itself, who waits for it, and what becomes of what it sends too late.

use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_cell::RecallHandler;
use afar_lease::wire::{self, Lease, Note, Recall, RecallAnswer, Word};
use afar_lease::{Holder, Sent, TERM};
use afar_net::AbortCode;
use afar_rpc::{RpcError, rxafs};
use afar_store::VolumeChange;
use afar_types::{
    AttachFlags, BatchChange, BatchChanges, BatchCondition, BatchMake, BatchOperation, BatchVnode,
    Fid, StoreStatus, UnixTime,
};
use afar_xdr::{FixedOpaque, List, Opaque, to_bytes};
use parking_lot::Mutex;
use std::net::SocketAddr;

use super::batch::copy;
use super::cell::*;

const ESTALE: AbortCode = uae(0x72);
const DONE: AbortCode = AbortCode(0);
const SERIES: [u8; 16] = *b"what a cache has";

/// A client that has leases, and does what a test says.
struct Host {
    client: Client,
    end: Arc<End>,
    began: Instant,
}

/// Its end of the protocol.
#[derive(Debug)]
struct End {
    holder: Mutex<Holder>,
    recalled: Mutex<Vec<Fid>>,
    told: tokio::sync::Notify,
}

impl RecallHandler for End {
    fn recalled(&self, _: SocketAddr, recall: &Recall) -> RecallAnswer {
        let answer = self.holder.lock().recalled(recall);
        let fids = recall.items.iter().map(|item| item.fid);
        self.recalled.lock().extend(fids);
        // Without items it asks for a claim.
        if !recall.items.is_empty() {
            self.told.notify_one();
        }
        answer
    }
}

impl Host {
    fn new(client: Client) -> Self {
        let end = Arc::new(End {
            holder: Mutex::new(Holder::new()),
            recalled: Mutex::default(),
            told: tokio::sync::Notify::new(),
        });
        let handler = Arc::clone(&end);
        client.callbacks.set_recall_handler(handler);
        Self {
            client,
            end,
            began: Instant::now(),
        }
    }

    fn now(&self) -> Duration {
        // Any clock will do that both its calls are told by; a session is never at the first moment.
        self.began.elapsed() + Duration::from_secs(1)
    }

    fn note(&self, wishes: &[Fid], reserve: u32) -> (Note, Sent) {
        self.end.holder.lock().note(self.now(), wishes, reserve)
    }

    async fn keep(&self, wishes: &[Fid], reserve: u32) -> Word {
        let (note, sent) = self.note(wishes, reserve);
        let word = self.client.say(&note).await.unwrap();
        let mut holder = self.end.holder.lock();
        holder.answered(self.now(), &sent, &word);
        word
    }

    /// Wishes for something until it has it.
    async fn lease(&self, fid: Fid) -> Lease {
        for _ in 0..200 {
            self.keep(&[fid], 0).await;
            let number = self.end.holder.lock().lease(self.now(), fid);
            if let Some(number) = number {
                return Lease { fid, number };
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no lease of {fid}");
    }

    /// Its number of a lease that may be recalled.
    fn number(&self, fid: Fid) -> u64 {
        self.end.holder.lock().number(fid).unwrap()
    }

    /// Has all of a vnode sent, and says so.
    async fn give_back(&self, fid: Fid) {
        self.end.holder.lock().flushed(fid);
        self.keep(&[], 0).await;
    }

    /// Returns when the server has asked for something.
    async fn asked(&self) -> Vec<Fid> {
        self.end.told.notified().await;
        self.end.recalled.lock().clone()
    }

    async fn run(
        &self,
        number: u64,
        changes: Vec<BatchChange>,
    ) -> Result<rxafs::batch::Reply, RpcError> {
        let (note, sent) = self.note(&[], 0);
        let reply = self.client.run(number, changes, Some(&note)).await?;
        let word = wire::decode::<Word>(&reply.word).unwrap();
        let mut holder = self.end.holder.lock();
        holder.answered(self.now(), &sent, &word);
        Ok(reply)
    }

    async fn open(&self) {
        let opened = self.run(0, Vec::new()).await.unwrap();
        assert!(opened.results.is_empty());
    }
}

impl Client {
    async fn say(&self, note: &Note) -> Result<Word, RpcError> {
        let note = Opaque::new(&to_bytes(note)[..]).unwrap();
        let reply = self.files.keep_leases(note).await?;
        Ok(wire::decode(&reply.word).unwrap())
    }

    async fn run(
        &self,
        number: u64,
        changes: Vec<BatchChange>,
        note: Option<&Note>,
    ) -> Result<rxafs::batch::Reply, RpcError> {
        let bytes = to_bytes(&BatchChanges::new(changes).unwrap());
        let length = u32::try_from(bytes.len()).unwrap();
        let note = note.map_or_else(Opaque::default, |note| {
            Opaque::new(&to_bytes(note)[..]).unwrap()
        });
        let series = FixedOpaque(SERIES);
        let begun = self.files.batch(VOLUME, series, number, length, note);
        let mut call = begun.await?;
        call.send(bytes).await?;
        call.finish().await
    }
}

fn under(lease: Lease, version: u64) -> BatchCondition {
    BatchCondition {
        vnode: lease.fid.into(),
        lease: lease.number,
        version,
    }
}

fn change(operation: BatchOperation, conditions: &[BatchCondition]) -> BatchChange {
    BatchChange {
        operation,
        under: List::new(conditions).unwrap(),
        made: UnixTime(0),
    }
}

fn store(target: Fid, data: &[u8]) -> BatchOperation {
    BatchOperation::StoreData {
        target: target.into(),
        attributes: StoreStatus::default(),
        data: Opaque::new(data).unwrap(),
    }
}

fn create(directory: Fid, file: &str, wanted: Fid) -> BatchOperation {
    BatchOperation::Create(BatchMake {
        directory: directory.into(),
        name: name(file),
        attributes: mode(0o644),
        wanted: wanted.into(),
    })
}

fn codes(reply: &rxafs::batch::Reply) -> Vec<AbortCode> {
    let codes = reply.results.iter().map(|result| AbortCode(result.code));
    codes.collect()
}

async fn cell() -> Cell {
    Cell::leasing(tempfile::tempdir().unwrap()).await
}

fn version(cell: &Cell, fid: Fid) -> u64 {
    cell.volume.status(fid).unwrap().data_version.0
}

#[tokio::test]
async fn what_is_granted_first_is_on_the_disk() {
    let cell = cell().await;
    let host = Host::new(cell.client());
    let file = host.client.create(cell.root(), "a").await;
    let first = host.keep(&[file], 0).await;
    assert_eq!(first.grants.len(), 1);
    let path = cell.volume.partition().path().join(LEASES);
    let uuid = to_bytes(&host.client.callbacks.uuid());
    let rows = std::fs::read(path).unwrap();
    assert!(rows.windows(uuid.len()).any(|bytes| *bytes == *uuid));
    // Another one in the same volume comes at once.
    let word = host.keep(&[cell.root()], 0).await;
    assert_eq!(word.grants.len(), 1);
    assert!(word.renews);
    let shown = cell.leases.as_ref().unwrap().standing();
    assert_eq!(shown, (2, 1));
}

#[tokio::test]
async fn another_reads_what_was_changed_before() {
    let cell = cell().await;
    let (host, other) = (Host::new(cell.client()), cell.client());
    let file = host.client.create(cell.root(), "a").await;
    host.open().await;
    let lease = host.lease(file).await;
    let before = version(&cell, file);
    let reading = tokio::spawn(async move { other.fetch(file, 0, 100).await.unwrap().0 });
    assert_eq!(host.asked().await, [file]);
    assert!(!reading.is_finished());
    let changes = vec![change(store(file, b"mine"), &[under(lease, before)])];
    let reply = host.run(1, changes).await.unwrap();
    assert_eq!(codes(&reply), [DONE]);
    assert!(!reading.is_finished(), "there may be more");
    host.give_back(file).await;
    assert_eq!(reading.await.unwrap(), b"mine");
    // It is not leased again for a while.
    assert!(host.keep(&[file], 0).await.grants.is_empty());
}

#[tokio::test]
async fn anothers_changes_wait_in_each_way() {
    let cell = cell().await;
    let (host, other) = (Host::new(cell.client()), Arc::new(cell.client()));
    let root = cell.root();
    let directory = host.client.make_dir(root, "d").await;
    let file = host.client.create(directory, "a").await;
    let ways = [
        "store", "status", "rename", "remove", "list", "lock", "batch",
    ];
    for way in ways {
        // Damped or not: each has a directory and a file of its own.
        let directory = host.client.make_dir(root, way).await;
        let file = host.client.create(directory, "a").await;
        host.lease(file).await;
        let leased = match way {
            "list" => directory,
            _ => file,
        };
        if way == "list" {
            host.lease(directory).await;
        }
        host.end.recalled.lock().clear();
        let other = Arc::clone(&other);
        let changing = tokio::spawn(async move {
            let files = &other.files;
            match way {
                "store" => other.store(file, 0, b"x", 1).await.map(drop),
                "status" => files.store_status(file, mode(0o600)).await.map(drop),
                "rename" => {
                    let renamed = files.rename(directory, name("a"), directory, name("b"));
                    renamed.await.map(drop)
                }
                "remove" => files.remove_file(directory, name("a")).await.map(drop),
                "list" => other.fetch(directory, 0, 1 << 16).await.map(drop),
                "lock" => files.set_lock(file, 1).await.map(drop),
                _ => {
                    other.run(0, Vec::new(), None).await.unwrap();
                    let changes = vec![store(file, b"x").into()];
                    other.run(1, changes, None).await.map(drop)
                }
            }
        });
        assert_eq!(host.asked().await, [leased], "{way}");
        assert!(!changing.is_finished(), "{way}");
        host.give_back(leased).await;
        changing.await.unwrap().unwrap();
    }
    // What nobody has a lease of waits for nothing.
    other.store(file, 0, b"x", 1).await.unwrap();
}

#[tokio::test]
async fn what_waits_is_not_done_for_a_client_that_has_given_up() {
    let cell = cell().await;
    let (host, other) = (Host::new(cell.client()), cell.client());
    let file = host.client.create(cell.root(), "a").await;
    let before = version(&cell, file);
    host.lease(file).await;
    let storing = tokio::spawn(async move { other.store(file, 0, b"late", 4).await.map(drop) });
    assert_eq!(host.asked().await, [file]);
    // With the task its call ends, and the server hears of that.
    storing.abort();
    assert!(storing.await.unwrap_err().is_cancelled());
    tokio::time::sleep(Duration::from_millis(300)).await;
    host.give_back(file).await;
    assert_eq!(cell.client().fetch(file, 0, 10).await.unwrap().0, b"");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(version(&cell, file), before, "it was done after all");
}

#[tokio::test]
async fn what_is_missing_is_missing_at_once() {
    let cell = cell().await;
    let (host, other) = (Host::new(cell.client()), cell.client());
    host.lease(cell.root()).await;
    let word = host.keep(&[cell.root()], 8).await;
    let reserved = word.blocks[0].fid(0).unwrap();
    let missing = other.files.fetch_status(reserved).await;
    assert_eq!(code(missing), VNOVNODE);
    assert!(host.end.recalled.lock().is_empty());
}

#[tokio::test]
async fn a_hosts_own_reads_pass_and_its_changes_without_a_note_do_not() {
    let cell = cell().await;
    let host = Host::new(cell.client());
    let file = host.client.create(cell.root(), "a").await;
    host.lease(file).await;
    host.client.files.fetch_status(file).await.unwrap();
    host.client.fetch(file, 0, 10).await.unwrap();
    assert!(host.end.recalled.lock().is_empty());
    let (files, attributes) = (&host.client.files, mode(0o600));
    let changing = files.store_status(file, attributes);
    let giving = async {
        assert_eq!(host.asked().await, [file]);
        host.give_back(file).await;
    };
    let (changed, ()) = tokio::join!(changing, giving);
    changed.unwrap();
}

#[tokio::test]
async fn a_holder_that_never_answers_delays_others_for_a_term_and_is_late_then() {
    let cell = cell().await;
    let (host, other) = (Host::new(cell.client()), cell.client());
    let root = cell.root();
    let file = host.client.create(root, "a").await;
    let quiet = host.client.create(root, "b").await;
    host.open().await;
    let lease = host.lease(file).await;
    let of_quiet = host.lease(quiet).await;
    let (before, of_other) = (version(&cell, file), version(&cell, quiet));
    // From here on it says nothing.
    host.client.callbacks.set_recall_handler(Arc::new(Mute));
    let began = Instant::now();
    other.store(file, 0, b"theirs", 6).await.unwrap();
    let waited = began.elapsed();
    assert!(waited < TERM + Duration::from_secs(3), "{waited:?}");

    // Its numbers mean nothing, and nothing is run under them.
    let changes = vec![
        change(store(file, b"mine"), &[under(lease, before)]),
        change(store(quiet, b"mine"), &[under(of_quiet, of_other)]),
    ];
    let reply = host.run(1, changes.clone()).await.unwrap();
    assert!(reply.results.is_empty());
    // What nobody else has changed is stored all the same, and nothing else.
    let reply = host.client.run(1, changes, None).await.unwrap();
    assert_eq!(codes(&reply), [ESTALE, DONE]);
    assert_eq!(other.fetch(file, 0, 10).await.unwrap().0, b"theirs");
    assert_eq!(other.fetch(quiet, 0, 10).await.unwrap().0, b"mine");
}

/// Answers as a host does that is stuck.
#[derive(Debug)]
struct Mute;

impl RecallHandler for Mute {
    fn recalled(&self, _: SocketAddr, _: &Recall) -> RecallAnswer {
        RecallAnswer::default()
    }
}

#[tokio::test]
async fn files_are_born_in_leased_directories_by_reserved_fids() {
    let cell = cell().await;
    let (host, other) = (Host::new(cell.client()), cell.client());
    let directory = host.client.make_dir(cell.root(), "d").await;
    host.open().await;
    let lease = host.lease(directory).await;
    let block = host.keep(&[directory], 16).await.blocks[0];
    assert_eq!((block.volume, block.count), (VOLUME, 16));
    assert!(block.quota > 0);
    let fids: Vec<Fid> = (0..16).map(|place| block.fid(place).unwrap()).collect();
    let file = fids.iter().copied().find(|fid| !fid.vnode.is_directory());
    let file = file.unwrap();
    let below = fids.iter().copied().find(|fid| fid.vnode.is_directory());
    let below = below.unwrap();
    let beyond = Fid::new(VOLUME.0, block.vnode + 100, block.uniquifier + 100);
    let held = under(lease, version(&cell, directory));
    let born = |fid| Lease { fid, ..lease };
    let changes = vec![
        change(create(directory, "f", file), &[held]),
        change(store(file, b"new"), &[under(born(file), 0)]),
        change(create(directory, "g", beyond), &[held]),
        // Once each.
        change(create(directory, "h", file), &[held]),
        // A file has no number of a directory.
        change(create(directory, "i", below), &[held]),
    ];
    let reply = host.run(1, changes).await.unwrap();
    assert_eq!(codes(&reply), [DONE, DONE, ESTALE, ESTALE, ESTALE]);
    assert_eq!(cell.volume.lookup(directory, b"f").unwrap(), file);
    assert!(cell.leases.as_ref().unwrap().is_leased(file));
    // The server's own numbers are others.
    let made = host.client.create(cell.root(), "z").await;
    assert!(block.place(made).is_none());

    // What was refused may be tried again: nothing stands in its way.
    let make = BatchOperation::MakeDir(BatchMake {
        directory: directory.into(),
        name: name("i"),
        attributes: mode(0o755),
        wanted: below.into(),
    });
    let held = under(lease, version(&cell, directory));
    let reply = host.run(2, vec![change(make, &[held])]).await.unwrap();
    assert_eq!(codes(&reply), [DONE]);

    // Others wait for what was born as for the rest.
    let reading = tokio::spawn(async move { other.fetch(file, 0, 10).await.unwrap().0 });
    assert!(host.asked().await.contains(&file));
    host.give_back(file).await;
    assert_eq!(reading.await.unwrap(), b"new");

    // Without the directory's lease nothing is.
    host.end.holder.lock().give_back(directory);
    host.give_back(directory).await;
    let another = fids.iter().copied().rfind(|fid| !fid.vnode.is_directory());
    let held = under(lease, version(&cell, directory));
    let changes = vec![change(create(directory, "k", another.unwrap()), &[held])];
    let reply = host.run(3, changes).await.unwrap();
    assert_eq!(codes(&reply), [ESTALE]);
}

#[tokio::test]
async fn a_fid_of_its_own_choice_needs_a_lease_of_the_directory() {
    let cell = cell().await;
    let host = Host::new(cell.client());
    host.open().await;
    let wanted = Fid::new(VOLUME.0, 100, 100);
    let changes = vec![create(cell.root(), "a", wanted).into()];
    assert_eq!(code(host.run(1, changes).await), EINVAL);
    // A place in the batch is no vnode that can be leased.
    let condition = BatchCondition {
        vnode: BatchVnode::made_by(0),
        lease: 1,
        version: 1,
    };
    let changes = vec![change(store(wanted, b""), &[condition])];
    assert_eq!(code(host.run(1, changes).await), EINVAL);
}

#[tokio::test]
async fn others_promises_and_rights_stand_in_the_way() {
    let cell = cell().await;
    let (host, other) = (Host::new(cell.client()), cell.client());
    let root = cell.root();
    let file = host.client.create(root, "a").await;
    let free = host.client.create(root, "b").await;
    other.files.fetch_status(file).await.unwrap();
    host.lease(free).await;
    assert!(host.keep(&[file], 0).await.grants.is_empty(), "a promise");
    // It is broken by a change of the host.
    host.client.store(file, 0, b"x", 1).await.unwrap();
    assert_eq!(host.keep(&[file], 0).await.grants.len(), 1);

    let directory = host.client.make_dir(root, "d").await;
    let theirs = host.client.create(directory, "c").await;
    cell.allow(directory, &[(afar_types::PtsId::ANYUSER, "rl")]);
    for fid in [directory, theirs] {
        assert!(host.keep(&[fid], 0).await.grants.is_empty(), "no right");
    }
    let missing = Fid::new(VOLUME.0, 4242, 4242);
    assert!(host.keep(&[missing], 0).await.grants.is_empty());
}

#[tokio::test]
async fn what_is_locked_is_not_leased() {
    let cell = cell().await;
    let (host, other) = (Host::new(cell.client()), cell.client());
    let [own, theirs] = ["a", "b"].map(|name| host.client.create(cell.root(), name));
    let (own, theirs) = (own.await, theirs.await);
    host.lease(host.client.create(cell.root(), "c").await).await;
    host.client.files.set_lock(own, 0).await.unwrap();
    other.files.set_lock(theirs, 1).await.unwrap();
    assert!(host.keep(&[own, theirs], 0).await.grants.is_empty());
    host.client.files.release_lock(own).await.unwrap();
    assert_eq!(host.keep(&[own], 0).await.grants.len(), 1);
}

#[tokio::test]
async fn nobody_is_asked_for_the_sake_of_a_caller_who_may_do_nothing() {
    let cell = cell().await;
    let (host, other) = (Host::new(cell.ann()), cell.client());
    let directory = host.client.make_dir(cell.root(), "d").await;
    let file = host.client.create(directory, "a").await;
    cell.allow(directory, &[(ANN, "rlidwk")]);
    host.lease(file).await;
    assert_eq!(code(other.fetch(file, 0, 10).await), EACCES);
    let refused = other.files.store_status(file, mode(0o600)).await;
    assert_eq!(code(refused), EACCES);
    assert!(host.end.recalled.lock().is_empty());
}

#[tokio::test]
async fn quota_in_reserve_is_its_hosts_only() {
    let cell = cell().await;
    let (host, other) = (Host::new(cell.client()), cell.client());
    let limited = VolumeChange {
        max_quota: Some(4096),
        ..VolumeChange::default()
    };
    cell.volume.change(limited).unwrap();
    let root = cell.root();
    let file = host.client.create(root, "a").await;
    let theirs = other.create(root, "b").await;
    host.open().await;
    let lease = host.lease(file).await;
    let mut quota = 0;
    for _ in 0..48 {
        let word = host.keep(&[file], 16).await;
        quota += word.blocks.iter().map(|block| block.quota).sum::<u64>();
    }
    assert!(host.keep(&[file], 16).await.blocks.is_empty(), "48 at most");
    // Others have what is left, and not a byte more.
    let used = cell.volume.summary().unwrap().disk_used;
    let left = (4096 - used) * 1024 - quota;
    let much = vec![7; usize::try_from(left + 8192).unwrap()];
    let length = much.len() as u64;
    let refused = other.store(theirs, 0, &much, length).await;
    assert_eq!(code(refused), VOVERQUOTA);
    let less = &much[..usize::try_from(left - 8192).unwrap()];
    other
        .store(theirs, 0, less, less.len() as u64)
        .await
        .unwrap();
    // The host has its own.
    assert!(quota > 900_000, "{quota}");
    let data = vec![7; 900_000];
    let changes = vec![change(
        store(file, &data),
        &[under(lease, version(&cell, file))],
    )];
    let reply = host.run(1, changes).await.unwrap();
    assert_eq!(codes(&reply), [DONE]);
}

#[tokio::test]
async fn claims_go_on_where_a_server_ended() {
    let cell = cell().await;
    let (host, gone) = (Host::new(cell.client()), Host::new(cell.client()));
    let root = cell.root();
    let file = host.client.create(root, "a").await;
    let its = gone.client.create(root, "b").await;
    let directory = host.client.make_dir(root, "d").await;
    host.open().await;
    let lease = host.lease(file).await;
    host.lease(directory).await;
    let block = host.keep(&[directory], 16).await.blocks[0];
    gone.lease(its).await;
    let before = version(&cell, file);
    // What is on the disk now is what a crash would leave.
    let left = tempfile::tempdir().unwrap();
    copy(cell.volume.partition().path(), left.path());
    let Host { client, end, began } = host;
    drop(cell);

    let cell = Cell::leasing(left).await;
    let host = Host {
        client: cell.again(client),
        end,
        began,
    };
    let other = cell.client();
    let reading = tokio::spawn(async move { other.fetch(file, 0, 100).await.unwrap().0 });
    let word = host.keep(&[], 0).await;
    assert!(word.claim);
    // What comes meanwhile under numbers of before is not run.
    let changes = || vec![change(store(file, b"mine"), &[under(lease, before)])];
    let reply = host.run(1, changes()).await.unwrap();
    assert!(reply.results.is_empty());
    let claimed = host.end.holder.lock().claim(host.now());
    let (claim, sent) = claimed.unwrap();
    assert_eq!((claim.leases.len(), claim.blocks.len()), (2, 1));
    let bytes = Opaque::new(&to_bytes(&claim)[..]).unwrap();
    let reply = host.client.files.claim_leases(bytes.clone()).await.unwrap();
    let answer = wire::decode(&reply.claimed).unwrap();
    // A repeated one gets the same answer.
    let again = host.client.files.claim_leases(bytes).await.unwrap();
    assert_eq!(again.claimed[..], reply.claimed[..]);
    let now = host.now();
    host.end.holder.lock().claimed(now, &sent, &claim, &answer);
    let number = host.number(file);
    assert_ne!(number, lease.number);

    // The same batch, with the new number.
    let lease = Lease { number, ..lease };
    let changes = vec![change(store(file, b"mine"), &[under(lease, before)])];
    let reply = host.run(1, changes).await.unwrap();
    assert_eq!(codes(&reply), [DONE]);
    assert!(
        !reading.is_finished(),
        "one has not claimed yet, and one holds it"
    );
    // What was set aside for it still is.
    let new = (0..16).filter_map(|place| block.fid(place));
    let new = { new }.find(|fid| !fid.vnode.is_directory()).unwrap();
    let held = under(
        Lease {
            fid: directory,
            number: host.number(directory),
        },
        version(&cell, directory),
    );
    let changes = vec![change(create(directory, "n", new), &[held])];
    let reply = host.run(2, changes).await.unwrap();
    assert_eq!(codes(&reply), [DONE]);
    // The host that is gone has 20 s; then the first is asked.
    assert!(host.asked().await.contains(&file));
    host.give_back(file).await;
    assert_eq!(reading.await.unwrap(), b"mine");
}

#[tokio::test]
async fn a_transaction_recalls_a_volume() {
    let cell = cell().await;
    let host = Host::new(cell.client());
    let root = cell.root();
    let file = host.client.create(root, "a").await;
    host.open().await;
    let lease = host.lease(file).await;
    host.keep(&[root], 4).await;
    let before = version(&cell, file);
    let volumes = cell.volumes();
    let partition = cell.partition;
    let beginning = tokio::spawn(async move {
        let begun = volumes.trans_create(VOLUME, partition, AttachFlags::BUSY);
        let transaction = begun.await.unwrap().transaction;
        (volumes, transaction)
    });
    let asked = host.asked().await;
    assert_eq!(asked, [Fid::new(VOLUME.0, 0, 0)], "all in one");
    let changes = vec![change(store(file, b"mine"), &[under(lease, before)])];
    assert_eq!(codes(&host.run(1, changes).await.unwrap()), [DONE]);
    assert!(!beginning.is_finished());
    for fid in [file, root] {
        host.end.holder.lock().flushed(fid);
    }
    host.keep(&[], 0).await;
    let (volumes, transaction) = beginning.await.unwrap();
    assert_eq!(cell.leases.as_ref().unwrap().standing().0, 0);
    assert_eq!(cell.volume.status(file).unwrap().length, 4);
    let fresh = host.client.files.fetch_status(root).await;
    fresh.unwrap();
    assert!(host.keep(&[root], 0).await.grants.is_empty());
    volumes.end_trans(transaction).await.unwrap();
}

#[tokio::test]
async fn hosts_without_an_identity_and_servers_without_leases_know_nothing_of_it() {
    let leasing = cell().await;
    let stranger = bind();
    let server = leasing.open.local_addr();
    let security = Arc::new(afar_net::RxNull);
    let files = rxafs::Client::new(stranger.connect(server, RXAFS, security));
    let note = Note {
        version: wire::VERSION,
        ..Note::default()
    };
    let bytes = || Opaque::new(&to_bytes(&note)[..]).unwrap();
    let unknown = AbortCode::RXGEN_OPCODE;
    assert_eq!(code(files.keep_leases(bytes()).await), unknown);
    let junk = Opaque::new(b"junk").unwrap();
    let host = leasing.client();
    let refused = host.files.keep_leases(junk.clone()).await;
    assert_eq!(code(refused), AbortCode::RXGEN_SS_UNMARSHAL);

    let cell = Cell::new().await;
    let host = Host::new(cell.client());
    assert_eq!(code(host.client.files.keep_leases(bytes()).await), unknown);
    let claim = Opaque::new(&junk[..]).unwrap();
    assert_eq!(code(host.client.files.claim_leases(claim).await), unknown);
    // Its batches have notes all the same, and conditions.
    let file = host.client.create(cell.root(), "a").await;
    let before = version(&cell, file);
    let lease = Lease {
        fid: file,
        number: 1 << 40,
    };
    let opened = host.client.run(0, Vec::new(), Some(&note)).await.unwrap();
    assert!(opened.word.is_empty());
    let changes = vec![
        change(store(file, b"one"), &[under(lease, before)]),
        change(store(file, b"two"), &[under(lease, before)]),
    ];
    let reply = host.client.run(1, changes, Some(&note)).await.unwrap();
    assert_eq!(codes(&reply), [DONE, ESTALE]);
    assert_eq!(host.client.fetch(file, 0, 10).await.unwrap().0, b"one");
}

#[tokio::test]
async fn what_is_made_under_a_lease_has_the_time_at_which_it_was_made() {
    let cell = cell().await;
    let host = Host::new(cell.client());
    let root = cell.root();
    let file = host.client.create(root, "a").await;
    host.open().await;
    let lease = host.lease(file).await;
    let made = |fid| cell.volume.status(fid).unwrap().server_modify_time;
    let created = made(file);
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let at = |time: UnixTime, lease: Lease| BatchChange {
        made: time,
        ..change(store(file, b"mine"), &[under(lease, version(&cell, file))])
    };
    let then = UnixTime(created.0 + 1);
    let reply = host.run(1, vec![at(then, lease)]).await.unwrap();
    assert_eq!(codes(&reply), [DONE]);
    assert_eq!(made(file), then);
    // One that is over says nothing of what others saw meanwhile.
    let over = Lease { number: 0, ..lease };
    let reply = host.run(2, vec![at(then, over)]).await.unwrap();
    assert_eq!(codes(&reply), [DONE]);
    assert!(made(file) > then);
}
