//! Segments on a real file system.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const MIB: u32 = 1 << 20;

fn small() -> SegmentOptions {
    SegmentOptions {
        segment_size: MIB,
        preallocate: 256 << 10,
        ..SegmentOptions::default()
    }
}

fn open(dir: &TempDir, known: &[SegmentEnd]) -> Segments {
    Segments::open(dir.path(), known, small()).unwrap()
}

/// The ends a metadata store would have after committing these extents.
fn ends(extents: &[Extent]) -> Vec<SegmentEnd> {
    let mut ends = std::collections::BTreeMap::new();
    for extent in extents {
        let end: &mut u32 = ends.entry(extent.segment).or_default();
        *end = (*end).max(extent.offset + extent.stored);
    }
    ends.into_iter()
        .map(|(number, end)| SegmentEnd { number, end })
        .collect()
}

/// Text-like bytes that compress about three to one, or noise.
fn sample(len: usize, seed: u64, noise: bool) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = Vec::with_capacity(len + 16);
    while bytes.len() < len {
        if noise {
            bytes.extend_from_slice(&rng.u64(..).to_le_bytes());
        } else {
            let words = ["volume ", "vnode ", "cell ", "callback ", "release\n", "0x"];
            bytes.extend_from_slice(words[rng.usize(..words.len())].as_bytes());
            bytes.push(rng.alphanumeric() as u8);
        }
    }
    bytes.truncate(len);
    bytes
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

const SETTINGS: [Compression; 5] = [
    Compression::None,
    Compression::Lz4,
    Compression::Zstd(1),
    Compression::Zstd(3),
    Compression::Zstd(-5),
];

fn setting() -> impl Strategy<Value = Compression> {
    proptest::sample::select(SETTINGS.to_vec())
}

