//! What README.md and the pages of docs/admin tell their reader to type, typed: each page in namespaces and
//! a directory of its own, from its first command to its last.
//!
//! Commands are the lines of blocks in the language `console` that begin with `# ` or `$ `, with the lines
//! that a backslash joins to them; the others show what is printed. A comment before a block, which no
//! reader sees, may say what is to be done about it:
//!
//! - `<!-- test: before COMMANDS -->`: these are run first, for what the page takes for given
//! - `<!-- test: serves TEXT -->`: the last command goes on; the next one is typed when it has said TEXT
//! - `<!-- test: skip REASON -->`: the block is not typed, and the test says why
//!
//! Blocks in TOML that name a cell are read as a server's configuration.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const AFAR: &str = env!("CARGO_BIN_EXE_afar");

/// What a comment says of the block after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Marks {
    before: Vec<String>,
    serves: Option<String>,
    skip: Option<String>,
}

/// A block of a page.
#[derive(Debug)]
struct Block {
    line: usize,
    language: String,
    text: Vec<String>,
    marks: Marks,
}

/// The blocks of a page, in their order.
fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut marks) = (Vec::new(), Marks::default());
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(comment) = line.strip_prefix("<!-- test: ") {
            let mut text = comment.to_owned();
            while !text.ends_with("-->") {
                let (_, more) = lines.next().expect("a comment ends");
                text.push('\n');
                text.push_str(more);
            }
            let text = text.trim_end_matches("-->").trim();
            let (kind, rest) = text.split_once(char::is_whitespace).expect("kind and text");
            let rest = rest.trim().to_owned();
            match kind {
                "before" => marks.before.push(rest),
                "serves" => marks.serves = Some(rest),
                "skip" => marks.skip = Some(rest),
                _ => panic!("line {}: no such mark: {kind}", number + 1),
            }
        } else if let Some(language) = line.strip_prefix("```") {
            let text = lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| !line.starts_with("```"));
            blocks.push(Block {
                line: number + 1,
                language: language.to_owned(),
                text: text.map(str::to_owned).collect(),
                marks: std::mem::take(&mut marks),
            });
        }
    }
    assert_eq!(marks, Marks::default(), "a mark without a block");
    blocks
}

/// The commands of a block, with the line each is in.
fn commands(block: &Block) -> Vec<(usize, String)> {
    let mut commands: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in block.text.iter().enumerate() {
        let typed = line.strip_prefix("# ").or_else(|| line.strip_prefix("$ "));
        match (typed, commands.last_mut()) {
            (_, Some((_, command))) if goes_on => {
                command.push('\n');
                command.push_str(line);
            }
            (Some(typed), _) => commands.push((block.line + 1 + number, typed.to_owned())),
            (None, _) => continue,
        }
        goes_on = line.ends_with('\\');
    }
    commands
}

/// A page as a script, and what of it is not typed.
fn script(name: &str, page: &str) -> (String, Vec<String>) {
    let (mut script, mut skipped) = (String::new(), Vec::new());
    for (number, block) in blocks(page).into_iter().enumerate() {
        let Block { line, marks, .. } = &block;
        if let Some(reason) = &marks.skip {
            skipped.push(format!("{name}:{line}: not typed: {reason}"));
            continue;
        }
        for before in &marks.before {
            writeln!(script, "at='{name}:{line} (before)'\n{before}").unwrap();
        }
        match block.language.as_str() {
            "console" => {
                let commands = commands(&block);
                assert!(!commands.is_empty(), "{name}:{line}: no command");
                let last = commands.len() - 1;
                for (place, (line, command)) in commands.iter().enumerate() {
                    writeln!(script, "at='{name}:{line}'").unwrap();
                    match &marks.serves {
                        Some(text) if place == last => {
                            writeln!(script, "{command} >served.{number} 2>&1 &").unwrap();
                            writeln!(script, "until_says served.{number} '{text}'").unwrap();
                        }
                        _ => writeln!(script, "{command}").unwrap(),
                    }
                }
            }
            "toml" if block.text.iter().any(|line| line.starts_with("cell = ")) => {
                let text = block.text.join("\n");
                writeln!(
                    script,
                    "at='{name}:{line}'\ncat >block.toml <<'END'\n{text}\nEND\n\
                     afar config explain cell --config block.toml"
                )
                .unwrap();
            }
            _ => {}
        }
    }
    (script, skipped)
}

