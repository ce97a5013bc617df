//! Requests to the file server that no program of OpenAFS makes at the command line, or makes only
//! through a kernel: their answers, from OpenAFS's server and from afar's.
//!
//! Both hold a volume restored from the same dump. Times are left out.

use std::net::SocketAddr;
use std::sync::Arc;

use afar_cell::CallbackService;
use afar_net::{Endpoint, RxNull};
use afar_rpc::{RpcError, rxafs};
use afar_types::{
    AclText, CallBack, FetchStatus, Fid, Fids, FileName, PtsId, Rights, StoreStatus,
    StoreVolumeStatus, Uniquifier, VnodeId, VolumeId,
};
use afar_xdr::XdrString;
use bytes::Bytes;

use crate::content::Content;
use crate::net::Net;
use crate::openafs::OpenAfs;
use crate::place::Place;
use crate::script::network;
use crate::server::Ours;

/// The number both cells give the only volume.
const VOLUME: VolumeId = VolumeId(536_870_912);

fn fid(vnode: u32, uniquifier: u32) -> Fid {
    Fid {
        volume: VOLUME,
        vnode: VnodeId(vnode),
        uniquifier: Uniquifier(uniquifier),
    }
}

fn name(text: &str) -> FileName {
    FileName::new(text.as_bytes()).unwrap()
}

fn mode(bits: u32) -> StoreStatus {
    StoreStatus {
        mask: StoreStatus::SET_MODE,
        unix_mode_bits: bits,
        ..StoreStatus::default()
    }
}

/// What is the same at each run of a status. Numbers of vnodes count attempts that failed, too, and
/// are left out.
fn text(status: &FetchStatus) -> String {
    format!(
        "{:?} links {} length {} version {} author {} owner {} group {} rights {} {} mode {:o} \
         parent is root {} locks {} error {} {} {} {}",
        status.file_type,
        status.link_count,
        status.length,
        status.data_version,
        status.author,
        status.owner,
        status.group,
        status.caller_access.0,
        status.anonymous_access.0,
        status.unix_mode_bits,
        status.parent_vnode == VnodeId(1),
        status.lock_count,
        status.error_code,
        status.interface_version,
        status.residency_mask,
        status.sync_counter,
    )
}

/// A promise, but for when it ends.
fn promise(callback: &CallBack) -> String {
    let lasts = callback.expires_in > 0;
    format!("promise {:?} {} {lasts}", callback.kind, callback.version)
}

/// Asks a file server, and notes what it answers.
struct Asker {
    client: rxafs::Client,
    notes: Vec<(String, String)>,
}

impl Asker {
    fn note<R>(
        &mut self,
        what: &str,
        answer: Result<R, RpcError>,
        text: impl Fn(&R) -> String,
    ) -> Option<R> {
        let noted = match &answer {
            Ok(reply) => text(reply),
            Err(error) => format!("code {}", error.code().0),
        };
        self.notes.push((what.to_owned(), noted));
        answer.ok()
    }

    async fn status(&mut self, what: &str, fid: Fid) {
        let answer = self.client.fetch_status(fid).await;
        self.note(what, answer, |reply| {
            format!("{}; {}", text(&reply.status), promise(&reply.callback))
        });
    }

    async fn acl(&mut self, what: &str, fid: Fid) {
        let answer = self.client.fetch_acl(fid).await;
        self.note(what, answer, |reply| {
            format!(
                "{:?}; {}",
                String::from_utf8_lossy(&reply.acl),
                text(&reply.status)
            )
        });
    }

    async fn set_acl(&mut self, what: &str, fid: Fid, acl: &str) {
        let acl = AclText::new([acl.as_bytes(), b"\0"].concat()).unwrap();
        let answer = self.client.old_store_acl(fid, acl).await;
        self.note(what, answer, |reply| text(&reply.status));
    }

    async fn create(&mut self, what: &str, directory: Fid, file: &str) -> Option<Fid> {
        let answer = self
            .client
            .create_file(directory, name(file), mode(0o640))
            .await;
        let made = self.note(what, answer, |reply| {
            format!(
                "{}; {}; {}",
                text(&reply.status),
                text(&reply.directory_status),
                promise(&reply.callback)
            )
        });
        made.map(|reply| reply.fid)
    }

    async fn make_dir(&mut self, what: &str, directory: Fid, file: &str) -> Option<Fid> {
        let answer = self
            .client
            .make_dir(directory, name(file), mode(0o751))
            .await;
        let made = self.note(what, answer, |reply| {
            format!("{}; {}", text(&reply.status), text(&reply.directory_status))
        });
        made.map(|reply| reply.fid)
    }

