//! A partition is damaged in one place, and the check says so.

use afar_dir::{DirectoryBuilder, EntryId, PAGE_SIZE};

use super::*;
use crate::check::ProblemKind;
use crate::meta::{
    At, Change, DoomedKey, Item, MemberState, Record, Rows, SegmentRow, Table, VnodeRow,
    VolumeInfo, VolumeRow, change_key, dead_key, member_key, row_key,
};
use crate::segment::Extent;
use crate::vnode::pack_page;

const VOLUME: u32 = 10;
const CLONE: u32 = 12;

/// A volume with a clone and one of most things there are:
///
/// ```text
/// /plain      vnode 2     300,000 bytes in three records, the last changed after the clone
/// /twice      vnode 4     short, also called /again
/// /sub        vnode 3
/// /sub/deep   vnode 5     a directory
/// /sub/link   vnode 6     a symlink
/// ```
struct Sample {
    dir: TempDir,
    partition: Arc<Partition>,
}

impl Sample {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let partition = init(dir.path());
        let volume = volume(&partition, VOLUME);
        let root = volume.root();
        let plain = file(&volume, root, "plain", &noise(300_000, 1));
        let twice = file(&volume, root, "twice", b"twice");
        volume.link(root, b"again", twice).unwrap();
        let sub = volume
            .make_directory(root, b"sub", &vnode())
            .unwrap()
            .vnode
            .fid;
        volume.make_directory(sub, b"deep", &vnode()).unwrap();
        volume.symlink(sub, b"link", b"../plain", &vnode()).unwrap();
        backup(&volume, CLONE);
        volume
            .write(plain, 299_000, &noise(1_000, 2), &StoreOptions::default())
            .unwrap();
        partition.wait_reaped().unwrap();
        assert_clean(&partition);
        Self { dir, partition }
    }

    fn row(&self) -> VolumeRow {
        self.partition
            .reader()
            .unwrap()
            .volume(VOLUME)
            .unwrap()
            .unwrap()
    }

    /// Where the read-write volume writes, and its clone reads.
    fn at(&self) -> At {
        self.row().at()
    }

    /// Where most rows are: they were made before the clone.
    fn first(&self) -> At {
        At {
            generation: 1,
            ..self.at()
        }
    }

    /// A record of /plain.
    fn extent(&self, index: u64) -> Extent {
        let reader = self.partition.reader().unwrap();
        let value = reader
            .row(self.at(), Item::record(2, index))
            .unwrap()
            .unwrap();
        match Record::from_bytes(value) {
            Some(Record::Extent(extent)) => extent,
            other => panic!("{other:?}"),
        }
    }

    /// Changes rows behind the store's back.
    fn damage(&self, damage: impl FnOnce(&mut Change<'_>) + Send + 'static) -> &Self {
        let done = self.partition.commit(|change| {
            damage(change);
            Ok(())
        });
        done.unwrap();
        self
    }

    fn put(&self, table: Table, key: &[u8], value: Vec<u8>) -> &Self {
        let key = key.to_vec();
        self.damage(move |change| change.put(table, &key, value))
    }

    fn delete(&self, table: Table, key: &[u8]) -> &Self {
        let key = key.to_vec();
        self.damage(move |change| change.delete(table, &key).unwrap())
    }

    fn change_vnode(&self, vnode: u32, with: impl FnOnce(&mut VnodeRow) + Send + 'static) -> &Self {
        let at = self.at();
        self.damage(move |change| {
            let mut row = change.vnode(at, vnode).unwrap().unwrap();
            with(&mut row);
            change.put_vnode(at, vnode, &row).unwrap();
        })
    }

    fn change_volume(&self, with: impl FnOnce(&mut VolumeRow) + Send + 'static) -> &Self {
        self.damage(move |change| {
            let mut row = change.volume(VOLUME).unwrap().unwrap();
            with(&mut row);
            change.put(Table::Volumes, &VOLUME.to_be_bytes(), row.to_bytes());
        })
    }

    /// Puts other entries into /sub.
    fn refill(&self, entries: &[(&str, EntryId)], above: EntryId) -> &Self {
        let mut builder = DirectoryBuilder::new(EntryId::new(3, 4), above);
        for (name, id) in entries {
            builder.add(name.as_bytes(), *id).unwrap();
        }
        let data = builder.finish();
        let page: [u8; PAGE_SIZE] = data.as_slice().try_into().unwrap();
        let at = self.at();
        self.damage(move |change| {
            change.put_page(at, 3, 0, pack_page(&page)).unwrap();
        })
    }

    /// All that a check finds.
    fn found(&self) -> Vec<(ProblemKind, String)> {
        let problems = check(&self.partition).problems.into_iter();
        problems
            .map(|problem| (problem.kind, problem.to_string()))
            .collect()
    }

    /// Whether a check finds this, among what follows from it.
    #[track_caller]
    fn finds(&self, kind: ProblemKind, text: &str) {
        let found = self.found();
        let hit = found
            .iter()
            .any(|(found, what)| *found == kind && what.contains(text));
        assert!(hit, "no {kind:?} with {text:?} in {found:#?}");
    }

    /// Whether a check finds this and no more.
    #[track_caller]
    fn finds_only(&self, kind: ProblemKind, text: &str) {
        self.finds(kind, text);
        let found = self.found();
        assert_eq!(found.len(), 1, "{found:#?}");
    }
}

