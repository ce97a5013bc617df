//! Hosts that are being asked who they are.
//!
//! A caller that never answers costs a question that lasts as long as questions may. So one machine, that is one
//! address whatever the port, has few of them at a time; and when there are too many in all, the one that has
//! waited for longest ends: a host that answers does so within a round trip, and never waits for hosts that do
//! not.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Questions at a time, of all machines.
const ALL: usize = 4096;
/// Of one machine's ports that nothing is known of.
const NEW: usize = 16;
/// Of one machine, hosts that have answered before included.
const OF_ONE: usize = 256;

/// The questions under way.
#[derive(Debug, Default)]
pub(super) struct Questions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By age.
    all: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
    machines: HashMap<IpAddr, usize>,
    number: u64,
}

/// A question under way; it is over when this is dropped.
#[derive(Debug)]
pub(super) struct Question {
    questions: Arc<Questions>,
    number: u64,
    ended: Arc<Notify>,
}

impl Questions {
    /// Begins to ask somebody there, unless too many of that machine are being asked. `known`: it has answered
    /// before.
    pub(super) fn begin(self: &Arc<Self>, machine: IpAddr, known: bool) -> Option<Question> {
        let machine = machine.to_canonical();
        let mut state = self.0.lock();
        let state = &mut *state;
        let of_one = state.machines.get(&machine).copied().unwrap_or(0);
        if of_one >= if known { OF_ONE } else { NEW } {
            return None;
        }
        if state.all.len() >= ALL
            && let Some(oldest) = state.all.first_entry()
        {
            let (machine, ended) = oldest.remove();
            forget(&mut state.machines, machine);
            // It need not be waiting yet: the word is kept for it.
            ended.notify_one();
        }
        state.number += 1;
        let (number, ended) = (state.number, Arc::new(Notify::new()));
        state.all.insert(number, (machine, Arc::clone(&ended)));
        *state.machines.entry(machine).or_insert(0) += 1;
        debug_assert!(state.all.len() <= ALL, "{} questions", state.all.len());
        debug_assert!(state.machines.len() <= state.all.len(), "of nobody");
        Some(Question {
            questions: Arc::clone(self),
            number,
            ended,
        })
    }
}

fn forget(machines: &mut HashMap<IpAddr, usize>, machine: IpAddr) {
    debug_assert!(machines.contains_key(&machine), "{machine} is not asked");
    if let Some(questions) = machines.get_mut(&machine) {
        *questions -= 1;
        if *questions == 0 {
            machines.remove(&machine);
        }
    }
}

impl Question {
    /// Ends when others need the place.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let mut state = self.questions.0.lock();
        if let Some((machine, _)) = state.all.remove(&self.number) {
            forget(&mut state.machines, machine);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn machine(number: usize) -> IpAddr {
        Ipv4Addr::from(u32::try_from(number).unwrap()).into()
    }

    #[test]
    fn one_machine_has_few_and_those_that_answered_before_have_more() {
        let questions = Arc::new(Questions::default());
        let mut open: Vec<_> = (0..NEW)
            .map(|_| questions.begin(machine(1), false).unwrap())
            .collect();
        assert!(questions.begin(machine(1), false).is_none());
        open.extend((NEW..OF_ONE).map(|_| questions.begin(machine(1), true).unwrap()));
        assert!(questions.begin(machine(1), true).is_none());
        let mapped = Ipv4Addr::new(0, 0, 0, 1).to_ipv6_mapped();
        assert!(questions.begin(mapped.into(), true).is_none());
        assert!(questions.begin(machine(2), false).is_some());
        open.clear();
        let state = questions.0.lock();
        assert_eq!((state.all.len(), state.machines.len()), (0, 0));
    }

    #[tokio::test]
    async fn the_oldest_goes_when_there_are_too_many() {
        let questions = Arc::new(Questions::default());
        let mut open: Vec<_> = (0..ALL)
            .map(|number| questions.begin(machine(number), false).unwrap())
            .collect();
        open.push(questions.begin(machine(ALL), false).unwrap());
        open[0].ended().await;
        assert_eq!(questions.0.lock().all.len(), ALL);
        open.clear();
        let state = questions.0.lock();
        assert_eq!((state.all.len(), state.machines.len()), (0, 0));
    }
}
