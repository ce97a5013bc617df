//! The bytes of each section, written out.

use super::*;

#[rustfmt::skip]
const BEFORE_VNODES: &[u8] = &[
    1, 0xb3, 0xa1, 0x13, 0x22, 0, 0, 0, 1,
    b'v', 0x20, 0, 0, 3,
    b'n', b'a', b'.', b'b', b'a', b'c', b'k', b'u', b'p', 0,
    b't', 0, 2, 0, 0, 0, 1, 0, 0, 0, 14,
    2,
    b'i', 0x20, 0, 0, 3,
    b'v', 0, 0, 0, 1,
    b'n', b'a', b'.', b'b', b'a', b'c', b'k', b'u', b'p', 0,
    b's', 0,
    b'b', 1,
    b'u', 0, 0, 1, 2,
    b't', 2,
    b'p', 0x20, 0, 0, 1,
    b'c', 0x20, 0, 0, 2,
    b'q', 0, 0, 0x13, 0x88,
    b'm', 0, 0, 0, 6,
    b'd', 0, 0, 0, 7,
    b'f', 0, 0, 0, 4,
    b'a', 0, 0, 0, 8,
    b'o', 0xff, 0xff, 0xff, 0xf7,
    b'C', 0, 0, 0, 10,
    b'A', 0, 0, 0, 11,
    b'U', 0, 0, 0, 12,
    b'E', 0, 0, 0, 13,
    b'B', 0, 0, 0, 14,
    b'O', b'm', b'o', b'v', b'i', b'n', b'g', 0,
    b'M', 0,
    b'W', 0, 7, 0, 0, 0, 21, 0, 0, 0, 22, 0, 0, 0, 23, 0, 0, 0, 24, 0, 0, 0, 25, 0, 0, 0, 26,
        0, 0, 0, 27,
    b'D', 0, 0, 0, 15,
    b'Z', 0, 0, 0, 16,
];

#[rustfmt::skip]
const DIRECTORY: &[u8] = &[
    3, 0, 0, 0, 1, 0, 0, 0, 101,
    b't', 2,
    b'l', 0, 1,
    b'v', 0, 0, 0, 2,
    b'm', 0, 0, 0, 3,
    b'a', 0, 0, 0, 4,
    b'o', 0, 0, 0, 5,
    b'b', 0x01, 0xed,
    b'p', 0, 0, 0, 1,
    b's', 0, 0, 0, 6,
    b'A',
];

#[rustfmt::skip]
const OTHERS: &[u8] = &[
    3, 0, 0, 0, 2, 0, 0, 0, 102,
    b't', 1,
    b'l', 0, 1,
    b'v', 0, 0, 0, 2,
    b'm', 0, 0, 0, 3,
    b'a', 0, 0, 0, 4,
    b'o', 0, 0, 0, 5,
    b'g', 0xff, 0xff, 0xff, 0xf9,
    b'b', 0x01, 0xa4,
    b'p', 0, 0, 0, 1,
    b's', 0, 0, 0, 6,
    b'f', 0, 0, 0, 3, b'a', b'b', b'c',
    3, 0, 0, 0, 4, 0, 0, 0, 104,
    3, 0, 0, 0, 6, 0, 0, 0, 106,
    b't', 3,
    b'l', 0, 1,
    b'v', 0, 0, 0, 2,
    b'm', 0, 0, 0, 3,
    b'a', 0, 0, 0, 4,
    b'o', 0, 0, 0, 5,
    b'b', 0x01, 0xa4,
    b'p', 0, 0, 0, 1,
    b's', 0, 0, 0, 6,
    b'f', 0, 0, 0, 10, b'#', b'r', b'o', b'o', b't', b'.', b'c', b'e', b'l', b'l',
    4, 0x3a, 0x21, 0x4b, 0x6e,
];

fn stream() -> Vec<u8> {
    let page = [b'f', 0, 0, 8, 0];
    [
        BEFORE_VNODES,
        DIRECTORY,
        &[0xac; ACL_SIZE],
        &page,
        &[0xd1; 2048],
        OTHERS,
    ]
    .concat()
}

#[test]
fn written() {
    assert_eq!(write(&sample(), 7).unwrap(), stream());
}

#[test]
fn read_through_any_buffer() {
    for buffer in [1, 2, 3, 50, 10_000] {
        assert_eq!(read(&stream(), buffer).unwrap(), sample());
    }
    let records: Vec<_> = sample()
        .vnodes
        .into_iter()
        .map(|(record, _)| record)
        .collect();
    assert_eq!(skim(&stream()).unwrap(), records);
}

/// Lengths change their form at 4 GiB.
#[test]
fn long_data() {
    let field = |length: u64| {
        let mut record = sample().vnodes[1].0.clone();
        record.body.as_mut().unwrap().length = Some(length);
        let mut writer = DumpWriter::new(Vec::new(), &sample().header).unwrap();
        writer.volume_header(&sample().volume).unwrap();
        writer.vnode(&record).unwrap();
        let before = BEFORE_VNODES.len() + 9 + 2 + 3 + 4 * 5 + 5 + 3 + 2 * 5;
        let error = writer.finish().unwrap_err();
        assert!(matches!(
            error.problem,
            DumpProblem::DataLength { given: 0, .. }
        ));
        (error.offset - before as u64, error.vnode)
    };
    assert_eq!(field(0xffff_ffff), (5, Some(VnodeId(2))));
    assert_eq!(field(0x1_0000_0000), (9, Some(VnodeId(2))));
    assert_eq!(field(i64::MAX.cast_unsigned()), (9, Some(VnodeId(2))));
}
