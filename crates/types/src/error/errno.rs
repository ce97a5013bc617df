//! `errno` values of Linux, with which servers abort calls and clients say what failed.

codes! {
    /// Not permitted to anyone but the owner or an administrator.
    EPERM = 1;
    /// No such file or directory.
    ENOENT = 2;
    /// Interrupted.
    EINTR = 4;
    /// Reading or writing failed.
    EIO = 5;
    /// A list is too long.
    E2BIG = 7;
    /// Not now: try again.
    EAGAIN = 11;
    /// The access list does not allow it.
    EACCES = 13;
    /// It exists already.
    EEXIST = 17;
    /// In another directory or volume.
    EXDEV = 18;
    /// No such device; of AFS, no such volume here.
    ENODEV = 19;
    /// Not a directory.
    ENOTDIR = 20;
    /// A directory.
    EISDIR = 21;
    /// An argument makes no sense.
    EINVAL = 22;
    /// A file or directory would be too large.
    EFBIG = 27;
    /// No space left.
    ENOSPC = 28;
    /// It cannot be changed.
    EROFS = 30;
    /// Nobody reads what is written.
    EPIPE = 32;
    /// A name is too long.
    ENAMETOOLONG = 36;
    /// No lock is free.
    ENOLCK = 37;
    /// There is no connection. [`lookup`](super::lookup) takes the number for `VONLINE`.
    ENOTCONN = 107;
    /// What it was found by is not known any more.
    ESTALE = 116;
    /// The quota is used up.
    EDQUOT = 122;
    /// It was not tried.
    ECANCELED = 125;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::lookup;

    #[test]
    fn the_table_of_codes_has_the_same_names() {
        macro_rules! check {
            ($($name:ident)*) => {
                $(assert_eq!(lookup($name).map(|info| info.name), Some(stringify!($name)));)*
            };
        }
        check!(
            EPERM ENOENT EINTR EIO E2BIG EAGAIN EACCES EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL
            EFBIG ENOSPC EROFS EPIPE ENAMETOOLONG ENOLCK EDQUOT
        );
    }
}