const LINK: EntryId = EntryId::new(6, 6);
const DEEP: EntryId = EntryId::new(5, 5);
const ROOT: EntryId = EntryId::new(1, 1);

#[test]
fn a_rotten_row_of_any_table() {
    use Table::*;
    for table in [Settings, Volumes, Infos, Members, Rows, Changes, Segments] {
        let sample = Sample::new();
        sample.damage(move |change| {
            let last = change.scan(table, &[]).unwrap().last().unwrap().unwrap();
            let (key, mut rotten) = (last.0.to_vec(), last.1.to_vec());
            rotten.extend_from_slice(b"checksum");
            change.put_logged(table as u8, &key, Some(&rotten)).unwrap();
        });
        sample.finds(ProblemKind::RowChecksum, &format!("{table:?}"));
        let scrub = sample
            .partition
            .scrub(&crate::ScrubOptions::default(), &mut |_| {
                std::ops::ControlFlow::Continue(())
            });
        let scrub = scrub.unwrap();
        assert_eq!(
            (scrub.problem_count, scrub.bad_record_count),
            (1, 0),
            "{table:?}"
        );
        assert!(scrub.problems[0].what.contains(&format!("{table:?}")));
    }
}

#[test]
fn rows_that_are_none() {
    use Table::*;
    for (table, key) in [
        (Volumes, &b"v"[..]),
        (Infos, b"i"),
        (Members, b"m"),
        (Rows, b"r"),
        (Changes, b"c"),
        (VnodeSlots, b"slots"),
        (Unfinished, b"u"),
        (Segments, b"\0\0\0\x09"),
        (Shared, b"\0\0\0\x01\0\0\0\x09"),
    ] {
        let sample = Sample::new();
        sample.put(table, key, vec![9; 3]);
        sample.finds(ProblemKind::RowFormat, "");
    }
    let sample = Sample::new();
    sample
        .put(Settings, b"next-tree", vec![1])
        .finds_only(ProblemKind::RowFormat, "trees");
    let sample = Sample::new();
    let key = row_key(sample.first(), Item::vnode(4));
    sample
        .put(Rows, &key, vec![9; 60])
        .finds(ProblemKind::RowFormat, "file 4");
    let sample = Sample::new();
    let key = row_key(sample.first(), Item::page(3, 0));
    sample
        .put(Rows, &key, vec![7])
        .finds(ProblemKind::RowFormat, "page 0 of vnode 3");
    let sample = Sample::new();
    let key = row_key(sample.first(), Item::record(6, 0));
    sample
        .put(Rows, &key, vec![1, 0, 0, 0, 0, 9])
        .finds(ProblemKind::RowFormat, "record 0");
}