/// Lengths around the interesting ones, up to the greatest.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..40,
        4 => 4000usize..4200,
        4 => 0usize..=200_000,
        1 => (MIB as usize - 20)..=MIB as usize,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn what_is_packed_unpacks(
        len in length(), seed: u64, noise: bool, setting in setting(),
    ) {
        let plain = sample(len, seed, noise);
        let stored = pack(&plain, setting);
        let mut out = vec![7; 100];
        unpack(stored.codec(), stored.bytes(), stored.plain_len(), &mut out).unwrap();
        prop_assert_eq!(&out, &plain);
        if stored.codec() == Codec::Raw {
            prop_assert_eq!(stored.bytes(), &plain[..]);
        } else {
            prop_assert!(stored.bytes().len() <= len - len.div_ceil(16));
        }
        if noise || setting == Compression::None {
            prop_assert_eq!(stored.codec(), Codec::Raw);
        } else if len > 1000 {
            prop_assert_ne!(stored.codec(), Codec::Raw);
        }
        // No other length comes out of the same bytes.
        for wrong in [stored.plain_len() + 1, stored.plain_len().saturating_sub(1)] {
            if wrong != stored.plain_len() {
                let result = unpack(stored.codec(), stored.bytes(), wrong, &mut out);
                prop_assert!(result.is_err());
            }
        }
        let bytes = stored.bytes().to_vec();
        let again = Stored::verified(
            stored.codec(), stored.plain_len(), bytes.clone(), stored.checksum(),
        ).unwrap();
        prop_assert_eq!(&again, &stored);
        prop_assert!(Stored::verified(
            stored.codec(), stored.plain_len(), bytes, stored.checksum() ^ 1,
        ).is_err());
    }

    #[test]
    fn unpacking_anything_is_an_error_or_the_length_announced(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        cut in 0usize..3000, flip: u8, plain_len in 0u32..5000,
    ) {
        let mut out = Vec::new();
        for codec in [Codec::Raw, Codec::Zstd, Codec::Lz4] {
            if unpack(codec, &bytes, plain_len, &mut out).is_ok() {
                prop_assert_eq!(out.len(), plain_len as usize);
            }
        }
        // Nearly right bytes go deeper into the decoders.
        for setting in [Compression::Zstd(3), Compression::Lz4] {
            let plain = sample(4000, 1, false);
            let stored = pack(&plain, setting);
            let mut bytes = stored.bytes().to_vec();
            let at = cut % bytes.len();
            bytes[at] ^= flip;
            if unpack(stored.codec(), &bytes, 4000, &mut out).is_ok() {
                prop_assert_eq!(out.len(), 4000);
            }
            bytes.truncate(at);
            if unpack(stored.codec(), &bytes, 4000, &mut out).is_ok() {
                prop_assert_eq!(out.len(), 4000);
            }
        }
    }

    #[test]
    fn records_read_back_in_the_next_run_too(
        records in proptest::collection::vec((length(), any::<u64>(), any::<bool>(), setting()), 1..12),
    ) {
        let dir = TempDir::new().unwrap();
        let segments = open(&dir, &[]);
        let mut kept = Vec::new();
        for (len, seed, noise, setting) in records {
            let plain = sample(len, seed, noise);
            kept.push((segments.append(&pack(&plain, setting)).unwrap(), plain));
        }
        segments.sync().unwrap();
        check_all(&segments, &kept);
        check_apart(&kept);
        drop(segments);
        let extents: Vec<_> = kept.iter().map(|&(extent, _)| extent).collect();
        let segments = open(&dir, &ends(&extents));
        prop_assert_eq!(segments.problems(), &[]);
        check_all(&segments, &kept);
        // What is appended now destroys nothing.
        let plain = sample(50_000, 3, false);
        kept.push((segments.append(&pack(&plain, Compression::default())).unwrap(), plain));
        check_all(&segments, &kept);
        check_apart(&kept);
    }

    #[test]
    fn extents_are_read_as_written(bytes: [u8; 32]) {
        if let Ok(extent) = Extent::from_bytes(&bytes) {
            prop_assert_eq!(extent.to_bytes(), bytes);
        }
    }

    #[test]
    fn settings_are_read_as_written(code: u16, level in -300i32..300) {
        if let Ok(setting) = Compression::from_u16(code) {
            prop_assert_eq!(setting.to_u16(), code);
            prop_assert_eq!(setting.to_string().parse(), Ok(setting));
        }
        let right = level != 0 && (-7..=19).contains(&level);
        prop_assert_eq!(Compression::zstd(level).is_ok(), right);
        prop_assert_eq!(format!("zstd:{level}").parse::<Compression>().is_ok(), right);
    }
}

#[test]
fn a_record_that_does_not_compress_leaves_the_next_alone() {
    let (noise, text) = (sample(100_000, 1, true), sample(100_000, 2, false));
    for level in [3, -5, 1, 9, 3] {
        let setting = Compression::Zstd(level);
        let alone = pack(&text, setting);
        assert_eq!(alone.codec(), Codec::Zstd);
        assert_eq!(pack(&noise, setting).codec(), Codec::Raw);
        assert_eq!(pack(&text, setting), alone);
    }
}

fn check_all(segments: &Segments, kept: &[(Extent, Vec<u8>)]) {
    let mut out = Vec::new();
    for (extent, plain) in kept {
        segments.read(extent, &mut out).unwrap();
        assert!(out == *plain, "another record at {extent:?}");
        assert_eq!(Extent::from_bytes(&extent.to_bytes()), Ok(*extent));
        let stored = segments.read_stored(extent).unwrap();
        assert_eq!(stored.checksum(), extent.checksum);
        let (start, end) = (extent.plain / 3, extent.plain - extent.plain / 4);
        let mut part = vec![0; (end - start) as usize];
        segments.read_range(extent, start..end, &mut part).unwrap();
        assert!(part == plain[start as usize..end as usize]);
    }
}

/// No two records overlap, and long raw ones begin at a block.
fn check_apart(kept: &[(Extent, Vec<u8>)]) {
    let mut places: Vec<_> = kept
        .iter()
        .map(|(e, _)| (e.segment, u64::from(e.offset), e.end()))
        .collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        assert!(pair[0].0 < pair[1].0 || pair[0].2 <= pair[1].1, "{pair:?}");
    }
    for (extent, _) in kept {
        assert!(extent.end() <= u64::from(MIB));
        if extent.codec == Codec::Raw && extent.stored >= BLOCK {
            assert_eq!(extent.offset % BLOCK, 0);
        }
    }
}

