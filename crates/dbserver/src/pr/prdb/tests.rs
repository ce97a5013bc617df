//! The file: there and back, and files that are not as they should be.

use proptest::prelude::*;

use super::*;
use crate::pr::Flags;
use crate::pr::tests::{As, Cell};

const GROUP: i32 = 2;

/// A cell with a group that needs more blocks, groups in groups, and a group without owner.
async fn cell() -> Cell {
    let cell = Cell::new().await;
    for id in 1..=100 {
        cell.make(As::Admin, &format!("u{id}"), 0, 0).await.unwrap();
    }
    for n in 0..15 {
        let group = cell.make(As::Admin, &format!("g{n}"), GROUP, 1 + n).await;
        let group = group.unwrap();
        for id in 1..=100 / (n + 1) {
            cell.add(As::Admin, id, group).await.unwrap();
        }
        if n > 0 {
            cell.add(As::Admin, -206, group).await.unwrap();
        }
    }
    cell.delete(As::Admin, 7).await.unwrap();
    let other = "system:authuser@other.org";
    cell.make(As::Admin, other, GROUP, 0).await.unwrap();
    cell.make(As::Admin, "eve@other.org", 0, 0).await.unwrap();
    cell
}

fn sorted(mut prdb: Prdb) -> Vec<PrdbEntry> {
    for entry in &mut prdb.entries {
        entry.entry.slot = 0;
        entry.elements.sort();
    }
    prdb.entries
}

#[tokio::test]
async fn nothing_is_lost_on_the_way_there_and_back() {
    let cell = cell().await;
    let exported = cell.server.export().unwrap();
    let file = exported.encode(1_700_000_000, 1).unwrap();
    let read = Prdb::decode(&file).unwrap();
    let counts = |header: &Header| (header.users, header.groups, header.foreign);
    assert_eq!(counts(&read.header), counts(&exported.header));
    assert_eq!(read.header.max_user, exported.header.max_user);
    assert_eq!(sorted(read.clone()), sorted(exported));

    let dir = tempfile::TempDir::new().unwrap();
    let database = crate::kv::Database::open(dir.path(), &Default::default()).unwrap();
    let import = crate::pr::ProtectionServer::import;
    import(&database, read.clone()).await.unwrap();
    let again = import(&database, read.clone()).await;
    assert_eq!(again.unwrap_err().code().0, 267_264);
    let config = crate::pr::ProtectionConfig::default();
    let server = crate::pr::ProtectionServer::open(database, config);
    let back = server.await.unwrap().export().unwrap();
    assert_eq!(sorted(back), sorted(read));
}

#[tokio::test]
async fn a_file_that_is_cut_short_is_refused() {
    let file = cell().await.server.export().unwrap().encode(1, 1).unwrap();
    for len in (0..file.len()).step_by(97) {
        assert!(Prdb::decode(&file[..len]).is_err());
    }
    assert!(Prdb::decode(&file).is_ok());
}

/// Changes a word of a block of a small database, of which one block continues a list.
async fn with_word(block: usize, number: usize, word: i32) -> Result<Prdb, PrdbError> {
    let cell = Cell::new().await;
    for id in 1..=12 {
        cell.make(As::Admin, &format!("u{id}"), 0, 0).await.unwrap();
        cell.add(As::Admin, id, -203).await.unwrap();
    }
    let mut file = cell.server.export().unwrap().encode(1, 1).unwrap();
    assert_eq!(file.len(), UBIK_LEN + HEADER_LEN + 19 * BLOCK_LEN);
    let at = UBIK_LEN + HEADER_LEN + block * BLOCK_LEN + 4 * number;
    file[at..at + 4].copy_from_slice(&word.to_be_bytes());
    Prdb::decode(&file)
}

