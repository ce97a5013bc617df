//! Asking for passwords.

use std::io::{self, IsTerminal, Read};

use anyhow::{Context, bail, ensure};
use zeroize::Zeroizing;

/// Bytes of a password that are read from standard input.
const STDIN_MAX: u64 = 4096;

/// Asks for a password at the terminal, without showing it.
///
/// # Errors
/// There is no terminal.
pub(crate) fn ask(prompt: &str) -> anyhow::Result<Zeroizing<String>> {
    let password = rpassword::prompt_password(prompt)
        .context("there is no terminal to ask for a password; use --password-stdin")?;
    Ok(Zeroizing::new(password))
}

/// Asks for a new password, twice.
///
/// # Errors
/// There is no terminal, or what was typed differs or is empty.
pub(crate) fn ask_new(whose: &str) -> anyhow::Result<Zeroizing<String>> {
    let first = ask(&format!("New password of {whose}: "))?;
    ensure!(
        !first.is_empty(),
        "the password is empty; nothing was changed"
    );
    let second = ask("Retype new password: ")?;
    if first != second {
        bail!("the two passwords differ; nothing was changed");
    }
    Ok(first)
}

/// Reads a password from standard input: its first line.
///
/// # Errors
/// It cannot be read, or is empty or no UTF-8.
pub(crate) fn from_stdin() -> anyhow::Result<Zeroizing<String>> {
    if io::stdin().is_terminal() {
        // A user who types it here by mistake should not see it.
        return ask("Password: ");
    }
    of(io::stdin().lock())
}

/// The first line of what there is to read.
fn of(input: impl Read) -> anyhow::Result<Zeroizing<String>> {
    let room = usize::try_from(STDIN_MAX).unwrap_or(0) + 1;
    let mut text = Zeroizing::new(String::with_capacity(room));
    let read = input.take(STDIN_MAX).read_to_string(&mut text);
    read.context("cannot read a password from standard input")?;
    let line = text.lines().next().unwrap_or("");
    ensure!(!line.is_empty(), "standard input has no password");
    Ok(Zeroizing::new(line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line() {
        for text in ["secret", "secret\n", "secret\r\n", "secret\nmore\n"] {
            assert_eq!(of(text.as_bytes()).unwrap().as_str(), "secret");
        }
        assert!(of(&b""[..]).is_err());
        assert!(of(&b"\nsecret"[..]).is_err());
        assert!(of(&b"\xff\n"[..]).is_err());
    }
}
