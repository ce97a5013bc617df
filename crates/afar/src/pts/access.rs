//! `pts setfields`: who may see and change an entry, and how many groups it may make.

use afar_admin::pts;
use afar_types::PrAccess;
use clap::Args;

use super::entries::number;
use super::{Outcome, Pts, PtsCommon, words};

/// Options of `pts setfields`.
#[derive(Debug, Args)]
pub(crate) struct SetfieldsArgs {
    /// user or group name or id
    #[arg(long, value_name = "user or group name or id", required = true)]
    nameorid: Vec<String>,
    /// set privacy flags
    #[arg(long, value_name = "set privacy flags")]
    access: Option<String>,
    /// set limit on group creation
    #[arg(long, value_name = "set limit on group creation")]
    groupquota: Option<String>,
    #[command(flatten)]
    pub(super) common: PtsCommon,
}

pub(super) async fn setfields(pts: &Pts<'_>, args: &SetfieldsArgs) -> anyhow::Result<Outcome> {
    let Some(found) = pts.find(&args.nameorid).await else {
        return Ok(Outcome::Failed);
    };
    let access = match args.access.as_deref().map(parse).transpose() {
        Ok(access) => access,
        Err(why) => {
            words::tell_usage(&why);
            return Ok(Outcome::Failed);
        }
    };
    let quota = match args.groupquota.as_deref().map(number).transpose() {
        Ok(quota) => quota,
        Err(given) => {
            words::tell_no_number(&format!("because ngroups was: '{given}'"));
            return Ok(Outcome::Failed);
        }
    };
    for (id, name) in found {
        if let Err(error) = pts::set_fields(pts.servers, id, access, quota).await {
            let what = format!("; unable to set fields for {name} (id: {})", id.0);
            words::tell(&error, &what);
            return Ok(Outcome::Failed);
        }
    }
    Ok(Outcome::Done)
}

/// The letters of access in their order: a capital for everyone, a small one for members.
const PLACES: [&[(char, PrAccess)]; 5] = [
    &[
        ('S', PrAccess::STATUS_ANYONE),
        ('s', PrAccess::STATUS_MEMBERS),
    ],
    &[('O', PrAccess::OWNED_ANYONE)],
    &[
        ('M', PrAccess::MEMBERSHIP_ANYONE),
        ('m', PrAccess::MEMBERSHIP_MEMBERS),
    ],
    &[('A', PrAccess::ADD_ANYONE), ('a', PrAccess::ADD_MEMBERS)],
    &[('r', PrAccess::REMOVE_MEMBERS)],
];

/// Access as `SOMar`, with a dash for what nobody may, or as an octal number.
pub(crate) fn parse(text: &str) -> Result<PrAccess, String> {
    if text.contains(|letter: char| letter.is_digit(8)) {
        let number = u32::from_str_radix(text, 8).ok();
        let access = number.filter(|number| *number <= 0xff).map(PrAccess);
        return access
            .ok_or_else(|| format!("Access bits must be octal digits up to 377, not {text}"));
    }
    // A small letter or a dash at least, as pts wants it.
    if text.chars().count() != PLACES.len() || !text.contains(['s', 'o', 'm', 'a', 'r', '-']) {
        return Err(format!(
            "Access bits must be of the form 'somar', not {text}"
        ));
    }
    let mut access = PrAccess::default();
    for (letter, place) in text.chars().zip(PLACES) {
        let known = place.iter().find(|(known, _)| *known == letter);
        match known {
            Some((_, bit)) => access.0 |= bit.0,
            None if letter == '-' => {}
            None => {
                return Err(format!(
                    "Access bits out of order or illegal:\n  must be a combination of letters \
                     from 'SOMA ' or 's mar' or hyphen, not {text}"
                ));
            }
        }
    }
    Ok(access)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_read_as_it_is_shown() {
        for bits in [0, 0x80, 0x90, 0x40, 0x48, 0x20, 0xb3, 0xab, 0xb5, 0x01] {
            let access = PrAccess(bits);
            assert_eq!(parse(&access.to_string()), Ok(access));
            assert_eq!(parse(&format!("{bits:o}")), Ok(access));
        }
    }

    #[test]
    fn what_is_not_access_is_refused() {
        for text in ["", "SOMA", "SOMarr", "rSOMA", "xOMAr", "400", "19", "So-ar"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
