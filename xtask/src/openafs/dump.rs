//! Writing a volume as a dump stream, which `vos restore` puts on a file server.
//!
//! This gives full control over what a volume holds (links, mount points, access lists,
//! permission bits) without a client that could make it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::directory::{Pages, Place};
use super::tree::{Directory, File, Node};

/// Section marks of a dump and the numbers that go with the first and the last.
const HEADER: u8 = 1;
const VOLUME: u8 = 2;
const VNODE: u8 = 3;
const END: u8 = 4;
const HEADER_MAGIC: u32 = 0xb3a1_1322;
const END_MAGIC: u32 = 0x3a21_4b6e;

/// Types of a vnode.
const TYPE_FILE: u8 = 1;
const TYPE_DIRECTORY: u8 = 2;
const TYPE_SYMLINK: u8 = 3;

/// The one time stamp in a fixture, in seconds since 1970: it must not vary between runs.
pub(super) const TIME: u32 = 1_700_000_000;
/// The owner of everything.
const OWNER: u32 = 1001;
/// The place of a volume's root.
const ROOT: Place = Place {
    vnode: 1,
    uniquifier: 1,
};

/// A volume to be made.
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) root: Directory,
}

/// One vnode, ready to be written.
struct Vnode<'a> {
    place: Place,
    parent: u32,
    links: u16,
    content: Content<'a>,
}

enum Content<'a> {
    Directory {
        directory: &'a Directory,
        pages: Vec<u8>,
    },
    File(&'a File),
    /// Symbolic links and mount points: these differ in their permission bits only.
    Symlink {
        target: Vec<u8>,
        mode: u16,
    },
}

impl Content<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Directory { pages, .. } => pages.len() as u64,
            Self::File(file) => file.len,
            Self::Symlink { target, .. } => target.len() as u64,
        }
    }
}

/// Writes the volume as a full dump.
///
/// # Errors
/// Those of the writer.
pub(super) fn write(volume: &Volume, out: &mut dyn Write) -> io::Result<()> {
    let vnodes = lay_out(&volume.root);
    write_headers(volume, &vnodes, out)?;
    let directories = |vnode: &&Vnode<'_>| matches!(vnode.content, Content::Directory { .. });
    for vnode in vnodes.iter().filter(directories) {
        write_vnode(vnode, out)?;
    }
    for vnode in vnodes.iter().filter(|vnode| !directories(vnode)) {
        write_vnode(vnode, out)?;
    }
    out.write_all(&[END])?;
    out.write_all(&END_MAGIC.to_be_bytes())
}

