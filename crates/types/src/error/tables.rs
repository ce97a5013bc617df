//! Error tables in AFS's numbering; the words are ours.

/// Codes of one service: row n has code `base` + n.
pub(super) struct Table {
    pub(super) space: &'static str,
    pub(super) base: i32,
    pub(super) rows: &'static [Row],
}

/// A code's name and what it says.
type Row = (&'static str, &'static str);

/// Codes that stand alone.
pub(super) const SINGLE: &[(i32, &str, &str)] = &[
    (
        -100,
        "VRESTARTING",
        "the file server is starting: try again",
    ),
    (
        120,
        "VRESTRICTED",
        "the volume may not use this server's storage",
    ),
    (
        1234,
        "VICECONNBAD",
        "the connection to the file server is no longer good",
    ),
    (1235, "VICETOKENDEAD", "the token is no longer good"),
];

/// Where a name stands in a table.
const fn place(rows: &[Row], name: &str) -> i32 {
    let (mut row, mut place) = (0, 0);
    while row < rows.len() {
        if is_equal(rows[row].0.as_bytes(), name.as_bytes()) {
            return place;
        }
        row += 1;
        place += 1;
    }
    panic!("no such row");
}

/// The operator does not work in constants.
const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Writes tables: their rows in the order of the codes, of which each becomes a constant.
macro_rules! tables {
    ($($table:ident: $space:literal from $base:literal { $($name:ident: $text:literal;)* })*) => {
        pub(super) const TABLES: &[Table] = &[
            $(Table { space: $space, base: $base, rows: $table },)*
        ];

        $(
            const $table: &[Row] = &[$((stringify!($name), $text)),*];

            $(
                #[doc = concat!($space, ": ", $text, ".")]
                pub const $name: i32 = $base + place($table, stringify!($name));
            )*
        )*
    };
}

