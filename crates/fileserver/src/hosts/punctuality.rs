//! Whether a change waits for a host when its promises are broken.
//!
//! How long a change waits for a host is the server's choice, not the host's. What a host can choose is to use
//! that time up again and again. So each host has a debt of its answers: late and slow ones add to it, quick
//! ones pay it off, and while it is too large nobody waits for the host. Its machine, that is its address
//! whatever the port, has one too, or a host would become a new one whenever it has been late: that of the
//! machine counts much for hosts that have not proved to be quick, and little for those that have.
//!
//! A host that is not waited for loses nothing but that: it is told all the same, and none of its calls is served
//! before it has answered.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// From this debt on, of its own or of its machine, a host is not waited for.
const LIMIT: u32 = 256;
/// The same for the machine's debt if the host has proved to be quick: others there have been late four times.
const PROVED_LIMIT: u32 = 4 * LIMIT;
/// Quick answers that prove it.
const PROOF: u32 = 8;
/// Quick answers that pay for a late one.
const PRICE: u32 = 32;
/// What an answer adds that is in time, but took more than half of it.
const SLOW: u32 = 16;

/// The debt of a machine.
#[derive(Debug, Default)]
pub(super) struct Machine(Mutex<u32>);

/// The debts that count for a host.
#[derive(Debug, Default)]
pub(super) struct Punctuality {
    machine: Arc<Machine>,
    own: Mutex<Own>,
}

#[derive(Debug, Default)]
struct Own {
    debt: u32,
    /// Quick answers since the last late one.
    quick: u32,
}

impl Punctuality {
    pub(super) fn new(machine: Arc<Machine>) -> Self {
        let own = Mutex::default();
        Self { machine, own }
    }

    /// Whether a change waits for this host.
    pub(super) fn is_waited_for(&self) -> bool {
        let own = self.own.lock();
        let limit = if own.quick >= PROOF {
            PROVED_LIMIT
        } else {
            LIMIT
        };
        own.debt < LIMIT && *self.machine.0.lock() < limit
    }

    /// The host did not answer while a change waited for it: nobody waits for its next answer.
    pub(super) fn late(&self) {
        let mut own = self.own.lock();
        own.quick = 0;
        own.debt = (own.debt + PRICE).clamp(LIMIT, 2 * LIMIT);
        let mut machine = self.machine.0.lock();
        *machine = (*machine + LIMIT).min(2 * PROVED_LIMIT);
    }

    /// The host answered after so long, of the time a change waits.
    pub(super) fn answered(&self, after: Duration, of: Duration) {
        let mut own = self.own.lock();
        let mut machine = self.machine.0.lock();
        if after > of / 2 {
            own.debt = (own.debt + SLOW).min(2 * LIMIT);
            *machine = (*machine + SLOW).min(2 * PROVED_LIMIT);
        } else {
            own.quick = own.quick.saturating_add(1);
            own.debt = own.debt.saturating_sub(1);
            *machine = machine.saturating_sub(LIMIT / PRICE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(500);

    fn quick(host: &Punctuality, times: u32) {
        (0..times).for_each(|_| host.answered(Duration::ZERO, WAIT));
    }

    #[test]
    fn who_was_late_is_not_waited_for_until_it_has_answered() {
        let host = Punctuality::default();
        assert!(host.is_waited_for());
        host.late();
        assert!(!host.is_waited_for());
        quick(&host, 1);
        assert!(host.is_waited_for());
    }

    #[test]
    fn who_is_late_again_and_again_is_waited_for_seldom() {
        let host = Punctuality::default();
        let mut waited = 0;
        for _ in 0..1000 {
            if host.is_waited_for() {
                waited += 1;
                host.late();
            } else {
                quick(&host, 1);
            }
        }
        assert!(waited <= 2 + 1000 / PRICE, "{waited}");
    }

    #[test]
    fn who_is_slow_all_the_time_is_waited_for_sixteen_times() {
        let host = Punctuality::default();
        let slow = |_: &u32| {
            let waited = host.is_waited_for();
            host.answered(WAIT, WAIT);
            waited
        };
        assert_eq!((0..1000).filter(slow).count(), 16);
        // It can make good.
        quick(&host, 2 * LIMIT);
        assert!(host.is_waited_for());
    }

    #[test]
    fn new_hosts_of_a_machine_do_not_begin_without_debt_and_quick_ones_suffer_late() {
        let machine = Arc::<Machine>::default();
        let host = || Punctuality::new(Arc::clone(&machine));
        let good = host();
        quick(&good, PROOF);
        // A new host each time, which is quick until a change waits for it.
        let mut waited = 0;
        for _ in 0..1000 {
            let new = host();
            if new.is_waited_for() {
                waited += 1;
                new.late();
                assert!(good.is_waited_for());
            } else {
                quick(&new, 1);
            }
        }
        assert!(waited <= 2 + 1000 / PRICE, "{waited}");
        (0..4).for_each(|_| host().late());
        assert!(!good.is_waited_for());
    }
}
