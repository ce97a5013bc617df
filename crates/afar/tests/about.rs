//! What the program tells of itself, and to shells.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn afar(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_afar"))
        .args(args)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_version_is_told_with_what_is_built_in() {
    let told = text(&afar(&["version"]));
    let (first, rest) = told.split_once('\n').unwrap();
    assert_eq!(first, concat!("afar ", env!("CARGO_PKG_VERSION")));
    let features = if cfg!(feature = "etcd") {
        "etcd"
    } else {
        "none"
    };
    assert_eq!(rest, format!("features: {features}\n"));
    assert_eq!(text(&afar(&["--version"])), told);
    assert_eq!(text(&afar(&["-V"])), format!("{first}\n"));
    let json: serde_json::Value =
        serde_json::from_str(&text(&afar(&["version", "--json"]))).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["features"].is_array(), "{json}");
}

#[test]
fn a_page_is_printed_for_man_and_a_wrong_verb_is_named() {
    let page = text(&afar(&["man", "vos", "create"]));
    assert!(page.contains(".TH afar-vos-create 1"), "{page}");
    assert!(text(&afar(&["man"])).contains(".TH afar 1"));
    let wrong = afar(&["man", "vos", "creat"]);
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(
        said.contains("afar vos creat") && said.contains("`afar vos --help`"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_written_is_an_error() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_afar"));
    let done = command
        .args(["completions", "bash"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
}

#[test]
fn shells_understand_their_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&afar(&["completions", shell]));
        assert!(script.contains("listvldb"), "{script}");
        // -n: read it all, run nothing.
        let mut judge = Command::new(shell);
        let judge = judge.arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped());
        let Ok(mut judge) = judge.spawn() else {
            eprintln!("skipped: no {shell}");
            continue;
        };
        judge
            .stdin
            .take()
            .unwrap()
            .write_all(script.as_bytes())
            .unwrap();
        let said = judge.wait_with_output().unwrap();
        assert!(
            said.status.success() && said.stderr.is_empty(),
            "{shell}: {said:?}"
        );
    }
}

#[test]
fn bash_completes_a_command() {
    let script = text(&afar(&["completions", "bash"]));
    let ask = "COMP_WORDS=(afar vos cre); COMP_CWORD=2; _afar afar cre vos; echo ${COMPREPLY[*]}";
    let mut bash = Command::new("bash")
        .arg("-s")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin
        .take()
        .unwrap()
        .write_all(format!("{script}\n{ask}\n").as_bytes())
        .unwrap();
    let said = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "create\n");
}
