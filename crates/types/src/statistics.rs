//! What file servers count, and volume information of the time before the VLDB (AFS-3
//! ViceStatistics, VolumeInfo, AFSVolumeInfo).

use afar_xdr::{Decode, Encode, FixedOpaque, List};

use crate::{UnixTime, VolumeId};

/// A partition in [`ViceStatistics`] (AFS-3 ViceDisk, 2 words and 32 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ViceDisk {
    /// KiB free.
    pub blocks_available: i32,
    /// KiB in all.
    pub total_blocks: i32,
    /// Its name, such as `/vicepa`, filled up with NULs.
    pub name: FixedOpaque<32>,
}

/// An empty slot.
impl Default for ViceDisk {
    fn default() -> Self {
        Self {
            blocks_available: 0,
            total_blocks: 0,
            name: FixedOpaque([0; 32]),
        }
    }
}

/// Counters of a file server since its start, in 32 bits (AFS-3 ViceStatistics, 145 words).
/// Fields that count nothing in current servers are 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct ViceStatistics {
    /// Unused.
    pub current_message_number: u32,
    /// Unused.
    pub oldest_message_number: u32,
    /// The server's time.
    pub current_time: UnixTime,
    /// When the machine started.
    pub boot_time: UnixTime,
    /// When the server started.
    pub start_time: UnixTime,
    /// Connections of clients.
    pub current_connections: i32,
    /// Calls of any kind.
    pub total_vice_calls: u32,
    /// Fetches of data and status.
    pub total_fetches: u32,
    /// Fetches of data.
    pub fetch_datas: u32,
    /// Bytes fetched.
    pub fetched_bytes: u32,
    /// Bytes fetched in a millisecond of fetching.
    pub fetch_data_rate: i32,
    /// Stores of data and status.
    pub total_stores: u32,
    /// Stores of data.
    pub store_datas: u32,
    /// Bytes stored.
    pub stored_bytes: u32,
    /// Bytes stored in a millisecond of storing.
    pub store_data_rate: i32,
    /// Unused.
    pub total_rpc_bytes_sent: u32,
    /// Unused.
    pub total_rpc_bytes_received: u32,
    /// Unused.
    pub total_rpc_packets_sent: u32,
    /// Unused.
    pub total_rpc_packets_received: u32,
    /// Unused.
    pub total_rpc_packets_lost: u32,
    /// Unused.
    pub total_rpc_bogus_packets: u32,
    /// Processor time of the system.
    pub system_cpu: i32,
    /// Processor time of processes.
    pub user_cpu: i32,
    /// Processor time of processes of low priority.
    pub nice_cpu: i32,
    /// Processor time nobody took.
    pub idle_cpu: i32,
    /// Unused.
    pub total_io: i32,
    /// Unused.
    pub active_vm: i32,
    /// Unused.
    pub total_vm: i32,
    /// Unused.
    pub ethernet_total_errors: i32,
    /// Unused.
    pub ethernet_total_writes: i32,
    /// Unused.
    pub ethernet_total_interrupts: i32,
    /// Unused.
    pub ethernet_good_reads: i32,
    /// Unused.
    pub ethernet_total_bytes_written: i32,
    /// Unused.
    pub ethernet_total_bytes_read: i32,
    /// KiB of memory of the server.
    pub process_size: i32,
    /// Clients known.
    pub workstations: i32,
    /// Clients seen lately.
    pub active_workstations: i32,
    /// 0.
    pub spare: [i32; 8],
    /// The first ten partitions.
    pub disks: [ViceDisk; 10],
}

/// Counters of a file server in 64 bits, by their position (AFS-3 ViceStatistics64); the caller
/// says how many it wants.
pub type ViceStatistics64 = List<u64, 16>;

/// Where a volume is, in the oldest form (AFS-3 VolumeInfo, 16 words). Servers answer VNOVOL
/// since there is a VLDB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct VolumeInfo {
    /// The volume.
    pub volume: VolumeId,
    /// Which member of its group it is.
    pub kind: i32,
    /// The group's volumes by type.
    pub types: [VolumeId; 5],
    /// Servers in use.
    pub n_servers: u32,
    /// Their IPv4 addresses.
    pub servers: [u32; 8],
}

/// The same with ports (AFS-3 AFSVolumeInfo, 24 words).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct AfsVolumeInfo {
    /// All of the older form.
    pub info: VolumeInfo,
    /// The servers' ports.
    pub ports: [u16; 8],
}

#[cfg(test)]
mod tests {
    use afar_xdr::{from_bytes, to_bytes};

    use super::*;

    fn words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
        words.into_iter().flat_map(u32::to_be_bytes).collect()
    }

    #[test]
    fn statistics_are_45_words_and_ten_disks() {
        let mut bytes = words(1..=45);
        for disk in 0..10 {
            bytes.extend(words([100 + disk, 200 + disk]));
            bytes.extend(b"/vicepa\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        }
        assert_eq!((bytes.len(), ViceStatistics::MAX_LEN), (580, 580));
        let statistics: ViceStatistics = from_bytes(&bytes).unwrap();
        assert_eq!(statistics.current_time, UnixTime(3));
        assert_eq!(
            (statistics.boot_time, statistics.start_time),
            (UnixTime(4), UnixTime(5))
        );
        assert_eq!(
            (statistics.current_connections, statistics.total_vice_calls),
            (6, 7)
        );
        assert_eq!(
            (statistics.total_fetches, statistics.fetched_bytes),
            (8, 10)
        );
        assert_eq!(
            (statistics.total_stores, statistics.store_data_rate),
            (12, 15)
        );
        assert_eq!(
            (statistics.total_rpc_bogus_packets, statistics.system_cpu),
            (21, 22)
        );
        assert_eq!(
            (statistics.total_io, statistics.ethernet_total_errors),
            (26, 29)
        );
        assert_eq!((statistics.process_size, statistics.workstations), (35, 36));
        assert_eq!(
            (statistics.active_workstations, statistics.spare[0]),
            (37, 38)
        );
        let last = statistics.disks[9];
        assert_eq!((last.blocks_available, last.total_blocks), (109, 209));
        assert_eq!(last.name.0[..8], *b"/vicepa\0");
        assert_eq!(to_bytes(&statistics)[..], bytes);
        let counters = ViceStatistics64::new(vec![1 << 32]).unwrap();
        assert_eq!(to_bytes(&counters)[..], words([1, 1, 0]));
        assert!(ViceStatistics64::new(vec![0; 17]).is_err());
    }

    #[test]
    fn volume_information_has_16_words_and_8_more_for_ports() {
        let info: AfsVolumeInfo = from_bytes(&words(1..=24)).unwrap();
        assert_eq!((info.info.volume, info.info.kind), (VolumeId(1), 2));
        assert_eq!((info.info.types[0], info.info.n_servers), (VolumeId(3), 8));
        assert_eq!(
            (info.info.servers[0], info.ports[0], info.ports[7]),
            (9, 17, 24)
        );
        assert_eq!(VolumeInfo::MAX_LEN, 64);
        assert_eq!(to_bytes(&info)[..], words(1..=24));
    }
}
