//! What a reader accepts, skips and refuses.

use std::io::{self, BufRead};

use super::*;

const BEGIN: &[u8] = &[1, 0xb3, 0xa1, 0x13, 0x22, 0, 0, 0, 1];
const HEADER: &[u8] = &[b'v', 0, 0, 0, 9, b't', 0, 2, 0, 0, 0, 0, 0, 0, 0, 5];
const END: &[u8] = &[4, 0x3a, 0x21, 0x4b, 0x6e];
/// Where the first vnode is in [`dump`].
const VNODES_AT: u64 = 9 + 16 + 1;

/// A dump with nothing in its volume header, and these vnodes.
fn dump(vnodes: &[u8]) -> Vec<u8> {
    [BEGIN, HEADER, &[2], vnodes, END].concat()
}

/// Fields for vnode 2.
fn file(fields: &[u8]) -> Vec<u8> {
    dump(&[&[3, 0, 0, 0, 2, 0, 0, 0, 1], fields].concat())
}

fn problem(stream: &[u8]) -> DumpProblem {
    let error = read(stream, 64).unwrap_err();
    assert_eq!(error.to_string(), skim(stream).unwrap_err().to_string());
    error.problem
}

fn only(stream: &[u8]) -> VnodeFields {
    let dump = read(stream, 64).unwrap();
    assert_eq!(dump.vnodes.len(), 1);
    dump.vnodes[0].0.body.clone().unwrap()
}

#[test]
fn what_is_left_out_is_zero() {
    let dump = read(&dump(&[]), 64).unwrap();
    assert_eq!(dump.header.name, b"");
    assert_eq!(
        (dump.header.from, dump.header.to),
        (UnixTime(0), UnixTime(5))
    );
    let empty = VolumeHeader {
        stamp_version: 0,
        in_service: false,
        blessed: false,
        ..VolumeHeader::new(VolumeId(0), b"")
    };
    assert_eq!(dump.volume, empty);
    assert_eq!(only(&file(b"t\x01")), VnodeFields::new(VnodeKind::File));
}

#[test]
fn any_order_of_fields() {
    let fields = only(&file(b"p\0\0\0\x01t\x01b\x01\xa4l\0\x02"));
    assert_eq!(
        (fields.parent, fields.mode, fields.link_count),
        (VnodeId(1), 0o644, 2)
    );
}