    async fn symlink(&mut self, what: &str, directory: Fid, file: &str, bits: u32) {
        let target = XdrString::new(b"#somewhere.").unwrap();
        let answer = self
            .client
            .symlink(directory, name(file), target, mode(bits))
            .await;
        self.note(what, answer, |reply| text(&reply.status));
    }

    async fn remove(&mut self, what: &str, directory: Fid, file: &str) {
        let answer = self.client.remove_file(directory, name(file)).await;
        self.note(what, answer, |reply| text(&reply.directory_status));
    }

    async fn remove_dir(&mut self, what: &str, directory: Fid, file: &str) {
        let answer = self.client.remove_dir(directory, name(file)).await;
        self.note(what, answer, |reply| text(&reply.directory_status));
    }

    async fn rename(&mut self, what: &str, from: (Fid, &str), to: (Fid, &str)) {
        let answer = self
            .client
            .rename(from.0, name(from.1), to.0, name(to.1))
            .await;
        self.note(what, answer, |reply| {
            format!(
                "{}; {}",
                text(&reply.old_directory_status),
                text(&reply.new_directory_status)
            )
        });
    }

    async fn link(&mut self, what: &str, directory: Fid, file: &str, existing: Fid) {
        let answer = self.client.link(directory, name(file), existing).await;
        self.note(what, answer, |reply| {
            format!("{}; {}", text(&reply.status), text(&reply.directory_status))
        });
    }

    async fn fetch(&mut self, what: &str, fid: Fid, position: i64, length: i64) {
        let answer = async {
            let mut data = Vec::new();
            let mut fetch = self.client.fetch_data64(fid, position, length).await?;
            while let Some(chunk) = fetch.chunk().await? {
                data.extend_from_slice(&chunk);
            }
            Ok((data, fetch.finish().await?))
        };
        let answer = answer.await;
        self.note(what, answer, |(data, reply)| {
            let data = String::from_utf8_lossy(data);
            format!(
                "{data:?}; {}; {}",
                text(&reply.status),
                promise(&reply.callback)
            )
        });
    }

    async fn store(
        &mut self,
        what: &str,
        fid: Fid,
        position: u64,
        data: &'static str,
        length: u64,
    ) {
        let answer = async {
            let sent = data.len() as u64;
            let none = StoreStatus::default();
            let mut store = self
                .client
                .store_data64(fid, none, position, sent, length)
                .await?;
            if sent > 0 {
                store.send(Bytes::from_static(data.as_bytes())).await?;
            }
            store.finish().await
        };
        let answer = answer.await;
        self.note(what, answer, |reply| text(&reply.status));
    }

    async fn set_status(&mut self, what: &str, fid: Fid, attributes: StoreStatus) {
        let answer = self.client.store_status(fid, attributes).await;
        self.note(what, answer, |reply| text(&reply.status));
    }

    async fn lock(&mut self, what: &str, fid: Fid, kind: i32) {
        let answer = self.client.set_lock(fid, kind).await;
        self.note(what, answer, |_| "locked".to_owned());
    }

    async fn extend_lock(&mut self, what: &str, fid: Fid) {
        let answer = self.client.extend_lock(fid).await;
        self.note(what, answer, |_| "extended".to_owned());
    }

    async fn release_lock(&mut self, what: &str, fid: Fid) {
        let answer = self.client.release_lock(fid).await;
        self.note(what, answer, |_| "released".to_owned());
    }

    async fn bulk(&mut self, what: &str, fids: &[Fid]) {
        let list = Fids::new(fids.to_vec()).unwrap();
        let answer = self.client.inline_bulk_status(list).await;
        self.note(what, answer, |reply| {
            reply
                .statuses
                .iter()
                .map(text)
                .collect::<Vec<_>>()
                .join("; ")
        });
        let list = Fids::new(fids.to_vec()).unwrap();
        let answer = self.client.bulk_status(list).await;
        self.note(what, answer, |reply| {
            reply
                .statuses
                .iter()
                .map(text)
                .collect::<Vec<_>>()
                .join("; ")
        });
    }

    /// All of it.
    async fn ask(&mut self) {
        self.ask_what_is_there().await;
        self.ask_acls().await;
        self.ask_names().await;
        self.ask_data().await;
        self.ask_locks().await;
        self.ask_volumes().await;
        let root = Fid::root(VOLUME);
        let long = "n".repeat(256);
        self.create("create a name that is too long", root, &long)
            .await;
        self.remove("remove a name that is too long", root, &long)
            .await;
    }

