//! Help, abbreviations and wrong use.

use crate::{Row, bare, row};

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = helping();
    rows.extend(wrong());
    rows
}

fn helping() -> Vec<Row> {
    vec![
        bare("vos"),
        bare("vos help"),
        bare("vos help create"),
        bare("vos help listvldb release"),
        bare("vos help nothing"),
        bare("vos help l"),
        bare("vos create -help"),
        bare("vos backupsys -help"),
        bare("vos restore -help"),
        bare("vos apropos site"),
        bare("vos apropos zebra"),
        bare("pts help"),
        bare("pts createuser -help"),
        bare("pts"),
        bare("pts help createuser"),
        bare("pts membership -help"),
        bare("fs"),
        bare("fs nothing"),
        bare("fs help nothing"),
        bare("fs setacl"),
        bare("fs setacl a -nothing"),
    ]
}

fn wrong() -> Vec<Row> {
    vec![
        row("vos nothing"),
        row("vos list"),
        row("vos create"),
        row("vos create srv"),
        row("vos listpart srv c x y"),
        row("vos create srv a x -nothing"),
        row("vos create srv a x 5 6 7 8"),
        row("vos create srv a x -maxquota many"),
        row("vos create srv a x -id many"),
        row("vos create srv a x -maxquota"),
        row("vos create -server srv -server srv -partition a -name x"),
        row("vos create srv 99 x"),
        row("vos create srv /vicepzzz x"),
        row("vos create srv a x.readonly"),
        row("vos create srv a x.backup"),
        row("vos examine"),
        row("vos examine x -format -extended"),
        row("vos listvol"),
        row("vos listvol srv -long -fast"),
        row("vos listvol srv -fast -format"),
        row("vos remove"),
        row("vos remove srv"),
        row("vos remove srv a"),
        row("vos listvldb -partition"),
        row("vos listvldb -name x -server srv"),
        row("vos move x srv"),
        row("vos restore srv a"),
        row("vos restore srv a x -overwrite maybe"),
        row("vos restore srv a x -creation maybe -file open.dump"),
        row("vos restore srv a 123456 -file open.dump"),
        row("vos dump"),
        row("vos dump x -time nonsense"),
        row("vos release"),
        row("vos setfields x"),
        row("vos delentry"),
        row("vos backupsys -server nohost"),
        row("vos syncvldb"),
        row("vos changeaddr srv"),
        row("vos changeaddr srv srv2 -remove"),
        row("vos offline srv a x -sleep many"),
        row("vos size x"),
        row("vos clone x"),
        row("vos shadow x srv a srv b"),
        row("vos endtrans srv many"),
    ]
}
