//! Which files of a crate use which: read from the paths in their code, without a compiler.
//!
//! A file uses another if it imports something from there (`use crate::…`, `use super::…`, `use self::…`) or names
//! it by such a path. A name that a module only passes on is followed to where it comes from, so that a file uses
//! what it names and not what passes it on. Tests may use what they like and are left out.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

/// A crate's files that are not tests, and what their code names.
#[derive(Debug)]
pub(super) struct Crate<'a> {
    /// As the folder is named.
    pub(super) name: &'a str,
    /// By module, the root's is empty.
    files: BTreeMap<Vec<String>, File<'a>>,
}

#[derive(Debug)]
struct File<'a> {
    path: &'a str,
    imports: Vec<Import>,
}

/// A path in the code of a file.
#[derive(Debug, PartialEq, Eq)]
struct Import {
    line: usize,
    /// From the crate's root.
    path: Vec<String>,
    /// The name it has in the file; `*` for all names, none for a path that is no import.
    name: Option<String>,
    /// Whether other files see that name.
    exported: bool,
}

/// One file uses another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrow<'a> {
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    /// Where the first file says so.
    pub(super) line: usize,
}

/// The crates of the project.
pub(super) fn crates(sources: &[Source]) -> Vec<Crate<'_>> {
    let mut found: BTreeMap<&str, BTreeMap<Vec<String>, (&Source, String)>> = BTreeMap::new();
    for source in sources {
        if let Some((name, module)) = module_of(&source.path) {
            let code = blank(&source.text);
            let files = found.entry(name).or_default();
            files.insert(module, (source, code));
        }
    }
    let with_files = found.into_iter().map(|(name, texts)| {
        let mut tests = BTreeSet::new();
        let mut files = BTreeMap::new();
        for (module, (source, code)) in texts {
            let (code, test_modules) = without_tests(&code);
            for test in test_modules {
                tests.insert([&module[..], &[test]].concat());
            }
            let imports = imports(&code, &module);
            let path = &source.path;
            files.insert(module, File { path, imports });
        }
        files.retain(|module, _| !(1..=module.len()).any(|end| tests.contains(&module[..end])));
        Crate { name, files }
    });
    with_files.collect()
}

impl<'a> Crate<'a> {
    /// Its arrows, one from a file to another at most. A module that passes on what is below it does not use it.
    pub(super) fn arrows(&self) -> Vec<Arrow<'a>> {
        let mut arrows: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (module, file) in &self.files {
            for import in &file.imports {
                let Some(target) = self.resolve(&import.path, 0) else {
                    continue;
                };
                let passes_on = import.exported && target.starts_with(module);
                if passes_on || target == module {
                    continue;
                }
                let key = (file.path, self.files[target].path);
                arrows.entry(key).or_insert(import.line);
            }
        }
        let arrows = arrows.into_iter();
        arrows
            .map(|((from, to), line)| Arrow { from, to, line })
            .collect()
    }

    /// The module that something is in.
    fn resolve(&self, path: &[String], depth: u32) -> Option<&Vec<String>> {
        /// Names that are passed on by one module after the other.
        const DEPTH_MOST: u32 = 16;
        let is_module = |end: &usize| self.files.contains_key(&path[..*end]);
        let end = (0..=path.len()).rev().find(is_module)?;
        let (module, file) = self.files.get_key_value(&path[..end])?;
        let Some(name) = path.get(end).filter(|_| depth < DEPTH_MOST) else {
            return Some(module);
        };
        let passed_on = file.imports.iter().find(|import| {
            let itself = import.path == path[..=end];
            !itself && import.name.as_ref() == Some(name)
        });
        match passed_on {
            Some(import) => self.resolve(&import.path, depth + 1),
            None => Some(module),
        }
    }
}

/// The crate and module of a file: `x` and `a::b` for `crates/x/src/a/b.rs`.
fn module_of(path: &str) -> Option<(&str, Vec<String>)> {
    let path = path.strip_suffix(".rs")?;
    let (name, file) = match path.strip_prefix("xtask/src/") {
        Some(file) => ("xtask", file),
        None => path.strip_prefix("crates/")?.split_once("/src/")?,
    };
    let mut module: Vec<_> = file.split('/').map(str::to_owned).collect();
    let is_root = module.len() == 1 && ["lib", "main"].contains(&&*module[0]);
    if is_root || module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    (!name.contains('/')).then_some((name, module))
}

/// Source text without what is in comments and quotes; lines stay where they are.
fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest, code.chars().next_back());
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (skipped, after) = rest.split_at(length);
        code.push(' ');
        code.extend(skipped.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    code
}

