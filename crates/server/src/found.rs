//! Founding a cell: its root volumes, and the mount points that lead to them.

use std::net::Ipv4Addr;
use std::sync::Arc;

use afar_fileserver::volumes::Volumes;
use afar_net::AbortCode;
use afar_rpc::vl;
use afar_store::{NewVnode, NewVolume, Partition, Volume};
use afar_types::error::VL_NOENT;
use afar_types::{
    AclRecord, AclRecordEntry, CellName, PtsId, Rights, Site, SiteFlags, SiteServer, VldbEntry,
    VldbFlags, VolumeId, VolumeName,
};
use afar_xdr::CharArray;
use anyhow::Context;

/// Mode of a mount point: a symlink without x bits, as kafs wants it exactly.
const MOUNT_POINT: u16 = 0o644;

/// Makes `root.afs` and `root.cell` where the cell has none.
pub(crate) async fn found(
    cell: &CellName,
    volumes: &Arc<Volumes>,
    location: &vl::Client,
    address: Ipv4Addr,
) -> anyhow::Result<()> {
    let (id, partition) = volumes
        .partitions()
        .next()
        .map(|(id, partition)| (id, Arc::clone(partition)))
        .context("there is no partition")?;
    let root = Founder {
        location,
        partition,
        site: Site {
            server: SiteServer::Address(address),
            partition: id,
            flags: SiteFlags::READ_WRITE,
        },
    };
    root.volume("root.cell", Vec::new()).await?;
    let mounts = vec![
        (cell.to_string(), "#root.cell.".to_owned()),
        (format!(".{cell}"), "%root.cell.".to_owned()),
    ];
    root.volume("root.afs", mounts).await
}

struct Founder<'a> {
    location: &'a vl::Client,
    partition: Arc<Partition>,
    site: Site,
}

impl Founder<'_> {
    /// Makes a volume with these mount points in its root, unless the cell has it.
    async fn volume(&self, name: &str, mounts: Vec<(String, String)>) -> anyhow::Result<()> {
        let asked = VolumeName::new(name.as_bytes())?;
        match self.location.get_entry_by_name_n(asked).await {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == AbortCode(VL_NOENT) => {}
            Err(error) => return Err(error).with_context(|| format!("looking for {name}")),
        }
        let context = || format!("cannot create the volume {name}");
        let ids = self
            .location
            .get_new_volume_id(3)
            .await
            .with_context(context)?;
        let id = ids.first;
        let partition = Arc::clone(&self.partition);
        // A new user fills them before anybody has heard of quotas.
        let new = NewVolume::new(id, name).max_quota(0);
        tokio::task::spawn_blocking(move || fill(&partition, &new, &mounts))
            .await?
            .with_context(context)?;
        let entry = VldbEntry {
            name: CharArray::new(name.as_bytes())?,
            sites: vec![self.site],
            volume_ids: [id, VolumeId(id.0 + 1), VolumeId(id.0 + 2)],
            clone_id: VolumeId(0),
            flags: VldbFlags::READ_WRITE_EXISTS,
        };
        let entry = entry.to_nvldb(|_| None)?;
        self.location
            .create_entry_n(entry)
            .await
            .with_context(context)?;
        tracing::info!("created the volume {name}, {id}");
        Ok(())
    }
}

/// Makes a volume that everybody may read.
fn fill(
    partition: &Arc<Partition>,
    new: &NewVolume,
    mounts: &[(String, String)],
) -> anyhow::Result<Volume> {
    let volume = partition.create_volume(new)?;
    let entry = |id, rights| AclRecordEntry { id, rights };
    let read = Rights(Rights::READ.0 | Rights::LOOKUP.0);
    let acl = AclRecord::new(
        vec![
            entry(PtsId::ADMINISTRATORS, Rights::ALL),
            entry(PtsId::ANYUSER, read),
        ],
        Vec::new(),
    )?;
    volume.set_acl(volume.root(), &acl)?;
    for (name, target) in mounts {
        let new = NewVnode::new(PtsId(0), MOUNT_POINT);
        volume.symlink(volume.root(), name.as_bytes(), target.as_bytes(), &new)?;
    }
    Ok(volume)
}
