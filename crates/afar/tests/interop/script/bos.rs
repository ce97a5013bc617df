//! The overseer, and what the tools of the field ask.

use super::mask::Mask;
use super::{Row, row};

pub(super) fn rows() -> Vec<Row> {
    vec![
        row("bos status srv"),
        row("bos status srv ptserver"),
        row("bos status srv nothing"),
        row("bos status srv vlserver -long"),
        row("bos status nohost"),
        row("bos listhosts srv"),
        row("bos listusers srv"),
        row("bos getrestart srv"),
        row("bos getrestricted srv"),
        row("bos stop srv nothing"),
        row("rxdebug srv 7000 -version").mask(Mask::Line("AFS version")),
        row("rxdebug srv 7003 -version").mask(Mask::Line("AFS version")),
    ]
}