#[test]
fn an_extent_has_its_bytes_in_the_documented_places() {
    let extent = Extent {
        segment: 0x0102_0304,
        offset: 0x0506_0708,
        stored: 0x1234,
        plain: 0x0f_2345,
        codec: Codec::Lz4,
        checksum: 0x1011_1213_1415_1617_1819_1a1b_1c1d_1e1f,
    };
    let bytes = extent.to_bytes();
    assert_eq!(
        bytes[..16],
        [
            1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x12, 0x34, 0x0f, 0x23, 0x45, 2
        ]
    );
    assert_eq!(bytes[16..], (0x10..0x20).collect::<Vec<u8>>());
    assert_eq!(Extent::from_bytes(&bytes), Ok(extent));
    assert_eq!(Extent::from_bytes(&bytes[..31]), Err(ExtentError::Size(31)));
    assert_eq!(Extent::from_bytes(&[0; 32]), Err(ExtentError::Segment));
    let bad = |change: fn(&mut Extent)| {
        let mut bad = extent;
        change(&mut bad);
        Extent::from_bytes(&bad.to_bytes()).unwrap_err()
    };
    assert!(matches!(bad(|e| e.offset = u32::MAX), ExtentError::End(_)));
    assert!(matches!(
        bad(|e| e.stored = e.plain),
        ExtentError::Lengths { .. }
    ));
    assert!(matches!(bad(|e| e.stored = 0), ExtentError::Lengths { .. }));
    assert!(matches!(
        bad(|e| e.codec = Codec::Raw),
        ExtentError::Lengths { .. }
    ));
    assert!(matches!(
        bad(|e| e.plain = MAX_RECORD + 1),
        ExtentError::Lengths { .. }
    ));
    let mut unknown = bytes;
    unknown[15] = 3;
    assert_eq!(Extent::from_bytes(&unknown), Err(ExtentError::Codec(3)));
}

#[test]
fn settings_have_names_and_numbers_that_stay() {
    for (setting, text, code) in [
        (Compression::None, "none", 0x0000),
        (Compression::Lz4, "lz4", 0x0001),
        (Compression::Zstd(3), "zstd:3", 0x0302),
        (Compression::Zstd(19), "zstd:19", 0x1302),
        (Compression::Zstd(-1), "zstd:-1", 0xff02),
    ] {
        assert_eq!(setting.to_string(), text);
        assert_eq!(text.parse(), Ok(setting));
        assert_eq!(setting.to_u16(), code);
        assert_eq!(Compression::from_u16(code), Ok(setting));
    }
    assert_eq!("zstd".parse(), Ok(Compression::default()));
    let error = "zstd:20".parse::<Compression>().unwrap_err();
    assert!(error.to_string().contains("use 1 to 19"), "{error}");
    assert!("zstd:".parse::<Compression>().is_err());
    assert!("gzip".parse::<Compression>().is_err());
    assert!(Compression::from_u16(0x0300).is_err());
    assert!(Compression::from_u16(0x0003).is_err());
}

#[test]
fn every_flipped_byte_is_noticed() {
    let dir = TempDir::new().unwrap();
    let segments = open(&dir, &[]);
    let plain = sample(6000, 5, false);
    for setting in SETTINGS {
        let extent = segments.append(&pack(&plain, setting)).unwrap();
        let file = segments.file(extent.segment).unwrap();
        let mut out = Vec::new();
        for at in extent.offset..extent.offset + extent.stored {
            let mut byte = [0];
            file.read_exact_at(&mut byte, u64::from(at)).unwrap();
            file.write_all_at(&[byte[0] ^ 0x10], u64::from(at)).unwrap();
            let error = segments.read(&extent, &mut out).unwrap_err();
            assert!(
                matches!(error.kind, ReadErrorKind::Checksum { .. }),
                "{error:?}"
            );
            assert_eq!(
                (error.segment, error.offset),
                (extent.segment, extent.offset)
            );
            assert!(out.is_empty());
            file.write_all_at(&byte, u64::from(at)).unwrap();
        }
        segments.read(&extent, &mut out).unwrap();
        assert_eq!(out, plain);
    }
    let stats = segments.stats();
    assert_eq!(stats.reread, 0);
    assert!(stats.read_errors_checksum > 6000);
    assert_eq!(
        stats.appended_raw + stats.appended_lz4 + stats.appended_zstd,
        5
    );
}