/// Bytes of the comment or quote that a text begins with, 0 if it begins with neither.
fn skipped(text: &str, before: Option<char>) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return text.find("*/").map_or(text.len(), |end| end + 2);
    }
    let in_word = before.is_some_and(is_word);
    if !in_word && let Some(raw) = text.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", &raw[..hashes]);
            let start = 1 + hashes + 1;
            return text[start..]
                .find(&end)
                .map_or(text.len(), |at| start + at + end.len());
        }
    }
    match text.as_bytes() {
        [b'"', ..] => quoted(text, '"'),
        // A character and no lifetime.
        [b'\'', b'\\', ..] => quoted(text, '\''),
        [b'\'', ..] => {
            let mut chars = text[1..].chars();
            let one = chars.next().map_or(0, char::len_utf8);
            match chars.next() {
                Some('\'') => one + 2,
                _ => 0,
            }
        }
        _ => 0,
    }
}

/// Bytes up to the end of a quote, which a backslash before it does not make.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// Source text without what is in comments and quotes, and what is compiled for tests only; lines stay where they are.
pub(super) fn production(text: &str) -> String {
    without_tests(&blank(text)).0
}

/// Code without what is compiled for tests only, and the names of the modules that are.
fn without_tests(code: &str) -> (String, Vec<String>) {
    const MARK: &str = "#[cfg(test)]";
    let (mut kept, mut modules) = (String::new(), Vec::new());
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        kept.push_str(&rest[..at]);
        let item = &rest[at + MARK.len()..];
        let end = item_end(item);
        let declared = item[..end].trim().strip_suffix(';');
        let declared = declared.and_then(|item| item.rsplit_once("mod "));
        modules.extend(declared.map(|(_, name)| name.trim().to_owned()));
        kept.extend(item[..end].chars().filter(|c| *c == '\n'));
        rest = &item[end..];
    }
    kept.push_str(rest);
    (kept, modules)
}

/// Where the first item of some code ends.
fn item_end(code: &str) -> usize {
    let mut depth = 0_u32;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && matches!(c, ';' | '}') {
            return at + 1;
        }
    }
    code.len()
}

/// The paths in the code of a module.
fn imports(code: &str, module: &[String]) -> Vec<Import> {
    let children: BTreeSet<&str> = code
        .lines()
        .filter_map(|line| Some(line.trim().strip_suffix(';')?.rsplit_once("mod ")?.1))
        .collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let rest = &code[at..];
        let before = code[..at].chars().next_back();
        let starts_word = !before.is_some_and(|before| is_word(before) || before == ':');
        let first = word(rest);
        if first.is_empty() || !starts_word {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        }
        let start_of_path = at;
        let mut paths = Vec::new();
        let mut exported = false;
        if first == "use" {
            let end = rest.find(';').unwrap_or(rest.len());
            expand(&mut Vec::new(), &rest[first.len()..end], &mut paths);
            let start = code[..at]
                .rfind([';', '}', '{', ']'])
                .map_or(0, |at| at + 1);
            exported = code[start..at].trim_start().starts_with("pub");
            at += end;
        } else {
            let path = inline_path(rest);
            at += path.len().max(first.len());
            // Those of `pub(crate)` are no paths.
            if ["crate", "super"].contains(&first) && path != first {
                let path = path.split("::").map(str::to_owned).collect();
                paths.push((path, None));
            }
        }
        for (path, name) in paths {
            if let Some(path) = absolute(&path, module, &children) {
                let line = 1 + code[..start_of_path].matches('\n').count();
                found.push(Import {
                    line,
                    path,
                    name,
                    exported,
                });
            }
        }
    }
    found
}

/// The paths of a tree of imports, each with the name it has in the file.
fn expand(front: &mut Vec<String>, tree: &str, found: &mut Vec<(Vec<String>, Option<String>)>) {
    let tree = tree.trim();
    if let Some(inner) = tree.strip_prefix('{') {
        let inner = inner.strip_suffix('}').unwrap_or(inner);
        let (mut depth, mut start) = (0_u32, 0);
        for (at, c) in inner.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    expand(front, &inner[start..at], found);
                    start = at + 1;
                }
                _ => {}
            }
        }
        if !inner[start..].trim().is_empty() {
            expand(front, &inner[start..], found);
        }
        return;
    }
    if let Some((first, rest)) = tree.split_once("::")
        && !first.contains(' ')
    {
        front.push(first.to_owned());
        expand(front, rest, found);
        front.pop();
        return;
    }
    let (item, name) = tree.split_once(" as ").unwrap_or((tree, tree));
    let (mut path, mut name) = (front.clone(), name.trim().to_owned());
    if item.trim() == "self" && !front.is_empty() {
        if name == "self" {
            name = front[front.len() - 1].clone();
        }
    } else if item.trim() != "*" {
        path.push(item.trim().to_owned());
    }
    found.push((path, Some(name)));
}

