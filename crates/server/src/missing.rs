//! Which volumes clients look for in vain while a partition is not served.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use afar_net::AbortCode;
use afar_rpc::{RpcError, vl};
use afar_types::error::VL_NOENT;
use afar_types::{ListByAttributes, PartitionId, VolumeName};

/// How long to wait before the location servers are asked again.
const PAUSE: Duration = Duration::from_secs(30);
/// Volumes that are named; the rest is counted.
const NAMED: usize = 5;
/// Parts of a list that are read: 100,000 volumes.
const PARTS_MAX: usize = 200;
/// The attributes of a list that say where: server and partition.
const BY_PLACE: u32 = 1 | 2;

/// Asks the location servers, until one answers, which volumes lie on partitions that are not served, and
/// logs it.
pub(crate) async fn tell(
    servers: impl Fn() -> Vec<vl::Client>,
    address: Ipv4Addr,
    refused: Vec<PartitionId>,
) {
    for partition in refused {
        let volumes = loop {
            match ask(&servers(), address, partition).await {
                Ok(volumes) => break volumes,
                Err(error) => tracing::debug!(%error, "the contents of {partition} are not known \
                                                       yet"),
            }
            tokio::time::sleep(PAUSE).await;
        };
        if volumes.count > 0 {
            tracing::error!(
                "{partition} is not served: {volumes}; all of them: afar vos listvldb -server \
                 {address} -partition {partition}"
            );
        }
    }
}

/// Volumes that the VLDB has at a place.
#[derive(Debug, Default)]
struct Volumes {
    first: Vec<String>,
    count: usize,
}

impl Volumes {
    fn add(&mut self, name: impl fmt::Display) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push(name.to_string());
        }
    }
}

impl fmt::Display for Volumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let volumes = if self.count == 1 { "volume" } else { "volumes" };
        let Self { first, count } = self;
        write!(
            f,
            "{count} {volumes} of the VLDB cannot be reached there, {}",
            first.join(" ")
        )?;
        if self.count > self.first.len() {
            f.write_str(" …")?;
        }
        Ok(())
    }
}

async fn ask(
    servers: &[vl::Client],
    address: Ipv4Addr,
    partition: PartitionId,
) -> Result<Volumes, RpcError> {
    let mut last = Ok(Volumes::default());
    for server in servers {
        match list(server, address, partition).await {
            // It does not know this server: nothing is here.
            Err(error) if error.code() == AbortCode(VL_NOENT) => return Ok(Volumes::default()),
            Ok(volumes) => return Ok(volumes),
            error => last = error,
        }
    }
    last
}

async fn list(
    server: &vl::Client,
    address: Ipv4Addr,
    partition: PartitionId,
) -> Result<Volumes, RpcError> {
    let place = ListByAttributes {
        mask: BY_PLACE,
        server: address.into(),
        partition,
        ..ListByAttributes::default()
    };
    let (mut volumes, mut from) = (Volumes::default(), 0);
    for _ in 0..PARTS_MAX {
        let part = server
            .list_attributes_n2(place, VolumeName::default(), from)
            .await?;
        for entry in part.entries.iter() {
            volumes.add(entry.name);
        }
        from = part.next_index;
        if from == -1 {
            break;
        }
    }
    Ok(volumes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_named_and_all_are_counted() {
        let mut volumes = Volumes::default();
        volumes.add("user.ann");
        assert_eq!(
            volumes.to_string(),
            "1 volume of the VLDB cannot be reached there, user.ann"
        );
        for number in 1..=6 {
            volumes.add(format_args!("v{number}"));
        }
        assert_eq!(
            volumes.to_string(),
            "7 volumes of the VLDB cannot be reached there, user.ann v1 v2 v3 v4 …"
        );
    }
}
