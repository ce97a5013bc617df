//! The codes VL aborts calls with (OpenAFS vl_errors.et).

use afar_net::AbortCode;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $offset:literal;)*) => {
        $($(#[$doc])* pub const $name: AbortCode = AbortCode(363_520 + $offset);)*
    };
}

codes! {
    /// A volume id is taken.
    VL_IDEXIST = 0;
    /// The volume name is taken.
    VL_NAMEEXIST = 2;
    /// The entry could not be made.
    VL_CREATEFAIL = 3;
    /// There is no such entry.
    VL_NOENT = 4;
    /// The entry was deleted, and is still there.
    VL_ENTDELETED = 6;
    /// The name, or the pattern for names, is not valid.
    VL_BADNAME = 7;
    /// The volume type is none.
    VL_BADVOLTYPE = 9;
    /// The server's address is not valid, or there are too many servers.
    VL_BADSERVER = 10;
    /// The partition's number is not valid.
    VL_BADPARTITION = 11;
    /// There are as many sites, or servers, as there can be.
    VL_REPSFULL = 12;
    /// The entry has no such site.
    VL_NOREPSERVER = 13;
    /// The entry has this site already.
    VL_DUPREPSERVER = 14;
    /// The list is too long for one answer.
    VL_SIZEEXCEEDED = 17;
    /// The new entry does not go with the old one.
    VL_BADENTRY = 18;
    /// Too many volume ids are asked for.
    VL_BADVOLIDBUMP = 19;
    /// A volume id belongs to another entry.
    VL_IDALREADYHASHED = 20;
    /// Another operation holds the entry.
    VL_ENTRYLOCKED = 21;
    /// The operation is none.
    VL_BADVOLOPER = 22;
    /// What is to be let go of is nothing.
    VL_BADRELLOCKTYPE = 23;
    /// The last release did not come to its end.
    VL_RERELEASE = 24;
    /// A site's flags are not valid.
    VL_BADSERVERFLAG = 25;
    /// The caller may not do this.
    VL_PERM = 26;
    /// The index is out of range.
    VL_INDEXERANGE = 29;
    /// The addresses belong to other servers.
    VL_MULTIPADDR = 30;
    /// Not exactly one attribute is given.
    VL_BADMASK = 31;
    /// A row of the database makes no sense.
    VL_DBBAD = 32;
}
