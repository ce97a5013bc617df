use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

use super::{Rewritten, rewrite};

fn flag(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue)
}

fn single(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::Set)
}

fn list(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::Append)
}

fn root() -> Command {
    let create = Command::new("create")
        .about("create a new volume")
        .arg(single("server").required(true).value_name("machine name"))
        .arg(
            single("partition")
                .required(true)
                .value_name("partition name"),
        )
        .arg(single("name").required(true).value_name("volume name"))
        .arg(single("maxquota").value_name("initial quota (KB)"))
        .arg(flag("noauth").help("don't authenticate"))
        .arg(single("cell").short('c').value_name("cell name"));
    let release = Command::new("release")
        .arg(single("id").required(true))
        .arg(flag("force").short('f'))
        .arg(flag("force-reclone"))
        .arg(flag("stayonline").hide(true));
    let backupsys = Command::new("backupsys")
        .arg(list("prefix"))
        .arg(single("server"))
        .arg(list("xprefix"))
        .arg(flag("dryrun"));
    let remove = Command::new("remove").arg(list("id"));
    let examine = Command::new("examine")
        .arg(single("id").required(true))
        .alias("volinfo")
        .alias("e");
    Command::new("afar")
        .subcommand(Command::new("ls").arg(flag("long")))
        .subcommand(
            Command::new("vos")
                .subcommands([create, release, backupsys, remove, examine])
                .subcommand(Command::new("backup").arg(single("id").required(true))),
        )
}

fn rewritten(line: &str) -> Rewritten {
    rewrite(&root(), line.split(' ').map(OsString::from))
}

/// What clap is given.
fn spelled(line: &str) -> String {
    match rewritten(line) {
        Rewritten::Parse(argv) => argv
            .iter()
            .map(|word| word.to_str().unwrap())
            .collect::<Vec<_>>()
            .join(" "),
        other => panic!("{line}: {other:?}"),
    }
}

