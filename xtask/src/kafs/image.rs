//! A guest's kernel and what it boots into, made from Debian's packages.

use std::fs::{self, File, Permissions};
use std::hash::Hash;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::apt::Apt;
use crate::sh;

/// The guest's first process.
const INIT: &str = include_str!("init");
/// Programs of the guest, and the suite that they and what they need come from.
const PROGRAMS: [&str; 4] = ["busybox-static", "kafs-client", "krb5-user", "perl-base"];
const SUITE: &str = "trixie";
/// What the kernel must load, with all that it needs.
const MODULES: [&str; 6] = [
    "virtio_pci",
    "virtio_net",
    // Before rxrpc, which looks for the ciphers of rxkad when it is loaded.
    "pcbc",
    "fcrypt",
    "rxrpc",
    "kafs",
];
/// What of the packages the guest has no use for.
const UNUSED: [&str; 4] = [
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/man",
    "usr/lib/x86_64-linux-gnu/gconv",
];

/// All that decides what an image of a kernel is.
pub(super) fn recipe() -> impl Hash {
    (INIT, PROGRAMS, SUITE, MODULES, UNUSED)
}

/// Makes `kernel` and `initrd` in a folder, which is there only when both are whole.
pub(super) fn make(apt: &Apt, series: &str, image: &Path) -> Result<()> {
    let scratch = image.with_extension("part");
    if scratch.exists() {
        fs::remove_dir_all(&scratch).context("removing what was not finished")?;
    }
    let (packages, kernel, root) = (
        scratch.join("packages"),
        scratch.join("unpacked"),
        scratch.join("root"),
    );
    let version = apt.kernel(series)?;
    // Newer ones come in parts.
    let parts = ["base", "binary", "modules"].map(|part| format!("linux-{part}-{version}"));
    let whole = [format!("linux-image-{version}")];
    let names: Vec<&str> = match apt.knows(&parts[2]) {
        true => parts.iter().map(String::as_str).collect(),
        false => whole.iter().map(String::as_str).collect(),
    };
    apt.download(&names, &packages.join("kernel"))?;
    unpack(&packages.join("kernel"), &kernel)?;
    apt.download_all(&PROGRAMS, SUITE, &packages.join("programs"))?;
    for folder in ["bin", "sbin", "lib", "lib64"] {
        let to = Path::new("usr").join(folder);
        fs::create_dir_all(root.join(&to)).context("making the guest's folders")?;
        symlink(&to, root.join(folder)).context("making the guest's links")?;
    }
    unpack(&packages.join("programs"), &root)?;
    for unused in UNUSED {
        fs::remove_dir_all(root.join(unused)).ok();
    }
    put_modules(&kernel, &version, &root.join("modules"))?;
    let init = root.join("init");
    fs::create_dir_all(root.join("opt/busybox")).context("making the guest's folders")?;
    fs::write(&init, INIT).context("writing the guest's init")?;
    fs::set_permissions(&init, Permissions::from_mode(0o755)).context("making it executable")?;
    fs::write(scratch.join("version"), &version).context("writing the version")?;
    uncompressed(&kernel, &version, &scratch.join("kernel"))?;
    archive(&root, &scratch.join("initrd"))?;
    for done in [packages, kernel, root] {
        fs::remove_dir_all(&done).with_context(|| format!("removing {}", done.display()))?;
    }
    fs::rename(&scratch, image).with_context(|| format!("renaming to {}", image.display()))
}

/// Unpacks all packages in a folder, without running anything of them.
fn unpack(packages: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    for package in files(packages, "deb")? {
        let mut reader = Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(&package)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start dpkg-deb")?;
        let tar = reader.stdout.take().context("dpkg-deb has no output")?;
        let done = Command::new("tar")
            .args(["-x", "--keep-directory-symlink", "-C"])
            .arg(to)
            .stdin(tar)
            .status()
            .context("cannot start tar")?;
        if !reader.wait().context("waiting for dpkg-deb")?.success() || !done.success() {
            bail!("{} does not unpack: remove it", package.display());
        }
    }
    Ok(())
}

