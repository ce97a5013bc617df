//! Names, modes and times as people read them.

use std::io::{self, IsTerminal, Write};

use afar_types::{FetchStatus, FileType, UnixTime};
use jiff::Timestamp;
use serde::Serialize;

/// A name in JSON: text, and its bytes where text cannot hold them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Name {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
}

impl Name {
    pub(crate) fn new(name: &[u8]) -> Self {
        let text = String::from_utf8_lossy(name);
        let name_hex = matches!(text, std::borrow::Cow::Owned(_))
            .then(|| name.iter().map(|byte| format!("{byte:02x}")).collect());
        Self {
            name: text.into_owned(),
            name_hex,
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.name
    }
}

/// Writes lines to standard output. On a terminal, characters that would move its cursor are shown
/// as `?`.
pub(crate) struct Lines {
    out: io::BufWriter<io::Stdout>,
    terminal: bool,
}

impl Lines {
    pub(crate) fn new() -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Self {
            out: io::BufWriter::with_capacity(1 << 16, stdout),
            terminal,
        }
    }

    /// One line of these parts.
    pub(crate) fn line(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        for part in parts {
            if self.terminal {
                let text = String::from_utf8_lossy(part);
                let shown: String = text
                    .chars()
                    .map(|c| if c.is_control() { '?' } else { c })
                    .collect();
                self.out.write_all(shown.as_bytes())?;
            } else {
                self.out.write_all(part)?;
            }
        }
        self.out.write_all(b"\n")
    }

    /// One line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, value)?;
        self.out.write_all(b"\n")
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// `drwxr-xr-x`; a mount point shows as `m`.
pub(super) fn mode(status: &FetchStatus) -> String {
    let kind = match status.file_type {
        FileType::File => '-',
        FileType::Directory => 'd',
        FileType::Symlink if status.is_mount_point() => 'm',
        FileType::Symlink => 'l',
        FileType::Invalid | FileType::Other(_) => '?',
    };
    let mut text = String::from(kind);
    let bits = status.unix_mode_bits;
    for (shift, special, set, unset) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let three = bits >> shift;
        text.push(if three & 4 != 0 { 'r' } else { '-' });
        text.push(if three & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & special != 0, three & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// `file`, `directory`, `symlink` or `mount point`.
pub(super) fn kind(status: &FetchStatus) -> &'static str {
    match status.file_type {
        FileType::File => "file",
        FileType::Directory => "directory",
        FileType::Symlink if status.is_mount_point() => "mount point",
        FileType::Symlink => "symlink",
        FileType::Invalid | FileType::Other(_) => "unknown",
    }
}

/// `2026-11-21 13:25:07`, in UTC.
pub(crate) fn time(time: UnixTime) -> String {
    let time = Timestamp::from_second(time.0.into()).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_civil() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_795_267_507, "2026-11-21 13:25:07"),
            (u32::MAX, "2106-02-07 06:28:15"),
        ] {
            assert_eq!(time(UnixTime(seconds)), text);
        }
    }

    #[test]
    fn modes_are_as_ls_shows_them() {
        let shown = |file_type, unix_mode_bits| {
            mode(&FetchStatus {
                file_type,
                unix_mode_bits,
                ..FetchStatus::default()
            })
        };
        assert_eq!(shown(FileType::File, 0o644), "-rw-r--r--");
        assert_eq!(shown(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(shown(FileType::File, 0o4711), "-rws--x--x");
        assert_eq!(shown(FileType::File, 0o2600), "-rw---S---");
        assert_eq!(shown(FileType::Symlink, 0o755), "lrwxr-xr-x");
        assert_eq!(shown(FileType::Symlink, 0o644), "mrw-r--r--");
    }

    #[test]
    fn names_that_are_not_text_keep_their_octets() {
        let json = |name| serde_json::to_string(&Name::new(name)).unwrap();
        assert_eq!(json(b"a"), r#"{"name":"a"}"#);
        assert_eq!(json(b"\xe9"), "{\"name\":\"\u{fffd}\",\"name_hex\":\"e9\"}");
    }
}
