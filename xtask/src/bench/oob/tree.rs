//! The files that are copied: small ones first, during which a client's connection comes about, then large ones.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Files of 1 MiB, the least that goes out of band. The client copies 32 files at a time, so it begins with a large one when
/// 128 of these are there: at 1 Gbit/s and 100 ms a second and more, when a connection should have come about.
const SMALL: u32 = 160;
/// The size of a large file in MiB: the most that the client asks an afar server for in one call.
const LARGE_MIB: u32 = 64;
/// Different words of a text.
const WORDS: usize = 2048;
/// What is compared at a time.
const BLOCK: usize = 1 << 20;

/// What is in the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Random bytes.
    Noise,
    /// Random words, which a compressor makes a third to a quarter of.
    Text,
}

/// Files in a folder of this machine; gone when dropped.
#[derive(Debug)]
pub(super) struct Tree {
    dir: PathBuf,
}

impl Tree {
    /// Makes the small files and so many large ones.
    ///
    /// # Errors
    /// They cannot be written.
    pub(super) fn make(large: u32, content: Content) -> Result<Self> {
        let name = format!("afar-bench-tree-{}", std::process::id());
        let this = Self {
            dir: std::env::temp_dir().join(name),
        };
        remove(&this.dir)?;
        fs::create_dir_all(&this.dir).with_context(|| format!("making {}", this.dir.display()))?;
        let mut words = Words::default();
        for (number, name) in names(large).iter().enumerate() {
            let mib = if number < SMALL as usize {
                1
            } else {
                LARGE_MIB
            };
            let path = this.dir.join(name);
            let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
            match content {
                Content::Noise => noise(file, mib),
                Content::Text => words.write(file, mib),
            }
            .with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(this)
    }

    /// The folder.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Checks that these files are in another folder as well, as they are here.
    ///
    /// # Errors
    /// One is missing there, or differs.
    pub(super) fn check(&self, large: u32, copy: &Path) -> Result<()> {
        for name in names(large) {
            let same = is_same(&self.dir.join(&name), &copy.join(&name))
                .with_context(|| format!("comparing {name}"))?;
            ensure!(same, "the copy of {name} differs");
        }
        Ok(())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // What cannot be removed is in the system's folder for such files.
        fs::remove_dir_all(&self.dir).ok();
    }
}

/// The names of the small files and of so many large ones, in the order in which they are copied.
pub(super) fn names(large: u32) -> Vec<String> {
    let small = (0..SMALL).map(|number| format!("a{number:03}"));
    let large = (0..large).map(|number| format!("b{number:03}"));
    small.chain(large).collect()
}

/// Their size in MiB.
pub(super) fn mib(large: u32) -> u32 {
    SMALL + large * LARGE_MIB
}

/// Removes a folder, which need not exist.
pub(super) fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    Ok(())
}

fn noise(mut file: File, mib: u32) -> Result<()> {
    let mut random = File::open("/dev/urandom")?.take(u64::from(mib) << 20);
    std::io::copy(&mut random, &mut file)?;
    Ok(())
}

fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let mut left = one.metadata()?.len();
    if left != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut here, mut there) = (vec![0; BLOCK], vec![0; BLOCK]);
    while left > 0 {
        let length = BLOCK.min(usize::try_from(left).unwrap_or(BLOCK));
        one.read_exact(&mut here[..length])?;
        other.read_exact(&mut there[..length])?;
        if here[..length] != there[..length] {
            return Ok(false);
        }
        left -= length as u64;
    }
    Ok(true)
}

/// A source of words, the same each time.
struct Words {
    state: u64,
    words: Vec<Vec<u8>>,
}

impl Default for Words {
    fn default() -> Self {
        let mut this = Self {
            state: 0x9E37_79B9_7F4A_7C15,
            words: Vec::new(),
        };
        this.words = (0..WORDS).map(|_| this.word()).collect();
        this
    }
}

impl Words {
    /// A xorshift generator's next number below this one.
    fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state >> 33).unwrap_or_default() % end
    }

    fn word(&mut self) -> Vec<u8> {
        let length = 4 + self.below(10);
        let mut word: Vec<u8> = (0..length)
            .map(|_| b'a' + u8::try_from(self.below(26)).unwrap_or_default())
            .collect();
        word.push(b' ');
        word
    }

    /// So many MiB of words, the first ones more often than the last.
    fn write(&mut self, file: File, mib: u32) -> Result<()> {
        let mut file = BufWriter::with_capacity(BLOCK, file);
        let mut left = usize::try_from(u64::from(mib) << 20)?;
        while left > 0 {
            let most = 1 + self.below(WORDS);
            let number = self.below(most);
            let word = &self.words[number];
            let length = left.min(word.len());
            file.write_all(&word[..length])?;
            left -= length;
        }
        file.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_come_first() {
        let names = names(2);
        assert_eq!(names.len(), SMALL as usize + 2);
        assert!(names.is_sorted());
        assert_eq!(mib(2), SMALL + 2 * LARGE_MIB);
    }

    #[test]
    fn a_copy_that_differs_is_found() {
        let dir = std::env::temp_dir().join(format!("afar-bench-same-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (one, other) = (dir.join("one"), dir.join("other"));
        let mut data = vec![7; BLOCK + 5];
        fs::write(&one, &data).unwrap();
        fs::write(&other, &data).unwrap();
        assert!(is_same(&one, &other).unwrap());
        data[BLOCK + 1] = 8;
        fs::write(&other, &data).unwrap();
        assert!(!is_same(&one, &other).unwrap());
        fs::write(&other, &data[..BLOCK]).unwrap();
        assert!(!is_same(&one, &other).unwrap());
        fs::remove_dir_all(&dir).unwrap();
    }
}
