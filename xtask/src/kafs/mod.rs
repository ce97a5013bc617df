//! `cargo xtask kafs`: guests with Linux's own AFS client, and the tests that use them.
//!
//! A guest is a kernel of Debian's and a small archive it boots into, both made from packages and kept
//! in `target/kafs`; nothing is installed or changed on the host. The tests start it in an emulator, as
//! the machine that runs them need not have the module, nor KVM.

mod apt;
mod image;

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Subcommand;

use crate::output;
use crate::sh;
use apt::Apt;

/// Tells the tests where the guest's kernel and archive are.
pub(crate) const IMAGE_ENV: &str = "AFAR_TEST_KAFS";
/// The kernel of Debian's stable release.
pub(crate) const STABLE: &str = "6.12";
/// Where images are kept, below the top of the checkout.
const FOLDER: &str = "target/kafs";
/// Programs it takes to make and to run a guest.
const PROGRAMS: [&str; 8] = [
    "qemu-system-x86_64",
    "apt-get",
    "dpkg-deb",
    "tar",
    "depmod",
    "modprobe",
    "xz",
    "zstd",
];

/// Options of `cargo xtask kafs`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build a guest's kernel and archive, if missing, and print their folder
    Image {
        /// Series of Debian's kernels (6.1, 6.12, 6.18, 7.2), or latest
        #[arg(long, default_value = STABLE)]
        kernel: String,
    },
    /// Run the tests with one kernel after the other, as root
    Test {
        /// Series of Debian's kernels, or latest
        #[arg(long, value_delimiter = ',', default_values = ["6.1", STABLE, "latest"])]
        kernel: Vec<String>,
    },
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Image { kernel } => {
            output::line(&image(kernel)?.display().to_string());
            Ok(())
        }
        Command::Test { kernel } => test(kernel),
    }
}

/// The folder of an image with the newest kernel of a series as it was when the image was made.
/// Removing the folder is how to get a newer one.
///
/// # Errors
/// A program is missing, or Debian's mirror cannot be reached.
pub(crate) fn image(series: &str) -> Result<PathBuf> {
    let missing: Vec<&str> = PROGRAMS
        .into_iter()
        .filter(|program| !sh::has_program(program))
        .collect();
    if !missing.is_empty() {
        bail!("no {}", missing.join(", no "));
    }
    let mut recipe = DefaultHasher::new();
    image::recipe().hash(&mut recipe);
    let name = format!("{series}-{:08x}", recipe.finish() >> 32);
    let folder = sh::root().join(FOLDER);
    let image = folder.join(name);
    if !image.exists() {
        output::note(&format!(
            "making a guest with Linux {series} in {}",
            image.display()
        ));
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let apt = Apt::new(&folder.join("apt"))?;
        image::make(&apt, series, &image)?;
    }
    Ok(image)
}

fn test(kernels: &[String]) -> Result<()> {
    let mut failed = Vec::new();
    for kernel in kernels {
        let image = image(kernel)?;
        let profile = ["test", "--profile", "ci", "--locked", "-p", "afar"];
        let mut command = sh::cargo(profile);
        command
            .args(["--test", "interop", "--", "--ignored", "--nocapture"])
            .arg("kafs")
            .env(IMAGE_ENV, image);
        if !sh::follow(&mut command)?.success {
            failed.push(kernel.as_str());
        }
    }
    if !failed.is_empty() {
        bail!("tests fail with Linux {}", failed.join(", "));
    }
    Ok(())
}
