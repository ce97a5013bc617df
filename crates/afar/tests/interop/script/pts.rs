//! Users and groups.

use super::mask::Mask;
use super::{Row, row};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = creating();
    rows.extend(memberships());
    rows.extend(changing());
    rows
}

fn creating() -> Vec<Row> {
    vec![
        // Where a new cell begins to number users, both kinds of servers differ.
        row("pts setmax -user 999"),
        row("pts listmax"),
        row("pts listentries -users -groups"),
        row("pts examine system:administrators"),
        row("pts examine system:anyuser anonymous"),
        row("pts createuser ann"),
        row("pts createuser ann"),
        row("pts createuser bob carl -id 500 501"),
        row("pts createuser dora -id 500"),
        row("pts createuser dora -id -5"),
        row("pts createuser bad:name"),
        row("pts createuser bad@name"),
        row("pts createuser 10.0.0.1"),
        row("pts createuser 10.0.0.0"),
        row("pts creategroup ann:staff -owner ann"),
        row("pts creategroup ann:staff -owner ann"),
        row("pts creategroup staff -owner ann"),
        row("pts creategroup bob:staff -owner ann"),
        row("pts creategroup system:testers -id -900"),
        row("pts creategroup system:others -id 900"),
        row("pts creategroup plain"),
        row("pts creategroup ann:more -owner nobody"),
        row("pts examine ann"),
        row("pts examine ann:staff"),
        row("pts examine 500 -900"),
        row("pts examine nothing"),
        row("pts examine 12345"),
        row("pts listmax"),
    ]
}

fn memberships() -> Vec<Row> {
    vec![
        row("pts adduser ann ann:staff"),
        row("pts adduser ann ann:staff"),
        row("pts adduser bob carl 10.0.0.1 -group ann:staff system:testers"),
        row("pts adduser nobody ann:staff"),
        row("pts adduser ann ann:nothing"),
        row("pts adduser ann bob"),
        row("pts adduser ann:staff system:testers"),
        row("pts adduser ann system:anyuser"),
        row("pts membership ann"),
        row("pts membership ann bob ann:staff system:testers"),
        row("pts membership system:testers -expandgroups"),
        row("pts membership ann -supergroups"),
        row("pts membership nothing"),
        row("pts listowned ann"),
        row("pts listowned bob nothing"),
        row("pts removeuser bob ann:staff"),
        row("pts removeuser bob ann:staff"),
        row("pts removeuser nobody ann:staff"),
    ]
}

fn changing() -> Vec<Row> {
    vec![
        row("pts chown ann:staff bob"),
        row("pts examine bob:staff ann:staff"),
        row("pts chown bob:staff nobody"),
        row("pts chown ann bob"),
        row("pts chown bob:staff bob:staff"),
        row("pts rename bob robert"),
        row("pts rename robert ann"),
        row("pts rename nothing x"),
        row("pts rename bob:staff robert:people"),
        row("pts listowned robert"),
        row("pts listentries"),
        row("pts listentries -groups"),
        row("pts setfields ann -groupquota 5 -access SOMar"),
        row("pts setfields ann -access SOxyz"),
        row("pts setfields ann:none -access SOMar"),
        row("pts setfields robert:people -access SOM--"),
        row("pts examine ann robert:people"),
        row("pts delete robert"),
        row("pts listowned 0"),
        row("pts listentries -groups"),
        row("pts delete nothing ann"),
        row("pts delete system:administrators"),
        row("pts setmax -group -2000 -user 2000"),
        row("pts setmax -user 10"),
        row("pts listmax"),
        row("pts createuser erik"),
        row("pts delete 10.0.0.1"),
        // OpenAFS gives a new entry the place of one that was deleted.
        row("pts listentries -users -groups").mask(Mask::Order),
    ]
}