#[test]
fn a_record_that_was_written_wrong_is_told_from_one_that_was_damaged() {
    let dir = TempDir::new().unwrap();
    let segments = open(&dir, &[]);
    let packed = pack(&[b'x'; 5000], Compression::Zstd(3));
    let wrong = Stored::verified(Codec::Lz4, 5000, packed.bytes(), packed.checksum()).unwrap();
    let extent = segments.append(&wrong).unwrap();
    let error = segments.read(&extent, &mut Vec::new()).unwrap_err();
    assert!(
        matches!(error.kind, ReadErrorKind::Decompress(_)),
        "{error:?}"
    );
    assert_eq!(segments.stats().read_errors_decompress, 1);
}

#[test]
fn wrong_extents_and_ranges_are_errors() {
    let dir = TempDir::new().unwrap();
    let segments = open(&dir, &[]);
    let plain = sample(10_000, 6, true);
    let good = segments.append(&pack(&plain, Compression::None)).unwrap();
    let mut out = Vec::new();
    let mut kind = |change: fn(&mut Extent)| {
        let mut extent = good;
        change(&mut extent);
        segments.read(&extent, &mut out).unwrap_err().kind
    };
    assert!(matches!(kind(|e| e.segment = 9), ReadErrorKind::Missing));
    assert!(matches!(kind(|e| e.segment = 0), ReadErrorKind::Extent(_)));
    assert!(matches!(
        kind(|e| e.offset += 1),
        ReadErrorKind::Checksum { .. }
    ));
    assert!(matches!(
        kind(|e| e.checksum ^= 1),
        ReadErrorKind::Checksum { .. }
    ));
    assert!(matches!(kind(|e| e.plain -= 1), ReadErrorKind::Extent(_)));
    assert!(matches!(kind(|e| e.offset = 1 << 30), ReadErrorKind::Io(_)));
    assert!(matches!(
        kind(|e| e.plain = 1 << 21),
        ReadErrorKind::Extent(_)
    ));
    let range = |start, end, len: usize| segments.read_range(&good, start..end, &mut vec![0; len]);
    assert!(range(0, 10_000, 10_000).is_ok());
    assert!(range(5, 5, 0).is_ok());
    for (start, end, len) in [
        (0, 10_001, 10_001),
        (0, 100, 99),
        (100, 0, 0),
        (9_000, 12_000, 3_000),
    ] {
        assert!(matches!(
            range(start, end, len).unwrap_err().kind,
            ReadErrorKind::Range { .. }
        ));
    }
}

#[test]
fn what_was_not_committed_is_gone_in_the_next_run() {
    let dir = TempDir::new().unwrap();
    let segments = open(&dir, &[]);
    let noise = sample(300_000, 7, true);
    let extents: Vec<_> = (0..8)
        .map(|_| segments.append(&pack(&noise, Compression::None)).unwrap())
        .collect();
    assert_eq!(
        names(dir.path()),
        ["00000001.seg", "00000002.seg", "00000003.seg"]
    );
    drop(segments);
    fs::write(dir.path().join("notes.txt"), "not ours").unwrap();
    fs::write(dir.path().join("7.seg"), "not ours").unwrap();
    // The metadata knows four records: all of segment 1 and one of segment 2.
    let known = ends(&extents[..4]);
    let segments = open(&dir, &known);
    assert_eq!(
        names(dir.path()),
        ["00000001.seg", "00000002.seg", "7.seg", "notes.txt"]
    );
    assert_eq!(segments.current(), 2);
    let length = |name| dir.path().join(name).metadata().unwrap().len();
    assert_eq!(length("00000002.seg"), u64::from(known[1].end));
    let mut out = Vec::new();
    for extent in &extents[..4] {
        segments.read(extent, &mut out).unwrap();
    }
    // The space of the fifth is used again.
    let again = segments.append(&pack(&noise, Compression::None)).unwrap();
    assert_eq!(again, extents[4]);
    assert_eq!(segments.numbers(), [1, 2]);
}

