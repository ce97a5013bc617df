//! The cell under test, by way of its administration commands.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::fixture::{self, ISLANDS, MARKER, SPARSE, SPARSE_LENGTH};
use crate::index::{Index, index};

pub(crate) struct Cell {
    description: Value,
}

/// As `vos dump -time` takes it: in UTC, to the second.
pub(crate) fn time(seconds: u32) -> String {
    let days = i64::from(seconds / 86_400);
    let rest = seconds % 86_400;
    // Days since 1970 to a date of the Gregorian calendar.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{month:02}/{day:02}/{year} {hour:02}:{minute:02}:{second:02}")
}

impl Cell {
    pub(crate) fn load() -> Self {
        let path = std::env::var_os("AFAR_TEST_OPENAFS").expect("AFAR_TEST_OPENAFS names the cell");
        let description = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        Self { description }
    }

    fn text(&self, key: &str) -> &str {
        self.description[key].as_str().unwrap()
    }

    fn vos(&self, words: &[&str]) -> Command {
        let exec = self.description["admin_exec"].as_array().unwrap();
        let mut exec = exec.iter().map(|word| word.as_str().unwrap());
        let mut command = Command::new(exec.next().unwrap());
        command
            .args(exec)
            .arg("vos")
            .args(words)
            .arg("-localauth")
            .env("TZ", "UTC");
        command
    }

    /// Runs vos, and gives what it prints.
    fn ok(&self, words: &[&str]) -> String {
        let output = self.vos(words).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "vos {words:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Removes a volume, if it is there.
    pub(crate) fn remove(&self, name: &str) {
        if self
            .vos(&["examine", name])
            .output()
            .unwrap()
            .status
            .success()
        {
            self.ok(&["remove", self.text("address"), "a", name]);
        }
    }

    /// Begins to restore a volume.
    pub(crate) fn restore(&self, name: &str, more: &[&str]) -> Restore {
        let mut words = vec!["restore", self.text("address"), "a", name];
        words.extend_from_slice(more);
        let command = &mut self.vos(&words);
        let command = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        Restore { child, input }
    }

    /// Begins to dump a volume.
    pub(crate) fn dump(&self, words: &[&str]) -> Dump {
        let words = [&["dump"], words].concat();
        let mut child = self.vos(&words).stdout(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.take();
        Dump { child, output }
    }

    /// What is in a dump of a volume.
    pub(crate) fn index(&self, words: &[&str]) -> Index {
        let mut dump = self.dump(words);
        let index = index(dump.stream());
        dump.finish();
        index
    }

    /// Puts the fixture on the server. Its large file is made sparse where the server keeps it.
    pub(crate) fn fill(&self, name: &str) -> u32 {
        self.remove(name);
        let mut restore = self.restore(name, &[]);
        let mut out = BufWriter::with_capacity(1 << 20, restore.stream());
        fixture::write(&mut out).unwrap();
        out.flush().unwrap();
        drop(out);
        restore.finish();
        self.grow();
        let text = self.ok(&["examine", name]);
        let (_, id) = text.split_once("RWrite:").unwrap();
        id.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Lengthens the file with the marker, and has its vnode say so.
    fn grow(&self) {
        let files = self.files();
        let data = files.iter().find(|path| {
            fs::metadata(path).unwrap().len() == MARKER.len() as u64
                && fs::read(path).unwrap() == MARKER
        });
        let data = File::options().write(true).open(data.unwrap()).unwrap();
        data.set_len(SPARSE_LENGTH).unwrap();
        for (offset, bytes) in ISLANDS {
            data.write_all_at(bytes, offset).unwrap();
        }
        // The index of files: 64 bytes a vnode, in the machine's order, behind one that tells
        // the format (OpenAFS vol/vnode.h).
        let place = SPARSE / 2 * 64;
        let index = files.iter().find(|path| {
            let mut vnode = [0; 64];
            let there = File::open(path)
                .unwrap()
                .read_exact_at(&mut vnode, place.into());
            there.is_ok()
                && vnode[36..40] == 0xda8c_041f_u32.to_ne_bytes()
                && vnode[8..12] == fixture::uniquifier(SPARSE).to_ne_bytes()
        });
        let index = File::options().write(true).open(index.unwrap()).unwrap();
        let [a, b, c, d, low @ ..] = SPARSE_LENGTH.to_be_bytes();
        let high = u32::from_be_bytes([a, b, c, d]);
        let low = u32::from_be_bytes(low);
        index
            .write_all_at(&low.to_ne_bytes(), u64::from(place) + 4)
            .unwrap();
        index
            .write_all_at(&high.to_ne_bytes(), u64::from(place) + 60)
            .unwrap();
    }

    /// Every file of that length on the server is the sparse one, and there are two.
    pub(crate) fn assert_sparse(&self) {
        let mut found = 0;
        for path in self.files() {
            if fs::metadata(&path).unwrap().len() != SPARSE_LENGTH {
                continue;
            }
            found += 1;
            let file = File::open(path).unwrap();
            for (offset, bytes) in ISLANDS {
                let mut there = vec![0; bytes.len()];
                file.read_exact_at(&mut there, offset).unwrap();
                assert_eq!(there, bytes);
            }
        }
        assert_eq!(found, 2);
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let root = Path::new(self.text("dir")).join("server/vicepa/AFSIDat");
        let mut left = vec![root];
        while let Some(dir) = left.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    left.push(entry.path());
                } else {
                    files.push(entry.path());
                }
            }
        }
        files
    }
}

/// A dump that OpenAFS makes.
pub(crate) struct Dump {
    child: Child,
    output: Option<ChildStdout>,
}

impl Dump {
    pub(crate) fn stream(&mut self) -> ChildStdout {
        self.output.take().unwrap()
    }

    pub(crate) fn finish(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

/// A dump that OpenAFS restores.
pub(crate) struct Restore {
    child: Child,
    input: Option<ChildStdin>,
}

impl Restore {
    pub(crate) fn stream(&mut self) -> ChildStdin {
        self.input.take().unwrap()
    }

    pub(crate) fn finish(self) {
        let output = self.child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
    }
}
