//! Interfaces and their operations as values.

use std::ffi::CStr;

use afar_net::ServiceId;
use afar_xdr::{Decode, DecodeError, Encode};
use bytes::Bytes;

/// An interface as a value, for what is done with all of them alike.
#[derive(Debug)]
pub struct Interface {
    /// Its name, such as `RXAFS`.
    pub name: &'static str,
    /// The service it is served as.
    pub service: ServiceId,
    /// Every operation, in the order of the table.
    pub operations: &'static [&'static Operation],
    /// Decodes a request that starts with its opcode and encodes it again; `None` if the opcode
    /// is in no row.
    pub canonical_request: fn(&[u8]) -> Result<Option<Bytes>, DecodeError>,
    /// Decodes the results of the operation with this opcode and encodes them again; `None` if
    /// the opcode is in no row.
    pub canonical_reply: fn(u32, &[u8]) -> Result<Option<Bytes>, DecodeError>,
}

/// A row of an interface's table.
#[derive(Debug, PartialEq, Eq)]
pub struct Operation {
    /// The interface it belongs to, such as `RXAFS`.
    pub interface: &'static str,
    /// The number that starts the request.
    pub opcode: u32,
    /// Its name in snake case.
    pub name: &'static str,
    /// Interface and name with a point between them, as probes tell them.
    pub label: &'static CStr,
    /// Whether data flows beside arguments and results.
    pub kind: Kind,
    /// Bytes the arguments may have, without the opcode.
    pub request_max_len: usize,
    /// Bytes the results may have.
    pub reply_max_len: usize,
    /// Whether it changes or administers something.
    pub changes: bool,
    /// Whether each call is told in the audit: it changes something, and not as users do in their daily work.
    pub is_audited: bool,
}

/// A text that ends in a zero byte.
pub(crate) const fn label(text: &str) -> &CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(label) => label,
        Err(_) => c"",
    }
}

/// What flows in a call beside arguments and results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Call,
    /// Data from the server, before the results. Its length is a word like the request's
    /// `length`, in front of it; it is not padded.
    Fetch,
    /// Data from the client, after the arguments, of which `length` says how much it is.
    Store,
    /// Data from the server until the end of the call; there are no results.
    Download,
    /// Data from the client, after the arguments, until the end of the request.
    Upload,
}

/// A `length` argument of a split call, in its form on the wire.
pub(crate) trait Length: Copy + Encode + Decode {
    /// The number of bytes, if it is not negative.
    fn bytes(self) -> Option<u64>;
    /// That number of bytes, if the form can hold it.
    fn from_bytes(bytes: u64) -> Option<Self>;
    /// The number as it is, for error messages.
    fn number(self) -> i128;
}

macro_rules! length {
    ($($ty:ty),*) => {$(
        impl Length for $ty {
            fn bytes(self) -> Option<u64> {
                u64::try_from(self).ok()
            }

            fn from_bytes(bytes: u64) -> Option<Self> {
                Self::try_from(bytes).ok()
            }

            fn number(self) -> i128 {
                self.into()
            }
        }
    )*};
}

length!(i32, u32, i64, u64);
