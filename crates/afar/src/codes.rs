//! Codes of services in the words of OpenAFS's programs.

use afar_types::error::lookup;

/// What a program calls the codes of the service it asks.
pub(crate) struct Words {
    /// The service's first code.
    pub(crate) first: i32,
    /// What its codes mean, from the first one on, as scripts know it.
    pub(crate) texts: &'static [&'static str],
    /// Codes of others that the program has its own words for.
    pub(crate) others: &'static [(i32, &'static str)],
}

impl Words {
    /// What a code means; in afar's words if the program has none.
    pub(crate) fn text(&self, code: i32) -> String {
        let row = code
            .checked_sub(self.first)
            .and_then(|row| usize::try_from(row).ok());
        let own = row.and_then(|row| self.texts.get(row));
        let other = || self.others.iter().find(|(other, _)| *other == code);
        match own.or_else(|| other().map(|(_, text)| text)) {
            Some(text) => (*text).to_owned(),
            None => match lookup(code) {
                Some(known) => known.text.to_owned(),
                None => format!("unknown code {code}"),
            },
        }
    }
}
