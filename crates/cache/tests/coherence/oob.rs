//! What a mount tells of data out of band, and who may change it.

use afar_cache::{Errno, Ino, OobInfo, OobOffer, Who, xattr_name};
use afar_telemetry::{Registry, render_prometheus};

use crate::world::{Machine, WHO, World};

const ANN: Who = Who { uid: 501, ..WHO };

async fn told(machine: &Machine) -> OobInfo {
    let name = xattr_name::OOB.as_bytes();
    let text = machine.cache.getxattr(ANN, Ino::ROOT, name).await.unwrap();
    str::from_utf8(&text).unwrap().parse().unwrap()
}

async fn set(machine: &Machine, who: Who, name: &str, value: &str) -> Result<(), Errno> {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    machine.cache.setxattr(who, Ino::ROOT, name, value).await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_users_may_look_and_root_may_change_it() {
    let world = World::new().await;
    let machine = world.cache().await;
    machine.put("file", b"some").await.unwrap();
    let info = told(&machine).await;
    assert_eq!(info.threshold, Some(1 << 20));
    let [server] = &info.servers[..] else {
        panic!("{info}");
    };
    assert_eq!((server.offer, server.connections), (OobOffer::NotAsked, 0));

    let threshold = xattr_name::OOB_THRESHOLD;
    let refused = set(&machine, ANN, threshold, "0").await;
    assert_eq!(refused, Err(Errno::EPERM));
    let refused = set(&machine, ANN, xattr_name::OOB_RETRY, "1").await;
    assert_eq!(refused, Err(Errno::EPERM));
    for wrong in ["off", "-1", ""] {
        let refused = set(&machine, WHO, threshold, wrong).await;
        assert_eq!(refused, Err(Errno::EINVAL), "{wrong}");
    }
    assert_eq!(machine.client.oob_threshold(), Some(1 << 20));
    set(&machine, WHO, threshold, "70000").await.unwrap();
    assert_eq!(told(&machine).await.threshold, Some(70_000));
    set(&machine, WHO, threshold, "0").await.unwrap();
    assert_eq!(told(&machine).await.threshold, None);
    set(&machine, WHO, xattr_name::OOB_RETRY, "1")
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_all_ways_a_transfer_ends() {
    let world = World::new().await;
    let machine = world.cache().await;
    let registry = Registry::default();
    machine.cache.tell(&registry);
    let text = render_prometheus(&registry);
    for line in [
        "afar_mount_oob_connections 0",
        "afar_mount_oob_bytes_total{operation=\"fetch\"} 0",
        "afar_mount_oob_transfers_total{operation=\"fetch\",result=\"done\"} 0",
        "afar_mount_oob_transfers_total{operation=\"fetch\",result=\"aborted\"} 0",
        "afar_mount_oob_transfers_total{operation=\"fetch\",result=\"rx\"} 0",
        "afar_mount_oob_transfers_total{operation=\"fetch\",result=\"given_up\"} 0",
    ] {
        assert!(text.lines().any(|told| told == line), "{line}:\n{text}");
    }
}
