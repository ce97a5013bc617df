//! What is counted of an operation whose data does not pass through a call.

use std::time::Instant;

use afar_net::AbortCode;
use bytes::Bytes;

use super::{Caller, Served, start_probe};
use crate::Operation;

/// What is counted of an operation whose data does not pass through a call.
pub(crate) struct Beside {
    operations: &'static [&'static Operation],
    row: Option<usize>,
    pub(crate) began: Instant,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
}

impl Beside {
    /// An operation of this table begins, with these arguments.
    pub(crate) fn begin(
        operations: &'static [&'static Operation],
        operation: &Operation,
        caller: &Caller,
        arguments: &Bytes,
    ) -> Self {
        let same = |row: &&Operation| row.opcode == operation.opcode;
        let row = operations.iter().position(same);
        start_probe(operations, row, caller);
        Self {
            operations,
            row,
            began: Instant::now(),
            received_bytes: arguments.len() as u64,
            sent_bytes: 0,
        }
    }

    /// It has ended; what its service is told of that.
    pub(crate) fn end<'c, T>(
        self,
        caller: &'c Caller,
        result: &Result<T, AbortCode>,
    ) -> Served<'c> {
        let code = result.as_ref().map(|_| ()).map_err(|code| *code);
        let mut served = Served::new(self.row, caller, self.began.elapsed(), code);
        served.received_bytes = self.received_bytes;
        served.sent_bytes = self.sent_bytes;
        served.probe(self.operations);
        served
    }
}