/// Copies the modules that are loaded, uncompressed, with their list in the order of loading.
fn put_modules(kernel: &Path, version: &str, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    // Where modprobe looks for them.
    let below = match kernel.join("lib/modules").exists() {
        true => kernel.to_owned(),
        false => kernel.join("usr"),
    };
    sh::capture(Command::new("depmod").arg("-b").arg(&below).arg(version))?;
    let mut list: Vec<String> = Vec::new();
    for module in MODULES {
        let mut command = Command::new("modprobe");
        command
            .arg("-d")
            .arg(&below)
            .args(["-S", version, "--show-depends", module]);
        for line in sh::capture(&mut command)?.lines() {
            // Else it is built in.
            let Some(path) = line.strip_prefix("insmod ") else {
                continue;
            };
            let path = Path::new(path.trim());
            let name = path.file_name().context("a module without a name")?;
            let name = name.to_string_lossy();
            let plain = name.trim_end_matches(".xz").trim_end_matches(".zst");
            if list.iter().any(|known| known == plain) {
                continue;
            }
            let data = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            let data = match name.rsplit('.').next() {
                Some("xz") => filtered("xz", &data)?,
                Some("zst") => filtered("zstd", &data)?,
                _ => data,
            };
            fs::write(to.join(plain), data).with_context(|| format!("writing {plain}"))?;
            list.push(plain.to_owned());
        }
    }
    fs::write(to.join("list"), list.join("\n") + "\n").context("writing the list of modules")
}

/// Finds the kernel inside its self-extracting image: entered directly, it needs no firmware and does
/// not unpack itself, which costs seconds where instructions are emulated.
fn uncompressed(kernel: &Path, version: &str, to: &Path) -> Result<()> {
    let places = [
        format!("boot/vmlinuz-{version}"),
        format!("usr/lib/modules/{version}/vmlinuz"),
        format!("lib/modules/{version}/vmlinuz"),
    ];
    let image = places.iter().map(|place| kernel.join(place));
    let image = image.into_iter().find(|path| path.exists());
    let image = image.context("no kernel in its package")?;
    let data = fs::read(&image).with_context(|| format!("reading {}", image.display()))?;
    for (magic, program) in [
        (b"\xfd7zXZ\0".as_slice(), "xz"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x02\x21\x4c\x18", "lz4"),
    ] {
        let starts = data.windows(magic.len()).enumerate();
        for (start, _) in starts.filter(|(_, bytes)| *bytes == magic) {
            // The same bytes may stand elsewhere; and what follows the end is none of the program's.
            let found = filtered_up_to_error(program, &data[start..])?;
            if found.starts_with(b"\x7fELF") {
                return fs::write(to, found).with_context(|| format!("writing {}", to.display()));
            }
        }
    }
    bail!("no kernel is found in {}", image.display());
}

fn filtered(program: &str, data: &[u8]) -> Result<Vec<u8>> {
    let found = filtered_up_to_error(program, data)?;
    if found.is_empty() {
        bail!("{program} unpacks nothing");
    }
    Ok(found)
}

/// What a program that unpacks makes of some bytes before it comes to their end or finds an error.
fn filtered_up_to_error(program: &str, data: &[u8]) -> Result<Vec<u8>> {
    let mut child = Command::new(program)
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let mut input = child.stdin.take().context("no pipe")?;
    let mut output = child.stdout.take().context("no pipe")?;
    let mut found = Vec::new();
    std::thread::scope(|scope| {
        // It ends early when there is an error.
        scope.spawn(move || input.write_all(data).ok());
        output.read_to_end(&mut found)
    })
    .with_context(|| format!("reading from {program}"))?;
    child
        .wait()
        .with_context(|| format!("waiting for {program}"))?;
    Ok(found)
}

/// Packs a tree into the format the kernel unpacks at its start, by the guest's own busybox.
fn archive(root: &Path, to: &Path) -> Result<()> {
    let busybox = root.join("usr/bin/busybox");
    let out = File::create(to).with_context(|| format!("making {}", to.display()))?;
    let script = "\"$0\" find . | \"$0\" cpio -o -H newc";
    let done = Command::new(&busybox)
        .args(["sh", "-c", script])
        .arg(&busybox)
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", busybox.display()))?;
    if !done.success() {
        bail!("the guest's files cannot be packed");
    }
    Ok(())
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry
            .with_context(|| format!("reading {}", folder.display()))?
            .path();
        if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    Ok(found)
}
