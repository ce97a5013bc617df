//! In which order a program goes through a directory.

use afar_types::Fid;

/// An entry as the pages have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) name: Vec<u8>,
    pub(crate) fid: Fid,
    /// Where the next one is.
    pub(crate) next: u64,
}

/// The order in which entries are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// As they are listed.
    #[default]
    Listed,
    /// By their names.
    Named,
}

impl Order {
    /// That of one who used this entry before and this one now, as far as that tells it: in which the second
    /// comes sooner after the first.
    pub(crate) fn of(entries: &[Raw], before: Fid, now: Fid) -> Option<Self> {
        Self::step(entries, before, now).map(|(order, _)| order)
    }

    /// Whether one who used these entries in this order goes through the directory in its order: no step passes over
    /// more than one entry, which may be of another kind than what is used.
    pub(crate) fn is_kept(entries: &[Raw], used: &[Fid]) -> bool {
        let mut steps = used.windows(2).map(|two| match *two {
            [before, now] => Self::step(entries, before, now).filter(|(_, steps)| *steps <= 2),
            _ => None,
        });
        let Some((first, _)) = steps.next().flatten() else {
            return false;
        };
        steps.all(|step| step.is_some_and(|(order, _)| order == first))
    }

    /// The order, and how much later the second comes in it.
    fn step(entries: &[Raw], before: Fid, now: Fid) -> Option<(Self, usize)> {
        let place = |fid| entries.iter().position(|entry| entry.fid == fid);
        let (before, now) = (place(before)?, place(now)?);
        let listed = now.checked_sub(before).filter(|distance| *distance > 0);
        let (from, to) = (&entries[before].name, &entries[now].name);
        let between = entries.iter().map(|entry| &entry.name);
        let named = (from < to).then(|| between.filter(|name| from < *name && *name <= to).count());
        match (listed, named) {
            (Some(listed), Some(named)) if named < listed => Some((Self::Named, named)),
            (None, Some(named)) => Some((Self::Named, named)),
            (Some(listed), _) => Some((Self::Listed, listed)),
            (None, None) => None,
        }
    }

    /// Entries in this order, as they come after this one; all of them without one. Those before it come last if
    /// `all` are wanted.
    pub(crate) fn after(self, mut entries: Vec<Raw>, now: Option<Fid>, all: bool) -> Vec<Raw> {
        if self == Self::Named {
            entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        }
        let place = now.and_then(|now| entries.iter().position(|entry| entry.fid == now));
        if let Some(place) = place {
            entries.rotate_left(place + 1);
            let kept = if all {
                entries.len() - 1
            } else {
                entries.len() - 1 - place
            };
            entries.truncate(kept);
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(names: &str) -> Vec<Raw> {
        let entry = |name| Raw {
            name: vec![name],
            fid: fid(name),
            next: 0,
        };
        names.bytes().map(entry).collect()
    }

    fn fid(name: u8) -> Fid {
        Fid::new(1, 2 * u32::from(name), 1)
    }

    fn order(before: u8, now: u8) -> Option<Order> {
        Order::of(&entries("qwertyuiopas"), fid(before), fid(now))
    }

    fn after(order: Order, now: Option<u8>, all: bool) -> String {
        let next = order.after(entries("qwerty"), now.map(fid), all);
        next.iter().map(|entry| char::from(entry.name[0])).collect()
    }

    #[test]
    fn the_order_in_which_the_second_comes_sooner_is_taken() {
        assert_eq!(order(b'q', b'w'), Some(Order::Listed));
        assert_eq!(order(b't', b'y'), Some(Order::Listed));
        // Three later as listed, and the next by name.
        assert_eq!(order(b'p', b'q'), Some(Order::Named));
        assert_eq!(order(b'e', b'i'), Some(Order::Named));
        assert_eq!(order(b'a', b'e'), Some(Order::Named));
        assert_eq!(order(b'w', b'q'), None);
        assert_eq!(order(b'w', b'w'), None);
        assert_eq!(order(b'w', b'?'), None, "it is not there");
    }

    #[test]
    fn an_order_is_kept_by_small_steps_of_one_kind() {
        let kept = |used: &str| {
            let used: Vec<_> = used.bytes().map(fid).collect();
            Order::is_kept(&entries("qwertyuiopas"), &used)
        };
        for used in ["qw", "qwe", "qet", "wrty", "aei", "ia"] {
            assert_eq!(kept(used), used != "ia", "{used}");
        }
        for used in ["", "q", "qt", "wq", "qwt", "qwy", "tyq", "q?"] {
            assert!(!kept(used), "{used}");
        }
    }

    #[test]
    fn what_comes_next_comes_first() {
        assert_eq!(after(Order::Listed, None, false), "qwerty");
        assert_eq!(after(Order::Listed, Some(b'e'), false), "rty");
        assert_eq!(after(Order::Listed, Some(b'e'), true), "rtyqw");
        assert_eq!(after(Order::Named, Some(b'r'), false), "twy");
        assert_eq!(after(Order::Named, Some(b'r'), true), "twyeq");
        assert_eq!(after(Order::Named, Some(b'?'), false), "eqrtwy");
        assert_eq!(after(Order::Listed, Some(b'y'), false), "");
    }
}