#[test]
fn sections_out_of_order() {
    let cases: [(&[&[u8]], &str); 8] = [
        (&[b"hello"], "a dump header (0x01)"),
        (&[&[2]], "a dump header (0x01)"),
        (&[BEGIN, HEADER, &[3]], "the volume header (0x02)"),
        (&[BEGIN, HEADER, END], "the volume header (0x02)"),
        (
            &[BEGIN, HEADER, &[2, 2]],
            "a vnode (0x03) or the end of the dump (0x04)",
        ),
        (
            &[BEGIN, HEADER, &[2], BEGIN],
            "a vnode (0x03) or the end of the dump (0x04)",
        ),
        (
            &[BEGIN, HEADER, &[2, 0]],
            "a vnode (0x03) or the end of the dump (0x04)",
        ),
        (
            &[BEGIN, HEADER, &[2, 20]],
            "a vnode (0x03) or the end of the dump (0x04)",
        ),
    ];
    for (stream, what) in cases {
        match problem(&stream.concat()) {
            DumpProblem::Section { expected, .. } => assert_eq!(expected, what),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn headers_that_are_none() {
    let begin_wrong = [&[1, 0xb3, 0xa1, 0x13, 0x23, 0, 0, 0, 1], HEADER].concat();
    assert!(matches!(
        problem(&begin_wrong),
        DumpProblem::Magic {
            found: 0xb3a1_1323,
            expected: 0xb3a1_1322,
            ..
        }
    ));
    let version_2 = [&[1, 0xb3, 0xa1, 0x13, 0x22, 0, 0, 0, 2], HEADER].concat();
    assert!(matches!(problem(&version_2), DumpProblem::Version(2)));
    let end_wrong = [BEGIN, HEADER, &[2, 4, 0x3a, 0x21, 0x4b, 0x6f]].concat();
    assert!(matches!(
        problem(&end_wrong),
        DumpProblem::Magic {
            found: 0x3a21_4b6f,
            ..
        }
    ));

    let header = |fields: &[u8]| problem(&[BEGIN, fields, &[2], END].concat());
    assert!(matches!(
        header(&HEADER[..5]),
        DumpProblem::Missing("the time of the dump header")
    ));
    assert!(matches!(
        header(&HEADER[5..]),
        DumpProblem::Missing("the volume of the dump header")
    ));
    let zero = [b"v\0\0\0\0", &HEADER[5..]].concat();
    assert!(matches!(header(&zero), DumpProblem::Missing(_)));
    for count in [0, 1, 3, 4, 0xff] {
        let times = [b"v\0\0\0\x01t\0", &[count][..], &[0; 4 * 255]].concat();
        assert!(
            matches!(header(&times), DumpProblem::Value { .. }),
            "{count}"
        );
    }
    let kind = problem(&dump(b"t\x03"));
    assert!(matches!(
        kind,
        DumpProblem::Value {
            found: 3,
            allowed: "0, 1 or 2",
            ..
        }
    ));
}

#[test]
fn vnodes_that_cannot_be() {
    let vnode = |number: u8, fields: &[u8]| {
        let vnode = [&[3, 0, 0, 0, number, 0, 0, 0, 1], fields].concat();
        let error = read(&dump(&vnode), 64).unwrap_err();
        assert_eq!(error.offset, VNODES_AT);
        (error.vnode.map_or(0, |vnode| vnode.0), error.problem)
    };
    let found = |number, fields: &[u8], value| match vnode(number, fields) {
        (at, DumpProblem::Value { found, .. }) => assert_eq!((at, found), (number.into(), value)),
        (_, other) => panic!("{other}"),
    };
    found(0, b"", 0);
    found(2, b"t\0", 0);
    found(2, b"t\x04", 4);
    found(2, b"t\xff", 255);
    found(2, b"t\x02", 2);
    found(3, b"t\x01", 1);
    found(3, b"t\x03", 3);
    found(2, &[b"A", &[0; ACL_SIZE][..], b"t\x01"].concat(), 1);
    for length in [0u32, 1, 2047, 2049, 1024 * 2048, u32::MAX] {
        let length = length.to_be_bytes();
        found(
            3,
            &[b"t\x02f", &length[..]].concat(),
            u32::from_be_bytes(length).into(),
        );
    }
    assert!(matches!(vnode(2, b"l\0\x01"), (2, DumpProblem::Missing(_))));
    assert!(matches!(
        vnode(2, b"f\0\0\0\x01xt\x01"),
        (2, DumpProblem::Missing(_))
    ));
    assert!(matches!(
        vnode(2, b"t\x03f\0\0\x04\x01"),
        (2, DumpProblem::TooLong { max: 1024, .. })
    ));
    assert!(matches!(
        vnode(2, b"t\x01h\x80\0\0\0\0\0\0\0"),
        (
            2,
            DumpProblem::TooLong {
                max: 0x7fff_ffff_ffff_ffff,
                ..
            }
        )
    ));
}

/// The largest length there is costs no memory: the stream simply ends too early.
#[test]
fn lengths_that_lie() {
    for fields in [
        &b"t\x01h\x7f\xff\xff\xff\xff\xff\xff\xffabc"[..],
        b"t\x01f\xff\xff\xff\xffabc",
        b"t\x03f\0\0\x04\0abc",
    ] {
        let stream = file(fields);
        assert!(matches!(
            problem(&stream),
            DumpProblem::Truncated {
                expected: "the data of a vnode"
            }
        ));
        assert_eq!(read(&stream, 64).unwrap_err().offset, stream.len() as u64);
    }
    let directory = [&[3, 0, 0, 0, 1, 0, 0, 0, 1], &b"t\x02f\0\x1f\xf8\0"[..]].concat();
    assert!(matches!(
        problem(&dump(&directory)),
        DumpProblem::Truncated { .. }
    ));
}

#[test]
fn limits() {
    let read = |stream: &[u8], limits: Limits| {
        let (mut reader, _) = DumpReader::new(stream, limits)?;
        reader.volume_header()?;
        while reader.next_vnode()?.is_some() {}
        reader.finish().map(|_| ())
    };
    let at_most = |data, text, unknown| Limits {
        data,
        text,
        unknown,
    };
    let stream = file(b"t\x01f\0\0\0\x04abcd");
    read(&stream, at_most(4, 0, 0)).unwrap();
    let error = read(&stream, at_most(3, 0, 0)).unwrap_err();
    assert!(matches!(error.problem, DumpProblem::TooLong { max: 3, .. }));

    let stream = dump(b"Oabcd\0nabcd\0Mabcd\0");
    read(&stream, at_most(0, 4, 0)).unwrap();
    let error = read(&stream, at_most(0, 3, 0)).unwrap_err();
    assert!(matches!(error.problem, DumpProblem::TooLong { max: 3, .. }));
    assert_eq!(error.offset, VNODES_AT);

    let stream = dump(b"\x15\x04abcd");
    read(&stream, at_most(0, 0, 4)).unwrap();
    let error = read(&stream, at_most(0, 0, 3)).unwrap_err();
    assert!(matches!(error.problem, DumpProblem::TooLong { max: 3, .. }));
}

/// OpenAFS keeps 31 bytes of a name and 127 of a message, and reads them all.
#[test]
fn long_texts_are_given_whole() {
    let stream = dump(&[b"n", &[b'x'; 300][..], b"\0"].concat());
    assert_eq!(read(&stream, 64).unwrap().volume.name, [b'x'; 300]);
}

#[test]
fn weeks_of_other_lengths() {
    let week = |count: u8| {
        let words = (0..count).flat_map(|day| [0, 0, 0, day + 1]);
        let field: Vec<u8> = [b'W', 0, count].into_iter().chain(words).collect();
        read(&dump(&field), 64).unwrap().volume.week_use
    };
    assert_eq!(week(0), [0; 7]);
    assert_eq!(week(2), [1, 2, 0, 0, 0, 0, 0]);
    assert_eq!(week(9), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn unknown_fields_are_skipped() {
    let long = [b"\x60\x82\x01\x00", &[9; 256][..]].concat();
    for unknown in [
        &b"\x15\0"[..],
        b"\x15\x03\x01\x02\x04",
        b"B\x02t\x07",
        b"\x20\x88\0\0\0\0\0\0\0\x01\x05",
        &long,
        b"u\0\0\0\x07",
        b"z\0\0\0\x07",
        b"{",
        b"\x7f",
        b"\x7et\x01",
        b"\x7e\x7et\x01",
    ] {
        let fields = only(&file(&[b"t\x01", unknown, b"l\0\x05"].concat()));
        assert_eq!(fields.link_count, 5, "{unknown:?}");
        // Behind the data as well.
        let fields = only(&file(&[b"t\x01f\0\0\0\x02xy", unknown].concat()));
        assert_eq!(fields.length, Some(2), "{unknown:?}");
    }
    // A listed vnode stays one.
    let listed = read(&file(b"u\0\0\0\x07{"), 64).unwrap();
    assert_eq!(listed.vnodes[0].0.body, None);
    // The counter that OpenAFS reads in volume headers, and never writes.
    read(&dump(b"V\0\0\0\x01"), 64).unwrap();
}

#[test]
fn unknown_fields_that_cannot_be_skipped() {
    for unknown in [
        &b"\x7eu\0\0\0\x07"[..],
        b"\x7e{",
        b"\x7e\x15\0",
        b"\x80",
        b"\xff",
        b"E\0",
        b"\x15\x80",
        b"\x15\x89\0\0\0\0\0\0\0\0\x01",
        b"\x15\xff",
    ] {
        let problem = problem(&file(&[b"t\x01", unknown].concat()));
        assert!(
            matches!(problem, DumpProblem::UnknownField { .. }),
            "{unknown:?}: {problem}"
        );
    }
    // Critical is the next field only.
    only(&file(b"t\x01\x7el\0\x01{"));
}

#[test]
fn repeated_fields() {
    let repeated = |stream: &[u8], by| match problem(stream) {
        DumpProblem::Repeated { tag } => assert_eq!(tag, by),
        other => panic!("{other}"),
    };
    assert_eq!(only(&file(b"t\x01l\0\x02l\0\x02")).link_count, 2);
    repeated(&file(b"t\x01l\0\x02l\0\x03"), b'l');
    repeated(&file(b"t\x01t\x03"), b't');
    repeated(&dump(b"nab\0nac\0"), b'n');
    repeated(&dump(b"i\0\0\0\x01i\0\0\0\x02"), b'i');
    repeated(&dump(b"W\0\x01\0\0\0\x01W\0\x01\0\0\0\x02"), b'W');
    repeated(
        &[BEGIN, HEADER, HEADER, b"v\0\0\0\x08", &[2], END].concat(),
        b'v',
    );
    repeated(&file(b"t\x01f\0\0\0\x01xf\0\0\0\x01x"), b'f');
    repeated(&file(b"t\x01f\0\0\0\x01xh\0\0\0\0\0\0\0\x01x"), b'h');
    // Behind the data nothing new can be said.
    repeated(&file(b"t\x01f\0\0\0\x01xl\0\x01"), b'l');
    repeated(&file(b"t\x01f\0\0\0\x01xt\x03"), b't');
    assert_eq!(
        only(&file(b"t\x01l\0\x01f\0\0\0\x01xl\0\x01g\0\0\0\0")).link_count,
        1
    );
}

#[test]
fn data_in_part() {
    let stream = write(&sample(), 1000).unwrap();
    let (mut reader, _) = DumpReader::new(&stream[..], Limits::default()).unwrap();
    assert_eq!(reader.data().left(), 0);
    reader.volume_header().unwrap();
    reader.next_vnode().unwrap();
    let mut part = [0; 48];
    reader.data().read_exact(&mut part).unwrap();
    assert_eq!(reader.data().left(), 2000);
    let there = reader.data().fill_buf().unwrap().len();
    assert_eq!(there, 2000, "no more than the vnode's own");
    reader.data().consume(1_000_000);
    assert_eq!(reader.data().left(), 0);
    assert_eq!(reader.data().read(&mut part).unwrap(), 0);
    assert_eq!(reader.next_vnode().unwrap().unwrap().vnode, VnodeId(2));
}

#[test]
fn calls_out_of_order() {
    let stream = write(&sample(), 1000).unwrap();
    let open = || DumpReader::new(&stream[..], Limits::default()).unwrap().0;
    let order = |error: DumpError| assert!(matches!(error.problem, DumpProblem::Order(_)));
    order(open().next_vnode().unwrap_err());
    order(open().finish().unwrap_err());
    let mut reader = open();
    reader.volume_header().unwrap();
    order(reader.volume_header().unwrap_err());
    order(reader.next_vnode().unwrap_err());
    let mut reader = open();
    reader.volume_header().unwrap();
    reader.next_vnode().unwrap();
    order(reader.finish_within().unwrap_err());
    let mut reader = open();
    reader.volume_header().unwrap();
    while reader.next_vnode().unwrap().is_some() {}
    assert_eq!(reader.next_vnode().unwrap(), None);
    reader.finish().unwrap();
}

#[test]
fn what_follows_the_dump() {
    let stream = [&dump(&[])[..], b"more"].concat();
    let error = read(&stream, 64).unwrap_err();
    assert!(matches!(error.problem, DumpProblem::Trailing));
    assert_eq!(error.offset, stream.len() as u64 - 4);
    let (mut reader, _) = DumpReader::new(&stream[..], Limits::default()).unwrap();
    reader.volume_header().unwrap();
    assert_eq!(reader.next_vnode().unwrap(), None);
    assert_eq!(reader.finish_within().unwrap(), b"more");
}

/// A stream that is interrupted goes on, one that fails ends the dump.
#[test]
fn streams_that_fail() {
    #[derive(Debug)]
    struct Faulty<'a> {
        rest: &'a [u8],
        interrupted: bool,
    }
    impl Read for Faulty<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if self.rest.is_empty() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let buf = &mut buf[..1];
            self.rest.read(buf)
        }
    }
    let stream = write(&sample(), 1000).unwrap();
    let mut whole = Faulty {
        rest: &stream,
        interrupted: false,
    };
    let (mut reader, _) = DumpReader::new(BufReader::new(&mut whole), Limits::default()).unwrap();
    reader.volume_header().unwrap();
    let mut vnodes = 0;
    while reader.next_vnode().unwrap().is_some() {
        let mut data = Vec::new();
        reader.data().read_to_end(&mut data).unwrap();
        vnodes += 1;
    }
    assert_eq!(vnodes, 4);
    let error = reader.finish().unwrap_err();
    assert!(
        matches!(&error.problem, DumpProblem::Io(cause) if cause.kind() == io::ErrorKind::TimedOut)
    );
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::TimedOut);
}

#[test]
fn errors_say_where() {
    let error = read(&file(b"t\x01l\0\x02l\0\x03"), 64).unwrap_err();
    assert_eq!(
        error.to_string(),
        "byte 40 of the dump, in vnode 2: the field with tag 'l' appears again, with another value"
    );
    let error = read(&dump(&[])[..30], 64).unwrap_err();
    assert_eq!(
        error.to_string(),
        "byte 30 of the dump: the stream ends where a magic number should be"
    );
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::UnexpectedEof);
}
