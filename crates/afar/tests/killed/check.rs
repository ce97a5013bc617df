//! Reads everything back and holds it against what was acknowledged.

use std::collections::BTreeMap;

use afar_dir::Directory;
use afar_types::{DataVersion, FetchStatus, Fid, FileType};

use crate::cache::CacheManager;
use crate::history::History;
use crate::model::{Change, Content, Object, Tree};
use crate::writer::Writer;

/// What was found of a writer.
#[derive(Default)]
struct Found {
    tree: Tree,
    statuses: BTreeMap<Fid, FetchStatus>,
}

/// Everything a writer did is there, and nothing else; what was in doubt is there wholly or not
/// at all. After this nothing is in doubt.
pub(crate) async fn check(reader: &CacheManager, writer: &mut Writer) {
    let (home, shared, prefix) = (writer.home, writer.shared, writer.prefix());
    let mut found = Found::default();
    found.read_directory(reader, home, "").await;
    found.read_directory(reader, shared, &prefix).await;
    found.read_objects(reader, &writer.history).await;
    let doubt = writer.doubt.take();
    if let Some(wrong) = found.differs(&writer.tree) {
        let Some(change) = doubt else {
            panic!("writer {}: lost or added:\n{wrong}", writer.number);
        };
        let mut after = writer.tree.clone();
        after.apply(&change, found.made_by(&change));
        if let Some(still) = found.differs(&after) {
            panic!(
                "writer {}: {change:?} was in doubt\nwithout it: {wrong}\nwith it: {still}",
                writer.number
            );
        }
        writer.tree = after;
    }
    found.check_links(home, shared);
}

impl Found {
    /// Notes the names in a directory that begin so, and what is below it.
    async fn read_directory(&mut self, reader: &CacheManager, top: Fid, prefix: &str) {
        let mut left = vec![(top, prefix.to_owned())];
        while let Some((directory, prefix)) = left.pop() {
            let (pages, status) = reader.fetch(directory).await.unwrap();
            assert_eq!(status.file_type, FileType::Directory);
            self.statuses.insert(directory, status);
            for entry in Directory::new(&pages).unwrap().entries() {
                let entry = entry.unwrap();
                let name = String::from_utf8(entry.name.to_vec()).unwrap();
                if name == "." || name == ".." || !name.starts_with(&prefix) {
                    continue;
                }
                let (volume, id) = (directory.volume.0, entry.id);
                let fid = Fid::new(volume, id.vnode.0, id.uniquifier.0);
                self.tree.names.insert((directory, name), fid);
                // Directories have odd numbers.
                if !fid.vnode.0.is_multiple_of(2) {
                    self.tree.objects.insert(fid, Object::Directory);
                    left.push((fid, String::new()));
                }
            }
        }
    }

    async fn read_objects(&mut self, reader: &CacheManager, history: &History) {
        let fids: Vec<Fid> = self.tree.names.values().copied().collect();
        for fid in fids {
            if self.tree.objects.contains_key(&fid) {
                continue;
            }
            let (data, status) = reader.fetch(fid).await.unwrap();
            let version = status.data_version;
            let object = if status.file_type == FileType::Symlink {
                Object::Symlink(String::from_utf8(data).unwrap())
            } else {
                history.saw(fid, version, &data);
                Object::File(Content(data.into()), version)
            };
            let newest = history.newest(fid);
            assert!(
                newest <= Some(version),
                "{fid:?}: {newest:?} was read before"
            );
            self.statuses.insert(fid, status);
            self.tree.objects.insert(fid, object);
        }
    }

    fn differs(&self, expected: &Tree) -> Option<String> {
        (*expected != self.tree).then(|| expected.difference(&self.tree))
    }

    /// What this change has made, if it has happened.
    fn made_by(&self, change: &Change) -> Option<(Fid, DataVersion)> {
        let (Change::Create(directory, name)
        | Change::MakeDir(directory, name)
        | Change::Symlink(directory, name, _)) = change
        else {
            return None;
        };
        let fid = *self.tree.names.get(&(*directory, name.clone()))?;
        let version = self.statuses.get(&fid).map(|status| status.data_version);
        Some((fid, version.unwrap_or_default()))
    }

    /// Link counts tell the names there are.
    fn check_links(&self, home: Fid, shared: Fid) {
        for (fid, status) in &self.statuses {
            let expected = match self.tree.objects.get(fid) {
                Some(Object::Directory) | None => {
                    let inner = self.tree.entries(*fid);
                    2 + inner
                        .filter(|(_, fid)| !fid.vnode.0.is_multiple_of(2))
                        .count()
                }
                Some(_) => self.tree.links(*fid),
            };
            let links = usize::try_from(status.link_count).unwrap();
            assert_eq!(links, expected, "links of {fid:?} ({home:?}, {shared:?})");
        }
    }
}
