//! Dumps by hand, by chance and by OpenAFS.

use std::io::{BufReader, Read};

use afar_types::{PtsId, Uniquifier, UnixTime, VnodeId, VolumeId, VolumeType};

use super::{
    ACL_SIZE, DumpError, DumpHeader, DumpProblem, DumpReader, DumpWriter, Limits, VnodeFields,
    VnodeKind, VnodeRecord, VolumeHeader,
};

mod openafs;
mod property;
mod reader;
mod vectors;
mod writer;

/// A whole dump in memory: what a test puts in and expects back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dump {
    header: DumpHeader,
    volume: VolumeHeader,
    vnodes: Vec<(VnodeRecord, Vec<u8>)>,
}

/// A dump with one vnode of each kind and one that is only listed.
fn sample() -> Dump {
    let volume = VolumeHeader {
        uniquifier: Uniquifier(0x0102),
        kind: VolumeType::Backup,
        parent: VolumeId(0x2000_0001),
        clone_id: VolumeId(0x2000_0002),
        max_quota: 5000,
        min_quota: 6,
        disk_used: 7,
        file_count: 4,
        account: 8,
        owner: PtsId(-9),
        creation: UnixTime(10),
        access: UnixTime(11),
        update: UnixTime(12),
        expiration: UnixTime(13),
        backup: UnixTime(14),
        offline_message: b"moving".to_vec(),
        week_use: [21, 22, 23, 24, 25, 26, 27],
        day_use_date: UnixTime(15),
        day_use: 16,
        in_service: false,
        ..VolumeHeader::new(VolumeId(0x2000_0003), b"a.backup")
    };
    let record = |vnode, body| VnodeRecord {
        vnode: VnodeId(vnode),
        uniquifier: Uniquifier(vnode + 100),
        body,
    };
    let with = |kind, mode, length, acl| VnodeFields {
        link_count: 1,
        data_version: 2,
        modify_time: UnixTime(3),
        author: PtsId(4),
        owner: PtsId(5),
        mode,
        parent: VnodeId(1),
        server_modify_time: UnixTime(6),
        acl,
        length: Some(length),
        ..VnodeFields::new(kind)
    };
    let root = with(VnodeKind::Directory, 0o755, 2048, Some([0xac; ACL_SIZE]));
    let file = VnodeFields {
        group: PtsId(-7),
        ..with(VnodeKind::File, 0o644, 3, None)
    };
    let link = with(VnodeKind::Symlink, 0o644, 10, None);
    Dump {
        header: DumpHeader {
            volume: VolumeId(0x2000_0003),
            name: b"a.backup".to_vec(),
            from: UnixTime(1),
            to: UnixTime(14),
        },
        volume,
        vnodes: vec![
            (record(1, Some(root)), vec![0xd1; 2048]),
            (record(2, Some(file)), b"abc".to_vec()),
            (record(4, None), Vec::new()),
            (record(6, Some(link)), b"#root.cell".to_vec()),
        ],
    }
}

/// The stream of a dump, its data given in pieces of `piece` bytes.
fn write(dump: &Dump, piece: usize) -> Result<Vec<u8>, DumpError> {
    let mut writer = DumpWriter::new(Vec::new(), &dump.header)?;
    writer.volume_header(&dump.volume)?;
    for (record, data) in &dump.vnodes {
        writer.vnode(record)?;
        for piece in data.chunks(piece) {
            writer.data(piece)?;
        }
    }
    let written = writer.written();
    let stream = writer.finish()?;
    assert_eq!(stream.len() as u64, written + 5);
    Ok(stream)
}

/// What a stream says, read through a buffer of `buffer` bytes.
fn read(stream: &[u8], buffer: usize) -> Result<Dump, DumpError> {
    let input = BufReader::with_capacity(buffer, stream);
    let (mut reader, header) = DumpReader::new(input, Limits::default())?;
    let volume = reader.volume_header()?;
    let mut vnodes = Vec::new();
    while let Some(record) = reader.next_vnode()? {
        let mut data = Vec::new();
        if let Err(error) = reader.data().read_to_end(&mut data) {
            return Err(error.downcast().unwrap());
        }
        vnodes.push((record, data));
    }
    reader.finish()?;
    Ok(Dump {
        header,
        volume,
        vnodes,
    })
}

/// The same without looking at the data.
fn skim(stream: &[u8]) -> Result<Vec<VnodeRecord>, DumpError> {
    let (mut reader, _) = DumpReader::new(stream, Limits::default())?;
    reader.volume_header()?;
    let mut vnodes = Vec::new();
    while let Some(record) = reader.next_vnode()? {
        vnodes.push(record);
    }
    reader.finish()?;
    Ok(vnodes)
}
