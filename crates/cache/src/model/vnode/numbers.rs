//! The numbers by which the kernel knows a vnode.

use afar_types::DataVersion;

use super::VnodeState;
use crate::model::numbers::{NONE, Names, Number, Opened};
use crate::model::types::Ino;

impl VnodeState {
    /// The numbers by which it is known: one in each mount that it was reached through.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = Ino> + '_ {
        let first = (self.number != NONE).then_some(self.number);
        let others = self.rare.numbers.iter().map(|number| number.ino);
        first.into_iter().chain(others)
    }

    /// Whether this is one of them.
    pub(crate) fn has_number(&self, ino: Ino) -> bool {
        self.numbers().any(|number| number == ino)
    }

    /// What was opened by each number.
    pub(crate) fn opened_mut(&mut self) -> impl Iterator<Item = (Ino, &mut Opened)> + '_ {
        let others = self.rare.if_any().map(|rare| &mut rare.numbers);
        let others = others.into_iter().flatten();
        let others = others.map(|number| (number.ino, &mut number.opened));
        std::iter::once((self.number, &mut self.opened)).chain(others)
    }

    /// The kernel knows it by this number now.
    pub(crate) fn add_number(&mut self, ino: Ino) {
        debug_assert!(!self.has_number(ino), "{ino:?} twice");
        if self.number == NONE {
            (self.number, self.opened) = (ino, Opened::default());
        } else {
            let opened = Opened::default();
            self.rare.numbers.push(Number { ino, opened });
        }
    }

    /// The kernel knows it by this number no more.
    pub(crate) fn remove_number(&mut self, ino: Ino) {
        debug_assert!(self.has_number(ino), "{ino:?} is another's");
        let mut next = None;
        if let Some(rare) = self.rare.if_any() {
            rare.numbers.retain(|number| number.ino != ino);
            if self.number == ino {
                next = rare.numbers.pop();
            }
        }
        if self.number == ino {
            (self.number, self.opened) = match next {
                Some(number) => (number.ino, number.opened),
                None => (NONE, Opened::default()),
            };
        }
        if self.number == NONE
            && let Some(rare) = self.rare.if_any()
        {
            rare.names = Names::new();
        }
        let others = self.rare.numbers.len();
        debug_assert!(self.number != NONE || others == 0, "no first of {others}");
        self.rare.tidy();
    }

    /// What was written here made a new version of an old one: whoever has the old one has the new one.
    pub(crate) fn note_stored(&mut self, old: DataVersion, new: DataVersion) {
        let (old, new) = (Opened::new(old), Opened::new(new));
        for (_, opened) in self.opened_mut().filter(|(_, opened)| opened.is(old)) {
            *opened = new;
        }
    }

    /// The names in it that the kernel may know; it is told to forget them.
    pub(crate) fn take_names(&mut self) -> Names {
        let names = self.rare.if_any().map(|rare| &mut rare.names);
        names.map_or(Names::new(), |names| std::mem::replace(names, Names::new()))
    }
}
