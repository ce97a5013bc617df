//! A volume with one of everything, and ten thousand files.

use std::io::Write;

use afar_dir::{DirectoryBuilder, EntryId};
use afar_store::dump::{
    DumpError, DumpHeader, DumpWriter, VnodeFields, VnodeKind, VnodeRecord, VolumeHeader,
};
use afar_types::{
    AclRecord, AclRecordEntry, PtsId, Rights, Uniquifier, UnixTime, VnodeId, VolumeId,
};

/// When the sparse file was written.
pub(crate) const OLDEST: u32 = 1_500_000_000;
/// When most was written.
const THEN: u32 = 1_600_000_000;
/// When one file in a hundred was written again.
pub(crate) const LATER: u32 = 1_700_000_000;

/// Folders of files.
const FOLDERS: u32 = 40;
/// Files in each.
const FILES: u32 = 250;
/// Directories in one another.
const DEPTH: u32 = 120;

/// The vnode of the sparse file.
pub(crate) const SPARSE: u32 = 2;
pub(crate) const SPARSE_LENGTH: u64 = 5 << 30;
/// What the sparse file has at first.
pub(crate) const MARKER: &[u8] = b"this file is to become sparse: 7d0c1b5e-afar-4a57-9f0b-2f0e8c6b";
/// What is in it then.
pub(crate) const ISLANDS: [(u64, &[u8]); 3] = [
    (0, b"begin"),
    (3 << 30, b"in the middle"),
    (SPARSE_LENGTH - 3, b"end"),
];
/// First file in the folders.
const FIRST: u32 = 10;
/// Files that were written again.
const CHANGED: u32 = 100;

/// Their vnodes.
pub(crate) fn changed() -> impl Iterator<Item = u32> {
    (0..CHANGED).map(|number| FIRST + 2 * number)
}

pub(crate) fn uniquifier(vnode: u32) -> u32 {
    if vnode == 1 { 1 } else { vnode * 3 + 1_000_000 }
}

struct Directory {
    vnode: u32,
    parent: u32,
    acl: AclRecord,
    entries: Vec<(String, u32)>,
}

struct File {
    vnode: u32,
    fields: VnodeFields,
    data: Vec<u8>,
}

#[derive(Default)]
struct Tree {
    directories: Vec<Directory>,
    files: Vec<File>,
}

impl Tree {
    /// Makes a directory, and gives its place.
    fn directory(&mut self, parent: Option<usize>, name: &str) -> usize {
        let place = self.directories.len();
        let vnode = u32::try_from(place).unwrap() * 2 + 1;
        let above = parent.map_or(0, |parent| {
            self.directories[parent]
                .entries
                .push((name.to_owned(), vnode));
            self.directories[parent].vnode
        });
        self.directories.push(Directory {
            vnode,
            parent: above,
            acl: acl(1, 1),
            entries: Vec::new(),
        });
        place
    }

    fn file(
        &mut self,
        parent: usize,
        names: &[String],
        vnode: u32,
        kind: VnodeKind,
        data: Vec<u8>,
    ) {
        let mut fields = VnodeFields::new(kind);
        fields.link_count = u16::try_from(names.len()).unwrap();
        fields.data_version = vnode;
        fields.mode = [0o644, 0o600, 0o755, 0o4711][vnode as usize / 2 % 4];
        fields.owner = PtsId(i32::try_from(vnode % 7).unwrap() * 1_000);
        fields.author = PtsId(i32::try_from(vnode % 5).unwrap());
        fields.group = PtsId(i32::try_from(vnode % 3).unwrap());
        fields.modify_time = UnixTime(1_000_000_000 + vnode);
        fields.server_modify_time = UnixTime(THEN);
        let directory = &mut self.directories[parent];
        fields.parent = VnodeId(directory.vnode);
        directory
            .entries
            .extend(names.iter().map(|name| (name.clone(), vnode)));
        self.files.push(File {
            vnode,
            fields,
            data,
        });
    }

    fn last(&mut self) -> &mut VnodeFields {
        &mut self.files.last_mut().unwrap().fields
    }
}

/// An ACL with so many positive and negative entries.
fn acl(positive: i32, negative: i32) -> AclRecord {
    let entry = |id| AclRecordEntry {
        id: PtsId(id),
        rights: if id % 2 == 0 {
            Rights::ALL
        } else {
            Rights::READ | Rights::LOOKUP
        },
    };
    let first = (0..positive).map(|n| entry(n - 204)).collect();
    // These fall.
    AclRecord::new(first, (0..negative).map(|n| entry(500 - n)).collect()).unwrap()
}

fn content(vnode: u32) -> Vec<u8> {
    if vnode.is_multiple_of(200) {
        let mut random = fastrand::Rng::with_seed(vnode.into());
        return (0..150_000 + vnode).map(|_| random.u8(..)).collect();
    }
    let line = format!("file with vnode {vnode}\n");
    line.bytes()
        .cycle()
        .take(vnode as usize * 37 % 3_000)
        .collect()
}

