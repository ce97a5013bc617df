//! Volumes.

use super::mask::Mask;
use super::{Row, row};

/// From an empty cell to volumes that files are in.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = empty_cell();
    rows.extend(creating());
    rows.extend(sites());
    rows.extend(content());
    rows
}

/// What is done to volumes that are used.
pub(super) fn more_rows() -> Vec<Row> {
    let mut rows = locks_and_fields();
    rows.extend(moving());
    rows.extend(mending());
    rows.extend(removing());
    rows
}

/// Both servers note accesses only now and then, and at other times.
fn used(line: &'static str) -> Row {
    let row = row(line).mask(Mask::Line("Last Access"));
    row.mask(Mask::Line("accesses in the past day"))
}

fn empty_cell() -> Vec<Row> {
    vec![
        row("vos listpart srv"),
        row("vos listpart nohost"),
        row("vos partinfo srv").mask(Mask::Numbers),
        row("vos partinfo srv b").mask(Mask::Numbers),
        row("vos partinfo srv c"),
        row("vos listvol srv"),
        row("vos listvldb"),
        row("vos listaddrs"),
        row("vos listaddrs -printuuid").mask(Mask::Uuids),
        row("vos status srv"),
    ]
}

fn creating() -> Vec<Row> {
    vec![
        row("vos create srv a first"),
        row("vos create srv b first"),
        row("vos create srv c second"),
        row("vos create srv zz second"),
        row("vos create nohost a second"),
        row("vos create srv a 12345"),
        row("vos create srv a a.name.of.twenty-three.."),
        row("vos create srv b data -maxquota 1234 -verbose"),
        row("vos create srv b numbered -id 536880000"),
        row("vos create srv b numbered2 -id 536880000"),
        row("vos examine data"),
        row("vos examine data -extended"),
        row("vos examine data -format"),
        row("vos examine nothing"),
        row("vos examine 536870912"),
        row("vos examine 77"),
        row("vos listvldb -name data"),
        row("vos listvldb -name nothing"),
        row("vos listvldb -server srv -partition b"),
        row("vos listvldb -server srv -partition c"),
        row("vos listvol srv b"),
        row("vos listvol srv b -long"),
        row("vos listvol srv -fast"),
        row("vos listvol srv b -extended"),
        row("vos listvol srv c"),
        row("vos listvol nohost"),
    ]
}

fn sites() -> Vec<Row> {
    vec![
        row("vos backup data"),
        row("vos backup data -verbose"),
        row("vos backup nothing"),
        row("vos examine data.backup"),
        row("vos release data"),
        row("vos addsite srv a data"),
        row("vos addsite srv a data"),
        row("vos addsite srv c data"),
        row("vos addsite srv b data"),
        row("vos listvldb -name data"),
        row("vos release data -verbose"),
        row("vos release data"),
        row("vos release data -verbose"),
        row("vos release data -f"),
        row("vos examine data.readonly"),
        row("vos listvol srv a"),
        row("vos remsite srv b data"),
        row("vos remsite srv b data"),
        row("vos listvldb -name data"),
        row("vos addsite srv b first"),
        row("vos addsite srv a first -valid"),
        row("vos listvldb -name first"),
        row("vos remsite srv b first"),
        row("vos release nothing"),
        row("vos backupsys -prefix fir"),
    ]
}

fn content() -> Vec<Row> {
    vec![
        row("vos restore srv a root.cell -file root.dump"),
        row("vos restore srv a test.open -file open.dump -verbose"),
        row("vos restore srv b test.closed -file closed.dump -offline"),
        row("vos restore srv b test.closed -file closed.dump -overwrite full"),
        row("vos restore srv c other -file open.dump"),
        row("vos restore srv a other -file nothing.dump"),
        row("vos restore srv a other -file /etc/openafs/ThisCell"),
        row("vos restore srv a test.open -file open.dump -overwrite abort"),
        row("vos addsite srv a root.cell"),
        row("vos release root.cell"),
        row("vos examine test.open"),
        row("vos size test.open -dump"),
        row("vos listvldb -quiet"),
    ]
}

fn locks_and_fields() -> Vec<Row> {
    vec![
        row("vos lock data"),
        row("vos lock data"),
        row("vos examine data"),
        row("vos release data"),
        row("vos rename data other"),
        row("vos remove srv b data"),
        row("vos listvldb -locked"),
        row("vos unlock data"),
        row("vos unlock data"),
        row("vos lock data"),
        row("vos unlockvldb srv"),
        row("vos lock nothing"),
        row("vos rename data info"),
        row("vos rename data info"),
        row("vos rename info first"),
        row("vos examine info"),
        row("vos listvol srv b"),
        row("vos setfields info -maxquota 999"),
        row("vos setfields info -clearuse -clearVolUpCounter"),
        row("vos setfields nothing -maxquota 999"),
        row("vos examine info"),
        row("vos offline srv b info"),
        row("vos examine info"),
        row("vos online srv b info"),
        row("vos offline srv b nothing"),
        row("vos endtrans srv 99"),
        row("vos status srv"),
    ]
}

fn moving() -> Vec<Row> {
    vec![
        row("vos dump test.open -file full.dump"),
        row("vos dump test.open -time '01/02/2030 03:04' -file none.dump -verbose"),
        row("vos dump nothing -file none.dump"),
        row("vos dump test.open -file full.dump -clone -verbose"),
        row("vos restore srv b copy -file full.dump"),
        row("vos restore srv b copy -file none.dump -overwrite incremental"),
        row("vos move test.open srv a srv b -verbose"),
        row("vos move test.open srv a srv b"),
        row("vos move test.open srv b srv c"),
        row("vos move nothing srv b srv a"),
        used("vos examine test.open"),
        row("vos move test.open srv b srv a"),
        row("vos copy test.open srv a copied srv b -verbose"),
        row("vos copy test.open srv a copied srv b"),
        used("vos examine copied"),
        row("vos clone test.open -toname cloned"),
        row("vos clone test.open -toname cloned2"),
        row("vos shadow test.open srv a srv b -toname shadowed"),
        row("vos listvol srv"),
        row("vos convertROtoRW srv a info"),
        row("vos convertROtoRW srv a info -force"),
        row("vos examine info"),
    ]
}

fn mending() -> Vec<Row> {
    vec![
        row("vos delentry copied"),
        row("vos delentry nothing"),
        used("vos examine copied"),
        row("vos syncvldb srv b -verbose"),
        used("vos examine copied"),
        row("vos syncvldb srv -volume copied"),
        row("vos syncserv srv -verbose"),
        row("vos syncserv srv"),
        row("vos changeloc copied srv a"),
        row("vos listvldb -name copied"),
        row("vos changeloc copied srv b"),
        row("vos changeaddr nohost -remove"),
        row("vos remaddrs -uuid 00000000-0000-0000-00-00-000000000000"),
        row("vos setaddrs -uuid 00000000-0000-0000-00-00-000000000000 -host nohost"),
    ]
}

fn removing() -> Vec<Row> {
    vec![
        row("vos remove srv a copied"),
        row("vos remove srv b copied"),
        row("vos remove srv b copied"),
        row("vos remove srv a 77"),
        row("vos remove -id copy"),
        row("vos remove -id info.readonly"),
        row("vos remove -id nothing"),
        row("vos zap srv b 77"),
        row("vos zap srv b 536880000 -force"),
        row("vos zap srv b 536880000"),
        row("vos zap srv a 536870912 -backup"),
        row("vos listvldb"),
        row("vos listvol srv"),
    ]
}
