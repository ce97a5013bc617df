//! Random bytes from the system.

use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

/// So many bytes of the system's generator, wiped when dropped. At most 256, which the system
/// answers whole.
pub(crate) fn octets<const N: usize>() -> Zeroizing<[u8; N]> {
    const { assert!(N <= 256) };
    let mut octets = Zeroizing::new([0; N]);
    let filled = getrandom(&mut octets[..], GetRandomFlags::empty()).expect("Linux has getrandom");
    assert_eq!(filled, N, "small requests are answered whole");
    octets
}