fn failure(line: &str) -> String {
    match rewritten(line) {
        Rewritten::Fail(text, 255) => text.trim_end().to_owned(),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn other_commands_are_left_alone() {
    assert_eq!(spelled("afar ls -long /afs"), "afar ls -long /afs");
    assert_eq!(spelled("afar"), "afar");
}

#[test]
fn options_values_and_abbreviations() {
    let full = "afar vos create --server=fs1 --partition=a --name=user.pat";
    assert_eq!(spelled("afar vos create fs1 a user.pat"), full);
    assert_eq!(spelled("/usr/sbin/vos create fs1 a user.pat"), full);
    assert_eq!(
        spelled("afar vos cr -server fs1 -part a -name user.pat"),
        full
    );
    assert_eq!(spelled("afar vos c fs1 a -na user.pat"), full);
    assert_eq!(
        spelled("afar vos create --server fs1 --partition=a -nam=user.pat"),
        full
    );
    assert_eq!(
        spelled("afar vos create fs1 a user.pat -noauth 100 -c example.org"),
        format!("{full} --noauth --maxquota=100 --cell=example.org")
    );
    // A value that is a negative number; a flag that is given twice.
    assert_eq!(
        spelled("afar vos create fs1 a x -1 -noauth -noauth"),
        "afar vos create --server=fs1 --partition=a --name=x --maxquota=-1 --noauth"
    );
}

#[test]
fn aliases_and_exact_names_come_before_abbreviations() {
    assert_eq!(spelled("afar vos e 5"), "afar vos examine --id=5");
    assert_eq!(spelled("afar vos vol 5"), "afar vos examine --id=5");
    assert_eq!(spelled("afar vos backup 5"), "afar vos backup --id=5");
    assert_eq!(
        spelled("afar vos rel 5 -force"),
        "afar vos release --id=5 --force"
    );
    assert_eq!(
        spelled("afar vos rel 5 -f"),
        "afar vos release --id=5 --force"
    );
    assert_eq!(
        spelled("afar vos rel 5 -force-r"),
        "afar vos release --id=5 --force-reclone"
    );
    // Hidden options must be spelled out.
    assert_eq!(
        spelled("afar vos rel 5 -stayonline"),
        "afar vos release --id=5 --stayonline"
    );
    assert!(failure("afar vos rel 5 -stay").contains("ambiguous switch '-stay'"));
}

#[test]
fn lists_take_what_is_theirs() {
    assert_eq!(
        spelled("afar vos remo 1 2 3"),
        "afar vos remove --id=1 --id=2 --id=3"
    );
    assert_eq!(
        spelled("afar vos backupsys -prefix a b -server fs1 -xprefix c d -dryrun"),
        "afar vos backupsys --prefix=a --prefix=b --server=fs1 --xprefix=c --xprefix=d --dryrun"
    );
    // Only the last list takes all that is left.
    assert_eq!(
        spelled("afar vos backupsys a fs1 c d"),
        "afar vos backupsys --prefix=a --server=fs1 --xprefix=c --xprefix=d"
    );
}

#[test]
fn what_is_wrong_is_said_in_the_known_words() {
    assert_eq!(
        failure("afar vos frobnicate"),
        "vos: Unrecognized operation 'frobnicate'; type 'vos help' for list"
    );
    assert_eq!(
        failure("afar vos re x"),
        "vos: Ambiguous operation 're'; type 'vos help' for list"
    );
    assert_eq!(
        failure("afar vos create fs1 a"),
        "vos: Missing required parameter '-name'"
    );
    assert_eq!(
        failure("afar vos create fs1 a -name"),
        "vos:  The field '-name' isn't completed properly"
    );
    assert_eq!(
        failure("afar vos create -server fs1 fs2"),
        "vos: Too many values after switch -server"
    );
    assert_eq!(
        failure("afar vos create fs1 -bogus 3"),
        "vos: Unrecognized or ambiguous switch '-bogus'; type 'vos help create' for detailed help"
    );
    assert_eq!(
        failure("afar vos release 5 -force=3"),
        "vos: Switch '-force' doesn't take an argument"
    );
    assert_eq!(
        failure("afar vos create fs1 a x 5 example.org more"),
        "vos: Too many values after switch -cell"
    );
    let hint = "vos: Type 'vos help' or 'vos help <topic>' for help\n";
    assert_eq!(rewritten("vos"), Rewritten::Print(hint.to_owned(), 255));
}

#[test]
fn help_is_printed_as_ever() {
    let Rewritten::Print(text, _) = rewritten("vos create -help") else {
        panic!("help fails")
    };
    assert_eq!(
        text,
        "Usage: vos create -server <machine name> -partition <partition name>\n         \
         -name <volume name> [-maxquota <initial quota (KB)>] [-noauth]\n         \
         [-cell | -c <cell name>] [-help]\n"
    );
    let Rewritten::Print(text, _) = rewritten("vos help create") else {
        panic!("help fails")
    };
    assert!(
        text.starts_with("vos create: create a new volume \nUsage: vos create "),
        "{text}"
    );
    assert!(
        text.ends_with("Where: -noauth  don't authenticate\n"),
        "{text}"
    );
    let Rewritten::Print(text, _) = rewritten("vos help") else {
        panic!("help fails")
    };
    assert!(text.starts_with("vos: Commands are:\napropos "), "{text}");
    assert_eq!(
        failure("vos help nonsense"),
        "vos: Unknown topic 'nonsense'"
    );
    let Rewritten::Print(text, _) = rewritten("vos apropos new") else {
        panic!("help fails")
    };
    assert_eq!(text, "create: create a new volume\n");
}

#[test]
fn values_need_not_be_text() {
    use std::os::unix::ffi::OsStringExt;
    let raw = OsString::from_vec(b"caf\xe9".to_vec());
    let argv = [OsString::from("vos"), "remove".into(), raw];
    let Rewritten::Parse(argv) = rewrite(&root(), argv) else {
        panic!("refused")
    };
    assert_eq!(argv[3], OsString::from_vec(b"--id=caf\xe9".to_vec()));
}
