//! Volumes of two servers.

use super::mask::Mask;
use crate::{Row, bare, row};

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = sites();
    rows.extend(moving());
    rows.extend(fields());
    rows.extend(dumping());
    rows.extend(bulk());
    rows.extend(mending());
    rows
}

fn sites() -> Vec<Row> {
    vec![
        row("vos listaddrs"),
        row("vos listaddrs -host srv2"),
        row("vos listaddrs -noresolve"),
        row("vos listpart srv2"),
        row("vos partinfo srv2 -summary").mask(Mask::Numbers),
        row("vos create srv2 a far -maxquota 100000"),
        row("vos create -s srv2 -p b -n far.2"),
        row("vos examine far"),
        row("vos e far -noresolve"),
        row("vos addsite srv2 a far"),
        row("vos addsite srv a far"),
        row("vos addsite srv2 b far -roid 536990000"),
        // What is older than two seconds is dumped from a time on, else as a whole.
        bare("sleep 3"),
        row("vos release far -verbose"),
        row("vos release far -verbose"),
        row("vos release far -force-reclone -verbose"),
        row("vos release far -stayonline -verbose"),
        row("vos addsite srv b far"),
        row("vos release far -verbose"),
        row("vos examine far"),
        row("vos examine far.readonly"),
        row("vos examine far -format").mask(Mask::Line("diskused")),
        row("vos examine far.readonly -format").mask(Mask::Line("diskused")),
        row("vos remsite srv a far"),
        row("vos listvldb far"),
    ]
}

fn moving() -> Vec<Row> {
    vec![
        row("vos move far srv2 a srv b -verbose"),
        row("vos listvldb far"),
        row("vos backup far"),
        row("vos move far srv b srv2 b -live -verbose"),
        row("vos copy far.2 srv2 b far.3 srv a -verbose"),
        row("vos copy far.2 srv2 b far.4 srv a -offline -readonly"),
        row("vos copy far.2 srv2 b far.5 srv a -live"),
        row("vos listvldb far.4"),
        row("vos shadow far.2 srv2 b srv a -toname far.6 -verbose"),
        row("vos shadow far.2 srv2 b srv a -toname far.6 -incremental"),
        row("vos clone far.2 -toname far.7 -readwrite"),
        row("vos clone far.2 -toname far.8 -server srv2 -partition b -readonly -verbose"),
        row("vos listvol srv2"),
        row("vos listvol srv"),
        row("vos convertROtoRW srv2 b far -force"),
        row("vos remove srv2 b far"),
        row("vos examine far"),
        row("vos convertROtoRW srv2 a far -force"),
        row("vos listvldb far"),
        row("vos status srv2"),
    ]
}

fn fields() -> Vec<Row> {
    vec![
        row("vos setfields far.2 -maxquota 77 -verbose"),
        row("vos setfields far.2 -clearuse"),
        row("vos examine far.2"),
        row("vos lock far.2"),
        row("vos listvldb -locked"),
        row("vos unlockvldb srv2 b"),
        row("vos lock far.2"),
        row("vos unlockvldb"),
        row("vos listvldb -locked"),
        row("vos offline srv2 b far.2"),
        row("vos listvol srv2 b"),
        row("vos offline srv2 b far.2 -busy -sleep 0"),
        row("vos online srv2 b far.2"),
        row("vos listvol srv2 b -long"),
        row("vos listvol srv2 b -format").mask(Mask::Line("diskused")),
        row("vos listvol srv2 b -extended"),
        row("vos listvol srv2 b -extended -format").mask(Mask::Line("diskused")),
        row("vos listvol srv2 -quiet"),
        row("vos listvol srv2 b -fast -quiet"),
    ]
}

fn dumping() -> Vec<Row> {
    vec![
        row("vos dump far.2 -file far.dump -verbose"),
        row("vos dump far.2 -server srv2 -partition b -file far.dump"),
        row("vos dump far.2 -server srv -partition b -file far.dump"),
        row("vos dump far.2 -file /nowhere/far.dump"),
        row("vos restore srv2 a restored -file far.dump -id 536990100"),
        row("vos restore srv2 a restored -file far.dump -overwrite f -lastupdate dump"),
        row("vos restore srv2 b restored -file far.dump -overwrite f"),
        row("vos restore srv2 b restored -file far.dump -overwrite full -delete"),
        row("vos restore srv2 b restored -file far.dump -overwrite i -verbose"),
        row("vos restore srv2 b restored -file far.dump -overwrite abort"),
        row("vos restore srv2 b restored.ro -file far.dump -readonly"),
        row("vos restore srv2 b restored -file far.dump -overwrite f -nodelete -creation new"),
        row("vos examine restored"),
        row("vos listvldb restored.ro"),
        row("vos size far.2"),
        row("vos size far.2 -dump"),
        row("vos size far.2 -dump -time '01/02/2030 03:04'"),
        row("vos size nothing"),
    ]
}

fn bulk() -> Vec<Row> {
    vec![
        row("vos backupsys -prefix far -verbose"),
        row("vos backupsys -prefix far -exclude -dryrun"),
        row("vos backupsys srv2 b -dryrun"),
        row("vos backupsys srv2"),
        row("vos backupsys -prefix ^far\\. -xprefix ^far.2 -dryrun"),
        row("vos backupsys -prefix zebra"),
        row("vos listvldb -server srv2"),
        row("vos listvldb -server srv2 -partition b"),
        row("vos listvldb -server srv2 -partition b -nosort"),
        row("vos listvldb -quiet"),
        row("vos listvldb 536870912"),
    ]
}

fn mending() -> Vec<Row> {
    vec![
        row("vos delentry far.2 -dryrun"),
        row("vos delentry far.2"),
        row("vos delentry -prefix far.3 -server srv -dryrun"),
        row("vos delentry -prefix far.3"),
        row("vos delentry -prefix far.3 -server srv"),
        row("vos syncvldb srv2 -dryrun -verbose"),
        row("vos syncvldb srv2 -verbose"),
        row("vos syncvldb srv a"),
        row("vos syncvldb -volume far.3"),
        row("vos syncvldb -server srv -volume far.3"),
        row("vos syncvldb -volume nothing"),
        row("vos examine far.2"),
        row("vos changeloc far.2 srv a"),
        row("vos syncserv srv2 -dryrun"),
        row("vos syncserv srv -verbose"),
        row("vos syncvldb srv2 b"),
        row("vos listvldb far.2"),
        row("vos zap srv2 b 536990100"),
        row("vos zap srv2 b 536990100 -force"),
        row("vos syncserv srv2 b"),
        row("vos listvldb restored"),
        row("vos remove srv2 b far.2.backup"),
        row("vos remove -id far.2"),
        row("vos remove -id far.3 -verbose"),
        row("vos changeaddr srv2 10.97.0.9").mask(Mask::Uuids),
        row("vos changeaddr srv2 10.97.0.9 -force"),
        row("vos changeaddr 10.97.0.77 -remove"),
        row("vos listaddrs"),
        row("vos listvldb"),
    ]
}