#[test]
fn volumes_and_members() {
    let key = VOLUME.to_be_bytes();
    let kind = ProblemKind::Volume;
    let sample = Sample::new();
    sample
        .delete(Table::Infos, &key)
        .finds_only(kind, "volume 10: its information is missing");
    let sample = Sample::new();
    sample
        .delete(Table::Volumes, &key)
        .finds(kind, "and it is not there");
    sample.finds(kind, "has information, and there is no such volume");
    let sample = Sample::new();
    sample
        .delete(Table::Members, &member_key(sample.at(), VOLUME))
        .finds(kind, "is no member");
    let sample = Sample::new();
    sample
        .put(Table::Unfinished, &key, Vec::new())
        .finds_only(kind, "listed as unfinished");
    let sample = Sample::new();
    sample
        .put(Table::Unfinished, &[0, 0, 0, 99], Vec::new())
        .finds_only(kind, "volume 99");
    let sample = Sample::new();
    sample
        .change_volume(|row| row.set(VolumeRow::DESTROY_ME, true))
        .finds_only(kind, "is not listed");
    let sample = Sample::new();
    sample
        .change_volume(|row| row.tree = 77)
        .finds(kind, "tree 77 was never given out");
    let sample = Sample::new();
    let info = VolumeInfo::default().to_bytes();
    sample
        .put(Table::Infos, &[0, 0, 0, 99], info)
        .finds_only(kind, "volume 99: has information");

    // A clone at the generation that is written.
    let sample = Sample::new();
    let at = sample.at();
    sample.damage(move |change| {
        let row = change.volume(CLONE).unwrap().unwrap();
        change.delete_member(row.at(), CLONE).unwrap();
        change.put_member(at, CLONE, MemberState::Live);
        let row = VolumeRow {
            generation: at.generation,
            ..row
        };
        change.put_volume(CLONE, &row).unwrap();
    });
    sample.finds(kind, "volume 12 of the same tree sees them");
}

#[test]
fn trees_without_owners() {
    let kind = ProblemKind::Tree;
    let other = At {
        tree: 5,
        generation: 1,
    };
    let sample = Sample::new();
    sample.put(Table::Rows, &row_key(other, Item::page(1, 0)), vec![0]);
    sample.finds_only(kind, "tree 5 has rows and belongs to no volume");
    let sample = Sample::new();
    sample.damage(|change| change.put_slot(5, true, 7));
    sample.finds_only(kind, "tree 5 belongs to no volume");
    let sample = Sample::new();
    let shade = At {
        generation: 9,
        ..sample.at()
    };
    sample.put(
        Table::Members,
        &member_key(shade, 0),
        MemberState::Shade.to_bytes(),
    );
    sample.finds_only(kind, "nobody removes");

    // The reaper takes up at once what is put into the list of the doomed, but not while
    // something is filled into the tree.
    let sample = Sample::new();
    let tree = sample.at().tree;
    sample.partition.building().lock().insert(tree);
    sample.put(Table::Doomed, &DoomedKey::tree(tree).to_bytes(), Vec::new());
    sample.finds_only(kind, "is to be removed and has volumes");
    let sample = Sample::new();
    let at = sample.at();
    sample.partition.building().lock().insert(at.tree);
    sample.put(Table::Doomed, &DoomedKey::shade(at).to_bytes(), Vec::new());
    sample.finds_only(kind, "is to be removed and is not there");
}

#[test]
fn counts_of_a_volume() {
    let kind = ProblemKind::VolumeCounts;
    Sample::new()
        .change_volume(|row| row.disk_used += 1)
        .finds_only(kind, "KiB used");
    Sample::new()
        .change_volume(|row| row.file_count -= 1)
        .finds_only(kind, "vnodes");
    Sample::new()
        .change_volume(|row| row.uniquifier = 1)
        .finds_only(kind, "last uniquifier");
    Sample::new()
        .change_volume(|row| row.last_directory = 1)
        .finds_only(kind, "last directory");
    Sample::new()
        .change_volume(|row| row.last_file = 2)
        .finds_only(kind, "last file");
}

