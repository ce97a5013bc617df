//! Quotas and usage as OpenAFS's fs prints them.

use afar_types::FetchVolumeStatus;

/// The table's head of `fs listquota`.
pub(super) const QUOTA_HEAD: &str =
    "Volume Name                    Quota       Used %Used   Partition\n";

/// The table's head of `fs diskfree`.
pub(super) fn space_head(human: bool) -> String {
    let total = if human { "total" } else { "kbytes" };
    format!(
        "{:<25}{total:>10}{:>10}{:>10}{:>6}\n",
        "Volume Name", "used", "avail", "%used"
    )
}

/// A row of `fs listquota`.
pub(super) fn quota_row(status: &FetchVolumeStatus, name: &str, human: bool) -> String {
    let number = |blocks| shown(blocks, human);
    let mut row = format!("{name:<25.25}");
    let used = if status.max_quota == 0 {
        row.push_str(&format!("   no limit {}", number(status.blocks_in_use)));
        0.0
    } else {
        row.push_str(&format!(
            " {} {}",
            number(status.max_quota),
            number(status.blocks_in_use)
        ));
        percent(status.blocks_in_use, status.max_quota)
    };
    let (quota_warning, partition) = (used > 90.0, partition_used(status));
    row.push_str(&format!("{used:5.0}%{}", mark(quota_warning)));
    let partition_warning = partition > 97.0;
    row.push_str(&format!("{partition:9.0}%{}", mark(partition_warning)));
    end(row, quota_warning || partition_warning)
}

/// A row of `fs diskfree`.
pub(super) fn space_row(status: &FetchVolumeStatus, name: &str, human: bool) -> String {
    let (total, free) = (
        status.partition_max_blocks,
        status.partition_blocks_available,
    );
    let used = partition_used(status);
    let warning = used > 90.0;
    let row = format!(
        "{name:<25.25}{}{}{} {used:4.0}%{}",
        shown(total, human),
        shown(total.saturating_sub(free), human),
        shown(free, human),
        mark(warning)
    );
    end(row, warning)
}

/// What `fs quota` says.
pub(super) fn quota_line(status: &FetchVolumeStatus) -> String {
    let used = match status.max_quota {
        0 => 0.0,
        quota => percent(status.blocks_in_use, quota),
    };
    format!("{used:2.0}% of quota used.\n")
}

/// What `fs examine` says of a volume.
pub(super) fn volume_lines(status: &FetchVolumeStatus, name: &str, offline: &str) -> String {
    let mut text = format!("Volume status for vid = {} named {name}\n", status.volume.0);
    if !offline.is_empty() {
        text.push_str(&format!("Current offline message is {offline}\n"));
    }
    let quota = match status.max_quota {
        0 => "unlimited".to_owned(),
        quota => quota.to_string(),
    };
    text.push_str(&format!(
        "Current disk quota is {quota}\nCurrent blocks used are {}\n\
         The partition has {} blocks available out of {}\n\n",
        status.blocks_in_use, status.partition_blocks_available, status.partition_max_blocks
    ));
    text
}

fn shown(blocks: u32, human: bool) -> String {
    if !human {
        return format!("{blocks:>10}");
    }
    let (mut space, mut units) = (f64::from(blocks), "KMGTP".chars().peekable());
    while space >= 1024.0 && units.clone().nth(1).is_some() {
        space /= 1024.0;
        units.next();
    }
    format!("{space:9.1}{}", units.next().unwrap_or('P'))
}

fn percent(part: u32, whole: u32) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    f64::from(part) / f64::from(whole) * 100.0
}

fn partition_used(status: &FetchVolumeStatus) -> f64 {
    match status.partition_max_blocks {
        0 => 0.0,
        total => 100.0 - percent(status.partition_blocks_available, total),
    }
}

fn mark(warning: bool) -> &'static str {
    if warning { "<<" } else { "  " }
}

fn end(mut row: String, warning: bool) -> String {
    if warning {
        row.push_str("  <<WARNING");
    }
    row.push('\n');
    row
}

#[cfg(test)]
mod tests {
    use afar_types::VolumeId;

    use super::*;

    fn status(quota: u32, used: u32, free: u32) -> FetchVolumeStatus {
        FetchVolumeStatus {
            volume: VolumeId(536_870_915),
            max_quota: quota,
            blocks_in_use: used,
            partition_blocks_available: free,
            partition_max_blocks: 1_000_000,
            ..FetchVolumeStatus::default()
        }
    }

    #[test]
    fn quotas_are_printed_as_openafs_does() {
        assert_eq!(
            quota_row(&status(5000, 2, 600_000), "root.cell", false),
            "root.cell                       5000          2    0%         40%  \n"
        );
        assert_eq!(
            quota_row(
                &status(0, 12, 10_000),
                "user.with.a.very.long.name.indeed",
                false
            ),
            "user.with.a.very.long.nam   no limit         12    0%         99%<<  <<WARNING\n"
        );
        assert_eq!(
            quota_row(&status(5000, 4900, 600_000), "v", true),
            "v                               4.9M       4.8M   98%<<       40%    <<WARNING\n"
        );
        assert_eq!(quota_line(&status(200, 13, 0)), " 6% of quota used.\n");
    }

    #[test]
    fn space_is_printed_as_openafs_does() {
        assert_eq!(
            space_head(false),
            "Volume Name                  kbytes      used     avail %used\n"
        );
        assert_eq!(
            space_row(&status(0, 0, 250_000), "root.cell", false),
            "root.cell                   1000000    750000    250000   75%  \n"
        );
        assert_eq!(
            space_row(&status(0, 0, 50_000), "v", true),
            "v                            976.6M    927.7M     48.8M   95%<<  <<WARNING\n"
        );
    }

    #[test]
    fn volumes_are_described_as_openafs_does() {
        assert_eq!(
            volume_lines(&status(0, 7, 5), "root.cell", "gone"),
            "Volume status for vid = 536870915 named root.cell\n\
             Current offline message is gone\nCurrent disk quota is unlimited\n\
             Current blocks used are 7\n\
             The partition has 5 blocks available out of 1000000\n\n"
        );
    }
}