#[test]
fn missing_and_short_segments_are_problems_of_their_own_records() {
    let dir = TempDir::new().unwrap();
    let segments = open(&dir, &[]);
    let noise = sample(400_000, 8, true);
    let extents: Vec<_> = (0..6)
        .map(|_| segments.append(&pack(&noise, Compression::None)).unwrap())
        .collect();
    segments.sync().unwrap();
    drop(segments);
    let known = ends(&extents);
    fs::remove_file(dir.path().join("00000001.seg")).unwrap();
    let last = fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("00000003.seg"))
        .unwrap();
    last.set_len(500_000).unwrap();
    let segments = open(&dir, &known);
    assert_eq!(
        segments.problems(),
        [
            SegmentProblem::Missing { segment: 1 },
            SegmentProblem::Short {
                segment: 3,
                expected: known[2].end,
                found: 500_000
            },
        ]
    );
    let read = |at: usize| segments.read(&extents[at], &mut Vec::new());
    assert!(matches!(read(0).unwrap_err().kind, ReadErrorKind::Missing));
    read(2).unwrap();
    read(3).unwrap();
    read(4).unwrap();
    let error = read(5).unwrap_err();
    assert!(matches!(error.kind, ReadErrorKind::Io(_)));
    assert!(error.to_string().contains("segment 3"), "{error}");
    assert_eq!(segments.punch(1, 0, 400_000).unwrap(), 0);
    // The damaged segments are not written to.
    let extent = segments.append(&pack(&noise, Compression::None)).unwrap();
    assert_eq!((extent.segment, extent.offset), (4, 0));
    assert_eq!(last.metadata().unwrap().len(), 500_000);
}

#[test]
fn options_out_of_range_are_refused_with_the_range() {
    let dir = TempDir::new().unwrap();
    for segment_size in [0, MIB - 1, u32::MAX] {
        let options = SegmentOptions {
            segment_size,
            ..small()
        };
        let error = Segments::open(dir.path(), &[], options).unwrap_err();
        assert!(
            error.to_string().contains("from 1048576 to 4294963200"),
            "{error}"
        );
    }
    let error = Segments::open(&dir.path().join("none"), &[], small()).unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
}

#[test]
fn reading_only_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let segments = open(&dir, &[]);
    let extent = segments
        .append(&pack(b"record", Compression::None))
        .unwrap();
    drop(segments);
    fs::write(dir.path().join("00000009.seg"), "left over").unwrap();
    let before = names(dir.path());
    let options = SegmentOptions {
        read_only: true,
        ..small()
    };
    let segments = Segments::open(dir.path(), &ends(&[extent]), options).unwrap();
    let mut out = Vec::new();
    segments.read(&extent, &mut out).unwrap();
    assert_eq!(out, b"record");
    for result in [
        segments.append(&pack(b"x", Compression::None)).map(drop),
        segments.sync(),
        segments.punch(1, 0, 4096).map(drop),
        segments.remove(9),
    ] {
        assert!(matches!(result, Err(SegmentError::ReadOnly)));
    }
    assert_eq!(names(dir.path()), before);
}

