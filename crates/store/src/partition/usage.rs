//! How often volumes are used, counted in memory and written now and then.

use std::collections::BTreeMap;
use std::mem;

use parking_lot::Mutex;

use crate::error::Result;
use crate::meta::{Change, Rows};

/// Seconds of a day.
const DAY: u32 = 86_400;

/// Uses of volumes that are not yet in their rows.
#[derive(Default)]
pub(crate) struct Usage {
    counts: Mutex<BTreeMap<u32, u32>>,
}

impl Usage {
    /// Counts one use of a volume.
    pub(crate) fn count(&self, volume: u32) {
        let mut counts = self.counts.lock();
        let count = counts.entry(volume).or_default();
        *count = count.saturating_add(1);
    }

    /// Uses of one volume not yet in its row.
    pub(crate) fn pending(&self, volume: u32) -> u32 {
        self.counts.lock().get(&volume).copied().unwrap_or(0)
    }

    /// Takes all counts out.
    pub(super) fn take(&self) -> BTreeMap<u32, u32> {
        mem::take(&mut *self.counts.lock())
    }
}

/// Adds counted uses to the volumes' rows. The week's counts move on at midnight UTC.
pub(super) fn write(change: &mut Change<'_>, counts: &BTreeMap<u32, u32>) -> Result<()> {
    let now = change.now();
    for (&volume, &count) in counts {
        // A volume that was removed meanwhile has no use for the count.
        let Some(mut info) = change.info(volume)? else {
            continue;
        };
        let today = now - now % DAY;
        if info.day_use_date < today {
            roll(
                &mut info.week_use,
                info.day_use,
                days_between(info.day_use_date, today),
            );
            info.day_use = 0;
            info.day_use_date = today;
        }
        info.day_use = info.day_use.saturating_add(count);
        info.access_date = now;
        change.put_info(volume, &info);
    }
    Ok(())
}

fn days_between(from: u32, to: u32) -> u32 {
    (to - from) / DAY
}

/// Puts a finished day in front of the week's, and empty days for those nobody used the volume.
pub(crate) fn roll(week: &mut [u32; 7], finished: u32, days: u32) {
    for day in 0..days.min(7) {
        week.rotate_right(1);
        week[0] = if day == 0 { finished } else { 0 };
    }
}
