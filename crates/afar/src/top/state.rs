//! What keys do.

use afar_server::view::View;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::columns::columns;
use super::table::Order;

/// Letters of a filter, at most.
const FILTER_MAX: usize = 100;

/// What is shown, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) view: View,
    pub(super) order: Order,
    pub(super) filter: String,
    /// Whether keys go into the filter.
    pub(super) editing: bool,
    /// Whether the picture stays as it is.
    pub(super) frozen: bool,
    /// Whether the keys are listed.
    pub(super) help: bool,
    /// Rows above the first one that is shown.
    pub(super) skipped: usize,
}

/// What a key asks of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Draw.
    Draw,
    /// Fetch another table.
    Switch,
    /// End.
    Quit,
}

/// The keys, for the help.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("q", "quit"),
    ("< >", "sort by the column to the left or right"),
    ("r", "reverse the order"),
    ("/", "filter: Enter keeps it, Esc clears it"),
    ("Space", "freeze the picture, or go on"),
    ("Tab", "next table"),
    ("1 2 3 4", "volumes, clients, files, calls"),
    ("Up Down PgUp PgDn Home End", "scroll"),
    ("? h", "this help"),
];

impl State {
    pub(super) fn new(view: View, order: Order, filter: String) -> Self {
        Self {
            view,
            order,
            filter,
            editing: false,
            frozen: false,
            help: false,
            skipped: 0,
        }
    }

