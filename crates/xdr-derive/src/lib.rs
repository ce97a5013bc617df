//! Derives the XDR codec of `afar-xdr` for structs and unions.
