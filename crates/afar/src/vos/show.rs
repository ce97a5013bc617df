//! Volumes and transactions as `vos` prints them.

use std::fmt::Write;

use afar_admin::vos::ServerPartition;
use afar_admin::vos::words::date;
use afar_types::{
    AttachFlags, TransDebugInfo, TransactionFlags, UnixTime, VldbFlags, VolintInfo, VolintXInfo,
    VolumeId,
};

/// Appends a line to a text.
macro_rules! line {
    ($text:expr, $($arg:tt)*) => {
        writeln!($text, $($arg)*).expect("a string takes all that is written")
    };
}

/// How many volumes of a list are in which state.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) online: u32,
    pub(super) offline: u32,
    busy: Vec<VolumeId>,
    unattachable: Vec<VolumeId>,
}

impl Totals {
    pub(super) fn offline(&self) -> usize {
        self.offline as usize + self.unattachable.len()
    }

    pub(super) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// Volumes that nothing could be told of, the last ones first.
    pub(super) fn troubles(&self) -> String {
        let busy = self
            .busy
            .iter()
            .rev()
            .map(|&id| trouble(id, VolintInfo::BUSY));
        let others = self.unattachable.iter().rev().map(|&id| trouble(id, 0));
        busy.chain(others).collect()
    }

    /// The same in the form for machines.
    pub(super) fn format_troubles(&self) -> String {
        let mut text = String::new();
        for id in self.busy.iter().rev() {
            line!(text, "BUSY_VOL\t{id}");
        }
        for id in self.unattachable.iter().rev() {
            line!(text, "COULD_NOT_ATTACH\t{id}");
        }
        text
    }

    /// Counts a volume whose state is not OK.
    fn trouble(&mut self, id: VolumeId, status: i32) {
        match status {
            VolintInfo::BUSY => self.busy.push(id),
            _ => self.unattachable.push(id),
        }
    }

    fn count(&mut self, online: bool) -> &'static str {
        if online {
            self.online += 1;
            "On-line"
        } else {
            self.offline += 1;
            "Off-line"
        }
    }
}

/// `RW`, `RO` or `BK`.
pub(super) fn kind(number: i32) -> &'static str {
    match number {
        0 => "RW",
        1 => "RO",
        2 => "BK",
        _ => "?",
    }
}

fn kind_column(number: i32) -> &'static str {
    match number {
        0 => "RW ",
        1 => "RO ",
        2 => "BK ",
        _ => "",
    }
}

fn trouble(id: VolumeId, status: i32) -> String {
    match status {
        VolintInfo::BUSY => format!("**** Volume {id} is busy ****\n"),
        _ => format!("**** Could not attach volume {id} ****\n"),
    }
}

/// A date, or `Never`.
fn or_never(time: UnixTime) -> String {
    match time.0 {
        0 => "Never".to_owned(),
        _ => date(time),
    }
}

/// A volume on one line.
pub(super) fn short(info: &VolintInfo, totals: &mut Totals) -> String {
    if info.status != VolintInfo::OK {
        totals.trouble(info.volume, info.status);
        return String::new();
    }
    let mut text = head(info, totals, "");
    text.push('\n');
    text
}

fn head(info: &VolintInfo, totals: &mut Totals, gap: &str) -> String {
    let salvage = if info.needs_salvage {
        "**needs salvage**"
    } else {
        ""
    };
    format!(
        "{:<32} {:>10} {}{:>10} K {gap}{}{salvage}",
        info.name.to_string(),
        info.volume.0,
        kind_column(info.kind),
        info.size,
        totals.count(info.in_use),
    )
}

/// All the usual about a volume; with `troubles`, also why there is nothing.
pub(super) fn long(
    info: &VolintInfo,
    at: ServerPartition,
    host: &str,
    totals: &mut Totals,
    troubles: bool,
) -> String {
    if info.status != VolintInfo::OK {
        totals.trouble(info.volume, info.status);
        let text = if troubles {
            trouble(info.volume, info.status)
        } else {
            String::new()
        };
        return text + "\n";
    }
    let mut text = head(info, totals, " ");
    text.push('\n');
    text.push_str(&details(at, host, &info.into()));
    text.push('\n');
    text
}

