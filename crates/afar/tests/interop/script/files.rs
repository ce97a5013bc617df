//! Files, through a mount by OpenAFS's client.

use super::{Row, row};

/// A script of the shell in a folder of the cell.
fn at(folder: &'static str, line: &'static str) -> Row {
    Row {
        folder: Some(folder),
        ..row(line)
    }
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = looking();
    rows.extend(changing());
    rows.extend(refused());
    rows
}

fn looking() -> Vec<Row> {
    vec![
        at("", "ls -a"),
        at("open", "ls -a"),
        at("open", "cat hello"),
        at("open", "sha256sum big"),
        at("open", "stat -c '%n %F %a %s %h %u %g' * ."),
        at("open", "cat nothing"),
        at("nowhere", "ls"),
        at("closed", "ls"),
        at("open", "cat unreadable"),
        at("open/list-only", "ls; cat inside"),
        at("open", "df . | wc -l"),
    ]
}

fn changing() -> Vec<Row> {
    vec![
        at(
            "open",
            "mkdir d && stat -c '%n %F %a %s %h %u %g' d . && mkdir d",
        ),
        at(
            "open",
            "echo some >d/f && cat d/f && stat -c '%n %F %a %s %h' d/f",
        ),
        at("open", "echo more >>d/f && cat d/f"),
        at("open", "ln d/f d/g && stat -c '%n %h' d/f d/g && ln d/f h"),
        at("open", "mv d/f d/h && ls d && cat d/h"),
        at("open", "mv d/h e && ls . d"),
        at("open", "mv d d/inside"),
        at(
            "open",
            "mkdir d/inside && mv d/inside . && stat -c '%n %h' . d inside && rmdir inside",
        ),
        at("open", "echo other >x && mv x e && cat e"),
        at("open", "mv e d"),
        at(
            "open",
            "ln -s /afs/elsewhere link && readlink link && rm link",
        ),
        at(
            "open",
            "chmod 751 hello && stat -c '%a' hello && chmod 4644 hello; stat -c '%a' hello",
        ),
        at(
            "open",
            "truncate -s 100000 hello && sha256sum hello && truncate -s 5 hello && cat hello",
        ),
        at("open", "rmdir d"),
        at("open", "rm d"),
        at("open", "rmdir hello"),
        at("open", "rm nothing"),
        at("open", "rm -r d e && ls -a"),
        at(
            "open",
            "touch $(printf 'n%.0s' $(seq 255)) && ls | grep -c nnnn && rm nnnn*",
        ),
        at(
            "open",
            "touch $(printf 'n%.0s' $(seq 256)) 2>/dev/null; rm -f nnnn* && ls",
        ),
        at(
            "open",
            "mkdir many && cd many && seq 500 | xargs touch && ls | wc -l && rm -r ../many",
        ),
        at(
            "open",
            "dd if=/dev/zero bs=1000 seek=70 count=1 of=holes status=none && sha256sum holes",
        ),
    ]
}

fn refused() -> Vec<Row> {
    vec![
        at("closed", "touch x"),
        at("open/list-only", "touch x"),
        at("open/list-only", "rm -f inside"),
        at("open/list-only", "mkdir x"),
        at("open/insert-only", "mkdir x; ls"),
        at("open/no-delete", "echo x >y; rm -f y; mv y z; ls"),
        at("open/no-delete", "mv y ../y; mv ../hello y; ls"),
        at("../.test.example/open", "mv hello ../hello"),
    ]
}
