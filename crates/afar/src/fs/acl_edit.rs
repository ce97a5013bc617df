//! Changes of access control lists as `fs setacl` takes them.

use afar_types::{Acl, AclEntry, Rights};

/// What rights given for a user do to those the list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// They replace them; none removes the entry.
    Set(Rights),
    /// They come to them (`rl+`).
    Add(Rights),
    /// They are taken from them (`rl-`).
    Take(Rights),
}

/// The rights that let one drop files into a directory: insert, lock and look up.
const MAIL: Rights = Rights(Rights::INSERT.0 | Rights::LOCK.0 | Rights::LOOKUP.0);

impl Change {
    /// Understands letters, or `read`, `write`, `mail`, `all` or `none`, with `+`, `-` or `=` behind
    /// them.
    ///
    /// # Errors
    /// With the letter that is no right.
    pub(super) fn parse(text: &str) -> Result<Self, char> {
        let (rights, change): (_, fn(Rights) -> Self) = match text.strip_suffix('+') {
            Some(rights) => (rights, Self::Add),
            None => match text.strip_suffix('-') {
                Some(rights) => (rights, Self::Take),
                None => (text.strip_suffix('=').unwrap_or(text), Self::Set),
            },
        };
        match rights {
            "mail" => Ok(change(MAIL)),
            // None, with whatever behind it, removes the entry.
            "none" => Ok(Self::Set(Rights::NONE)),
            _ => rights
                .parse()
                .map(change)
                .map_err(|error: afar_types::RightsError| error.letter),
        }
    }
}

/// Changes the rights of one user or group in a list of entries. Names are the same in upper and
/// lower case.
pub(super) fn apply(entries: &mut Vec<AclEntry>, name: &str, change: Change) {
    let known = entries
        .iter_mut()
        .find(|entry| entry.name.eq_ignore_ascii_case(name));
    match (known, change) {
        (Some(entry), Change::Set(rights)) => entry.rights = rights,
        (Some(entry), Change::Add(rights)) => entry.rights = entry.rights | rights,
        (Some(entry), Change::Take(rights)) => entry.rights = Rights(entry.rights.0 & !rights.0),
        (None, Change::Take(_)) => {}
        (None, Change::Set(rights) | Change::Add(rights)) => entries.insert(
            0,
            AclEntry {
                name: name.to_owned(),
                rights,
            },
        ),
    }
    entries.retain(|entry| entry.rights != Rights::NONE);
}

/// Puts the entries of one list into another, whose entries for the same names are replaced.
pub(super) fn merge(into: &mut Acl, from: &Acl) {
    for entry in &from.positive {
        apply(&mut into.positive, &entry.name, Change::Set(entry.rights));
    }
    for entry in &from.negative {
        apply(&mut into.negative, &entry.name, Change::Set(entry.rights));
    }
}

/// The lines of a list's entries, as `fs listacl` prints them.
pub(super) fn text(acl: &Acl) -> String {
    let mut text = String::new();
    for (title, entries) in [
        ("Normal rights:\n", &acl.positive),
        ("Negative rights:\n", &acl.negative),
    ] {
        if !entries.is_empty() {
            text.push_str(title);
        }
        for entry in entries {
            text.push_str(&format!("  {} {}\n", entry.name, entry.rights));
        }
    }
    text
}

/// The commands that would make a list, as `fs listacl -cmd` prints them.
pub(super) fn commands(path: &str, acl: &Acl) -> String {
    let entries = |entries: &[AclEntry]| {
        let entries = entries.iter();
        entries
            .map(|entry| format!("  {} {}", entry.name, entry.rights))
            .collect::<String>()
    };
    let mut text = format!("fs setacl -dir {path} -acl {}\n", entries(&acl.positive));
    if !acl.negative.is_empty() {
        let negative = entries(&acl.negative);
        text.push_str(&format!(
            "fs setacl -dir {path} -acl {negative} -negative\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, &str)]) -> Vec<AclEntry> {
        let entry = |(name, rights): &(&str, &str)| AclEntry {
            name: (*name).to_owned(),
            rights: rights.parse().unwrap(),
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn rights_are_understood() {
        assert_eq!(Change::parse("rl"), Ok(Change::Set(Rights(9))));
        assert_eq!(Change::parse("write="), Ok(Change::Set(Rights(0x3f))));
        assert_eq!(Change::parse("mail"), Ok(Change::Set(Rights(44))));
        assert_eq!(Change::parse("w+"), Ok(Change::Add(Rights(2))));
        assert_eq!(Change::parse("all-"), Ok(Change::Take(Rights(0x7f))));
        assert_eq!(Change::parse("none+"), Ok(Change::Set(Rights::NONE)));
        assert_eq!(Change::parse("rx"), Err('x'));
    }

    #[test]
    fn entries_are_changed() {
        let mut entries = list(&[("alice", "rl"), ("bob", "all")]);
        apply(&mut entries, "ALICE", Change::parse("w+").unwrap());
        apply(&mut entries, "bob", Change::parse("none").unwrap());
        apply(&mut entries, "carol", Change::parse("r-").unwrap());
        apply(&mut entries, "dave", Change::parse("read").unwrap());
        assert_eq!(entries, list(&[("dave", "rl"), ("alice", "rlw")]));
        apply(&mut entries, "alice", Change::parse("rlw-").unwrap());
        assert_eq!(entries, list(&[("dave", "rl")]));
    }

    #[test]
    fn lists_are_printed_as_openafs_does() {
        let acl = Acl {
            positive: list(&[("system:administrators", "all"), ("alice", "rl")]),
            negative: list(&[("mallory", "w")]),
        };
        assert_eq!(
            text(&acl),
            "Normal rights:\n  system:administrators rlidwka\n  alice rl\n\
             Negative rights:\n  mallory w\n"
        );
        assert_eq!(text(&Acl::default()), "");
        assert_eq!(
            commands("d", &acl),
            "fs setacl -dir d -acl   system:administrators rlidwka  alice rl\n\
             fs setacl -dir d -acl   mallory w -negative\n"
        );
    }
}
