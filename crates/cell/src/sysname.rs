//! `@sys`: the part of a path that stands for the kind of machine.

/// Names tried in place of `@sys` if nothing else is said, the best first. They are what OpenAFS's
/// client is built with for this kind of machine.
#[must_use]
pub fn default_sysnames() -> Vec<String> {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "i386",
        "aarch64" => "arm64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "powerpc64" => "ppc64",
        other => other,
    };
    let mut names = vec![format!("{machine}_linux26")];
    if machine == "amd64" {
        // Programs for the older machine run on this one.
        names.push("i386_linux26".to_owned());
    }
    names
}

/// The names to look up for one component of a path: itself, or one for each sysname if it ends
/// in `@sys`.
#[must_use]
pub(crate) fn expand(name: &[u8], sysnames: &[String]) -> Vec<Vec<u8>> {
    match name.strip_suffix(b"@sys") {
        Some(front) => sysnames
            .iter()
            .map(|sysname| [front, sysname.as_bytes()].concat())
            .collect(),
        None => vec![name.to_vec()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_name_is_replaced() {
        let sysnames = ["a".to_owned(), "b".to_owned()];
        assert_eq!(expand(b"@sys", &sysnames), [b"a", b"b"]);
        assert_eq!(expand(b"bin.@sys", &sysnames), [b"bin.a", b"bin.b"]);
        assert_eq!(expand(b"@sys.bin", &sysnames), [b"@sys.bin"]);
        assert!(expand(b"@sys", &[]).is_empty());
    }

    #[test]
    fn there_is_a_default() {
        assert!(default_sysnames()[0].ends_with("_linux26"));
    }
}
