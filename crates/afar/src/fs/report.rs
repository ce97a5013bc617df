//! What `afar fs` prints, and how it says that something failed.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use afar_cell::{Error, PathCause};
use afar_types::error::errno::{EACCES, EINVAL, ENOENT, EPERM, EROFS};
use serde::Serialize;

use super::absolute;
use crate::fetch::format::Lines;
use crate::{advice, output};

/// Output of one command, and whether all went well.
pub(super) struct Report {
    lines: Lines,
    json: bool,
    localauth: bool,
    failed: bool,
}

impl Report {
    pub(super) fn new(json: bool, localauth: bool) -> Self {
        Self {
            lines: Lines::new(),
            json,
            localauth,
            failed: false,
        }
    }

    /// Whether JSON is wanted instead of text.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints text, of whole lines.
    pub(super) fn text(&mut self, text: &str) -> Result<(), PathCause> {
        for line in text.lines() {
            self.lines.line(&[line.as_bytes()]).map_err(cannot_print)?;
        }
        Ok(())
    }

    /// Prints an object if JSON is wanted, else its text.
    pub(super) fn either(
        &mut self,
        object: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), PathCause> {
        if self.json {
            self.lines.json(object).map_err(cannot_print)
        } else {
            self.text(&text())
        }
    }

    /// Says why something failed with this path.
    pub(super) fn fail(&mut self, path: &str, cause: &PathCause) -> anyhow::Result<()> {
        let mut text = failure(path, cause);
        if !self.localauth
            && let PathCause::Cell(error) = cause
            && let Some(more) = advice::as_administrator_of(error, &in_afs(path))
        {
            text.push_str(&format!("fs: {more}\n"));
        }
        self.say(&text)
    }

    /// Prints what is wrong on standard error.
    pub(super) fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.failed = true;
        self.warn(text)
    }

    /// The same of what is no failure.
    pub(super) fn warn(&mut self, text: &str) -> anyhow::Result<()> {
        self.lines.flush()?;
        output::usage(text);
        Ok(())
    }

    /// Ends the output.
    pub(super) fn finish(&mut self) -> anyhow::Result<ExitCode> {
        self.lines.flush()?;
        Ok(if self.failed {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

/// The path below `/afs` if it is one in a mount: the cell is told by it.
fn in_afs(path: &str) -> String {
    absolute(Path::new(path)).map_or_else(|| path.to_owned(), |path| path.display().to_string())
}

fn cannot_print(error: io::Error) -> PathCause {
    PathCause::Cell(Error::from(error))
}

/// In the words of OpenAFS's fs, where it has some.
fn failure(path: &str, cause: &PathCause) -> String {
    let errno = match cause {
        PathCause::NotAfs | PathCause::OutsideAfs(_) => Some(EINVAL),
        PathCause::NotFound | PathCause::NoSysname(_) => Some(ENOENT),
        PathCause::Cell(error) => error.errno(),
        _ => None,
    };
    match errno {
        Some(EINVAL) => {
            format!("fs: Invalid argument; it is possible that {path} is not in AFS.\n")
        }
        Some(ENOENT) => format!("fs: File '{path}' doesn't exist\n"),
        Some(EROFS) => "fs: You can not change a backup or readonly volume\n".to_owned(),
        Some(EACCES | EPERM) => {
            format!("fs: You don't have the required access rights on '{path}'\n")
        }
        Some(errno) => {
            let text = io::Error::from_raw_os_error(errno).to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            format!("fs:'{path}': {text}\n")
        }
        None => format!("fs:'{path}': {}\n", advice::told_of(cause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_said_as_openafs_does() {
        assert_eq!(
            failure("/tmp", &PathCause::NotAfs),
            "fs: Invalid argument; it is possible that /tmp is not in AFS.\n"
        );
        assert_eq!(
            failure("/afs/c/x", &PathCause::NotFound),
            "fs: File '/afs/c/x' doesn't exist\n"
        );
        assert_eq!(
            failure("/afs/c/x", &PathCause::NotDirectory),
            "fs:'/afs/c/x': not a directory\n"
        );
        let gone = PathCause::Cell(Error::Gone);
        assert!(failure("x", &gone).ends_with("doesn't exist\n"));
    }
}
