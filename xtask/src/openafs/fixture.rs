//! What the volumes of a test cell hold, and the list of it that tests compare with.

use std::io::{self, Write};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::dump::Volume;
use super::kerberos::{ALICE, FOREIGN_GROUP};
use super::tree::{ALL, AUTHUSER, Directory, File, LOOKUP, Node, READ, WRITE};

/// One volume of a fixture and whether it gets a read-only copy.
pub(super) struct Part {
    pub(super) volume: Volume,
    pub(super) replicated: bool,
}

/// What a fixture has beyond the usual.
#[derive(Clone, Copy, Default)]
pub(super) struct More {
    /// `test.bench` with one file of so many MiB.
    pub(super) bench_mib: Option<u32>,
    /// `test.protected`, for users of the realm.
    pub(super) protected: bool,
}

/// The volumes of a test cell.
pub(super) fn parts(cell: &str, more: More) -> Vec<Part> {
    let mut parts = vec![
        part("root.afs", true, root_afs(cell)),
        part("root.cell", true, root_cell(cell, more)),
        part("test.pub", true, test_pub(cell)),
        part(
            "test.sub",
            true,
            Directory::new().file("leaf", 1000).file("second", 2000),
        ),
        part(
            "test.open",
            false,
            Directory::new().anyuser(ALL).file("seed", 10),
        ),
        part(
            "test.private",
            false,
            Directory::new().anyuser(0).file("secret", 100),
        ),
    ];
    if more.protected {
        parts.push(part("test.protected", false, test_protected()));
    }
    if let Some(mib) = more.bench_mib {
        let root = Directory::new().file("big.bin", u64::from(mib) << 20);
        parts.push(part("test.bench", false, root));
    }
    parts
}

fn part(name: &str, replicated: bool, root: Directory) -> Part {
    Part {
        volume: Volume {
            name: name.to_owned(),
            root,
        },
        replicated,
    }
}

fn root_afs(cell: &str) -> Directory {
    Directory::new()
        .mount(cell, "#root.cell")
        .mount(&format!(".{cell}"), "%root.cell")
}

fn root_cell(cell: &str, more: More) -> Directory {
    let mut root = Directory::new()
        .mount("test.pub", "#test.pub")
        .mount(".test.pub", "%test.pub")
        .mount("with-cell", format!("#{cell}:test.pub"))
        .mount("backwards", "%test.pub.readonly")
        .mount("test.open", "#test.open")
        .mount("test.private", "#test.private")
        .mount("no-such-volume", "#test.missing")
        .mount("no-such-cell", "#nowhere.invalid:root.cell")
        .symlink("pub", "test.pub");
    if more.protected {
        root = root.mount("test.protected", "#test.protected");
    }
    if more.bench_mib.is_some() {
        root = root.mount("test.bench", "#test.bench");
    }
    root
}

/// Directories for one user, for all of this cell, and for those of another realm.
fn test_protected() -> Directory {
    let closed = || Directory::new().anyuser(0);
    Directory::new()
        .directory("alice", closed().grant(ALICE, ALL).file("secret", 5000))
        .directory(
            "users",
            closed().grant(AUTHUSER, WRITE).file("notice", 3_000_000),
        )
        .directory(
            "foreign",
            closed()
                .grant(FOREIGN_GROUP, READ | LOOKUP)
                .file("welcome", 70),
        )
}

fn test_pub(cell: &str) -> Directory {
    Directory::new()
        .file("hello.txt", 12)
        .directory("sizes", sizes())
        .directory("links", links(cell))
        .directory("names", names())
        .directory("many", many())
        .directory("deep", nested(20))
        .directory("sys", sys())
        .directory("modes", modes())
        .directory(
            "hard",
            Directory::new()
                .file("first", 500)
                .hard_link("second", "first"),
        )
        .directory("empty", Directory::new())
        .directory("mounts", mounts(cell))
        .directory("no-rights", Directory::new().anyuser(0).file("secret", 64))
        .directory(
            "list-only",
            Directory::new().anyuser(LOOKUP).file("unreadable", 64),
        )
}