/// The path as seen from the crate's root; none if it leads out of the crate.
fn absolute(path: &[String], module: &[String], children: &BTreeSet<&str>) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let mut from = module.to_vec();
    match &**first {
        "crate" => return Some(rest.to_vec()),
        "self" => {}
        "super" => {
            from.pop()?;
            let further = rest.iter().take_while(|part| *part == "super").count();
            from.truncate(from.len().checked_sub(further)?);
            from.extend_from_slice(&rest[further..]);
            return Some(from);
        }
        first if children.contains(first) => from.push(first.to_owned()),
        _ => return None,
    }
    from.extend_from_slice(rest);
    Some(from)
}

/// The words joined by `::` that a text begins with.
fn inline_path(text: &str) -> &str {
    let mut end = word(text).len();
    while let Some(rest) = text[end..].strip_prefix("::") {
        let next = word(rest);
        if next.is_empty() {
            break;
        }
        end += 2 + next.len();
    }
    &text[..end]
}

/// The word that a text begins with.
fn word(text: &str) -> &str {
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    &text[..end]
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arrows between files of a crate, as `from:line to`.
    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let sources = files.iter();
        let sources: Vec<_> = sources
            .map(|(path, text)| Source::new(&format!("crates/x/src/{path}.rs"), text))
            .collect();
        let short = |path: &str| {
            let path = path.strip_prefix("crates/x/src/").unwrap();
            path.strip_suffix(".rs").unwrap().to_owned()
        };
        let krate = &crates(&sources)[0];
        assert_eq!(krate.name, "x");
        let arrows = krate.arrows().into_iter();
        arrows
            .map(|arrow| format!("{}:{} {}", short(arrow.from), arrow.line, short(arrow.to)))
            .collect()
    }

    #[test]
    fn every_way_of_writing_it_is_seen() {
        for text in [
            "use crate::b::X;",
            "pub(crate) use super::b::X as Y;",
            "use super::{c::{X, Y}, b::X};",
            "use crate::{\n    b,\n    c,\n};",
            "use crate::b::*;",
            "fn f() -> crate::b::X {}",
            "fn f<'a>(x: &'a super::b::X) -> char { '\"' }",
        ] {
            let found = arrows(&[("a", text), ("b", ""), ("lib", "mod a;\nmod b;\n")]);
            assert!(found.contains(&"a:1 b".to_owned()), "{text}: {found:?}");
        }
    }

    #[test]
    fn what_is_no_code_or_for_tests_is_not() {
        let text = r###"
            //! use crate::b::X;
            /* use crate::b::X; */
            pub(crate) struct Text(&'static str);
            const RAW: &str = r#"crate::b::X and "super::b::Y" "#;
            const ESCAPED: &str = "\" crate::b::X";
            #[cfg(test)]
            mod more;
            #[cfg(test)]
            mod tests {
                use crate::b::{X, Y};
                fn f() {}
            }
            use crate::c::X;
        "###;
        let more = "use crate::b::X;";
        let found = arrows(&[("a", text), ("a/more", more), ("b", ""), ("c", "")]);
        assert_eq!(found, ["a:14 c"]);
    }

    #[test]
    fn a_name_that_is_passed_on_is_followed() {
        let found = arrows(&[
            ("lib", "mod a;\nmod d;\npub use a::X;\n"),
            ("a/mod", "mod b;\npub(crate) use b::X;\n"),
            ("a/b", "pub struct X;\n"),
            ("d", "use crate::X;\n"),
        ]);
        assert_eq!(found, ["d:1 a/b"]);
    }

    #[test]
    fn a_module_uses_a_child_and_a_child_what_is_its_parents() {
        let found = arrows(&[
            ("a/mod", "mod b;\nmod c;\nuse b::X;\nuse self::c::f;\n"),
            ("a/b", "use super::Y;\n"),
            ("a/c", "use super::super::d;\n"),
            ("d", ""),
        ]);
        assert_eq!(
            found,
            ["a/b:1 a/mod", "a/c:1 d", "a/mod:3 a/b", "a/mod:4 a/c"]
        );
    }
}