    async fn ask_what_is_there(&mut self) {
        let root = Fid::root(VOLUME);
        self.status("root", root).await;
        self.status("a file", fid(2, 2)).await;
        self.status("a file with an old uniquifier", fid(2, 77))
            .await;
        self.status("no such file", fid(1000, 1)).await;
        self.status("no such directory", fid(1001, 1)).await;
        self.status("vnode 0", fid(0, 0)).await;
        let mut elsewhere = root;
        elsewhere.volume = VolumeId(77);
        self.status("no such volume", elsewhere).await;
        self.bulk("both bulk forms", &[root, fid(2, 2)]).await;
        self.bulk(
            "bulk forms with one not there",
            &[root, fid(1000, 1), fid(2, 2)],
        )
        .await;
        self.bulk("bulk forms of nothing", &[]).await;
        let answer = self.client.lookup(root, name("hello")).await;
        self.note("lookup", answer, |reply| format!("{:?}", reply.fid));
        let answer = self.client.get_root_volume().await;
        self.note("root volume", answer, |reply| {
            format!("{:?}", reply.name.as_bytes())
        });
        let answer = self.client.get_volume_info(name("test.open")).await;
        self.note("volume info", answer, |_| String::new());
        let answer = self.client.x_stats_version().await;
        self.note("version of statistics", answer, |reply| {
            reply.version.to_string()
        });
        let answer = self.client.get_capabilities().await;
        self.note("capabilities", answer, |reply| {
            format!("{:?}", reply.capabilities)
        });
    }

    async fn ask_acls(&mut self) {
        let root = Fid::root(VOLUME);
        self.acl("acl of the root", root).await;
        self.acl("acl of a file", fid(2, 2)).await;
        self.acl("acl of nothing", fid(1001, 1)).await;
        let directory = self.make_dir("a directory for acls", root, "acls").await;
        let Some(directory) = directory else { return };
        self.acl("inherited acl", directory).await;
        let more = "3\n1\nsystem:administrators\t127\nsystem:anyuser\t127\nsystem:authuser\t9\n\
                    system:backup\t16\n";
        self.set_acl("acl with a negative entry", directory, more)
            .await;
        self.acl("acl with a negative entry", directory).await;
        for (what, acl) in [
            (
                "acl of unknown users",
                "2\n0\nsystem:anyuser\t127\nnobody.at.all\t9\n",
            ),
            ("acl of numbers", "2\n0\nsystem:anyuser\t127\n12345\t9\n"),
            ("acl that is short", "3\n0\nsystem:anyuser\t127\n"),
            ("acl that is none", "hello"),
            (
                "acl with nobody twice",
                "2\n0\nsystem:anyuser\t127\nsystem:anyuser\t9\n",
            ),
        ] {
            self.set_acl(what, directory, acl).await;
            self.acl(what, directory).await;
        }
        self.set_acl("acl of a file", fid(2, 2), more).await;
        self.make_dir("a directory in one whose acl is changed", directory, "x")
            .await;
        self.set_acl("acl with nothing", directory, "0\n0\n").await;
    }

