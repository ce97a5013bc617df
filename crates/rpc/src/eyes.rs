//! EYES, what `afar top` shows, for administrators elsewhere (service 24935, the overseer's port). It is afar's own.

use afar_xdr::XdrString;

/// The name of a table.
pub type TableName = XdrString<32>;

interface! {
    service 24935 "EYES";

    /// Tells a table as it is now, as JSON. What is counted only while somebody looks is counted for so many seconds more.
    download 1 snapshot(table: TableName, seconds: u32) -> ();
}
