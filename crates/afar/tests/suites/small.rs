//! A smaller set, for OpenAFS's servers, of which there is one.

use super::mask::Mask;
use crate::{Row, bare, row};

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = volumes();
    rows.extend(changes());
    rows.extend(overseer());
    rows
}

/// What `bos` tells.
pub(crate) fn overseer() -> Vec<Row> {
    vec![
        row("bos status srv"),
        row("bos status srv -long"),
        row("bos status srv ptserver vlserver"),
        row("bos status srv nothing"),
        row("bos status nohost"),
        row("bos listhosts srv"),
        row("bos listusers srv"),
        row("bos getrestart srv"),
        row("bos getrestricted srv"),
        row("bos status"),
        row("bos status srv srv -nothing"),
        row("bos status srv -long=3"),
        row("bos listhosts srv srv srv srv"),
        row("bos status srv -instance"),
        row("bos nothing"),
        bare("bos"),
        bare("bos help nothing"),
        bare("bos status -help"),
        bare("bos help status"),
        bare("bos getrestart -help"),
    ]
}

fn volumes() -> Vec<Row> {
    vec![
        row("vos listpart srv"),
        row("vos partinfo srv").mask(Mask::Numbers),
        row("vos listaddrs -printuuid").mask(Mask::Uuids),
        row("vos create srv a data -verbose"),
        row("vos create srv a data"),
        row("vos create srv zz data"),
        row("vos examine data"),
        row("vos examine data -extended"),
        row("vos examine data -format"),
        row("vos examine nothing"),
        row("vos addsite srv a data"),
        row("vos addsite srv b data"),
        row("vos release data -verbose"),
        row("vos release data -verbose"),
        row("vos release data -f -verbose"),
        row("vos backup data -verbose"),
        row("vos listvol srv"),
        row("vos listvol srv a -long"),
        row("vos listvol srv a -format"),
        row("vos listvol srv a -extended"),
        row("vos listvldb"),
    ]
}

fn changes() -> Vec<Row> {
    vec![
        row("vos restore srv b open -file open.dump -verbose"),
        row("vos restore srv b open -file open.dump -overwrite f"),
        row("vos restore srv b open -file open.dump -overwrite i"),
        row("vos restore srv b open -file open.dump -overwrite a"),
        row("vos size open -dump"),
        row("vos dump open -file again.dump -verbose"),
        row("vos restore srv a again -file again.dump"),
        row("vos move open srv b srv a -verbose"),
        row("vos copy open srv a copied srv b -verbose"),
        row("vos shadow open srv a srv b -toname shadowed -verbose"),
        row("vos clone open -toname cloned"),
        row("vos lock open"),
        row("vos remove srv a open"),
        row("vos unlock open"),
        row("vos rename open closed"),
        row("vos setfields closed -maxquota 1"),
        row("vos offline srv a closed"),
        row("vos examine closed"),
        row("vos online srv a closed"),
        row("vos delentry copied"),
        row("vos syncvldb srv b -verbose"),
        row("vos changeloc copied srv a"),
        row("vos syncserv srv -verbose"),
        row("vos remsite srv b data"),
        row("vos convertROtoRW srv a data -force"),
        row("vos zap srv b 77"),
        row("vos remove srv a data"),
        row("vos backupsys -verbose"),
        row("vos changeaddr srv 10.97.0.9").mask(Mask::Uuids),
        row("vos status srv"),
        row("vos listvol srv"),
        row("vos listvldb"),
    ]
}
