//! What those who are no administrators may not do, and what they may.

use super::mask::Mask;
use super::{Row, row};

pub(super) fn rows() -> Vec<Row> {
    vec![
        row("vos listvldb"),
        row("vos listvol srv"),
        row("vos listpart srv"),
        row("vos create srv a data"),
        row("vos create srv a data -id 536890000"),
        row("vos remove srv a 536870912"),
        row("vos remove -id data"),
        row("vos zap srv a 536870912"),
        row("vos zap srv a 536870912 -force"),
        row("vos restore srv a data -file open.dump"),
        row("vos unlockvldb"),
        row("vos syncvldb srv"),
        row("vos syncserv srv"),
        row("vos changeaddr srv 10.97.0.9").mask(Mask::Uuids),
        row("vos offline srv a 536870912"),
        row("vos status srv"),
        row("pts listmax"),
        row("pts createuser ann"),
        row("pts creategroup ann:staff -owner anonymous"),
        row("pts adduser anonymous system:administrators"),
        row("pts removeuser anonymous system:administrators"),
        row("pts membership system:administrators"),
        row("pts examine system:administrators"),
        row("pts examine anonymous"),
        row("pts setmax -user 1"),
        row("pts setfields anonymous -groupquota 1"),
        row("pts chown system:administrators anonymous"),
        row("pts rename anonymous me"),
        row("pts delete anonymous"),
        row("pts listowned system:administrators"),
        row("pts listentries"),
        row("bos stop srv ptserver"),
        row("bos adduser srv me"),
        row("bos shutdown srv"),
        row("bos listhosts srv"),
        row("bos exec srv true"),
    ]
}
