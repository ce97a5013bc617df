//! Processors without wide registers.

use std::convert::Infallible;

use super::ROUNDS;

/// As with those that have them.
pub(super) const LANES: usize = 64;

/// There is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wide(Infallible);

impl Wide {
    pub(super) fn detect() -> Option<Self> {
        None
    }

    pub(super) fn encrypt(self, _: &mut [u64; LANES], _: &[u32; ROUNDS]) {
        match self.0 {}
    }

    pub(super) fn decrypt(self, _: &mut [u64; LANES], _: &[u32; ROUNDS]) {
        match self.0 {}
    }
}
