//! An AFS object with all that is known of it, in JSON and as text.

use std::fmt;
use std::sync::Arc;

use afar_cell::{MountPoint, Volume};
use afar_types::{FetchStatus, Fid};
use serde::Serialize;

use super::format::{self, Name};

/// Everything about one file, directory, symlink or mount point.
#[derive(Debug, Serialize)]
pub(super) struct Object {
    #[serde(flatten)]
    name: Name,
    #[serde(rename = "type")]
    kind: &'static str,
    length: u64,
    fid: String,
    cell: String,
    volume: String,
    volume_id: u32,
    volume_type: String,
    server: Option<String>,
    sites: Vec<String>,
    mode: u32,
    mode_text: String,
    links: u32,
    owner: i32,
    group: i32,
    author: i32,
    modified: u32,
    modified_text: String,
    server_modified: u32,
    data_version: u64,
    caller_access: String,
    anonymous_access: String,
    parent: String,
    lock_count: i32,
    residency_mask: u32,
    sync_counter: u32,
    interface_version: u32,
    /// Where a symlink leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// The mount point that led to this root of a volume, or the text of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    mount_point: Option<String>,
}

impl Object {
    pub(super) fn new(name: &[u8], volume: &Arc<Volume>, fid: Fid, status: &FetchStatus) -> Self {
        let sites: Vec<_> = volume.sites();
        let sites: Vec<_> = sites
            .iter()
            .map(|site| site.address().to_string())
            .collect();
        Self {
            name: Name::new(name),
            kind: format::kind(status),
            length: status.length,
            fid: fid.to_string(),
            cell: volume.cell_name().to_string(),
            volume: volume.asked().to_owned(),
            volume_id: volume.id().0,
            volume_type: volume.kind().to_string(),
            server: sites.first().cloned(),
            sites,
            mode: status.unix_mode_bits,
            mode_text: format::mode(status),
            links: status.link_count,
            owner: status.owner.0,
            group: status.group.0,
            author: status.author.0,
            modified: status.client_mod_time.0,
            modified_text: format::time(status.client_mod_time),
            server_modified: status.server_mod_time.0,
            data_version: status.data_version.0,
            caller_access: status.caller_access.to_string(),
            anonymous_access: status.anonymous_access.to_string(),
            parent: format!("{}.{}", status.parent_vnode, status.parent_uniquifier),
            lock_count: status.lock_count,
            residency_mask: status.residency_mask,
            sync_counter: status.sync_counter,
            interface_version: status.interface_version,
            target: None,
            mount_point: None,
        }
    }

    /// With the data of a symlink or mount point.
    pub(super) fn with_target(mut self, status: &FetchStatus, data: &[u8]) -> Self {
        let text = String::from_utf8_lossy(data).into_owned();
        if status.is_mount_point() {
            self.mount_point = Some(text);
        } else {
            self.target = Some(text);
        }
        self
    }

    /// With the mount point that led here.
    pub(super) fn with_mount(mut self, mount: Option<&MountPoint>) -> Self {
        self.mount_point = mount.map(ToString::to_string);
        self
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  File: {}", self.name.text())?;
        if let Some(target) = &self.target {
            write!(f, " -> {target}")?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "  Type: {:<16} Length: {:<14} Links: {:<6} Data version: {}",
            self.kind, self.length, self.links, self.data_version
        )?;
        writeln!(
            f,
            "   Fid: {:<24} Volume: {} ({}, {}) in {}",
            self.fid, self.volume, self.volume_id, self.volume_type, self.cell
        )?;
        writeln!(f, "Server: {}", self.sites.join(" "))?;
        if let Some(mount) = &self.mount_point {
            writeln!(f, " Mount: {mount}")?;
        }
        writeln!(
            f,
            "Access: ({:04o}/{}) Owner: {} Group: {} Rights here: {} (anyone: {})",
            self.mode,
            self.mode_text,
            self.owner,
            self.group,
            or_none(&self.caller_access),
            or_none(&self.anonymous_access)
        )?;
        write!(
            f,
            "Modify: {} UTC (author {}, locks {}, parent {})",
            self.modified_text, self.author, self.lock_count, self.parent
        )
    }
}

fn or_none(rights: &str) -> &str {
    if rights.is_empty() { "none" } else { rights }
}