/// A root of its own for a page, over the machine's, of which it changes nothing.
const ROOT: &str = r#"
set -eu
mount -t tmpfs none "$W"
mkdir "$W/upper" "$W/work" "$W/root"
mount -t overlay -o lowerdir=/,upperdir="$W/upper",workdir="$W/work" none "$W/root"
for dir in dev sys; do mount --rbind "/$dir" "$W/root/$dir"; done
mount -t proc proc "$W/root/proc"
for dir in run tmp; do mount -t tmpfs none "$W/root/$dir"; done
touch "$W/root/usr/bin/afar"
mount --bind "$AFAR" "$W/root/usr/bin/afar"
ip link set lo up
exec chroot "$W/root" bash -c "$SCRIPT"
"#;

/// What each page begins with.
const BEGIN: &str = r#"
set -eu
trap 'code=$?; [ $code = 0 ] || echo "$at: exit status $code" >&2; kill $(jobs -p) 2>/dev/null || :' EXIT
unset KRB5CCNAME XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_DATA_HOME NOTIFY_SOCKET AFAR_RUN_DIR AFAR_CONFIG
export PATH=/usr/bin:$PATH HOME=/srv/reader
rm -rf /var/lib/afar /var/cache/afar /etc/afar /etc/openafs /vicep? "$HOME"
mkdir -p "$HOME"
cd "$HOME"
until_says() {
    for _ in $(seq 100); do
        grep -q -- "$2" "$1" && return
        sleep 0.1
    done
    cat "$1" >&2
    return 1
}
"#;

/// Whether pages can be typed here; if not that is said.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn can_type() -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: namespaces need root");
        return false;
    }
    let tried = Command::new("unshare")
        .args(NAMESPACES)
        .arg("true")
        .output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("skipped: there are no namespaces here");
    }
    can
}

const NAMESPACES: [&str; 7] = [
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation=private",
];

/// Pages that another test types, and which one.
const ELSEWHERE: [(&str, &str); 1] = [("install.md", "the test of the package")];

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs/admin")).unwrap() {
        let path = entry.unwrap().path();
        pages.extend(
            path.extension()
                .is_some_and(|it| it == "md")
                .then_some(path),
        );
    }
    pages.sort();
    assert!(pages.len() > 5);
    pages
}

#[test]
fn every_command_of_the_pages_works_as_written() {
    if !can_type() {
        return;
    }
    let mut wrong = String::new();
    for page in pages() {
        let name = page.file_name().unwrap().to_str().unwrap();
        if let Some((_, test)) = ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == name) {
            eprintln!("{name}: not typed: {test} does it");
            continue;
        }
        let (script, skipped) = script(name, &fs::read_to_string(&page).unwrap());
        for skipped in skipped {
            eprintln!("{skipped}");
        }
        if script.is_empty() {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new("unshare")
            .args(NAMESPACES)
            .args(["bash", "-c", ROOT])
            .env("SCRIPT", format!("{BEGIN}{script}"))
            .env("W", dir.path())
            .env("AFAR", AFAR)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            writeln!(wrong, "{name}:\n{}", String::from_utf8_lossy(&said)).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn pages_are_read_as_people_read_them() {
    let page = "text\n```console\n# afar a \\\n    b\nwhat it prints\n$ c\n```\n<!-- test: skip needs\na disk \
                -->\n```console\n# d\n```\n<!-- test: before x=1 -->\n<!-- test: serves is up -->\n```console\n# \
                afar up\n```\n```toml\ncell = \"a\"\n```\n";
    let (script, skipped) = script("page.md", page);
    assert_eq!(skipped, ["page.md:10: not typed: needs\na disk"]);
    assert_eq!(
        script,
        "at='page.md:3'\nafar a \\\n    b\nat='page.md:6'\nc\nat='page.md:15 (before)'\nx=1\nat='page.md:16'\n\
         afar up >served.2 2>&1 &\nuntil_says served.2 'is up'\nat='page.md:18'\ncat >block.toml \
         <<'END'\ncell = \"a\"\nEND\nafar config explain cell --config block.toml\n"
    );
}

#[test]
#[should_panic(expected = "a mark without a block")]
fn a_mark_belongs_to_a_block() {
    blocks("<!-- test: skip it -->\ntext\n");
}