    async fn ask_names(&mut self) {
        let root = Fid::root(VOLUME);
        let long = "n".repeat(255);
        for bad in ["", ".", "..", "a/b", "hello", &long] {
            let shown = bad.get(..10).unwrap_or(bad);
            self.create(&format!("create {shown:?}"), root, bad).await;
            self.make_dir(&format!("mkdir {shown:?}"), root, bad).await;
            self.remove_dir(&format!("rmdir {shown:?}"), root, bad)
                .await;
            self.remove(&format!("remove {shown:?}"), root, bad).await;
        }
        let file = self.create("create", root, "f").await;
        let one = self.make_dir("mkdir", root, "one").await;
        let two = self.make_dir("mkdir", root, "two").await;
        let (Some(file), Some(one), Some(two)) = (file, one, two) else {
            return;
        };
        self.create("create in a file", file, "x").await;
        self.link("link", root, "g", file).await;
        self.link("link once more", root, "g", file).await;
        self.link("link in another directory", one, "g", file).await;
        self.link("link to a directory", root, "h", one).await;
        self.link("link to nothing", root, "h", fid(1000, 1)).await;
        self.rename("rename", (root, "f"), (root, "e")).await;
        self.rename(
            "rename into a directory with several links",
            (root, "e"),
            (one, "e"),
        )
        .await;
        self.rename("rename over another name of it", (root, "e"), (root, "g"))
            .await;
        self.remove("remove one of two names", root, "g").await;
        self.status("what is left", file).await;
        self.rename("rename nothing", (root, "nothing"), (root, "x"))
            .await;
        self.rename("rename to itself", (root, "one"), (root, "one"))
            .await;
        self.rename("rename into itself", (root, "one"), (one, "x"))
            .await;
        self.rename("rename a directory", (root, "two"), (one, "two"))
            .await;
        self.rename("rename above itself", (root, "one"), (two, "x"))
            .await;
        self.status("a directory that was moved", two).await;
        self.create("a file in it", two, "f").await;
        self.make_dir("mkdir", root, "three").await;
        self.rename(
            "rename over a directory that is full",
            (root, "three"),
            (one, "two"),
        )
        .await;
        self.rename(
            "rename a directory over a file",
            (root, "three"),
            (two, "f"),
        )
        .await;
        self.rename(
            "rename a file over a directory",
            (two, "f"),
            (root, "three"),
        )
        .await;
        self.rename("rename ..", (one, ".."), (root, "x")).await;
        self.remove_dir("rmdir of what is full", root, "one").await;
        self.remove_dir("rmdir of a file", two, "f").await;
        self.remove("remove a directory", root, "three").await;
        self.remove_dir("rmdir", root, "three").await;
        self.symlink("a symlink", root, "link", 0o777).await;
        self.symlink("a mount point", root, "mount", 0o644).await;
        self.symlink("a symlink that is there", root, "link", 0o777)
            .await;
        self.remove("remove a symlink", root, "link").await;
        self.status("the root in the end", root).await;
    }

    async fn ask_data(&mut self) {
        let root = Fid::root(VOLUME);
        let Some(file) = self.create("a file for data", root, "data").await else {
            return;
        };
        self.store("store", file, 0, "Some data.", 10).await;
        self.fetch("fetch", file, 0, 100).await;
        self.fetch("fetch a part", file, 5, 2).await;
        self.fetch("fetch from the end", file, 10, 5).await;
        self.fetch("fetch beyond the end", file, 100, 5).await;
        self.fetch("fetch nothing", file, 3, 0).await;
        self.fetch("fetch from before", file, -1, 5).await;
        self.store("store a part", file, 5, "DATA", 10).await;
        self.store("store past the end", file, 15, "x", 16).await;
        self.fetch("fetch a hole", file, 0, 100).await;
        self.store("truncate", file, 4, "", 4).await;
        self.fetch("fetch", file, 0, 100).await;
        self.store("lengthen", file, 0, "", 8).await;
        self.store("store to a directory", root, 0, "x", 1).await;
        self.store("store to nothing", fid(1000, 1), 0, "x", 1)
            .await;
        self.fetch("fetch nothing there", fid(1000, 1), 0, 1).await;
        self.set_status("mode", file, mode(0o7777)).await;
        self.set_status("mode of a directory", root, mode(0o700))
            .await;
        let wanted = |mask| StoreStatus {
            mask,
            owner: PtsId(42),
            group: PtsId(43),
            ..StoreStatus::default()
        };
        self.set_status("owner", file, wanted(StoreStatus::SET_OWNER))
            .await;
        self.set_status("group", file, wanted(StoreStatus::SET_GROUP))
            .await;
        self.set_status("time", file, wanted(StoreStatus::SET_MOD_TIME))
            .await;
        self.set_status("nothing", file, wanted(0)).await;
        self.status("a file that was changed", file).await;
    }

    async fn ask_locks(&mut self) {
        let root = Fid::root(VOLUME);
        let Some(file) = self.create("a file for locks", root, "locks").await else {
            return;
        };
        self.release_lock("release what is not locked", file).await;
        self.extend_lock("extend what is not locked", file).await;
        self.lock("read lock", file, 0).await;
        self.lock("read lock again", file, 0).await;
        self.lock("write lock beside it", file, 1).await;
        self.status("with read locks", file).await;
        self.extend_lock("extend", file).await;
        self.release_lock("release", file).await;
        self.release_lock("release", file).await;
        self.lock("write lock", file, 1).await;
        self.lock("write lock again", file, 1).await;
        self.lock("read lock beside it", file, 0).await;
        self.status("with a write lock", file).await;
        self.release_lock("release", file).await;
        self.lock("lock of another kind", file, 2).await;
        self.lock("lock of a directory", root, 0).await;
        self.release_lock("release a directory", root).await;
        self.lock("lock of nothing", fid(1000, 1), 0).await;
    }

