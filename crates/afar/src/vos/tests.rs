use clap::Parser;

use super::{VosCommand, show};
use crate::afs_args::{Rewritten, rewrite};

#[derive(Parser)]
struct Vos {
    #[command(subcommand)]
    command: VosCommand,
}

#[derive(Parser)]
enum Afar {
    #[command(subcommand, disable_help_subcommand = true)]
    Vos(VosCommand),
}

fn parse(line: &str) -> VosCommand {
    use clap::CommandFactory;
    let argv = line.split(' ').map(Into::into);
    let Rewritten::Parse(argv) = rewrite(&Afar::command(), argv) else {
        panic!("{line} is not understood")
    };
    let Afar::Vos(command) = Afar::parse_from(argv);
    command
}

fn help(line: &str) -> String {
    use clap::CommandFactory;
    match rewrite(&Afar::command(), line.split(' ').map(Into::into)) {
        Rewritten::Print(text, _) => text,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn definitions_are_sound() {
    use clap::CommandFactory;
    Vos::command().debug_assert();
}

#[test]
fn values_go_where_the_syntax_has_them() {
    let VosCommand::Move(args) = parse("vos move 5 fs1 a fs2 /vicepb -verbose") else {
        panic!("not a move")
    };
    assert_eq!(
        [
            args.id,
            args.fromserver,
            args.frompartition,
            args.toserver,
            args.topartition
        ],
        ["5", "fs1", "a", "fs2", "/vicepb"]
    );
    assert!(args.common.verbose && !args.live);
    let VosCommand::Remove(args) = parse("vos remove -id user.pat") else {
        panic!("not a remove")
    };
    assert_eq!((args.server, args.id.as_str()), (None, "user.pat"));
    let VosCommand::Release(args) = parse("vos rel root.cell -f -c example.org") else {
        panic!("not a release")
    };
    assert!(args.force && !args.force_reclone);
    let VosCommand::Setfields(args) = parse("vos setf 7 -clearV") else {
        panic!("not setfields")
    };
    assert!(args.clear_vol_up_counter && !args.clearuse);
    let VosCommand::Delentry(args) = parse("vos delentry a b c") else {
        panic!("not delentry")
    };
    assert_eq!(args.id, ["a", "b", "c"]);
    let VosCommand::ConvertRoToRw(args) = parse("vos convertROtoRW fs1 a 9 -force") else {
        panic!("not a conversion")
    };
    assert!(args.force);
    assert!(matches!(parse("vos e root.cell"), VosCommand::Examine(_)));
}

#[test]
fn help_is_that_of_openafs() {
    assert_eq!(
        help("vos create -help"),
        "Usage: vos create -server <machine name> -partition <partition name>\n         \
         -name <volume name> [-maxquota <initial quota (KB)>]\n         \
         [-id <volume ID>] [-roid <readonly volume ID>]\n         \
         [-cell | -c <cell name>] [-noauth] [-localauth] [-verbose] [-encrypt]\n         \
         [-noresolve] [-config <config location>] [-help]\n"
    );
    assert_eq!(
        help("vos help examine"),
        "vos examine: everything about the volume \naliases: e volinfo \n\
         Usage: vos examine -id <volume name or ID> [-extended] [-format]\n         \
         [-cell | -c <cell name>] [-noauth] [-localauth] [-verbose] [-encrypt]\n         \
         [-noresolve] [-config <config location>] [-help]\n\
         Where: -extended   list extended volume fields\n       \
         -format     machine readable format\n       \
         -noauth     don't authenticate\n       \
         -localauth  use server tickets\n       \
         -verbose    verbose\n       \
         -encrypt    encrypt commands\n       \
         -noresolve  don't resolve addresses\n"
    );
}

#[test]
fn sums_have_the_unit_they_fill() {
    assert_eq!(show::sum(5), "5 KB");
    assert_eq!(show::sum((1 << 32) - 1), "4294967295 KB");
    assert_eq!(show::sum(1 << 32), "4194304 MB");
    assert_eq!(show::sum(1 << 42), "4194304 GB");
}
