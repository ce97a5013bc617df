//! Files to work on.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::mount::work::{SMALL_FILES, tree};
use crate::sh;

/// Files of a package, and of one of its folders.
const OF_PACKAGE: u32 = 10;
const OF_FOLDER: u32 = 4;
/// The folder that packages are in.
pub(super) const MODULES: &str = "node_modules";
/// Archives that packages are in, which are unpacked side by side.
pub(super) const ARCHIVES: u32 = 8;

/// Sources, of the sizes that sources have.
///
/// # Errors
/// A file cannot be made.
pub(super) fn sources(root: &Path, files: u32) -> Result<()> {
    tree(root, files, |number| {
        SMALL_FILES[number % SMALL_FILES.len()]
    })
}

/// Packs what is in a folder: all of it, or these names.
///
/// # Errors
/// It cannot be packed.
pub(super) fn pack(root: &Path, archive: &Path, names: &[String]) -> Result<()> {
    let mut pack = Command::new("tar");
    pack.arg("cf").arg(archive).arg("-C").arg(root);
    match names {
        [] => pack.arg("."),
        names => pack.args(names),
    };
    sh::capture(&mut pack).map(drop)
}

/// Packages as npm has them: many folders with few files in each. Their archives go to another folder.
///
/// # Errors
/// A file cannot be made.
pub(super) fn packages(root: &Path, archives: &Path, files: u32) -> Result<()> {
    let modules = root.join(MODULES);
    let mut of_archive = vec![Vec::new(); ARCHIVES as usize];
    for number in 0..files {
        let (package, place) = (number / OF_PACKAGE, number % OF_PACKAGE);
        let name = format!("package{package:04}");
        let folder = modules.join(&name).join(match place / OF_FOLDER {
            0 => "",
            1 => "lib",
            _ => "lib/internal",
        });
        if place % OF_FOLDER == 0 {
            fs::create_dir_all(&folder)?;
        }
        if place == 0 {
            let archive = package % ARCHIVES;
            of_archive[archive as usize].push(format!("{MODULES}/{name}"));
        }
        let size = SMALL_FILES[number as usize % SMALL_FILES.len()];
        let line = format!("exports.value{number} = {number};\n");
        let content: Vec<u8> = line.bytes().cycle().take(size).collect();
        fs::write(folder.join(format!("file{place}.js")), content)?;
    }
    fs::create_dir_all(archives)?;
    for (number, names) in of_archive.iter().enumerate() {
        if !names.is_empty() {
            pack(root, &archives.join(format!("{number}.tar")), names)?;
        }
    }
    Ok(())
}

/// A program in C: each two files are a unit and its header.
///
/// # Errors
/// A file cannot be made.
pub(super) fn program(root: &Path, files: u32) -> Result<()> {
    fs::create_dir_all(root)?;
    let (mut includes, mut sum) = (String::new(), "0".to_owned());
    for unit in 0..files.div_ceil(2) {
        let function = format!("int unit{unit}(int value)");
        let source = format!(
            "#include \"unit{unit}.h\"\n#include <stdio.h>\n#include <stdlib.h>\n\
             {function} {{ return value * {unit} + (int) strtol(\"{unit}\", NULL, 10); }}\n"
        );
        fs::write(root.join(format!("unit{unit}.h")), format!("{function};\n"))?;
        fs::write(root.join(format!("unit{unit}.c")), source)?;
        includes += &format!("#include \"unit{unit}.h\"\n");
        sum += &format!(" + unit{unit}(argc)");
    }
    let main = format!(
        "#include <stdio.h>\n{includes}\
         int main(int argc, char **argv) {{ (void) argv; printf(\"%d\\n\", {sum}); return 0; }}\n"
    );
    fs::write(root.join("main.c"), main)?;
    let rules = "OBJECTS := $(patsubst %.c,%.o,$(sort $(wildcard *.c)))\n\
                 program: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n\
                 %.o: %.c $(wildcard *.h)\n\t$(CC) -O1 -c -o $@ $<\n";
    fs::write(root.join("Makefile"), rules).context("making a Makefile")
}

/// Bytes of all files in a folder.
///
/// # Errors
/// It cannot be read.
pub(super) fn bytes(root: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(root).with_context(|| format!("reading {}", root.display()))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sum += bytes(&entry.path())?;
        } else if kind.is_file() {
            sum += entry.metadata()?.len();
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_in_few_archives() {
        let dir = std::env::temp_dir().join(format!("afar-packages-{}", std::process::id()));
        let (root, archives) = (dir.join("data"), dir.join("archives"));
        packages(&root, &archives, 95).unwrap();
        let (count, sum) = (
            fs::read_dir(&archives).unwrap().count(),
            bytes(&root).unwrap(),
        );
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(count, ARCHIVES as usize);
        let sizes = (0..95).map(|number| SMALL_FILES[number % SMALL_FILES.len()] as u64);
        assert_eq!(sum, sizes.sum::<u64>());
    }
}
