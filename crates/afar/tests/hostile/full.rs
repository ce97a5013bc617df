//! A partition without room: who writes is told, who reads goes on.

use std::fs;
use std::path::{Path, PathBuf};

use afar_net::AbortCode;
use bytes::Bytes;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::client::Client;
use crate::run;
use crate::server::Server;

/// The partition is full (VDISKFULL).
const VDISKFULL: AbortCode = AbortCode(108);
const SIZE: usize = 96 << 20;

/// A small file system, as long as it is kept.
struct Small(PathBuf);

impl Small {
    fn mount(path: &Path) -> nix::Result<Self> {
        let size = format!("size={SIZE}");
        let kind = Some("tmpfs");
        mount(kind, path, kind, MsFlags::empty(), Some(&*size))?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // It must not outlive the test, whoever still uses it.
        umount2(&self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

#[test]
fn a_full_partition_can_be_read_and_freed() {
    run(async {
        let mut server = Server::new(&[]);
        // The first start makes the configuration; the second finds another, empty partition.
        server.start();
        server.stop();
        let vicepa = server.cell().join("vicepa");
        fs::remove_dir_all(&vicepa).unwrap();
        fs::remove_dir_all(server.cell().join("data")).unwrap();
        fs::create_dir(&vicepa).unwrap();
        let small = match Small::mount(&vicepa) {
            Ok(small) => small,
            Err(error) => return eprintln!("skipped: no file system can be mounted: {error}"),
        };
        server.start();
        let root = server.open_to_all().await;
        let client = Client::new(server.files()).await;
        let mut kept = Vec::new();
        let refused = loop {
            let number = kept.len();
            let data: Vec<u8> = (0..3 << 20).map(|_| fastrand::u8(..)).collect();
            let data = Bytes::from(data);
            let outcome = match client.create(root, &format!("file{number}")).await {
                Ok(fid) => client.store(fid, data.clone()).await.map(|()| fid),
                Err(error) => Err(error),
            };
            match outcome {
                Ok(fid) => kept.push((fid, data)),
                Err(error) => break error,
            }
            assert!(kept.len() << 20 < SIZE, "it is not full yet");
        };
        assert_eq!(refused.aborted(), Some(VDISKFULL), "{refused:?}");
        assert!(kept.len() >= 8, "{} files", kept.len());
        let reader = Client::new(server.files()).await;
        for (fid, data) in &kept {
            assert_eq!(reader.fetch(*fid).await.unwrap(), *data);
        }
        // What is removed makes room, in the end.
        for number in 0..kept.len() - 2 {
            let name = crate::client::name(&format!("file{number}"));
            client.files.remove_file(root, name).await.unwrap();
        }
        let fid = client.create(root, "again").await.unwrap();
        let again = Bytes::from(vec![5; 100_000]);
        let begun = std::time::Instant::now();
        while let Err(error) = client.store(fid, again.clone()).await {
            assert_eq!(error.aborted(), Some(VDISKFULL), "{error:?}");
            assert!(begun.elapsed() < crate::client::PATIENCE, "stays full");
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        assert_eq!(reader.fetch(fid).await.unwrap(), again);
        server.stop();
        server.check_store();
        drop(small);
    });
}
