//! What is built of the C sources here.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// What OpenAFS's code is linked with: Heimdal's libraries, of which there is no package for developers
/// that goes with MIT's.
const HEIMDAL: [&str; 2] = ["-l:libhcrypto.so.5", "-l:libroken.so.19"];

/// The built programs.
pub(crate) struct Programs {
    folder: TempDir,
}

impl Programs {
    /// Builds them all.
    pub(crate) fn build() -> Self {
        let folder = TempDir::new().unwrap();
        let exports = folder.path().join("exports");
        std::fs::write(&exports, "{ global: krb5_*; local: *; };").unwrap();
        let this = Self { folder };
        let shared = ["-shared", "-fPIC"];
        this.compile("module.so", "module.c", &shared, &[]);
        let script = format!("-Wl,--version-script={}", exports.display());
        this.compile(
            "afsio.so",
            "afsio.c",
            &[&shared[..], &["-Wl,-Bsymbolic", &script]].concat(),
            &[&["/usr/lib/libafsrpc_pic.a"], &HEIMDAL[..]].concat(),
        );
        this.compile(
            "client",
            "client.c",
            &[],
            &[
                &["/usr/lib/libafsrpc.a"],
                &HEIMDAL[..],
                &["-lkrb5", "-lpthread"],
            ]
            .concat(),
        );
        this
    }

    /// Preloaded, it stands in for OpenAFS's kernel module: keeps tokens.
    pub(crate) fn module(&self) -> PathBuf {
        self.folder.path().join("module.so")
    }

    /// Preloaded, it lets afsio use tickets.
    pub(crate) fn afsio(&self) -> PathBuf {
        self.folder.path().join("afsio.so")
    }

    /// A client of file servers by OpenAFS's Rx and rxkad.
    pub(crate) fn client(&self) -> PathBuf {
        self.folder.path().join("client")
    }

    fn compile(&self, name: &str, source: &str, options: &[&str], libraries: &[&str]) {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/kerberos");
        let output = Command::new("cc")
            .args(["-O2", "-Wall", "-o"])
            .arg(self.folder.path().join(name))
            .args(options)
            .arg(here.join(source))
            .args(libraries)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{source}: {errors}");
    }
}
