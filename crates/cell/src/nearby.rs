//! Data of files that is on this machine already, such as in the cache of a mount.

use std::fmt::Debug;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use afar_types::{DataVersion, Fid};
use bytes::Bytes;

use crate::volume::Volume;

/// What a method of a trait object returns that may wait.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Knows what is on this machine already.
///
/// It gives data of just the version it is asked for or none: whoever asks does not look whether the
/// file has changed.
pub trait Nearby: Debug + Send + Sync {
    /// What there is of this version of a file; nothing if that cannot be told at once.
    fn find<'a>(
        &'a self,
        volume: &'a Arc<Volume>,
        fid: Fid,
        version: DataVersion,
    ) -> Waiting<'a, Option<Arc<dyn NearbyFile>>>;
}

/// What there is of one version of a file.
pub trait NearbyFile: Debug + Send + Sync {
    /// The bytes that are there, in order.
    fn ranges(&self) -> &[Range<u64>];

    /// Some of them; nothing if it is not certain any more that they are of this version.
    fn read(&self, range: Range<u64>) -> Waiting<'_, Option<Bytes>>;
}