    async fn ask_volumes(&mut self) {
        let answer = self.client.get_volume_status(VOLUME).await;
        self.note("volume status", answer, |reply| {
            format!(
                "{} {} {} {} {} quota {} {} name {:?} {:?} {:?}",
                reply.status.volume.0,
                reply.status.parent.0,
                reply.status.online,
                reply.status.in_service,
                reply.status.kind,
                reply.status.min_quota,
                reply.status.max_quota,
                reply.name.as_bytes(),
                reply.offline_message.as_bytes(),
                reply.message_of_the_day.as_bytes(),
            )
        });
        let answer = self.client.get_volume_status(VolumeId(77)).await;
        self.note("status of no volume", answer, |_| String::new());
        let wanted = StoreVolumeStatus::default();
        let empty = || XdrString::new(b"").unwrap();
        let long = || XdrString::new(b"").unwrap();
        let answer = self
            .client
            .set_volume_status(VOLUME, wanted, empty(), long(), long())
            .await;
        self.note("set volume status", answer, |_| String::new());
        let answer = self.client.give_up_all_call_backs().await;
        self.note("give up all", answer, |_| String::new());
    }
}

/// Asks the file server of a network.
fn notes(net: &Net) -> Vec<(String, String)> {
    net.inside("cli", || {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let here = SocketAddr::new(net.address("cli").parse().unwrap(), 7001);
            let endpoint = Endpoint::bind(here, afar_net::Config::default()).unwrap();
            let server = SocketAddr::new(net.address("srv").parse().unwrap(), 7000);
            CallbackService::start(&endpoint).expect(server);
            let connection = endpoint.connect(server, rxafs::SERVICE, Arc::new(RxNull));
            let mut asker = Asker {
                client: rxafs::Client::new(connection),
                notes: Vec::new(),
            };
            asker.ask().await;
            endpoint.shutdown().await;
            asker.notes
        })
    })
}

const NO_NAME: &str = "no client asks for these names; OpenAFS looks them up in the directory";
const EMPTY: &str = "the same error, which OpenAFS here leaves out to translate for clients that \
                     asked for it";
const LOOP: &str = "rename(2) says EINVAL; OpenAFS sends the number another system has for ELOOP";
const LONG: &str = "a name of 256 bytes is one that no file system call can name again";

/// Makes the volume, in which everybody may do anything.
fn restore(place: &Place, option: &str) {
    let content = Content::new(Rights::ALL).file("hello", 0o644, b"Hello.\n");
    content.dump(&place.file("open.dump"));
    place.ok(&format!(
        "vos restore srv a test.open -file open.dump {option}"
    ));
}

/// What afar's server answers otherwise, and why.
const DIFFERENCES: &[(&str, &str)] = &[
    ("bulk forms of nothing", EMPTY),
    (
        "root volume",
        "OpenAFS fails where a file of that name is not there",
    ),
    (
        "volume info",
        "OpenAFS answers with zeros; there is the VLDB for it",
    ),
    ("rmdir \"\"", NO_NAME),
    ("remove \"\"", NO_NAME),
    ("create \".\"", NO_NAME),
    ("mkdir \".\"", NO_NAME),
    ("create \"..\"", NO_NAME),
    ("mkdir \"..\"", NO_NAME),
    ("rename into itself", LOOP),
    ("rename above itself", LOOP),
    ("create a name that is too long", LONG),
    ("remove a name that is too long", LONG),
];

#[test]
#[ignore = "needs OpenAFS's servers"]
fn file_servers_answer_the_same() {
    let (openafs, afar) = (network(), network());
    let theirs = OpenAfs::start(&openafs, "srv", false);
    let ours = Ours::start(&afar, true);
    let administrator = Place::new(&openafs, "cli", openafs.address("srv"));
    restore(&administrator.with_keys(&theirs.keys()), "-localauth");
    restore(&Place::new(&afar, "cli", afar.address("srv")), "-noauth");
    let (expected, found) = (notes(&openafs), notes(&afar));
    let mut report = String::new();
    for (number, (expected, found)) in expected.iter().zip(&found).enumerate() {
        if std::env::var_os("AFAR_TEST_SHOW").is_some() {
            eprintln!("{}\n  {}\n  {}", expected.0, expected.1, found.1);
        }
        let meant = DIFFERENCES.iter().any(|(what, _)| *what == expected.0);
        if (expected != found) != meant {
            report.push_str(&format!(
                "{number} {}\n  OpenAFS: {}\n  {}: {}\n",
                expected.0, expected.1, found.0, found.1
            ));
        }
    }
    assert_eq!(expected.len(), found.len(), "{report}");
    assert!(report.is_empty(), "of {}:\n{report}", expected.len());
    ours.stop();
}