// spec: afs-rpc#error-codes
tables! {
    VICE: "VICE" from 101 {
        VSALVAGE: "the volume needs to be salvaged";
        VNOVNODE: "the file does not exist any more";
        VNOVOL: "the volume is not on this server";
        VVOLEXISTS: "the volume exists already";
        VNOSERVICE: "the volume is not in service, or the call was idle for too long";
        VOFFLINE: "the volume is off line";
        VONLINE: "the volume is on line already";
        VDISKFULL: "the partition is full";
        VOVERQUOTA: "the volume's quota is used up";
        VBUSY: "the volume or server is busy: try again";
        VMOVED: "the volume has moved to another server";
        VIO: "the server could not read or write the file";
        VSALVAGING: "the volume is being salvaged";
    }

    RX: "RX" from -8 {
        RX_MSGSIZE: "a packet was too large for the path to the peer";
        RX_ADDRINUSE: "the port is in use";
        RX_USER_ABORT: "the call was cancelled";
        RX_PROTOCOL_ERROR: "the peer broke the rules of Rx";
        RX_EOF: "the peer ended the call early";
        RX_CALL_TIMEOUT: "the call took too long";
        RX_INVALID_OPERATION: "the connection does not take this operation";
        RX_CALL_DEAD: "the peer did not answer";
    }

    RXGEN: "RXGEN" from -457 {
        RXGEN_CC_XDRFREE: "the client could not release its arguments";
        RXGEN_SS_XDRFREE: "the server could not release its arguments";
        RXGEN_OPCODE: "the server does not know this operation";
        RXGEN_DECODE: "a message could not be decoded";
        RXGEN_SS_UNMARSHAL: "the server could not decode the request";
        RXGEN_SS_MARSHAL: "the server could not encode the reply";
        RXGEN_CC_UNMARSHAL: "the client could not decode the reply";
        RXGEN_CC_MARSHAL: "the client could not encode the request";
    }

    UBIK: "U" from 5376 {
        UNOQUORUM: "the database servers have no majority at the moment";
        UNOTSYNC: "this database server does not take changes";
        UNHOSTS: "there are too many database servers";
        UIOERROR: "the database or its log could not be written";
        UINTERNAL: "the database server met an error of its own";
        USYNC: "the database servers disagree";
        UNOENT: "the database file is missing";
        UBADLOCK: "a lock has a range other than 1";
        UBADLOG: "the database's log could not be read back";
        UBADHOST: "the database server's host name is wrong";
        UBADTYPE: "this kind of transaction does not allow the operation";
        UTWOENDS: "the transaction was ended twice";
        UDONE: "the transaction is over already";
        UNOSERVERS: "no database server answers";
        UEOF: "the database file ends early";
        ULOGIO: "the database's log could not be written";
        UBADFAM: "the address family is not supported";
        UBADCELL: "the cell names differ";
        UBADSECGRP: "the security group is wrong or missing";
        UBADGROUP: "the server group is wrong or missing";
        UBADUUID: "the server's UUID is wrong or missing";
        UNOMEM: "the database server ran out of memory";
        UNOTMEMBER: "the host is not one of the database servers";
        UNBINDINGS: "a server has too many bindings";
        UBADPRINNAME: "the principal's name differs";
        UPIPE: "a pipe inside the database server failed";
        UDEADLOCK: "the operation was given up to avoid a deadlock";
        UEXCEPTION: "the RPC run-time failed";
        UTPQFAIL: "a vote could not be queued";
        USKEWED: "the clocks of the database servers differ too much";
        UNOLOCK: "the database lock was not available";
        UNOACCESS: "the database server does not allow this";
        UNOSPC: "no space is left for the database";
        UBADPATH: "the database's path is not valid";
        UBADF: "the database file is not open";
        UREINITIALIZE: "the ubik client was reset before it was set up";
        UMUTEXINIT: "a lock of the ubik client could not be made";
        UMUTEXDESTROY: "a lock of the ubik client could not be released";
    }

    BZ: "BZ" from 39_424 {
        BZNOTACTIVE: "the process is not running";
        BZNOENT: "the overseer has nothing of this name";
        BZBUSY: "the overseer cannot do this now";
        BZEXISTS: "the overseer has something of this name already";
        BZNOCREATE: "the process could not be made";
        BZDOM: "the number is past the end of the list";
        BZACCESS: "the overseer does not allow this";
        BZSYNTAX: "a parameter of the process is not well formed";
        BZIO: "the overseer could not read or write a file";
        BZNET: "the overseer met an error of the network";
        BZBADTYPE: "the overseer knows no processes of this type";
        BZKEYINUSE: "the key's version is taken";
        BZENCREQ: "the overseer takes this only encrypted";
    }

    PT: "PT" from 267_264 {
        PREXIST: "the name is taken";
        PRIDEXIST: "the id is taken";
        PRNOIDS: "no free id is left";
        PRDBFAIL: "the protection database could not be read or written";
        PRNOENT: "there is no such user or group";
        PRPERM: "the protection server does not allow this";
        PRNOTGROUP: "this is not a group";
        PRNOTUSER: "this is not a user";
        PRBADNAM: "the name is not well formed, or its prefix is not the owner";
        PRBADARG: "an argument is not valid";
        PRNOMORE: "the user may not create more groups";
        PRDBBAD: "the protection database needs repair";
        PRGROUPEMPTY: "an empty group cannot be an owner";
        PRINCONSISTENT: "the protection database contradicts itself";
        PRDBADDR: "an address in the protection database is wrong";
        PRTOOMANY: "the group has too many members";
        PRNOMEM: "the protection server ran out of memory";
        PRINTERNAL: "the protection server met an error of its own";
        PRNAMETOOLONG: "the name has more than 63 characters";
    }

    VL: "VL" from 363_520 {
        VL_IDEXIST: "the volume id is taken";
        VL_IO: "the location database could not be read or written";
        VL_NAMEEXIST: "the volume name is taken";
        VL_CREATEFAIL: "the entry could not be made";
        VL_NOENT: "there is no such volume in this cell";
        VL_EMPTY: "the location database is empty";
        VL_ENTDELETED: "the entry has been deleted";
        VL_BADNAME: "the volume name is not valid";
        VL_BADINDEX: "the index is not valid";
        VL_BADVOLTYPE: "the volume type is not valid";
        VL_BADSERVER: "the server's number is not valid";
        VL_BADPARTITION: "the partition's number is not valid";
        VL_REPSFULL: "the volume has as many sites as it can";
        VL_NOREPSERVER: "the volume has no such site";
        VL_DUPREPSERVER: "the volume has this site already";
        VL_RWNOTFOUND: "the volume has no read-write site";
        VL_BADREFCOUNT: "a reference count is not valid";
        VL_SIZEEXCEEDED: "the list has grown too long";
        VL_BADENTRY: "the entry is not valid";
        VL_BADVOLIDBUMP: "too many volume ids were asked for";
        VL_IDALREADYHASHED: "the volume id is in the index already";
        VL_ENTRYLOCKED: "another operation holds the volume's entry";
        VL_BADVOLOPER: "the operation named for the lock is not valid";
        VL_BADRELLOCKTYPE: "the kind of lock to release is not valid";
        VL_RERELEASE: "an earlier release was not finished";
        VL_BADSERVERFLAG: "a site's flag is not valid";
        VL_PERM: "the location server does not allow this";
        VL_NOMEM: "the location server ran out of memory";
        VL_BADVERSION: "the location database is of another version";
        VL_INDEXERANGE: "the index is out of range";
        VL_MULTIPADDR: "the addresses belong to several servers";
        VL_BADMASK: "the attributes asked for do not go together";
        VL_DBBAD: "the location database needs repair";
    }

    RXK: "RXK" from 19_270_400 {
        RXKADINCONSISTENCY: "the security state of the connection is damaged";
        RXKADPACKETSHORT: "a packet is too short for the challenge or response";
        RXKADLEVELFAIL: "the sides want different levels of protection";
        RXKADTICKETLEN: "the ticket is too long or too short";
        RXKADOUTOFSEQUENCE: "a packet or response is out of sequence";
        RXKADNOAUTH: "the caller is not authorised";
        RXKADBADKEY: "the key is weak or not valid";
        RXKADBADTICKET: "the ticket is not valid";
        RXKADUNKNOWNKEY: "the server does not have the key the ticket was made with";
        RXKADEXPIRED: "the token has expired";
        RXKADSEALEDINCON: "sealed data is damaged, or the key is wrong";
        RXKADDATALEN: "a packet has more data than it may";
        RXKADILLEGALLEVEL: "the caller may not use encryption";
    }

    RXGK: "RXGK" from 1_233_242_880 {
        RXGK_INCONSISTENCY: "the security state of the connection is damaged";
        RXGK_PACKETSHORT: "a packet is too short for the challenge or response";
        RXGK_BADCHALLENGE: "the challenge is not valid";
        RXGK_BADETYPE: "the type of encryption is not valid or not allowed";
        RXGK_BADLEVEL: "the level of protection is not valid or not allowed";
        RXGK_BADKEYNO: "the key's version is not known";
        RXGK_EXPIRED: "the token has expired";
        RXGK_NOTAUTH: "the caller is not authorised";
        RXGK_BAD_TOKEN: "the token is not valid";
        RXGK_SEALED_INCON: "sealed data is damaged, or the key is wrong";
        RXGK_DATA_LEN: "a packet has more data than it may";
        RXGK_BAD_QOP: "no sufficient protection is available";
    }

    VOLS: "VOLS" from 1_492_325_120 {
        VOLSERTRELE_ERROR: "the volume server could not release a transaction";
        VOLSERNO_OP: "the volume server met an error of its own";
        VOLSERREAD_DUMPERROR: "the dump is not well formed";
        VOLSERDUMPERROR: "the dump could not be made or restored";
        VOLSERATTACH_ERROR: "the volume could not be attached";
        VOLSERILLEGAL_PARTITION: "the server has no such partition";
        VOLSERDETACH_ERROR: "the volume could not be detached";
        VOLSERBAD_ACCESS: "the caller may not do this to volumes";
        VOLSERVLDB_ERROR: "the location database gave an error";
        VOLSERBADNAME: "the volume name is not valid";
        VOLSERVOLMOVED: "the volume has moved";
        VOLSERBADOP: "the operation does not fit the volume";
        VOLSERBADRELEASE: "not every site was released";
        VOLSERVOLBUSY: "another transaction holds the volume";
        VOLSERNO_MEMORY: "the volume server ran out of memory";
        VOLSERNOVOL: "there is no such volume";
        VOLSERMULTIRWVOL: "the volume has more than one read-write site";
        VOLSERFAILEDOP: "the volume operation failed";
    }
}