/// What is told of a volume in either form of its header.
struct Details {
    parent: VolumeId,
    clone: VolumeId,
    backup: VolumeId,
    quota: i32,
    created: UnixTime,
    copied: UnixTime,
    backed_up: UnixTime,
    accessed: UnixTime,
    updated: UnixTime,
    day_use: i32,
}

macro_rules! details_of {
    ($($header:ty),*) => {$(
        impl From<&$header> for Details {
            fn from(info: &$header) -> Self {
                Self {
                    parent: info.parent_id,
                    clone: info.clone_id,
                    backup: info.backup_id,
                    quota: info.max_quota,
                    created: info.creation_date,
                    copied: info.copy_date,
                    backed_up: info.backup_date,
                    accessed: info.access_date,
                    updated: info.update_date,
                    day_use: info.day_use,
                }
            }
        }
    )*};
}
details_of!(VolintInfo, VolintXInfo);

fn details(at: ServerPartition, host: &str, told: &Details) -> String {
    let mut text = String::new();
    line!(text, "    {host} {} ", at.partition);
    line!(
        text,
        "    RWrite {:>10} ROnly {:>10} Backup {:>10} ",
        told.parent.0,
        told.clone.0,
        told.backup.0
    );
    line!(text, "    MaxQuota {:>10} K ", told.quota);
    line!(text, "    Creation    {}", date(told.created));
    line!(text, "    Copy        {}", date(told.copied));
    line!(text, "    Backup      {}", or_never(told.backed_up));
    if told.accessed.0 != 0 {
        line!(text, "    Last Access {}", date(told.accessed));
    }
    line!(text, "    Last Update {}", or_never(told.updated));
    line!(
        text,
        "    {} accesses in the past day (i.e., vnode references)",
        told.day_use
    );
    text
}

/// A volume with its statistics.
pub(super) fn extended(
    info: &VolintXInfo,
    at: ServerPartition,
    host: &str,
    totals: &mut Totals,
    troubles: bool,
) -> String {
    if info.status != VolintInfo::OK {
        totals.trouble(info.volume, info.status);
        let text = if troubles {
            trouble(info.volume, info.status)
        } else {
            String::new()
        };
        return text + "\n";
    }
    let mut text = String::new();
    line!(
        text,
        "{:<32} {:>10} {}{:>10} K used {} files {}",
        info.name.to_string(),
        info.volume.0,
        kind_column(info.kind),
        info.size,
        info.file_count,
        totals.count(info.in_use),
    );
    text.push_str(&details(at, host, &info.into()));
    text.push_str(&statistics(info));
    text.push('\n');
    text
}

fn statistics(info: &VolintXInfo) -> String {
    const RULE: &str = "          |-------------------------------------------|";
    const COLUMNS: &str = "          |----------|----------|----------|----------|";
    let mut text = String::new();
    line!(text, "\n                      Raw Read/Write Stats\n{RULE}");
    line!(
        text,
        "          |    Same Network     |    Diff Network     |\n{COLUMNS}"
    );
    line!(
        text,
        "          |  Total   |   Auth   |   Total  |   Auth   |\n{COLUMNS}"
    );
    let mut row = |name: &str, [a, b, c, d]: [i32; 4]| {
        line!(text, "{name:<10}| {a:>8} | {b:>8} | {c:>8} | {d:>8} |");
    };
    row("Reads", info.reads);
    row("Writes", info.writes);
    line!(text, "{RULE}\n");
    line!(
        text,
        "                   Writes Affecting Authorship\n{RULE}"
    );
    line!(
        text,
        "          |   File Authorship   | Directory Authorship|\n{COLUMNS}"
    );
    line!(
        text,
        "          |   Same   |   Diff   |    Same  |   Diff   |\n{COLUMNS}"
    );
    let times = [
        "0-60 sec",
        "1-10 min",
        "10min-1hr",
        "1hr-1day",
        "1day-1wk",
        "> 1wk",
    ];
    for (index, time) in times.into_iter().enumerate() {
        let [a, b, c, d] = [
            info.file_same_author[index],
            info.file_diff_author[index],
            info.dir_same_author[index],
            info.dir_diff_author[index],
        ];
        line!(text, "{time:<10}| {a:>8} | {b:>8} | {c:>8} | {d:>8} |");
    }
    line!(text, "{RULE}");
    text
}

