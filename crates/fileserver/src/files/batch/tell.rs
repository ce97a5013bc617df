//! Audit and counters of the operations of a batch, as of single calls.

use std::fmt::Debug;
use std::time::Duration;

use afar_net::AbortCode;
use afar_rpc::audit::record_part;
use afar_rpc::{Caller, Operation, Served, rxafs};
use afar_types::{BatchChange, BatchOperation, BatchVnode, Fid, VolumeId};

use super::super::visit::Visit;
use super::run::{Done, fid_of};

/// Tells of each operation of a batch that took so long. Each is told its share of that.
pub(super) fn parts(
    visit: &Visit,
    caller: &Caller,
    volume: VolumeId,
    changes: &[BatchChange],
    done: &Done,
    took: Duration,
) {
    let count = u32::try_from(changes.len()).unwrap_or(u32::MAX);
    let took = took / count.max(1);
    for (change, result) in changes.iter().zip(&done.results) {
        let code = match result.code {
            0 => Ok(()),
            code => Err(visit.translate(AbortCode(code))),
        };
        let part = Part {
            visit,
            caller,
            took,
            code,
        };
        let fid = |vnode: BatchVnode| fid_of(volume, vnode, &done.results).unwrap_or_default();
        part.tell(&change.operation, &fid);
    }
}

/// An operation that was done as a part of a batch.
struct Part<'a> {
    visit: &'a Visit,
    caller: &'a Caller,
    took: Duration,
    code: Result<(), AbortCode>,
}

impl Part<'_> {
    fn tell(&self, operation: &BatchOperation, fid: &dyn Fn(BatchVnode) -> Fid) {
        match operation {
            BatchOperation::Create(make) => self.of(rxafs::create_file::OPERATION, None, || {
                rxafs::create_file::Request {
                    directory: fid(make.directory),
                    name: make.name.clone(),
                    attributes: make.attributes,
                }
            }),
            BatchOperation::MakeDir(make) => self.of(rxafs::make_dir::OPERATION, None, || {
                rxafs::make_dir::Request {
                    directory: fid(make.directory),
                    name: make.name.clone(),
                    attributes: make.attributes,
                }
            }),
            BatchOperation::Symlink(make, target) => {
                self.of(rxafs::symlink::OPERATION, None, || {
                    rxafs::symlink::Request {
                        directory: fid(make.directory),
                        name: make.name.clone(),
                        target: target.clone(),
                        attributes: make.attributes,
                    }
                })
            }
            BatchOperation::Link {
                directory,
                name,
                existing,
            } => self.of(rxafs::link::OPERATION, None, || rxafs::link::Request {
                directory: fid(*directory),
                name: name.clone(),
                existing: fid(*existing),
            }),
            BatchOperation::RemoveFile { directory, name } => {
                self.of(rxafs::remove_file::OPERATION, None, || {
                    rxafs::remove_file::Request {
                        directory: fid(*directory),
                        name: name.clone(),
                    }
                })
            }
            BatchOperation::RemoveDir { directory, name } => {
                self.of(rxafs::remove_dir::OPERATION, None, || {
                    rxafs::remove_dir::Request {
                        directory: fid(*directory),
                        name: name.clone(),
                    }
                })
            }
            BatchOperation::Rename {
                old_directory,
                old_name,
                new_directory,
                new_name,
            } => self.of(rxafs::rename::OPERATION, None, || rxafs::rename::Request {
                old_directory: fid(*old_directory),
                old_name: old_name.clone(),
                new_directory: fid(*new_directory),
                new_name: new_name.clone(),
            }),
            BatchOperation::StoreStatus { target, attributes } => {
                self.of(rxafs::store_status::OPERATION, None, || {
                    rxafs::store_status::Request {
                        fid: fid(*target),
                        attributes: *attributes,
                    }
                })
            }
            BatchOperation::StoreData {
                target,
                attributes,
                data,
            } => {
                let length = data.len() as u64;
                if self.code.is_ok() {
                    self.visit.stored(length);
                }
                self.of(rxafs::store_data64::OPERATION, Some(length), || {
                    rxafs::store_data64::Request {
                        fid: fid(*target),
                        attributes: *attributes,
                        position: 0,
                        length,
                        file_length: length,
                    }
                })
            }
        }
    }

    fn of<Q: Debug>(
        &self,
        operation: &'static Operation,
        data: Option<u64>,
        request: impl FnOnce() -> Q,
    ) {
        let row = rxafs::OPERATIONS
            .iter()
            .position(|row| row.opcode == operation.opcode);
        let served = Served::new(row, self.caller, self.took, self.code);
        self.visit.server.stats.count(&served);
        self.visit.server.metrics.served(&served);
        record_part(operation, self.caller, self.took, data, self.code, request);
    }
}
