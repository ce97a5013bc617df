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
    let access = match args.access.as_deref().map(PrAccess::parse).transpose() {
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
