//! Remembering long hash chains.

use crate::layout::{CHAINS, print};

/// Entries from which on a chain is remembered; shorter ones are walked.
const LONG: usize = 16;

/// What an [`Editor`](crate::Editor) knows of hash chains: which entries are on the long ones.
///
/// A directory has 128 chains, so in one of 20,000 entries a name is found after 80 others, each of
/// them in another page. A caller that keeps this for a directory between two editors saves that, under
/// the rules of [`Room`](crate::Room).
#[derive(Debug, Clone, Default)]
pub struct Chains {
    /// By chain; empty until one is remembered.
    known: Vec<Option<Vec<Link>>>,
    links: usize,
}

/// An entry on a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    /// Its first slot, counted over all pages.
    pub(crate) position: u16,
    /// Tells its name from most others.
    pub(crate) print: u32,
}

impl Link {
    pub(crate) fn new(position: usize, name: &[u8]) -> Self {
        Self {
            position: u16::try_from(position).unwrap_or(u16::MAX),
            print: print(name),
        }
    }
}

impl Chains {
    /// Bytes of memory it takes, about.
    #[must_use]
    pub fn octets(&self) -> usize {
        self.known.len() * size_of::<Option<Vec<Link>>>() + self.links * size_of::<Link>()
    }

    /// The entries of a chain, the last one first, if it is remembered.
    pub(crate) fn get(&self, chain: usize) -> Option<&[Link]> {
        self.known.get(chain)?.as_deref()
    }

    /// Whether a chain of so many entries is worth being remembered.
    pub(crate) fn is_long(links: usize) -> bool {
        links >= LONG
    }

    /// Remembers a chain, given from its head on.
    pub(crate) fn set(&mut self, chain: usize, mut links: Vec<Link>) {
        if self.known.is_empty() {
            self.known.resize(CHAINS, None);
        }
        self.links += links.len();
        links.reverse();
        self.known[chain] = Some(links);
    }

    /// Notes a new head of a chain.
    pub(crate) fn push(&mut self, chain: usize, link: Link) {
        if let Some(Some(links)) = self.known.get_mut(chain) {
            links.push(link);
            self.links += 1;
        }
    }

    /// Notes that an entry is not on a chain any more.
    pub(crate) fn remove(&mut self, chain: usize, position: usize) {
        if let Some(Some(links)) = self.known.get_mut(chain)
            && let Some(index) = links
                .iter()
                .rposition(|link| usize::from(link.position) == position)
        {
            links.remove(index);
            self.links -= 1;
        }
    }
}