fn yes(yes: bool) -> &'static str {
    if yes { "Y" } else { "N" }
}

/// A date with its number, as in the form for machines.
fn numbered(text: &mut String, name: &str, time: UnixTime) {
    line!(text, "{name}\t{:<9}\t{}", time.0, date(time));
}

/// A volume in the form for machines.
pub(super) fn format(info: &VolintInfo, at: ServerPartition, host: &str) -> String {
    let mut text = String::new();
    let ok = info.status == VolintInfo::OK;
    if ok {
        line!(text, "name\t\t{}", info.name);
    }
    line!(text, "id\t\t{}", info.volume);
    line!(text, "serv\t\t{}\t{host}", at.server);
    line!(text, "part\t\t{}", at.partition);
    let status = match info.status {
        VolintInfo::OK => "OK",
        VolintInfo::BUSY => "BUSY",
        _ => "UNATTACHABLE",
    };
    line!(text, "status\t\t{status}");
    if !ok {
        return text;
    }
    line!(text, "backupID\t{}", info.backup_id);
    line!(text, "parentID\t{}", info.parent_id);
    line!(text, "cloneID\t\t{}", info.clone_id);
    line!(text, "inUse\t\t{}", yes(info.in_use));
    line!(text, "needsSalvaged\t{}", yes(info.needs_salvage));
    line!(text, "destroyMe\t{}", yes(info.destroy_me));
    line!(text, "type\t\t{}", kind(info.kind));
    numbered(&mut text, "creationDate", info.creation_date);
    numbered(&mut text, "accessDate", info.access_date);
    numbered(&mut text, "updateDate", info.update_date);
    numbered(&mut text, "backupDate", info.backup_date);
    numbered(&mut text, "copyDate", info.copy_date);
    let flags = match info.flags {
        0 => "0".to_owned(),
        flags => format!("{flags:#x}"),
    };
    line!(text, "flags\t\t{flags}\t(Optional)");
    line!(text, "diskused\t{}", unsigned(info.size));
    line!(text, "maxquota\t{}", unsigned(info.max_quota));
    line!(text, "minquota\t{}\t(Optional)", unsigned(info.min_quota));
    line!(text, "filecount\t{}", unsigned(info.file_count));
    line!(text, "dayUse\t\t{}", unsigned(info.day_use));
    line!(text, "weekUse\t\t{}\t(Optional)", unsigned(info.week_use));
    line!(text, "spare2\t\t{}\t(Optional)", info.update_counter);
    line!(text, "spare3\t\t{}\t(Optional)", unsigned(info.spare));
    text
}

/// A word that is printed without its sign.
fn unsigned(word: i32) -> u32 {
    word.cast_unsigned()
}

/// A volume with its statistics in the form for machines.
pub(super) fn format_extended(
    info: &VolintXInfo,
    at: ServerPartition,
    host: &str,
    totals: &mut Totals,
) -> String {
    let mut text = String::new();
    if info.status != VolintInfo::OK {
        totals.trouble(info.volume, info.status);
        return text;
    }
    line!(text, "name\t\t{}", info.name);
    line!(text, "id\t\t{}", info.volume);
    line!(text, "serv\t\t{}\t{host}", at.server);
    line!(text, "part\t\t{}", at.partition);
    line!(text, "status\t\tOK");
    line!(text, "backupID\t{}", info.backup_id);
    line!(text, "parentID\t{}", info.parent_id);
    line!(text, "cloneID\t\t{}", info.clone_id);
    line!(text, "inUse\t\t{}", yes(info.in_use));
    line!(text, "type\t\t{}", kind(info.kind));
    numbered(&mut text, "creationDate", info.creation_date);
    numbered(&mut text, "accessDate", info.access_date);
    numbered(&mut text, "updateDate", info.update_date);
    numbered(&mut text, "backupDate", info.backup_date);
    numbered(&mut text, "copyDate", info.copy_date);
    line!(text, "diskused\t{}", unsigned(info.size));
    line!(text, "maxquota\t{}", unsigned(info.max_quota));
    line!(text, "filecount\t{}", unsigned(info.file_count));
    line!(text, "dayUse\t\t{}", unsigned(info.day_use));
    let nets = ["same_net", "same_net_auth", "diff_net", "diff_net_auth"];
    for (what, counts) in [("reads", info.reads), ("writes", info.writes)] {
        for (net, count) in nets.iter().zip(counts) {
            line!(text, "{what}_{net}\t{count:>8}");
        }
    }
    for index in 0..5 {
        let number = index + 1;
        let rows = [
            ("file_same_author", info.file_same_author),
            ("file_diff_author", info.file_diff_author),
            ("dir_same_author", info.dir_same_author),
            ("dir_dif_author", info.dir_diff_author),
        ];
        for (what, counts) in rows {
            line!(text, "{what}_idx_{number}\t{:>8}", counts[index]);
        }
    }
    text
}

