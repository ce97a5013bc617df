//! What a writer refuses.

use std::io::{self, Write};

use super::*;

fn opened() -> DumpWriter<Vec<u8>> {
    let mut writer = DumpWriter::new(Vec::new(), &sample().header).unwrap();
    writer.volume_header(&sample().volume).unwrap();
    writer
}

fn vnode(number: u32, body: VnodeFields) -> VnodeRecord {
    VnodeRecord {
        vnode: VnodeId(number),
        uniquifier: Uniquifier(1),
        body: Some(body),
    }
}

#[test]
fn data_must_be_as_long_as_announced() {
    let file = &sample().vnodes[1].0;
    let short = |given: &[u8]| {
        let mut writer = opened();
        writer.vnode(file).unwrap();
        writer.data(given).unwrap();
        writer
    };
    let length = |error: DumpError| match error.problem {
        DumpProblem::DataLength { announced, given } => {
            assert_eq!(error.vnode, Some(VnodeId(2)));
            (announced, given)
        }
        other => panic!("{other}"),
    };
    assert_eq!(length(short(b"ab").finish().unwrap_err()), (3, 2));
    assert_eq!(length(short(b"").vnode(file).unwrap_err()), (3, 0));
    assert_eq!(length(short(b"ab").data(b"cd").unwrap_err()), (3, 4));
    assert_eq!(length(short(b"abc").data(b"d").unwrap_err()), (3, 4));
    let mut writer = short(b"ab");
    writer.data(b"xyz").unwrap_err();
    writer.data(b"c").unwrap();
    writer.data(b"").unwrap();
    writer.finish().unwrap();
    opened().data(b"x").unwrap_err();
}

#[test]
fn vnodes_that_cannot_be() {
    let fields = VnodeFields::new;
    let with_length = |kind, length| VnodeFields {
        length: Some(length),
        ..fields(kind)
    };
    for record in [
        vnode(0, fields(VnodeKind::File)),
        vnode(1, fields(VnodeKind::File)),
        vnode(1, fields(VnodeKind::Symlink)),
        vnode(2, fields(VnodeKind::Directory)),
        vnode(1, with_length(VnodeKind::Directory, 0)),
        vnode(1, with_length(VnodeKind::Directory, 1024 * 2048)),
        vnode(2, with_length(VnodeKind::Symlink, 1025)),
        vnode(2, with_length(VnodeKind::File, 1 << 63)),
        vnode(
            2,
            VnodeFields {
                acl: Some([0; ACL_SIZE]),
                ..fields(VnodeKind::File)
            },
        ),
    ] {
        let mut writer = opened();
        let error = writer.vnode(&record).unwrap_err();
        assert_eq!(error.vnode, Some(record.vnode));
        assert!(!matches!(error.problem, DumpProblem::Order(_)));
        assert!(matches!(
            writer.finish().unwrap_err().problem,
            DumpProblem::Order(_)
        ));
    }
    opened()
        .vnode(&vnode(1, with_length(VnodeKind::Directory, 1023 * 2048)))
        .unwrap();
}

#[test]
fn texts_that_do_not_fit() {
    let header = |name: &[u8]| {
        let header = DumpHeader {
            name: name.to_vec(),
            ..sample().header
        };
        DumpWriter::new(Vec::new(), &header)
            .map(|_| ())
            .map_err(|error| error.problem)
    };
    header(&[b'x'; 31]).unwrap();
    assert!(matches!(
        header(&[b'x'; 32]),
        Err(DumpProblem::TooLong { max: 31, .. })
    ));
    assert!(matches!(
        header(b"a\0b"),
        Err(DumpProblem::Nul("the volume name"))
    ));
    let volume = |message: Vec<u8>, motd: Vec<u8>| {
        let mut writer = DumpWriter::new(Vec::new(), &sample().header).unwrap();
        let header = VolumeHeader {
            offline_message: message,
            motd,
            ..sample().volume
        };
        writer.volume_header(&header).map_err(|error| error.problem)
    };
    volume(vec![b'x'; 127], vec![b'x'; 127]).unwrap();
    assert!(matches!(
        volume(vec![b'x'; 128], vec![]),
        Err(DumpProblem::TooLong { max: 127, .. })
    ));
    assert!(matches!(volume(vec![], vec![0]), Err(DumpProblem::Nul(_))));
}

#[test]
fn calls_out_of_order() {
    let order = |error: DumpError| assert!(matches!(error.problem, DumpProblem::Order(_)));
    let open = || DumpWriter::new(Vec::new(), &sample().header).unwrap();
    order(open().vnode(&sample().vnodes[0].0).unwrap_err());
    order(open().data(b"").unwrap_err());
    order(open().finish().unwrap_err());
    order(opened().volume_header(&sample().volume).unwrap_err());
    let none = DumpHeader::default();
    let error = DumpWriter::new(Vec::new(), &none).unwrap_err();
    assert!(matches!(error.problem, DumpProblem::Missing(_)));
}

/// Every write that fails is an error of the call that made it, and of all after it.
#[test]
fn outputs_that_fail() {
    #[derive(Debug)]
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.0);
            self.0 -= count;
            Ok(count)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let all = write(&sample(), 1000).unwrap().len();
    let write = |room| -> Result<(), DumpError> {
        let mut writer = DumpWriter::new(Full(room), &sample().header)?;
        writer.volume_header(&sample().volume)?;
        for (record, data) in sample().vnodes {
            writer.vnode(&record)?;
            if let Err(error) = writer.data(&data) {
                let again = writer.finish().map(|_| ()).unwrap_err();
                assert!(matches!(again.problem, DumpProblem::Order(_)));
                return Err(error);
            }
        }
        writer.finish().map(|_| ())
    };
    for room in 0..all {
        let error = write(room).unwrap_err();
        let DumpProblem::Io(cause) = &error.problem else {
            panic!("{error}");
        };
        assert_eq!(cause.kind(), io::ErrorKind::WriteZero);
        assert!(error.offset <= room as u64);
    }
    write(all).unwrap();
}
