//! The codes VL aborts calls with (OpenAFS vl_errors.et).

use afar_net::AbortCode;
use afar_types::error;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])* pub const $name: AbortCode = AbortCode(error::$name);)*
    };
}

codes! {
    /// A volume id is taken.
    VL_IDEXIST;
    /// The volume name is taken.
    VL_NAMEEXIST;
    /// The entry could not be made.
    VL_CREATEFAIL;
    /// There is no such entry.
    VL_NOENT;
    /// The entry was deleted, and is still there.
    VL_ENTDELETED;
    /// The name, or the pattern for names, is not valid.
    VL_BADNAME;
    /// The volume type is none.
    VL_BADVOLTYPE;
    /// The server's address is not valid, or there are too many servers.
    VL_BADSERVER;
    /// The partition's number is not valid.
    VL_BADPARTITION;
    /// There are as many sites, or servers, as there can be.
    VL_REPSFULL;
    /// The entry has no such site.
    VL_NOREPSERVER;
    /// The entry has this site already.
    VL_DUPREPSERVER;
    /// The list is too long for one answer.
    VL_SIZEEXCEEDED;
    /// The new entry does not go with the old one.
    VL_BADENTRY;
    /// Too many volume ids are asked for.
    VL_BADVOLIDBUMP;
    /// A volume id belongs to another entry.
    VL_IDALREADYHASHED;
    /// Another operation holds the entry.
    VL_ENTRYLOCKED;
    /// The operation is none.
    VL_BADVOLOPER;
    /// What is to be let go of is nothing.
    VL_BADRELLOCKTYPE;
    /// The last release did not come to its end.
    VL_RERELEASE;
    /// A site's flags are not valid.
    VL_BADSERVERFLAG;
    /// The caller may not do this.
    VL_PERM;
    /// The index is out of range.
    VL_INDEXERANGE;
    /// The addresses belong to other servers.
    VL_MULTIPADDR;
    /// Not exactly one attribute is given.
    VL_BADMASK;
    /// A row of the database makes no sense.
    VL_DBBAD;
}
