//! Names of the extended attributes by which a mount is looked at and told what to do.
//!
//! Those of a file are its own; those of the cache are the same whatever file they are asked of.

/// The cell a file is in.
pub const CELL: &str = "afs.cell";
/// Its identifier.
pub const FID: &str = "afs.fid";
/// The name of its volume.
pub const VOLUME: &str = "afs.volume";
/// The access control list of a directory; may be set.
pub const ACL: &str = "afs.acl";
/// The rights of whoever asks.
pub const ACCESS: &str = "afs.access";
/// The version of its data.
pub const DATA_VERSION: &str = "afs.data_version";
/// The addresses of the servers of its volume.
pub const SERVERS: &str = "afs.servers";
/// The text of the mount point through which the root of a volume was reached.
pub const MOUNT_POINT: &str = "afs.mountpoint";

/// What is known of it, as [`PathInfo`](crate::PathInfo); not listed.
pub const PATH_INFO: &str = "afs.pathinfo";

/// Set to whatever: what is cached of the file is dropped.
pub const FLUSH: &str = "afs.flush";
/// The same of all that is in its volume.
pub const FLUSH_VOLUME: &str = "afs.flushvolume";
/// Set to whatever: all volumes are looked up again.
pub const CHECK_VOLUMES: &str = "afs.checkvolumes";

/// Asked of the top directory with a [`PlaceName`](crate::PlaceName) of a file behind it: what there is of
/// the file, as [`Held`](crate::Held). Nobody is asked for that but, if there is something, servers for rights.
pub const HELD: &str = "afs.held:";
/// The same, but only the version that is told of.
pub const HELD_VERSION: &str = "afs.heldversion:";

/// Bytes that the cache's data takes, may take, and takes until it is stored.
pub const CACHE: &str = "afs.cache";
/// Bytes that it may take; set by root, to 0 for what the cache was opened with.
pub const CACHE_SIZE: &str = "afs.cachesize";
/// Bytes of a file that may have to be stored when it is closed; set by root.
pub const STORE_BEHIND: &str = "afs.storebehind";
/// What goes out of band, as [`OobInfo`](crate::OobInfo).
pub const OOB: &str = "afs.oob";
/// Bytes from which a piece of a file goes out of band, 0 for none; set by root.
pub const OOB_THRESHOLD: &str = "afs.oobthreshold";
/// Set by root to whatever: servers that out-of-band transfers did not reach, or that offered none, are tried again.
pub const OOB_RETRY: &str = "afs.oobretry";
/// Ranks of file servers: address and rank, one a line; set by root.
pub const FILE_RANKS: &str = "afs.serverprefs";
/// The same of volume location servers.
pub const LOCATION_RANKS: &str = "afs.vlserverprefs";

/// Those that everything has, and that are listed.
pub(crate) const LISTED: [&str; 7] = [CELL, FID, VOLUME, ACL, ACCESS, DATA_VERSION, SERVERS];
