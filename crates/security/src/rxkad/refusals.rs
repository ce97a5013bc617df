//! Counts of what was refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::RxkadError;

const CAUSES: usize = RxkadError::ALL.len();

/// What a server has refused since it began, by cause. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<[AtomicU64; CAUSES]>);

impl Refusals {
    /// How many connections and packets were refused for this cause.
    #[must_use]
    pub fn count(&self, cause: RxkadError) -> u64 {
        self.0[cause as usize].load(Ordering::Relaxed)
    }

    /// All causes with their counts, in the order of their codes.
    pub fn iter(&self) -> impl Iterator<Item = (RxkadError, u64)> {
        RxkadError::ALL
            .iter()
            .map(|cause| (*cause, self.count(*cause)))
    }

    pub(super) fn add(&self, cause: RxkadError) {
        self.0[cause as usize].fetch_add(1, Ordering::Relaxed);
    }
}
