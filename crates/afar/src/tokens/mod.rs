//! Tokens: where a command's come from, and `afar login`, `afar tokens` and `afar logout`.

mod cells;
mod credentials;
mod find;
mod keep;
mod list;
mod localauth;
mod login;
mod logout;
mod service;

use std::path::Path;

use afar_server::local_cell;
use afar_types::{CellName, UnixTime};

pub(crate) use cells::own_cell;
pub(crate) use credentials::{LOOK_EVERY, UserTokens};
pub(crate) use find::Finder;
pub(crate) use list::{TokenState, TokensArgs, states, tokens};
pub(crate) use localauth::{Printed, SERVER_KEYS, open_keys};
pub(crate) use login::{LoginArgs, login};
pub(crate) use logout::{LogoutArgs, logout};

/// Where `ThisCell` is looked for.
const CONFIG_DIRS: [&str; 3] = ["/etc/openafs", "/usr/vice/etc", "/etc/afar"];

/// The cell of this machine: that of the environment, of its `ThisCell` file, or the only one that
/// runs on it; else the only one that the user has logged in to by naming its server.
pub(crate) fn this_cell() -> Option<CellName> {
    let named = std::env::var("AFSCELL")
        .ok()
        .and_then(|name| name.parse().ok());
    let read = |dir: &&str| {
        let text = std::fs::read_to_string(Path::new(dir).join("ThisCell")).ok()?;
        text.trim().parse().ok()
    };
    named
        .or_else(|| CONFIG_DIRS.iter().find_map(read))
        .or_else(|| local_cell::find(None).map(|cell| cell.entry.name))
        .or_else(own_cell)
}

/// A time as OpenAFS's `tokens` prints it: `Nov 22 15:30`.
fn short_date(seconds: u32) -> String {
    let whole = afar_admin::vos::words::date(UnixTime(seconds));
    // Without the weekday in front, and the seconds and the year behind.
    whole.get(4..16).unwrap_or(&whole).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_tokens_command() {
        let date = short_date(1_700_000_000);
        assert_eq!(date.len(), 12);
        assert!(
            date.starts_with("Nov 14 ") || date.starts_with("Nov 15 "),
            "{date}"
        );
    }
}
