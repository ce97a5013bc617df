//! How much memory files take that were listed with their attributes, as `ls -l` of very many does.
//!
//! `listed_scale [FILES [DIRECTORIES]]`, 1,000,000 and 10,000 by default, prints its figures. One user
//! lists all directories of a volume with the statuses of what is in them: each file then has a status,
//! a promise, rights and a number that the kernel knows, and each directory the names in it. The calls
//! are real Rx on loopback; the server makes up what it answers.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use afar_cache::{Cache, CacheConfig, Ino, Kind, Root, Who};
use afar_cell::{Client, Config};
use afar_dir::{DirectoryBuilder, EntryId};
use afar_net::{AbortCode, Endpoint};
use afar_rpc::{Caller, FetchSink, rxafs, vl};
use afar_types::{
    CallBack, CallBackType, CallBacks, FetchStatus, Fid, FileType, NvldbEntry, PtsId, Rights,
    SiteFlags, Statuses, Uniquifier, UnixTime, VldbFlags, VnodeId, VolSync, VolumeId,
};
use afar_xdr::CharArray;

const VOLUME: VolumeId = VolumeId(536_870_915);
const WHO: Who = Who {
    uid: 1000,
    gid: 1000,
    pid: 1,
};
/// No such file.
const VNOVNODE: AbortCode = AbortCode(102);

/// A server of one volume, with directories in its root and files in these.
#[derive(Debug, Clone)]
struct Server {
    directories: u32,
    /// In each directory.
    files: u32,
    /// Bytes of directories that were asked for.
    pages: Arc<AtomicU64>,
}

impl Server {
    fn contents(&self, fid: Fid) -> Result<Vec<u8>, AbortCode> {
        let root = Fid::root(VOLUME);
        let id = |fid: Fid| EntryId::new(fid.vnode.0, fid.uniquifier.0);
        let mut builder = DirectoryBuilder::new(id(fid), id(root));
        let add = |builder: &mut DirectoryBuilder, name: String, vnode| {
            let added = builder.add(name.as_bytes(), EntryId::new(vnode, vnode + 7));
            added.map_err(|_| VNOVNODE)
        };
        if fid == root {
            for number in 0..self.directories {
                add(&mut builder, format!("dir-{number:06}"), 2 * number + 3)?;
            }
        } else {
            let first = (fid.vnode.0 - 3) / 2 * self.files;
            for number in first..first + self.files {
                add(&mut builder, format!("f-{number:07}.txt"), 2 * number + 2)?;
            }
        }
        Ok(builder.finish())
    }

    fn status(&self, fid: Fid) -> FetchStatus {
        let directory = fid.vnode.is_directory();
        let parent = match fid.vnode.0 {
            vnode if directory => EntryId::new(vnode, fid.uniquifier.0),
            vnode => {
                let parent = (vnode - 2) / 2 / self.files * 2 + 3;
                EntryId::new(parent, parent + 7)
            }
        };
        let length = match directory {
            true => self.contents(fid).map_or(0, |pages| pages.len() as u64),
            false => 1234,
        };
        FetchStatus {
            interface_version: FetchStatus::INTERFACE_VERSION,
            file_type: match directory {
                true => FileType::Directory,
                false => FileType::File,
            },
            link_count: 1,
            length,
            data_version: 3.into(),
            author: PtsId(1000),
            owner: PtsId(1000),
            group: PtsId(100),
            caller_access: Rights::ALL,
            anonymous_access: Rights::LOOKUP,
            unix_mode_bits: 0o644,
            parent_vnode: VnodeId(parent.vnode.0),
            parent_uniquifier: Uniquifier(parent.uniquifier.0),
            client_mod_time: UnixTime(1_700_000_000),
            server_mod_time: UnixTime(1_700_000_001),
            ..FetchStatus::default()
        }
    }
}

fn promise() -> CallBack {
    CallBack {
        version: 1,
        expires_in: 14_400,
        kind: CallBackType::Shared,
    }
}

impl vl::Service for Server {
    async fn get_entry_by_name_n(
        &self,
        _: &Caller,
        _: vl::get_entry_by_name_n::Request,
    ) -> Result<vl::get_entry_by_name_n::Reply, AbortCode> {
        let mut entry = NvldbEntry {
            name: CharArray::new("root.cell").map_err(|_| VNOVNODE)?,
            n_servers: 1,
            volume_id: [VOLUME, VolumeId(0), VolumeId(0)],
            flags: VldbFlags(0x1000),
            ..NvldbEntry::default()
        };
        entry.server_number[0] = u32::from_be_bytes([127, 0, 0, 1]);
        entry.server_flags[0] = SiteFlags(4);
        Ok(vl::get_entry_by_name_n::Reply { entry })
    }
}

