//! Dump streams put together by hand, to go wrong in every way.

use afar_dir::{DirectoryBuilder, EntryId};
use afar_store::dump::{DumpHeader, DumpWriter, VnodeFields, VnodeKind, VnodeRecord, VolumeHeader};
use afar_types::{AclRecord, Uniquifier, UnixTime, VnodeId, VolumeId};

/// A vnode of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) vnode: u32,
    pub(crate) uniquifier: u32,
    pub(crate) fields: Option<VnodeFields>,
    pub(crate) data: Vec<u8>,
}

/// A directory with these entries: name, vnode, uniquifier.
pub(crate) fn directory(vnode: u32, parent: u32, entries: &[(&str, u32, u32)]) -> Part {
    let above = if parent == 0 {
        EntryId::new(vnode, vnode)
    } else {
        EntryId::new(parent, parent)
    };
    let mut builder = DirectoryBuilder::new(EntryId::new(vnode, vnode), above);
    for (name, vnode, uniquifier) in entries {
        builder
            .add(name.as_bytes(), EntryId::new(*vnode, *uniquifier))
            .unwrap();
    }
    let data = builder.finish();
    let mut fields = VnodeFields::new(VnodeKind::Directory);
    let directories = entries
        .iter()
        .filter(|(_, vnode, _)| vnode % 2 == 1)
        .count();
    fields.link_count = 2 + u16::try_from(directories).unwrap();
    fields.mode = 0o755;
    fields.parent = VnodeId(parent);
    fields.acl = Some(AclRecord::default().to_bytes());
    fields.length = Some(data.len() as u64);
    Part {
        vnode,
        uniquifier: vnode,
        fields: Some(fields),
        data,
    }
}

/// A file. The uniquifier is the vnode, as for directories.
pub(crate) fn file(vnode: u32, parent: u32, data: &[u8]) -> Part {
    let mut fields = VnodeFields::new(VnodeKind::File);
    fields.link_count = 1;
    fields.mode = 0o644;
    fields.parent = VnodeId(parent);
    fields.length = Some(data.len() as u64);
    Part {
        vnode,
        uniquifier: vnode,
        fields: Some(fields),
        data: data.to_vec(),
    }
}

impl Part {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut VnodeFields)) -> Self {
        change(self.fields.as_mut().unwrap());
        self
    }
}

pub(crate) fn stream(parts: &[Part]) -> Vec<u8> {
    let header = DumpHeader {
        volume: VolumeId(7),
        name: b"built".to_vec(),
        from: UnixTime(0),
        to: UnixTime(1),
    };
    let mut writer = DumpWriter::new(Vec::new(), &header).unwrap();
    writer
        .volume_header(&VolumeHeader::new(VolumeId(7), b"built"))
        .unwrap();
    for part in parts {
        writer
            .vnode(&VnodeRecord {
                vnode: VnodeId(part.vnode),
                uniquifier: Uniquifier(part.uniquifier),
                body: part.fields.clone(),
            })
            .unwrap();
        writer.data(&part.data).unwrap();
    }
    writer.finish().unwrap()
}
