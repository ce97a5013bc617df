//! The speed of fcrypt on one processor.

use std::time::{Duration, Instant};

use afar_security::SessionKey;
use afar_security::fcrypt::Schedule;

use crate::measured::Cipher;

/// Payload of a packet that is sealed.
const PACKET: usize = 1408;
/// Packets between two looks at the clock.
const PACKETS: usize = 64;
const TIME: Duration = Duration::from_millis(60);

/// Opens packets for a moment.
pub(super) fn speed() -> Cipher {
    let schedule = Schedule::new(&SessionKey::new(*b"a doctor"));
    let mut packet = [0; PACKET];
    let begin = Instant::now();
    let mut opened = 0_u32;
    loop {
        for _ in 0..PACKETS {
            schedule.open(&mut packet);
        }
        opened += 1;
        let time = begin.elapsed();
        if time >= TIME {
            let bytes = f64::from(opened) * (PACKETS * PACKET) as f64;
            return Cipher {
                open_bytes_per_s: bytes / time.as_secs_f64(),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_some_time() {
        assert!(speed().open_bytes_per_s > 1e5);
    }
}
