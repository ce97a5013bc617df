//! Several clients at work on one partition, each on volumes of its own, and what must be found
//! afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use afar_store::{Partition, StoreError};

use crate::model::{Client, Found, Operation, difference, forgive_damage};
use crate::subject;

/// Numbers of volumes a client has for itself.
pub(crate) const NUMBERS: u32 = 100;

/// An operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation:?}: {error}")]
pub(crate) struct Failed {
    pub(crate) operation: Operation,
    pub(crate) error: StoreError,
}

/// Clients, and how many operations each has done.
#[derive(Clone)]
pub(crate) struct Clients {
    clients: Vec<Client>,
    done: Vec<u32>,
}

impl Clients {
    pub(crate) fn new(seed: u64, count: u32) -> Self {
        let clients = (1..=count)
            .map(|number| Client::new(seed, number * NUMBERS))
            .collect();
        Self {
            clients,
            done: vec![0; count as usize],
        }
    }

    /// How many operations each client has done.
    pub(crate) fn done(&self) -> &[u32] {
        &self.done
    }

    /// Lets the model catch up with what was acknowledged.
    pub(crate) fn advance(&mut self, acknowledged: &[u32]) {
        for (client, done) in acknowledged.iter().enumerate() {
            while self.done[client] < *done {
                self.step_in_model(client);
            }
        }
    }

    fn step_in_model(&mut self, client: usize) {
        self.clients[client].step();
        self.done[client] += 1;
    }

    /// Has all clients do operations on a partition at a time, until each has done `steps` since
    /// the beginning. `acknowledge` is called with client and number of each operation that returned.
    ///
    /// # Errors
    ///
    /// An operation that failed. The others go on; the model is as if those that failed had not
    /// been begun.
    pub(crate) fn run(
        &mut self,
        partition: &Arc<Partition>,
        steps: u32,
        acknowledge: impl Fn(usize, u32) + Sync,
    ) -> Result<(), Failed> {
        let acknowledge = &acknowledge;
        std::thread::scope(|scope| {
            let clients = self.clients.iter_mut().zip(&mut self.done).enumerate();
            let threads: Vec<_> = clients
                .map(|(number, (client, done))| {
                    scope.spawn(move || {
                        while *done < steps {
                            let before = client.clone();
                            let operation = client.step();
                            if let Err(error) = subject::perform(partition, &operation) {
                                *client = before;
                                return Err(Failed { operation, error });
                            }
                            *done += 1;
                            acknowledge(number, *done);
                        }
                        Ok(())
                    })
                })
                .collect();
            let results: Vec<_> = threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect();
            results.into_iter().collect()
        })
    }

    /// Checks a partition and compares it with the model.
    ///
    /// # Errors
    ///
    /// What differs, or what the store says.
    pub(crate) fn compare(
        &mut self,
        partition: &Arc<Partition>,
        ahead: bool,
    ) -> Result<(), String> {
        let problems = subject::check(partition).map_err(|error| error.to_string())?;
        if !problems.is_empty() {
            return Err(format!(
                "check found {}: {}",
                problems.len(),
                problems.join("; ")
            ));
        }
        self.compare_contents(partition, ahead)
    }

    /// Compares what a partition holds with the model: all that was acknowledged is there. With
    /// `ahead`, the operation each client may have been at is wholly there or not at all, and the
    /// model takes what it finds.
    ///
    /// # Errors
    ///
    /// What differs, or what cannot be read.
    pub(crate) fn compare_contents(
        &mut self,
        partition: &Arc<Partition>,
        ahead: bool,
    ) -> Result<(), String> {
        let mut found = by_client(subject::contents(partition)?);
        for (client, number) in (0..self.clients.len()).zip(1..) {
            let found = found.remove(&number).unwrap_or_default();
            let Some(lacking) = difference(&found, &self.clients[client].model.found()) else {
                continue;
            };
            let mut next = self.clients[client].clone();
            let done = self.done[client];
            if !ahead {
                return Err(format!(
                    "client {client} after {done} operations: {lacking}"
                ));
            }
            let operation = next.step();
            if let Some(wrong) = difference(&found, &next.model.found()) {
                return Err(format!(
                    "client {client} after {done} operations: {lacking}; with the next, {operation:?}: {wrong}"
                ));
            }
            self.clients[client] = next;
            self.done[client] += 1;
        }
        match found.first_key_value() {
            None => Ok(()),
            Some((_, others)) => Err(format!("volumes {:?} are nobody's", others.keys())),
        }
    }
}

/// What each client has.
fn by_client(contents: Found) -> BTreeMap<u32, Found> {
    let mut clients: BTreeMap<u32, Found> = BTreeMap::new();
    for (volume, entries) in contents {
        let found = clients.entry(volume / NUMBERS).or_default();
        found.insert(volume, entries);
    }
    clients
}

/// What each client had after each of its first operations.
pub(crate) struct History(Vec<Vec<Found>>);

impl History {
    pub(crate) fn new(seed: u64, count: u32, steps: u32) -> Self {
        let clients = Clients::new(seed, count).clients.into_iter();
        let states = clients.map(|mut client| {
            let mut states = vec![client.model.found()];
            for _ in 0..steps {
                client.step();
                states.push(client.model.found());
            }
            states
        });
        Self(states.collect())
    }

    /// After how many operations each client had what it has, but for data that cannot be read:
    /// the greatest number not above those in `most`.
    ///
    /// # Errors
    ///
    /// Which client never had it.
    pub(crate) fn find(&self, contents: Found, most: &[u32]) -> Result<Vec<u32>, String> {
        let mut found = by_client(contents);
        let clients = self.0.iter().zip(most).zip(1..);
        clients
            .map(|((states, most), number)| {
                let found = found.remove(&number).unwrap_or_default();
                let agrees = |done: &u32| {
                    let Some(state) = states.get(*done as usize) else {
                        return false;
                    };
                    let mut found = found.clone();
                    forgive_damage(&mut found, state);
                    difference(&found, state).is_none()
                };
                let last = (0..=*most).rev().find(agrees);
                last.ok_or_else(|| format!("client {number} never had what is there"))
            })
            .collect()
    }
}