impl rxafs::Service for Server {
    async fn fetch_status(
        &self,
        _: &Caller,
        request: rxafs::fetch_status::Request,
    ) -> Result<rxafs::fetch_status::Reply, AbortCode> {
        Ok(rxafs::fetch_status::Reply {
            status: self.status(request.fid),
            callback: promise(),
            vol_sync: VolSync::default(),
        })
    }

    async fn inline_bulk_status(
        &self,
        _: &Caller,
        request: rxafs::inline_bulk_status::Request,
    ) -> Result<rxafs::inline_bulk_status::Reply, AbortCode> {
        let statuses: Vec<_> = request.fids.iter().map(|fid| self.status(*fid)).collect();
        let callbacks = CallBacks::new(vec![promise(); statuses.len()]);
        Ok(rxafs::inline_bulk_status::Reply {
            callbacks: callbacks.map_err(|_| VNOVNODE)?,
            statuses: Statuses::new(statuses).map_err(|_| VNOVNODE)?,
            vol_sync: VolSync::default(),
        })
    }

    async fn fetch_data64(
        &self,
        _: &Caller,
        request: rxafs::fetch_data64::Request,
        data: &mut FetchSink<'_>,
    ) -> Result<rxafs::fetch_data64::Reply, AbortCode> {
        let all = self.contents(request.fid)?;
        let from = usize::try_from(request.position).map_or(all.len(), |from| from.min(all.len()));
        let asked = usize::try_from(data.asked()).unwrap_or(usize::MAX);
        let part = all[from..].iter().take(asked).copied();
        let part: Vec<u8> = part.collect();
        self.pages.fetch_add(part.len() as u64, Ordering::Relaxed);
        data.announce(part.len() as u64).await?;
        data.send(part.into()).await?;
        Ok(rxafs::fetch_data64::Reply {
            status: self.status(request.fid),
            callback: promise(),
            vol_sync: VolSync::default(),
        })
    }
}

/// Bytes of memory this process has.
fn resident() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let kibibytes = kibibytes.ok_or_else(|| io::Error::other("no VmRSS in /proc/self/status"))?;
    Ok(kibibytes * 1024)
}

/// Lists a directory; returns how many entries came with attributes, and which are directories.
async fn list(cache: &Cache, ino: Ino) -> Result<(u64, Vec<Ino>), afar_cache::Errno> {
    let handle = cache.opendir(WHO, ino).await?;
    let (mut offset, mut count, mut directories) = (0, 0, Vec::new());
    loop {
        let entries = cache.readdir(handle, offset, true).await?;
        let Some(last) = entries.last() else {
            break;
        };
        offset = last.offset;
        for entry in entries.iter().filter_map(|entry| entry.entry) {
            count += 1;
            if entry.attr.kind == Kind::Dir {
                directories.push(entry.attr.ino);
            }
        }
    }
    cache.releasedir(handle);
    Ok((count, directories))
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "figures are what this program is for")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |default: u32| arguments.next().map_or(Ok(default), |text| text.parse());
    let (files, directories) = (argument(1_000_000)?, argument(10_000)?.max(1));
    let server = Server {
        directories,
        files: (files / directories).max(2) - 1,
        pages: Arc::default(),
    };
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let endpoint = Endpoint::bind(loopback, afar_net::Config::default())?;
    let service = rxafs::Server::new(server.clone());
    endpoint.serve(rxafs::SERVICE, "files", service);
    endpoint.serve(vl::SERVICE, "locations", vl::Server::new(server.clone()));
    let address = endpoint.local_addr();
    let config = Config {
        cellservdb: Some("/dev/null".into()),
        vl_servers: vec![address],
        dns: false,
        file_port: address.port(),
        ..Config::default()
    };
    let own = Endpoint::bind(loopback, afar_net::Config::default())?;
    let directory = tempfile::tempdir()?;
    let mut settings = CacheConfig::new(directory.path());
    settings.root = Root::Volume("cell.example.org".parse()?, "root.cell".to_owned());
    settings.files = usize::try_from(files)? + 16;
    let cache = Cache::open(Client::new(own, config)?, settings).await?;
    cache.getattr(WHO, Ino::ROOT).await?;

    let before = resident()?;
    let begun = Instant::now();
    let (mut count, all) = list(&cache, Ino::ROOT).await?;
    for directory in all {
        count += list(&cache, directory).await?.0;
    }
    let took = begun.elapsed();
    let after = resident()?;
    let memory = after.saturating_sub(before);
    let pages = server.pages.load(Ordering::Relaxed);
    let each = |octets: u64| octets / count.max(1);
    println!("files and directories: {count}");
    println!("resident before, after: {before}, {after} bytes");
    println!("bytes each: {}", each(memory));
    println!("of these directories' pages: {}", each(pages));
    println!("seconds: {:.1}", took.as_secs_f64());
    cache.close().await;
    Ok(())
}