/// What holds an entry, if anything does.
pub(super) fn locked(flags: VldbFlags) -> String {
    const ALL: u32 = afar_admin::vos::LOCK_ALL;
    let mut text = String::new();
    if flags.0 & ALL == 0 {
        return text;
    }
    line!(text, "    Volume is currently LOCKED  ");
    let operations = [
        (VldbFlags::MOVE, "move"),
        (VldbFlags::RELEASE, "release"),
        (VldbFlags::BACKUP, "backup"),
        (VldbFlags::DELETE, "delete/misc"),
        (VldbFlags::DUMP, "dump/restore"),
    ];
    for (flag, what) in operations {
        if flags.contains(flag) {
            line!(text, "    Volume is locked for a {what} operation");
        }
    }
    text
}

/// A transaction.
pub(super) fn transaction(info: &TransDebugInfo) -> String {
    const RULE: &str = "--------------------------------------";
    let mut text = String::new();
    line!(text, "{RULE}");
    line!(
        text,
        "transaction: {}  created: {}",
        info.transaction,
        date(info.creation_time)
    );
    line!(text, "lastActiveTime: {}", date(info.time));
    if info.return_code != 0 {
        line!(
            text,
            "returnCode: {}",
            i64::from(info.return_code).cast_unsigned()
        );
    }
    let flags = info.attach_flags;
    if flags.0 != 0 {
        text.push_str("attachFlags:  ");
        let names = [
            (AttachFlags::OFFLINE, "offline "),
            (AttachFlags::BUSY, "busy "),
            (AttachFlags::READ_ONLY, "readonly "),
            (AttachFlags::CREATE, "create "),
            (AttachFlags(0x1000), "create volid "),
        ];
        let names = names.iter().filter(|(flag, _)| flags.contains(*flag));
        text.extend(names.map(|(_, name)| *name));
        text.push('\n');
    }
    let flags = info.flags;
    if flags.0 != 0 {
        text.push_str("volumeStatus: ");
        let names = [
            (TransactionFlags::DELETE_ON_SALVAGE, "deleteOnSalvage "),
            (TransactionFlags::OUT_OF_SERVICE, "outOfService "),
            (TransactionFlags::DELETED, "deleted "),
        ];
        let names = names.iter().filter(|(flag, _)| flags.contains(*flag));
        text.extend(names.map(|(_, name)| *name));
        text.push('\n');
    }
    if info.deleted != 0 {
        line!(text, "transactionFlags: delete");
    }
    line!(
        text,
        "volume: {}  partition: {}  procedure: {}",
        info.volume,
        info.partition,
        info.last_procedure
    );
    if info.call_valid {
        let packets = |number: i32| i64::from(number).cast_unsigned();
        line!(
            text,
            "packetRead: {}  lastReceiveTime: {}",
            packets(info.read_next),
            date(info.last_receive_time)
        );
        line!(
            text,
            "packetSend: {}  lastSendTime: {}",
            packets(info.transmit_next),
            date(info.last_send_time)
        );
    }
    line!(text, "{RULE}\n");
    text
}

/// A sum of KiB in the greatest unit of which there is one.
pub(super) fn sum(kib: u64) -> String {
    let (number, unit) = match kib {
        0..=0xffff_ffff => (kib, "KB"),
        0x1_0000_0000..=0x3ff_ffff_ffff => (kib >> 10, "MB"),
        0x400_0000_0000..=0xf_ffff_ffff_ffff => (kib >> 20, "GB"),
        0x10_0000_0000_0000..=0x3fff_ffff_ffff_ffff => (kib >> 30, "TB"),
        _ => (kib >> 40, "PB"),
    };
    format!("{number} {unit}")
}