#[test]
fn a_hole_gives_its_blocks_back_and_harms_no_neighbour() {
    let dir = TempDir::new().unwrap();
    let segments = open(&dir, &[]);
    let plain = sample(100_001, 9, false);
    let extents: Vec<_> = (0..9)
        .map(|_| segments.append(&pack(&plain, Compression::Lz4)).unwrap())
        .collect();
    segments.sync().unwrap();
    let before = segments.allocated_bytes().unwrap();
    let dead = &extents[3..6];
    let len = dead.iter().map(|extent| extent.stored).sum::<u32>();
    let freed = segments
        .punch(dead[0].segment, dead[0].offset, len)
        .unwrap();
    let mut out = Vec::new();
    for extent in extents[..3].iter().chain(&extents[6..]) {
        segments.read(extent, &mut out).unwrap();
        assert!(out == plain);
    }
    if segments.stats().punches_unsupported > 0 {
        println!("skipped: this file system punches no holes");
        return;
    }
    assert!(freed > len - 2 * BLOCK && freed <= len);
    assert_eq!(
        segments.allocated_bytes().unwrap(),
        before - u64::from(freed)
    );
    let error = segments.read(&dead[1], &mut out).unwrap_err();
    assert!(matches!(error.kind, ReadErrorKind::Checksum { .. }));
    // Less than a block frees nothing.
    assert_eq!(segments.punch(1, 1, 4095 + 4095).unwrap(), 0);
    assert_eq!(segments.stats().bytes_punched, u64::from(freed));
}

#[test]
fn a_segment_is_removed_but_not_the_current_one() {
    let dir = TempDir::new().unwrap();
    let segments = open(&dir, &[]);
    let noise = sample(MIB as usize, 10, true);
    let first = segments.append(&pack(&noise, Compression::None)).unwrap();
    let second = segments.append(&pack(&noise, Compression::None)).unwrap();
    assert_eq!((first.segment, second.segment, second.offset), (1, 2, 0));
    assert!(matches!(segments.remove(2), Err(SegmentError::Current(2))));
    segments.remove(1).unwrap();
    segments.remove(1).unwrap();
    segments.sync().unwrap();
    assert_eq!(names(dir.path()), ["00000002.seg"]);
    assert_eq!(segments.numbers(), [2]);
    let error = segments.read(&first, &mut Vec::new()).unwrap_err();
    assert!(matches!(error.kind, ReadErrorKind::Missing));
    segments.read(&second, &mut Vec::new()).unwrap();
}

#[test]
fn a_full_segment_keeps_no_reserved_space() {
    let dir = TempDir::new().unwrap();
    let segments = open(&dir, &[]);
    let noise = sample(700_000, 11, true);
    for _ in 0..2 {
        segments.append(&pack(&noise, Compression::None)).unwrap();
    }
    let metadata = dir.path().join("00000001.seg").metadata().unwrap();
    assert_eq!(metadata.len(), 700_000);
    assert!(metadata.blocks() * 512 < 710_000);
}

#[test]
fn few_files_are_open_at_a_time() {
    let dir = TempDir::new().unwrap();
    let options = SegmentOptions {
        open_files: 4,
        ..small()
    };
    let segments = Segments::open(dir.path(), &[], options).unwrap();
    let noise = sample(MIB as usize, 12, true);
    let extents: Vec<_> = (0..12)
        .map(|_| segments.append(&pack(&noise, Compression::None)).unwrap())
        .collect();
    let mut out = Vec::new();
    for extent in extents.iter().chain(extents.iter().rev()) {
        segments.read(extent, &mut out).unwrap();
        assert!(segments.files.open_count() <= 4);
    }
    segments.sync().unwrap();
    assert_eq!(segments.stats().syncs, 13, "12 files and the directory");
}

