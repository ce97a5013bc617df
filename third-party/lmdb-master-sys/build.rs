//! Builds LMDB.

fn main() {
    println!("cargo::rerun-if-changed=lmdb");
    let mut builder = cc::Build::new();
    builder
        .define("MDB_IDL_LOGN", "16")
        .file("lmdb/mdb.c")
        .file("lmdb/midl.c")
        .flag_if_supported("-Wno-unused-parameter")
        .flag_if_supported("-Wno-cast-function-type");
    if std::env::var_os("CARGO_CFG_DEBUG_ASSERTIONS").is_none() {
        builder.define("NDEBUG", None);
    }
    builder.compile("liblmdb.a");
}