#[test]
fn vnodes() {
    let sample = Sample::new();
    let at = sample.at();
    sample.damage(move |change| {
        let row = change.vnode(at, 3).unwrap().unwrap();
        change.put_row(at, Item::vnode(4), row.to_bytes()).unwrap();
    });
    sample.finds(ProblemKind::RowFormat, "file 4");
    let sample = Sample::new();
    sample
        .change_vnode(2, |row| row.acl = vec![1])
        .finds_only(ProblemKind::Vnode, "has an ACL");
    let sample = Sample::new();
    sample
        .change_vnode(3, |row| row.acl = vec![1])
        .finds_only(ProblemKind::Vnode, "ACL of directory 3");
    let sample = Sample::new();
    sample
        .change_vnode(6, |row| row.uniquifier = 0)
        .finds(ProblemKind::Vnode, "no uniquifier");
    let sample = Sample::new();
    let at = sample.at();
    sample.damage(move |change| change.put_row(at, Item::page(9, 0), vec![0]).unwrap());
    sample.finds_only(ProblemKind::Vnode, "page 0 of vnode 9, which is not there");
    let sample = Sample::new();
    let record = Record::Inline {
        codec: crate::segment::Codec::Raw,
        plain: 1,
        stored: vec![1],
    }
    .to_bytes();
    let small = record.clone();
    sample.damage(move |change| change.put_row(at, Item::record(8, 0), small).unwrap());
    sample.finds_only(
        ProblemKind::Vnode,
        "record 0 of vnode 8, which is not there",
    );
    let sample = Sample::new();
    sample.damage(move |change| change.put_row(at, Item::record(3, 0), record).unwrap());
    sample.finds(ProblemKind::Vnode, "no vnode 3 has a Record");
    let sample = Sample::new();
    sample.damage(move |change| change.put_row(at, Item::page(2, 0), vec![0]).unwrap());
    sample.finds(ProblemKind::Vnode, "no vnode 2 has a Page");
    let sample = Sample::new();
    sample.damage(move |change| change.delete_row(at, Item::vnode(1)).unwrap());
    sample.finds(ProblemKind::Vnode, "no root directory");
    let sample = Sample::new();
    sample
        .change_vnode(2, |row| row.length = 299_999)
        .finds_only(ProblemKind::Record, "record 2");
    let sample = Sample::new();
    sample
        .change_vnode(2, |row| row.record_shift = 16)
        .finds(ProblemKind::Record, "131072 bytes of 65536");
}

#[test]
fn directories() {
    let kind = ProblemKind::Directory;
    let sample = Sample::new();
    sample
        .change_vnode(3, |row| row.length = 4096)
        .finds(kind, "directory 3 of 4096 bytes");
    let sample = Sample::new();
    let at = sample.at();
    sample.damage(move |change| change.delete_row(at, Item::page(3, 0)).unwrap());
    sample.finds(kind, "directory 3 of 2048 bytes has 0 good pages");
    let sample = Sample::new();
    sample.damage(move |change| {
        let mut page = *crate::vnode::read_page(change, at, 3, 0).unwrap();
        page[400] ^= 1;
        change.put_page(at, 3, 0, pack_page(&page)).unwrap();
    });
    sample.finds(kind, "directory 3: ");
    let sample = Sample::new();
    let put = |page, row: &'static [u8]| {
        move |change: &mut Change<'_>| {
            let item = Item::page_change(3, page);
            change.put_row(at, item, row.to_vec()).unwrap();
        }
    };
    sample.damage(put(0, &[9]));
    sample.finds(kind, "directory 3 of 2048 bytes has 0 good pages");
    let sample = Sample::new();
    sample.damage(put(0, &[1, 144, 1, 77]));
    sample.finds(kind, "directory 3: ");
    let sample = Sample::new();
    sample.damage(put(7, &[0, 0, 1, 1]));
    sample.finds_only(kind, "changes of page 7 of vnode 3, which is not there");
    let sample = Sample::new();
    sample.damage(move |change| {
        let item = Item::page_change(2, 0);
        change.put_row(at, item, vec![0, 0, 1, 1]).unwrap();
    });
    sample.finds(ProblemKind::Vnode, "no vnode 2 has a PageChange");
}

