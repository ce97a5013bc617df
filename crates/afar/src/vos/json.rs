//! What is found, as JSON: one object a line.

use afar_admin::vos::{ServerPartition, SizedPartition};
use afar_types::{
    AddrsU, SiteFlags, SiteServer, TransDebugInfo, VldbEntry, VldbFlags, VolintInfo, VolintXInfo,
    VolumeType,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::show::kind;

/// Prints a value as one line.
pub(super) fn print(value: &Value) {
    super::out!("{value}\n");
}

/// A volume as its server describes it.
pub(super) fn volume(info: &VolintInfo, at: ServerPartition) -> Value {
    json!({
        "id": info.volume.0,
        "name": info.name.to_string(),
        "type": kind(info.kind),
        "server": at.server,
        "partition": at.partition.to_string(),
        "status": status(info.status),
        "online": info.in_use,
        "needs_salvage": info.needs_salvage,
        "read_write": info.parent_id.0,
        "read_only": info.clone_id.0,
        "backup": info.backup_id.0,
        "size_kib": info.size,
        "max_quota_kib": info.max_quota,
        "files": info.file_count,
        "creation_date": info.creation_date.0,
        "copy_date": info.copy_date.0,
        "backup_date": info.backup_date.0,
        "access_date": info.access_date.0,
        "update_date": info.update_date.0,
        "day_use": info.day_use,
    })
}

/// The same with statistics.
pub(super) fn volume_extended(info: &VolintXInfo, at: ServerPartition) -> Value {
    json!({
        "id": info.volume.0,
        "name": info.name.to_string(),
        "type": kind(info.kind),
        "server": at.server,
        "partition": at.partition.to_string(),
        "status": status(info.status),
        "online": info.in_use,
        "read_write": info.parent_id.0,
        "read_only": info.clone_id.0,
        "backup": info.backup_id.0,
        "size_kib": info.size,
        "max_quota_kib": info.max_quota,
        "files": info.file_count,
        "creation_date": info.creation_date.0,
        "copy_date": info.copy_date.0,
        "backup_date": info.backup_date.0,
        "access_date": info.access_date.0,
        "update_date": info.update_date.0,
        "day_use": info.day_use,
        "reads": info.reads,
        "writes": info.writes,
        "file_same_author": info.file_same_author,
        "file_diff_author": info.file_diff_author,
        "dir_same_author": info.dir_same_author,
        "dir_diff_author": info.dir_diff_author,
    })
}

fn status(status: i32) -> &'static str {
    match status {
        VolintInfo::OK => "ok",
        VolintInfo::BUSY => "busy",
        _ => "unattachable",
    }
}

/// A site of an entry.
#[derive(Serialize)]
struct Site {
    server: String,
    partition: String,
    r#type: &'static str,
    new_release: bool,
    released: bool,
}

/// An entry of the database.
pub(super) fn entry(entry: &VldbEntry) -> Value {
    let sites = entry.sites.iter().map(|site| {
        let has = |flag| site.flags.contains(flag);
        Site {
            server: match site.server {
                SiteServer::Address(address) => address.to_string(),
                SiteServer::Uuid { uuid, .. } => uuid.to_string(),
            },
            partition: site.partition.to_string(),
            r#type: if has(SiteFlags::READ_WRITE) {
                "RW"
            } else {
                "RO"
            },
            new_release: has(SiteFlags::NEW_REPLICA),
            released: !has(SiteFlags::DONT_USE),
        }
    });
    let id = |kind| entry.id_of(kind).map(|id| id.0);
    let held = |flag| entry.flags.contains(flag);
    let operation = [
        (VldbFlags::MOVE, "move"),
        (VldbFlags::RELEASE, "release"),
        (VldbFlags::BACKUP, "backup"),
        (VldbFlags::DELETE, "delete"),
        (VldbFlags::DUMP, "dump"),
    ];
    let operation = operation.iter().find(|(flag, _)| held(*flag));
    json!({
        "name": entry.name.to_string(),
        "read_write": id(VolumeType::ReadWrite),
        "read_only": id(VolumeType::ReadOnly),
        "backup": id(VolumeType::Backup),
        "release_clone": (entry.clone_id.0 != 0).then_some(entry.clone_id.0),
        "sites": sites.collect::<Vec<_>>(),
        "locked_for": operation.map(|(_, name)| *name),
    })
}

/// A partition.
pub(super) fn partition(size: &SizedPartition) -> Value {
    json!({
        "partition": size.partition.to_string(),
        "free_kib": size.free,
        "total_kib": size.total,
    })
}

/// A transaction.
pub(super) fn transaction(info: &TransDebugInfo) -> Value {
    json!({
        "transaction": info.transaction.0,
        "created": info.creation_time.0,
        "last_active": info.time.0,
        "return_code": info.return_code,
        "attach_flags": info.attach_flags.0,
        "volume_flags": info.flags.0,
        "volume": info.volume.0,
        "partition": info.partition.to_string(),
        "procedure": info.last_procedure.to_string(),
        "in_call": info.call_valid,
    })
}

/// A server's addresses.
pub(super) fn addresses(server: &AddrsU) -> Value {
    json!({
        "uuid": server.uuid.to_string(),
        "addresses": server.addresses().collect::<Vec<_>>(),
    })
}