fn sizes() -> Directory {
    let sizes = [0, 1, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, 8 << 20];
    sizes
        .into_iter()
        .fold(Directory::new(), |dir, len| dir.file(len.to_string(), len))
}

fn links(cell: &str) -> Directory {
    Directory::new()
        .file("target", 77)
        .symlink("relative", "target")
        .symlink("up", "../sizes/4096")
        .symlink("directory", "../sizes")
        .symlink("absolute", format!("/afs/{cell}/test.pub/hello.txt"))
        .symlink("through-mount", "../mounts/plain/leaf")
        .symlink("dangling", "nothing/here")
        .symlink("self", "self")
        .symlink("loop-a", "loop-b")
        .symlink("loop-b", "loop-a")
        .symlink("dot", ".")
        .symlink("slashes", "..//sizes///1")
        .symlink("long", format!("{}target", "./".repeat(500)))
}

fn names() -> Directory {
    Directory::new()
        .file("n".repeat(200), 200)
        .file("m".repeat(255), 255)
        .file("with space", 1)
        .file("-dash", 2)
        .file("grüße", 3)
        .file(b"latin1-\xe9", 4)
        .file("line\nfeed", 5)
        .file(".hidden", 6)
        .file("fifteen-bytes-x", 15)
        .file("sixteen-bytes-xy", 16)
        .directory("d".repeat(200), Directory::new().file("inside", 9))
}

/// 3,000 entries: more than one chunk of pages, and every hash chain is long.
fn many() -> Directory {
    (0..3000_u64).fold(Directory::new(), |dir, i| {
        dir.file(format!("file-{i:04}"), i % 50)
    })
}

fn nested(levels: u32) -> Directory {
    let inner = Directory::new().file("bottom", 42);
    (1..levels).fold(inner, |dir, level| {
        Directory::new()
            .file(format!("at-{level}"), 5)
            .directory("down", dir)
    })
}

fn sys() -> Directory {
    let system = |len| Directory::new().file("tool", len);
    Directory::new()
        .directory("amd64_linux26", system(264))
        .directory("amd64_linux4", system(44))
        .directory("i386_linux26", system(32))
        .symlink("current", "@sys")
        .symlink("tool", "@sys/tool")
}

fn modes() -> Directory {
    [0o000, 0o200, 0o400, 0o600, 0o755]
        .into_iter()
        .fold(Directory::new(), |dir, mode| {
            dir.file_with_mode(format!("{mode:03o}"), 20, mode)
        })
}

fn mounts(cell: &str) -> Directory {
    Directory::new()
        .mount("plain", "#test.sub")
        .mount("read-write", "%test.sub")
        .mount("read-only", "#test.sub.readonly")
        .mount("other-cell-form", format!("#{cell}:test.sub"))
        .mount("missing", "#test.missing")
        .mount("private", "#test.private")
}

/// One line of the fixture's list.
#[derive(Serialize)]
pub(super) struct Entry {
    /// The volume this is in.
    volume: String,
    /// Path from the volume's root; what is not UTF-8 is replaced.
    path: String,
    /// The path's bytes in hexadecimal, where `path` cannot hold them.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(flatten)]
    what: What,
    /// Whether an anonymous client may list (directories), read (files) or follow it.
    allowed: bool,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum What {
    Directory {
        mode: u16,
        entries: usize,
    },
    File {
        mode: u16,
        length: u64,
        sha256: String,
        links: u16,
    },
    Symlink {
        target: String,
    },
    MountPoint {
        target: String,
    },
}

/// Lists all that a volume holds, its root first.
pub(super) fn list(volume: &Volume) -> Vec<Entry> {
    let mut lister = Lister {
        volume: &volume.name,
        entries: Vec::new(),
    };
    lister.directory(b"", &volume.root, true);
    lister.entries
}

struct Lister<'a> {
    volume: &'a str,
    entries: Vec<Entry>,
}