fn write_headers(volume: &Volume, vnodes: &[Vnode<'_>], out: &mut dyn Write) -> io::Result<()> {
    let blocks: u64 = vnodes
        .iter()
        .map(|vnode| vnode.content.len().div_ceil(1024).max(1))
        .sum();
    let count = saturate(vnodes.len() as u64);
    let mut bytes = vec![HEADER];
    bytes.extend(HEADER_MAGIC.to_be_bytes());
    bytes.extend(1_u32.to_be_bytes());
    // The restorer takes the number and the name from its command, not from here.
    put_u32(&mut bytes, b'v', 1);
    put_string(&mut bytes, b'n', &volume.name);
    bytes.extend(*b"t\0\x02\0\0\0\0");
    bytes.extend(TIME.to_be_bytes());

    bytes.push(VOLUME);
    put_u32(&mut bytes, b'i', 1);
    put_u32(&mut bytes, b'v', 1);
    put_string(&mut bytes, b'n', &volume.name);
    bytes.extend(*b"s\x01b\x01");
    put_u32(&mut bytes, b'u', count + 200);
    bytes.extend(*b"t\0");
    put_u32(&mut bytes, b'p', 1);
    put_u32(&mut bytes, b'c', 0);
    put_u32(&mut bytes, b'q', 0);
    put_u32(&mut bytes, b'm', 0);
    put_u32(&mut bytes, b'd', saturate(blocks));
    put_u32(&mut bytes, b'f', count);
    put_u32(&mut bytes, b'a', 0);
    put_u32(&mut bytes, b'o', OWNER);
    for date in *b"CAU" {
        put_u32(&mut bytes, date, TIME);
    }
    for date in *b"EB" {
        put_u32(&mut bytes, date, 0);
    }
    put_string(&mut bytes, b'O', "");
    put_string(&mut bytes, b'M', "");
    out.write_all(&bytes)
}

fn write_vnode(vnode: &Vnode<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (kind, mode) = match &vnode.content {
        Content::Directory { directory, .. } => (TYPE_DIRECTORY, directory.mode),
        Content::File(file) => (TYPE_FILE, file.mode),
        Content::Symlink { mode, .. } => (TYPE_SYMLINK, *mode),
    };
    let mut bytes = vec![VNODE];
    bytes.extend(vnode.place.vnode.to_be_bytes());
    bytes.extend(vnode.place.uniquifier.to_be_bytes());
    bytes.extend([b't', kind]);
    put_u16(&mut bytes, b'l', vnode.links);
    put_u32(&mut bytes, b'v', 1);
    put_u32(&mut bytes, b'm', TIME);
    put_u32(&mut bytes, b'a', OWNER);
    put_u32(&mut bytes, b'o', OWNER);
    put_u16(&mut bytes, b'b', mode);
    put_u32(&mut bytes, b'p', vnode.parent);
    put_u32(&mut bytes, b's', TIME);
    if let Content::Directory { directory, .. } = &vnode.content {
        bytes.push(b'A');
        bytes.extend(directory.acl.to_bytes());
    }
    let len = vnode.content.len();
    match u32::try_from(len) {
        Ok(len) => put_u32(&mut bytes, b'f', len),
        Err(_) => {
            bytes.push(b'h');
            bytes.extend(len.to_be_bytes());
        }
    }
    out.write_all(&bytes)?;
    match &vnode.content {
        Content::Directory { pages, .. } => out.write_all(pages),
        Content::File(file) => file.write_to(out),
        Content::Symlink { target, .. } => out.write_all(target),
    }
}

fn put_u32(bytes: &mut Vec<u8>, tag: u8, value: u32) {
    bytes.push(tag);
    bytes.extend(value.to_be_bytes());
}

fn put_u16(bytes: &mut Vec<u8>, tag: u8, value: u16) {
    bytes.push(tag);
    bytes.extend(value.to_be_bytes());
}

fn put_string(bytes: &mut Vec<u8>, tag: u8, value: &str) {
    bytes.push(tag);
    bytes.extend(value.as_bytes());
    bytes.push(0);
}

fn saturate(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Hands out vnode numbers: odd ones to directories, even ones to everything else.
struct Numbers {
    directory: u32,
    other: u32,
    uniquifier: u32,
}

impl Numbers {
    fn place(&mut self, node: &Node) -> Place {
        let vnode = match node {
            Node::Directory(_) => &mut self.directory,
            _ => &mut self.other,
        };
        *vnode += 2;
        self.uniquifier += 1;
        Place {
            vnode: *vnode,
            uniquifier: self.uniquifier,
        }
    }
}

/// Gives every node of a tree its place.
fn lay_out(root: &Directory) -> Vec<Vnode<'_>> {
    let mut numbers = Numbers {
        directory: 1,
        other: 0,
        uniquifier: 1,
    };
    let mut vnodes = Vec::new();
    lay_out_directory(root, ROOT, ROOT, &mut numbers, &mut vnodes);
    vnodes
}

fn lay_out_directory<'a>(
    directory: &'a Directory,
    own: Place,
    parent: Place,
    numbers: &mut Numbers,
    vnodes: &mut Vec<Vnode<'a>>,
) {
    let mut pages = Pages::new(own, parent);
    let mut links = 2;
    // Where each name of this directory ended up among the vnodes, for hard links.
    let mut placed: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (name, node) in &directory.entries {
        if let Node::HardLink(other) = node {
            let first = placed[other.as_slice()];
            vnodes[first].links += 1;
            pages.add(name, vnodes[first].place);
            continue;
        }
        let place = numbers.place(node);
        pages.add(name, place);
        placed.insert(name, vnodes.len());
        let content = match node {
            Node::Directory(inner) => {
                links += 1;
                lay_out_directory(inner, place, own, numbers, vnodes);
                continue;
            }
            Node::File(file) => Content::File(file),
            Node::Symlink(target) => Content::Symlink {
                target: target.clone(),
                mode: 0o755,
            },
            Node::MountPoint(target) => {
                let target = format!("{target}.").into_bytes();
                Content::Symlink {
                    target,
                    mode: 0o644,
                }
            }
            Node::HardLink(_) => continue,
        };
        vnodes.push(Vnode {
            place,
            parent: own.vnode,
            links: 1,
            content,
        });
    }
    // The root of a volume has no parent in it.
    let parent = if own == ROOT { 0 } else { parent.vnode };
    let content = Content::Directory {
        directory,
        pages: pages.into_bytes(),
    };
    vnodes.push(Vnode {
        place: own,
        parent,
        links,
        content,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Directory {
        Directory::new()
            .file("one", 3)
            .hard_link("two", "one")
            .directory("sub", Directory::new().symlink("up", ".."))
            .mount("vol", "#test.sub")
    }

    #[test]
    fn directories_are_odd_and_files_even() {
        let root = tree();
        let vnodes = lay_out(&root);
        assert_eq!(vnodes.len(), 5);
        for vnode in &vnodes {
            let directory = matches!(vnode.content, Content::Directory { .. });
            assert_eq!(vnode.place.vnode % 2 == 1, directory);
        }
        let links = |number| {
            vnodes
                .iter()
                .find(|v| v.place.vnode == number)
                .unwrap()
                .links
        };
        assert_eq!((links(1), links(2), links(3)), (3, 2, 2));
    }

    #[test]
    fn a_dump_begins_and_ends_with_its_marks() {
        let volume = Volume {
            name: "v".to_owned(),
            root: tree(),
        };
        let mut bytes = Vec::new();
        write(&volume, &mut bytes).unwrap();
        assert_eq!(bytes[..9], [1, 0xb3, 0xa1, 0x13, 0x22, 0, 0, 0, 1]);
        assert!(bytes.ends_with(&[4, 0x3a, 0x21, 0x4b, 0x6e]));
        let holds = |wanted: &[u8]| bytes.windows(wanted.len()).any(|found| found == wanted);
        assert!(holds(b"#test.sub."), "a mount point ends in a dot");
    }
}