#[tokio::test]
async fn what_contradicts_itself_is_named() {
    let start = i32::try_from(HEADER_LEN).unwrap();
    let wrong = |read: Result<Prdb, PrdbError>| read.unwrap_err().to_string();
    // Blocks 0 to 4 are groups, 5 is anonymous, 6 to 17 users, 18 goes on with block 4.
    let read = with_word(6, word::ID, -1).await;
    assert!(wrong(read).contains("an id that its kind cannot have"));
    let read = with_word(6, word::ID, 0).await;
    assert!(wrong(read).contains("an id that its kind cannot have"));
    let read = with_word(6, word::FLAGS, 8).await;
    assert!(wrong(read).contains("is of a kind that is not known"));
    let read = with_word(6, word::ID, 2).await;
    assert!(wrong(read).contains("is there twice"));
    let read = with_word(6, word::NAME, i32::from_be_bytes(*b"u2\0\0")).await;
    assert!(wrong(read).contains("the name of another"));
    let read = with_word(6, word::NAME, 0).await;
    assert!(wrong(read).contains("has no name"));
    let read = with_word(6, word::NEXT, start + 18 * 192).await;
    assert!(wrong(read).contains("not of the same list"));
    // A circle.
    let read = with_word(18, word::NEXT, start + 18 * 192).await;
    assert!(wrong(read).contains("not of the same list"));
    for nowhere in [1, -1, start + 1, start + 19 * 192, i32::MAX] {
        let read = with_word(4, word::NEXT, nowhere).await;
        assert!(wrong(read).contains("where no block is"));
    }
    let read = with_word(6, word::IDS, 0).await;
    let pair = PrdbError::OneSided {
        member: 1,
        group: -203,
    };
    assert_eq!(read.unwrap_err(), pair);
    let read = with_word(4, word::NEXT, 0).await;
    assert!(matches!(read, Err(PrdbError::OneSided { group: -203, .. })));
    let read = with_word(6, word::IDS, 2).await;
    assert!(wrong(read).contains("another as its group"));
    let read = with_word(6, word::IDS, 99).await;
    assert!(wrong(read).contains("has no entry"));
    let read = with_word(0, word::IDS, -204).await;
    assert!(wrong(read).contains("lists itself"));
    let read = with_word(4, word::IDS, 2).await;
    assert!(wrong(read).contains("has a member twice"));
    // Places from which an id was removed, and free blocks, are passed over.
    let read = with_word(5, word::IDS, REMOVED).await.unwrap();
    assert_eq!(read.entries.len(), 18);
    assert_eq!(
        with_word(5, word::FLAGS, 1).await.unwrap().entries.len(),
        17
    );
}

#[test]
fn places_are_where_blocks_begin() {
    assert_eq!(position(0), Some(65_600));
    assert_eq!(slot(65_600 + 192), Some(1));
    for nowhere in [0, -1, 65_599, 65_601, i32::MIN] {
        assert_eq!(slot(nowhere), None);
    }
    assert_eq!(position(u32::MAX), None);
}

#[test]
fn a_long_name_cannot_be_written() {
    let mut prdb = Prdb::default();
    let mut entry = PrdbEntry::default();
    entry.entry.id = PtsId(-1);
    entry.entry.flags = Flags(Flags::GROUP);
    entry.entry.name = vec![b'x'; 64];
    prdb.entries.push(entry);
    assert!(matches!(
        prdb.encode(1, 1),
        Err(PrdbError::Entry { id: -1, .. })
    ));
}

/// The frame of a file around these blocks.
fn framed(blocks: &[[i32; BLOCK_LEN / 4]]) -> Vec<u8> {
    let mut file = Prdb::default().encode(1, 1).unwrap();
    let end = HEADER_LEN + blocks.len() * BLOCK_LEN;
    let at = UBIK_LEN + 12;
    file[at..at + 4].copy_from_slice(&i32::try_from(end).unwrap().to_be_bytes());
    file.extend(blocks.iter().flatten().flat_map(|word| word.to_be_bytes()));
    file
}

proptest! {
    #[test]
    fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(Prdb::decode(&bytes).is_err());
    }

    #[test]
    fn any_blocks_are_read_or_refused(
        blocks in proptest::collection::vec(any_block(), 1..6)
    ) {
        if let Ok(read) = Prdb::decode(&framed(&blocks)) {
            prop_assert!(read.entries.len() <= blocks.len());
            let file = read.encode(1, 1).unwrap();
            prop_assert_eq!(sorted(Prdb::decode(&file).unwrap()), sorted(read));
        }
    }
}

/// A block that is likely to refer to others.
fn any_block() -> impl Strategy<Value = [i32; BLOCK_LEN / 4]> {
    let word = prop_oneof![
        8 => Just(0),
        1 => -3..4_i32,
        1 => (0..6_i32).prop_map(|n| 65_600 + 192 * n),
        1 => any::<i32>(),
    ];
    let flags = prop_oneof![Just(0), Just(2), Just(4), any::<i32>()];
    (
        proptest::collection::vec(word, 48),
        flags,
        -3..4_i32,
        any::<[u8; 3]>(),
    )
        .prop_map(|(words, flags, id, [a, b, c])| {
            let mut block = [0; BLOCK_LEN / 4];
            block.copy_from_slice(&words);
            block[0] = flags;
            block[1] = id;
            block[2] = 0;
            block[word::NAME] = i32::from_be_bytes([a, b, c, 0]);
            block[47] = 0;
            block
        })
}