#[test]
fn entries_and_links() {
    let (entry, links, orphan) = (ProblemKind::Entry, ProblemKind::Links, ProblemKind::Orphan);
    let both = [("deep", DEEP), ("link", LINK)];
    let sample = Sample::new();
    sample.refill(&both, ROOT);
    assert_clean(&sample.partition);

    let sample = Sample::new();
    sample.refill(&[both[0], both[1], ("more", EntryId::new(8, 1))], ROOT);
    sample.finds_only(entry, "entry \"more\" of directory 3 names vnode 8");
    let sample = Sample::new();
    sample.refill(&[both[0], ("link", EntryId::new(6, 99))], ROOT);
    sample.finds(entry, "names vnode 6 with uniquifier 99");
    sample.finds(orphan, "no entry names vnode 6");
    let sample = Sample::new();
    sample
        .refill(&both, EntryId::new(5, 5))
        .finds_only(entry, "entry \"..\" of directory 3");
    let sample = Sample::new();
    sample
        .change_vnode(3, |row| row.uniquifier = 50)
        .finds(entry, "entry \".\" of directory 3");
    sample.finds(entry, "entry \"..\" of directory 5");

    let sample = Sample::new();
    sample
        .refill(&[both[0]], ROOT)
        .finds_only(orphan, "no entry names vnode 6");
    let sample = Sample::new();
    sample
        .refill(&[both[0], both[1], ("two", LINK)], ROOT)
        .finds_only(links, "vnode 6 has 2 names");
    let sample = Sample::new();
    sample
        .refill(&[both[0], both[1], ("two", DEEP)], ROOT)
        .finds(links, "vnode 5 has 2 names");
    let sample = Sample::new();
    sample
        .change_vnode(4, |row| row.link_count = 3)
        .finds_only(links, "vnode 4 has 2 names");
    let sample = Sample::new();
    sample
        .change_vnode(3, |row| row.link_count = 2)
        .finds_only(links, "vnode 3 has 1 names and 3 links");
    let sample = Sample::new();
    sample
        .change_vnode(6, |row| row.parent = 1)
        .finds_only(links, "says it is in 1");
    let sample = Sample::new();
    sample
        .change_vnode(1, |row| row.parent = 3)
        .finds(links, "the root directory says it is in 3");

    // Two directories in each other, and neither in the root.
    let sample = Sample::new();
    sample
        .refill(&[("deep", DEEP)], DEEP)
        .change_vnode(3, |row| row.parent = 5);
    sample.finds(orphan, "directory 3 is not below the root");
    sample.finds(orphan, "directory 5 is not below the root");
}

#[test]
fn versions() {
    let kind = ProblemKind::Versions;
    let sample = Sample::new();
    let (at, first) = (sample.at(), sample.first());
    let item = Item::record(2, 2);
    sample
        .delete(Table::Changes, &change_key(at, item))
        .finds_only(kind, "not in the list of changes");
    let sample = Sample::new();
    sample.put(Table::Changes, &change_key(at, Item::vnode(44)), Vec::new());
    sample.finds_only(
        kind,
        "file 44 at generation 2 of tree 1 is in the list of changes and not there",
    );
    let sample = Sample::new();
    sample
        .put(Table::Rows, &row_key(first, Item::vnode(44)), Vec::new())
        .finds(kind, "hides nothing");

    // A mark above nothing, and a version between those that the members see.
    let sample = Sample::new();
    sample.put(Table::Rows, &row_key(at, Item::vnode(44)), Vec::new());
    sample.put(Table::Changes, &change_key(at, Item::vnode(44)), Vec::new());
    sample.finds_only(kind, "file 44 at generation 2 of tree 1 is of no use");
    let sample = Sample::new();
    let volume = sample.partition.volume(VolumeId(VOLUME)).unwrap();
    volume.reclone(VolumeId(CLONE)).unwrap();
    sample.partition.wait_reaped().unwrap();
    assert_clean(&sample.partition);
    sample.put(
        Table::Rows,
        &row_key(first, item),
        Record::Extent(sample.extent(0)).to_bytes(),
    );
    sample.finds(
        kind,
        "record 2 of vnode 2 at generation 1 of tree 1 is of no use",
    );
}