impl Lister<'_> {
    /// Lists a directory; `reachable` when one may look things up in all those above it.
    fn directory(&mut self, path: &[u8], directory: &Directory, reachable: bool) {
        let listable = reachable && directory.acl.listable();
        let entries = directory.entries.len();
        self.add(
            path,
            What::Directory {
                mode: directory.mode,
                entries,
            },
            listable,
        );
        for (name, node) in &directory.entries {
            let path = if path.is_empty() {
                name.clone()
            } else {
                [path, b"/", name].concat()
            };
            match node {
                Node::Directory(inner) => self.directory(&path, inner, listable),
                Node::File(file) => self.file(&path, file, directory, listable),
                Node::HardLink(other) => {
                    let found = directory.entries.iter().find(|(name, _)| name == other);
                    if let Some((_, Node::File(file))) = found {
                        self.file(&path, file, directory, listable);
                    }
                }
                Node::Symlink(target) => {
                    let target = String::from_utf8_lossy(target).into_owned();
                    self.add(&path, What::Symlink { target }, listable);
                }
                Node::MountPoint(target) => {
                    self.add(
                        &path,
                        What::MountPoint {
                            target: target.clone(),
                        },
                        listable,
                    );
                }
            }
        }
    }

    fn file(&mut self, path: &[u8], file: &File, parent: &Directory, listable: bool) {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let others = parent.entries.iter().filter(|(own, node)| match node {
            Node::HardLink(other) => other == name || own == name,
            _ => false,
        });
        let links = 1 + u16::try_from(others.count()).unwrap_or(u16::MAX - 1);
        // The file server lets nobody but the owner read what the owner may not read.
        let readable = parent.acl.readable() && file.mode & 0o400 != 0;
        let what = What::File {
            mode: file.mode,
            length: file.len,
            sha256: digest(file),
            links,
        };
        self.add(path, what, listable && readable);
    }

    fn add(&mut self, path: &[u8], what: What, allowed: bool) {
        let lossless = std::str::from_utf8(path).is_ok();
        self.entries.push(Entry {
            volume: self.volume.to_owned(),
            path: String::from_utf8_lossy(path).into_owned(),
            path_hex: (!lossless).then(|| hex(path)),
            what,
            allowed,
        });
    }
}

fn digest(file: &File) -> String {
    struct Hasher(Sha256);
    impl Write for Hasher {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut hasher = Hasher(Sha256::new());
    file.write_to(&mut hasher).expect("hashing does not fail");
    hex(&hasher.0.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(entries: &'a [Entry], path: &str) -> &'a Entry {
        entries.iter().find(|entry| entry.path == path).unwrap()
    }

    #[test]
    fn the_list_says_what_anyone_may_read() {
        let parts = parts("c.example", More::default());
        let entries = list(&parts[2].volume);
        let allowed = |path| line(&entries, path).allowed;
        assert!(allowed("hello.txt") && allowed("list-only") && allowed("modes/400"));
        assert!(!allowed("list-only/unreadable") && !allowed("no-rights/secret"));
        assert!(!allowed("no-rights") && !allowed("modes/000"));
    }

    #[test]
    fn a_protected_volume_is_closed_to_those_without_a_token() {
        let more = More {
            protected: true,
            ..More::default()
        };
        let parts = parts("c.example", more);
        let part = parts.iter().find(|p| p.volume.name == "test.protected");
        let entries = list(&part.unwrap().volume);
        let open: Vec<&str> = entries
            .iter()
            .filter(|entry| entry.allowed)
            .map(|entry| entry.path.as_str())
            .collect();
        assert_eq!(open, [""]);
    }

    #[test]
    fn lines_have_sums_links_and_bytes() {
        let entries = list(&parts("c.example", More::default())[2].volume);
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert!(matches!(&line(&entries, "sizes/0").what,
            What::File { sha256, length: 0, .. } if sha256 == empty));
        for name in ["hard/first", "hard/second"] {
            assert!(matches!(
                line(&entries, name).what,
                What::File { links: 2, .. }
            ));
        }
        let odd = line(&entries, "names/latin1-\u{fffd}");
        assert_eq!(
            odd.path_hex.as_deref(),
            Some("6e616d65732f6c6174696e312de9")
        );
        assert!(matches!(
            line(&entries, "many").what,
            What::Directory { entries: 3000, .. }
        ));
    }
}
