//! Files of keys: KeyFileExt, KeyFile, keytabs. What is read can be listed, and a KeyFileExt can be
//! changed and read again.

#![no_main]

use std::cell::LazyCell;
use std::fs;
use std::path::PathBuf;

use afar_security::KeyRing;
use afar_security::keys::{KeyKind, edit};
use libfuzzer_sys::fuzz_target;

thread_local! {
    /// A directory in memory, this process's own.
    static DIR: LazyCell<PathBuf> = LazyCell::new(|| {
        let dir = PathBuf::from(format!("/dev/shm/afar-fuzz-keys-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory in memory");
        dir
    });
}

fuzz_target!(|data: &[u8]| {
    let Some((form, content)) = data.split_first() else {
        return;
    };
    let name = ["KeyFileExt", "KeyFile", "rxkad.keytab", "KeyFileExt"][usize::from(form % 4)];
    let path = DIR.with(|dir| dir.join(name));
    fs::write(&path, content).expect("a file in memory");
    if let Ok(keys) = KeyRing::open([&path]) {
        for key in keys.list() {
            assert!(!key.to_string().is_empty());
            drop(keys.find(key.kvno, key.etype));
        }
        drop(keys.newest());
    }
    if form % 4 == 3
        && let Ok(listed) = edit::list(&path)
        && let Some(first) = listed.iter().find(|key| key.kind == KeyKind::RxkadKrb5)
    {
        let removed = edit::remove(&path, first.kvno, Some(first.etype)).expect("it is listed");
        let left = edit::list(&path).expect("what was written can be read");
        assert_eq!(left.len() + removed.len(), listed.len());
    }
});