fn tree() -> Tree {
    let mut tree = Tree::default();
    let root = tree.directory(None, "");
    let names = |name: &str| [name.to_owned()];
    tree.file(
        root,
        &names("sparse"),
        SPARSE,
        VnodeKind::File,
        MARKER.to_vec(),
    );
    tree.last().server_modify_time = UnixTime(OLDEST);
    tree.file(
        root,
        &names("link"),
        4,
        VnodeKind::Symlink,
        b"many/folder 3/file 7".to_vec(),
    );
    tree.last().mode = 0o755;
    tree.file(
        root,
        &names("mount"),
        6,
        VnodeKind::Symlink,
        b"#root.cell.".to_vec(),
    );
    tree.last().mode = 0o644;
    tree.file(
        root,
        &["empty".to_owned(), "also empty".to_owned()],
        8,
        VnodeKind::File,
        Vec::new(),
    );
    let many = tree.directory(Some(root), "many");
    tree.directories[many].acl = acl(12, 8);
    let mut vnode = FIRST;
    for folder in 0..FOLDERS {
        let place = tree.directory(Some(many), &format!("folder {folder}"));
        tree.directories[place].acl = acl(1 + i32::try_from(folder % 9).unwrap(), 2);
        for file in 0..FILES {
            let mut names = vec![format!("file {file}")];
            if file % 50 == 0 {
                let name = |n| format!("{}of file {file}, number {n}", "other name ".repeat(15));
                names.extend((0..file % 7 + 1).map(name));
            }
            tree.file(place, &names, vnode, VnodeKind::File, content(vnode));
            if vnode < FIRST + 2 * CHANGED {
                tree.last().server_modify_time = UnixTime(LATER);
            }
            vnode += 2;
        }
    }
    let mut deep = root;
    for depth in 0..DEPTH {
        deep = tree.directory(Some(deep), &format!("deep {depth}"));
        let target = format!("../deep {depth}");
        tree.file(
            deep,
            &names("up"),
            vnode,
            VnodeKind::Symlink,
            target.into_bytes(),
        );
        tree.last().mode = 0o755;
        vnode += 2;
    }
    tree
}

/// Writes the volume's dump.
pub(crate) fn write(out: impl Write) -> Result<(), DumpError> {
    let tree = tree();
    let id = VolumeId(99);
    let dump = DumpHeader {
        volume: id,
        name: b"fixture".to_vec(),
        from: UnixTime(0),
        to: UnixTime(LATER),
    };
    let mut writer = DumpWriter::new(out, &dump)?;
    let mut header = VolumeHeader::new(id, b"fixture");
    header.uniquifier = Uniquifier(2_000_000);
    header.max_quota = 100_000_000;
    header.file_count = u32::try_from(tree.directories.len() + tree.files.len()).unwrap();
    header.creation = UnixTime(THEN);
    header.update = UnixTime(LATER);
    let mut pages = Vec::new();
    for directory in &tree.directories {
        let id = |vnode| EntryId::new(vnode, uniquifier(vnode));
        let above = if directory.parent == 0 {
            directory.vnode
        } else {
            directory.parent
        };
        let mut builder = DirectoryBuilder::new(id(directory.vnode), id(above));
        for (name, vnode) in &directory.entries {
            builder.add(name.as_bytes(), id(*vnode)).unwrap();
        }
        pages.push(builder.finish());
    }
    // As the server counts, the sparse file at its later length.
    let blocks = |len: usize| u32::try_from(len.div_ceil(1024).max(1)).unwrap();
    let files = tree.files.iter().map(|file| blocks(file.data.len()));
    let used: u32 = files
        .chain(pages.iter().map(|pages| blocks(pages.len())))
        .sum();
    header.disk_used = used - 1 + u32::try_from(SPARSE_LENGTH / 1024).unwrap();
    writer.volume_header(&header)?;
    for (directory, pages) in tree.directories.iter().zip(&pages) {
        let mut fields = VnodeFields::new(VnodeKind::Directory);
        let below = directory
            .entries
            .iter()
            .filter(|(_, vnode)| vnode % 2 == 1)
            .count();
        fields.link_count = 2 + u16::try_from(below).unwrap();
        fields.data_version = directory.vnode;
        fields.mode = 0o755;
        fields.parent = VnodeId(directory.parent);
        fields.modify_time = UnixTime(THEN);
        fields.server_modify_time = UnixTime(THEN);
        fields.acl = Some(directory.acl.to_bytes());
        put(&mut writer, directory.vnode, fields, pages)?;
    }
    for file in tree.files {
        put(&mut writer, file.vnode, file.fields, &file.data)?;
    }
    writer.finish()?;
    Ok(())
}

fn put<W: Write>(
    writer: &mut DumpWriter<W>,
    vnode: u32,
    mut fields: VnodeFields,
    data: &[u8],
) -> Result<(), DumpError> {
    fields.length = Some(data.len() as u64);
    writer.vnode(&VnodeRecord {
        vnode: VnodeId(vnode),
        uniquifier: Uniquifier(uniquifier(vnode)),
        body: Some(fields),
    })?;
    writer.data(data)
}