#[test]
fn segments() {
    let kind = ProblemKind::Segment;
    let sample = Sample::new();
    let extent = sample.extent(0);
    let number = extent.segment;
    let key = number.to_be_bytes();
    let row = sample.partition.reader().unwrap().segment(number).unwrap();
    let other = |end, live| SegmentRow { end, live }.to_bytes();

    sample
        .put(Table::Segments, &key, other(row.end, row.live + 1))
        .finds_only(kind, "are counted");
    let sample = Sample::new();
    sample
        .put(Table::Segments, &key, other(row.end - 1, row.live))
        .finds_only(kind, "the end");
    let sample = Sample::new();
    sample
        .delete(Table::Segments, &key)
        .finds(kind, "is used and has no row");
    let sample = Sample::new();
    let place = dead_key(number, extent.offset);
    sample
        .put(Table::Shared, &place, vec![0, 0, 0, 7])
        .finds_only(kind, "but 8 are counted");
    let sample = Sample::new();
    sample
        .put(Table::Shared, &dead_key(number, 1), vec![0, 0, 0, 1])
        .finds_only(kind, "nothing refers");
    let sample = Sample::new();
    let free = dead_key(number, extent.offset + 5);
    sample
        .put(Table::Free, &free, vec![0, 0, 0, 9])
        .finds_only(kind, "a free stretch");
    let sample = Sample::new();
    let at = sample.at();
    sample.damage(move |change| {
        let record = Record::Extent(extent).to_bytes();
        let item = Item::record(2, 1);
        change.put(Table::Rows, &row_key(at, item), record);
        change.put(Table::Changes, &change_key(at, item), Vec::new());
    });
    sample.finds_only(kind, "has 2 references, but 1 are counted");
    let sample = Sample::new();
    sample.damage(move |change| {
        let shifted = Extent {
            offset: extent.offset + 1,
            ..extent
        };
        let record = Record::Extent(shifted).to_bytes();
        let item = Item::record(2, 1);
        change.put(Table::Rows, &row_key(at, item), record);
        change.put(Table::Changes, &change_key(at, item), Vec::new());
    });
    sample.finds(kind, "overlaps a record");

    // The file itself.
    let path = |sample: &Sample| sample.dir.path().join(format!("seg/{number:08}.seg"));
    let sample = Sample::new();
    let file = std::fs::File::options()
        .write(true)
        .open(path(&sample))
        .unwrap();
    file.set_len(1000).unwrap();
    sample.finds_only(kind, "its file has 1000 bytes");
    let sample = Sample::new();
    let Sample { dir, partition } = sample;
    drop(partition);
    std::fs::remove_file(dir.path().join(format!("seg/{number:08}.seg"))).unwrap();
    let partition = Arc::new(Partition::open(dir.path(), &options()).unwrap());
    Sample { dir, partition }.finds_only(kind, "its file is missing");
}

#[test]
fn records_known_by_their_hashes() {
    let kind = ProblemKind::Segment;
    let with_hash = || {
        let sample = Sample::new();
        sample.partition.set_dedup(true).unwrap();
        let volume = sample.partition.volume(VolumeId(VOLUME)).unwrap();
        let plain = volume.lookup(volume.root(), b"plain").unwrap();
        volume
            .write(plain, 0, &noise(131_072, 9), &StoreOptions::default())
            .unwrap();
        sample.partition.wait_reaped().unwrap();
        assert_clean(&sample.partition);
        let extent = sample.extent(0);
        let place = dead_key(extent.segment, extent.offset);
        let reader = sample.partition.reader().unwrap();
        let hash = reader
            .get(Table::DedupKeys, &place)
            .unwrap()
            .unwrap()
            .to_vec();
        drop(reader);
        (sample, extent, place, hash)
    };
    let (sample, _, place, _) = with_hash();
    sample
        .delete(Table::DedupKeys, &place)
        .finds_only(kind, "what is known by a hash at");
    let (sample, _, _, hash) = with_hash();
    sample
        .delete(Table::Dedup, &hash)
        .finds_only(kind, "has a hash that is not its own");
    let (sample, _, _, hash) = with_hash();
    sample.put(Table::Dedup, &hash, vec![1; 3]);
    sample.finds(ProblemKind::RowFormat, "a record known by its hash");
    let (sample, extent, place, hash) = with_hash();
    let other = Extent {
        checksum: extent.checksum ^ 1,
        ..extent
    };
    sample
        .put(Table::Dedup, &hash, other.to_bytes().to_vec())
        .finds_only(kind, "is not there");
    let (sample, ..) = with_hash();
    sample
        .put(Table::DedupKeys, &place, vec![1])
        .finds(ProblemKind::RowFormat, "the hash of a record");
}
