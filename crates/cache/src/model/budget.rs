//! How much is prefetched, by how much of it was used.

/// How much may have come that nobody has used yet. It is half as much when less than four fifths of what came were
/// used, and else twice as much.
#[derive(Debug)]
pub(crate) struct Budget {
    size: u64,
    least: u64,
    most: u64,
    /// What was used, and what was not, since this was last changed.
    used: u64,
    unused: u64,
}

impl Budget {
    /// One of this size at first. It never falls below an eighth of that, from which it grows again.
    pub(crate) const fn new(first: u64, most: u64) -> Self {
        Self {
            size: first,
            least: if first < 8 { 1 } else { first / 8 },
            most,
            used: 0,
            unused: 0,
        }
    }

    /// How much may be asked for while so much is undecided: nothing before half of it is used, as large steps
    /// take fewer calls and fewer looks at what is next.
    pub(crate) fn room(&self, undecided: u64) -> u64 {
        match undecided > self.size / 2 {
            true => 0,
            false => self.size - undecided,
        }
    }

    /// So much was used.
    pub(crate) fn used(&mut self, amount: u64) {
        self.used += amount;
        self.judge();
    }

    /// So much was not, and will not be.
    pub(crate) fn unused(&mut self, amount: u64) {
        self.unused += amount;
        self.judge();
    }

    fn judge(&mut self) {
        let decided = self.used + self.unused;
        if decided < self.size {
            return;
        }
        self.size = match self.used.saturating_mul(5) >= decided.saturating_mul(4) {
            true => self.size.saturating_mul(2).min(self.most),
            false => (self.size / 2).max(self.least),
        };
        (self.used, self.unused) = (0, 0);
        debug_assert!((self.least..=self.most).contains(&self.size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_doubles_up_to_the_most() {
        let mut budget = Budget::new(8, 64);
        let mut sizes = Vec::new();
        for _ in 0..5 {
            let room = budget.room(0);
            sizes.push(room);
            (0..room).for_each(|_| budget.used(1));
        }
        assert_eq!(sizes, [8, 16, 32, 64, 64]);
    }

    #[test]
    fn what_is_not_used_makes_it_small_and_never_nothing() {
        let mut budget = Budget::new(16, 64);
        for _ in 0..20 {
            budget.unused(1);
        }
        assert_eq!(budget.room(0), 8);
        for _ in 0..100 {
            budget.unused(1);
        }
        assert_eq!(budget.room(0), 2);
        for _ in 0..2 {
            budget.used(1);
        }
        assert_eq!(budget.room(0), 4);
    }

    #[test]
    fn four_of_five_are_enough() {
        for (used, size) in [(8, 20), (7, 5)] {
            let mut budget = Budget::new(10, 100);
            budget.unused(10 - used);
            budget.used(used);
            assert_eq!(budget.room(0), size);
        }
    }

    #[test]
    fn nothing_more_comes_before_half_is_used() {
        let budget = Budget::new(10, 100);
        assert_eq!(budget.room(6), 0);
        assert_eq!(budget.room(5), 5);
    }
}