    /// A key was pressed, while `page` of so many rows are shown.
    pub(super) fn key(&mut self, key: KeyEvent, page: usize, rows: usize) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Draw;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Action::Quit;
        }
        if self.editing {
            self.edit(key.code);
            return Action::Draw;
        }
        if self.help {
            self.help = false;
            return match key.code {
                KeyCode::Char('q') => Action::Quit,
                _ => Action::Draw,
            };
        }
        let last = rows.saturating_sub(page);
        match key.code {
            KeyCode::Char('q') | KeyCode::F(10) => return Action::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = true,
            KeyCode::Char('/') | KeyCode::F(3 | 4) => self.editing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char(' ') => self.frozen = !self.frozen,
            KeyCode::Char('r' | 'I') => self.order.reverse = !self.order.reverse,
            KeyCode::Char('<' | ',') | KeyCode::Left => {
                self.sort_by(self.order.column.checked_sub(1))
            }
            KeyCode::Char('>' | '.') | KeyCode::Right => {
                self.sort_by(self.order.column.checked_add(1))
            }
            KeyCode::Tab => return self.switch(self.neighbour(1)),
            KeyCode::BackTab => return self.switch(self.neighbour(View::SERVER.len() - 1)),
            KeyCode::Char(digit @ '1'..='5') => {
                let number = (digit as usize) - ('1' as usize);
                let view = View::SERVER.get(number).copied();
                return self.switch(view.filter(|_| self.view != View::Mounts));
            }
            KeyCode::Up | KeyCode::Char('k') => self.skipped = self.skipped.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.skipped += 1,
            KeyCode::PageUp => self.skipped = self.skipped.saturating_sub(page),
            KeyCode::PageDown => self.skipped += page,
            KeyCode::Home => self.skipped = 0,
            KeyCode::End => self.skipped = last,
            _ => {}
        }
        self.skipped = self.skipped.min(last);
        Action::Draw
    }

    fn edit(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.editing = false,
            KeyCode::Esc => {
                self.editing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.len() < FILTER_MAX => self.filter.push(letter),
            _ => {}
        }
        self.skipped = 0;
    }

    fn sort_by(&mut self, column: Option<usize>) {
        if let Some(column) = column.filter(|column| *column < columns(self.view).len()) {
            self.order.column = column;
        }
    }

    /// The table that is so many further.
    fn neighbour(&self, further: usize) -> Option<View> {
        // Mounts have one table.
        let own = View::SERVER.iter().position(|view| *view == self.view)?;
        let next = (own + further) % View::SERVER.len();
        View::SERVER.get(next).copied()
    }

    fn switch(&mut self, view: Option<View>) -> Action {
        let Some(view) = view.filter(|view| *view != self.view) else {
            return Action::Draw;
        };
        let Ok(order) = Order::new(view, None, false) else {
            return Action::Draw;
        };
        (self.view, self.order) = (view, order);
        (self.skipped, self.frozen) = (0, false);
        Action::Switch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let order = Order::new(View::Volumes, None, false).unwrap();
        State::new(View::Volumes, order, String::new())
    }

    fn press(state: &mut State, codes: &[KeyCode]) -> Action {
        let keys = codes
            .iter()
            .map(|code| KeyEvent::new(*code, KeyModifiers::NONE));
        keys.map(|key| state.key(key, 10, 25)).last().unwrap()
    }

    #[test]
    fn q_ends_but_in_a_filter() {
        let mut state = state();
        assert_eq!(press(&mut state, &[KeyCode::Char('q')]), Action::Quit);
        let keys = ['/', 'q', 'q'].map(KeyCode::Char);
        assert_eq!(press(&mut state, &keys), Action::Draw);
        assert_eq!((state.filter.as_str(), state.editing), ("qq", true));
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.key(control, 10, 25), Action::Quit);
        press(&mut state, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!((state.filter.as_str(), state.editing), ("q", false));
        press(&mut state, &[KeyCode::Esc]);
        assert_eq!(state.filter, "");
        press(&mut state, &[KeyCode::Char('/')]);
        press(&mut state, &[KeyCode::Char('x'); 300]);
        assert_eq!(state.filter.len(), FILTER_MAX);
    }

    #[test]
    fn the_sorted_column_stays_among_the_columns() {
        let mut state = state();
        press(&mut state, &[KeyCode::Right; 100]);
        assert_eq!(state.order.column, columns(View::Volumes).len() - 1);
        press(&mut state, &[KeyCode::Char('<'); 100]);
        assert_eq!(state.order.column, 0);
        press(&mut state, &[KeyCode::Char('r')]);
        assert!(state.order.reverse);
    }

    #[test]
    fn rows_scroll_to_the_last_page() {
        let mut state = state();
        press(&mut state, &[KeyCode::PageDown; 9]);
        assert_eq!(state.skipped, 15);
        press(&mut state, &[KeyCode::Up, KeyCode::PageUp]);
        assert_eq!(state.skipped, 4);
        press(&mut state, &[KeyCode::End, KeyCode::Down]);
        assert_eq!(state.skipped, 15);
        press(&mut state, &[KeyCode::Home, KeyCode::Up]);
        assert_eq!(state.skipped, 0);
    }

    #[test]
    fn tables_follow_each_other() {
        let mut state = state();
        press(&mut state, &[KeyCode::Char(' ')]);
        assert!(state.frozen);
        assert_eq!(press(&mut state, &[KeyCode::BackTab]), Action::Switch);
        assert_eq!((state.view, state.frozen), (View::Disks, false));
        assert_eq!(
            press(&mut state, &[KeyCode::Tab, KeyCode::Char('1')]),
            Action::Draw
        );
        assert_eq!(press(&mut state, &[KeyCode::Char('3')]), Action::Switch);
        assert_eq!(state.view, View::Files);
    }

    #[test]
    fn mounts_are_a_table_of_their_own() {
        let order = Order::new(View::Mounts, None, false).unwrap();
        let mut state = State::new(View::Mounts, order, String::new());
        for key in [KeyCode::Tab, KeyCode::BackTab, KeyCode::Char('2')] {
            assert_eq!(press(&mut state, &[key]), Action::Draw);
            assert_eq!(state.view, View::Mounts);
        }
    }

    #[test]
    fn help_goes_with_any_key() {
        let mut state = state();
        press(&mut state, &[KeyCode::Char('?')]);
        assert!(state.help);
        press(&mut state, &[KeyCode::Down]);
        assert_eq!((state.help, state.skipped), (false, 0));
    }
}