#[test]
fn after_a_failed_sync_nothing_is_written() {
    let dir = TempDir::new().unwrap();
    let segments = open(&dir, &[]);
    let extent = segments
        .append(&pack(b"before", Compression::None))
        .unwrap();
    segments.sync().unwrap();
    // The null device takes everything and cannot be synced.
    segments.write_to(
        fs::OpenOptions::new()
            .write(true)
            .open("/dev/null")
            .unwrap(),
    );
    segments.append(&pack(b"lost", Compression::None)).unwrap();
    assert!(matches!(segments.sync(), Err(SegmentError::Io { .. })));
    assert!(segments.is_poisoned());
    for _ in 0..2 {
        assert!(matches!(segments.sync(), Err(SegmentError::Poisoned)));
        let append = segments.append(&pack(b"after", Compression::None));
        assert!(matches!(append, Err(SegmentError::Poisoned)));
        assert!(matches!(
            segments.punch(1, 0, 8192),
            Err(SegmentError::Poisoned)
        ));
    }
    let mut out = Vec::new();
    segments.read(&extent, &mut out).unwrap();
    assert_eq!(out, b"before");
    assert_eq!(segments.stats().sync_errors, 1);
}

#[test]
fn a_failed_write_leaves_its_place_to_the_next() {
    let dir = TempDir::new().unwrap();
    let segments = open(&dir, &[]);
    let first = segments.append(&pack(b"first", Compression::None)).unwrap();
    // Writing to a full device fails as on a full disk; reserving space there
    // is not supported, which is passed over.
    segments.write_to(
        fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap(),
    );
    let error = segments
        .append(&pack(&[1; 9000], Compression::None))
        .unwrap_err();
    assert!(error.is_no_space(), "{error:?}");
    assert_eq!(segments.stats().append_errors, 1);
    segments.write_to(
        fs::OpenOptions::new()
            .write(true)
            .open(dir.path().join("00000001.seg"))
            .unwrap(),
    );
    let second = segments
        .append(&pack(b"second", Compression::None))
        .unwrap();
    assert_eq!(second.offset, first.offset + first.stored);
    segments.read(&second, &mut Vec::new()).unwrap();
}

#[test]
fn threads_append_sync_and_read_at_once() {
    let dir = TempDir::new().unwrap();
    let segments = open(&dir, &[]);
    let stop = AtomicBool::new(false);
    let mut kept = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4usize)
            .map(|worker| {
                let segments = &segments;
                scope.spawn(move || {
                    let mut kept = Vec::new();
                    for round in 0..30 {
                        let seed = worker * 1000 + round;
                        let plain = sample(20_000 + 1000 * round, seed as u64, round % 3 == 0);
                        let setting = SETTINGS[seed % SETTINGS.len()];
                        let extent = segments.append(&pack(&plain, setting)).unwrap();
                        kept.push((extent, plain));
                        check_all(segments, &kept[kept.len() / 2..]);
                    }
                    kept
                })
            })
            .collect();
        let syncer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                segments.sync().unwrap();
            }
        });
        for worker in workers {
            kept.extend(worker.join().unwrap());
        }
        stop.store(true, Ordering::Relaxed);
        syncer.join().unwrap();
    });
    check_all(&segments, &kept);
    check_apart(&kept);
    assert!(segments.current() > 1);
}

#[test]
fn an_epoch_passes_when_the_guards_from_before_it_are_gone() {
    let epochs = Epochs::new();
    assert!(epochs.passed(epochs.advance()));
    let first = epochs.enter();
    let second = epochs.enter();
    let freed = epochs.advance();
    let late = epochs.enter();
    assert!(!epochs.passed(freed));
    drop(second);
    assert!(!epochs.passed(freed));
    let later = epochs.advance();
    drop(first);
    assert!(epochs.passed(freed), "a later guard does not hold it back");
    assert!(!epochs.passed(later));
    drop(late);
    assert!(epochs.clone().passed(later));
    // Guards dropped in another order than they were made.
    let mut guards: Vec<_> = (0..5)
        .map(|_| Some((epochs.enter(), epochs.advance())))
        .collect();
    let after: Vec<_> = guards.iter().flatten().map(|&(_, epoch)| epoch).collect();
    for at in [0, 2, 4] {
        guards[at] = None;
    }
    assert!(epochs.passed(after[0]));
    assert!(!epochs.passed(after[1]) && !epochs.passed(after[4]));
    guards[1] = None;
    assert!(epochs.passed(after[2]) && !epochs.passed(after[3]));
    guards[3] = None;
    assert!(epochs.passed(after[4]));
}
