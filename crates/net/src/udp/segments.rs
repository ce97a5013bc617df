//! Where the kernel does not cut a buffer into datagrams for us.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use rustix::io::Errno;

/// Datagrams the kernel takes at a time (UDP_MAX_SEGMENTS of kernels before 6.9).
const SEGMENTS_MAX: usize = 64;
/// Destinations remembered; when there are more, all are tried again.
const REMEMBERED: usize = 1024;

/// Which destinations refuse to have how large datagrams cut by the kernel.
#[derive(Debug, Default)]
pub(super) struct Segmentation {
    /// The smallest size refused.
    refused: HashMap<IpAddr, usize>,
}

impl Segmentation {
    /// How many datagrams of that size to hand to the kernel at a time, at most `octets_max` in all.
    pub(super) fn most(&self, destination: IpAddr, segment: usize, octets_max: usize) -> usize {
        if !self.refused.is_empty()
            && self
                .refused
                .get(&destination)
                .is_some_and(|&refused| segment >= refused)
        {
            return 1;
        }
        (octets_max / segment).clamp(1, SEGMENTS_MAX)
    }

    /// Several datagrams of that size were refused.
    pub(super) fn refuse(&mut self, destination: IpAddr, segment: usize) {
        if self.refused.len() >= REMEMBERED {
            self.refused.clear();
        }
        let least = self.refused.entry(destination).or_insert(segment);
        *least = segment.min(*least);
    }
}

/// Whether a kernel says so when it cannot cut: the size exceeds the MTU (EINVAL before Linux 6.14,
/// EMSGSIZE since), or the device cannot (EIO).
pub(super) fn is_refusal(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INVAL | Errno::MSGSIZE | Errno::IO | Errno::OPNOTSUPP)
    )
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn batches_fit_the_kernel() {
        let segmentation = Segmentation::default();
        assert_eq!(segmentation.most(HERE, 1444, 65_507), 45);
        assert_eq!(segmentation.most(HERE, 100, 65_507), 64);
        assert_eq!(segmentation.most(HERE, 65_507, 65_507), 1);
        assert_eq!(segmentation.most(HERE, 70_000, 65_507), 1);
    }

    #[test]
    fn only_refused_sizes_go_one_by_one() {
        let mut segmentation = Segmentation::default();
        segmentation.refuse(HERE, 9000);
        segmentation.refuse(HERE, 12_000);
        assert_eq!(segmentation.most(HERE, 9000, 65_507), 1);
        assert_eq!(segmentation.most(HERE, 8999, 65_507), 7);
        assert_eq!(segmentation.most(THERE, 9000, 65_507), 7);
    }

    #[test]
    fn memory_is_bounded() {
        let mut segmentation = Segmentation::default();
        for n in 0..=u32::try_from(REMEMBERED).unwrap() {
            segmentation.refuse(Ipv4Addr::from(n).into(), 1444);
        }
        assert_eq!(segmentation.refused.len(), 1);
    }
}
