//! Links from start to end, the emulator a process of its own: this program, run again.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test, which tells when it is skipped"
)]

use std::process::{Command, ExitCode};

use afar_link::{
    Error,
    cli::{self, LinkCommand},
    config::{Options, Side, namespace},
    links::{self, DeviceDrops},
    netns,
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [link, emulate, name] = &arguments[..]
        && (link.as_str(), emulate.as_str()) == ("link", "emulate")
    {
        cli::run(LinkCommand::Emulate { name: name.clone() }).unwrap();
        return ExitCode::SUCCESS;
    }
    if links::require_root().is_err() || !std::path::Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: the life of a link: needs root and /dev/net/tun");
        return ExitCode::SUCCESS;
    }
    let name = format!("t{}-life", std::process::id());
    let outcome = std::panic::catch_unwind(|| {
        a_link_comes_and_goes(&name);
        a_dead_emulator_is_noticed_and_removed(&name);
        a_missing_namespace_is_noticed(&name);
        leftovers_are_removed(&name);
        a_failed_start_leaves_nothing(&name);
    });
    links::down(&name).ok();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn nothing_is_left(name: &str) {
    assert!(
        Side::BOTH
            .iter()
            .all(|&side| !netns::exists(&namespace(name, side)))
    );
    assert!(!links::list().unwrap().iter().any(|link| link.name == name));
    assert!(matches!(links::report(name), Err(Error::NotFound(_))));
    assert!(matches!(links::down(name), Err(Error::NotFound(_))));
}

fn listed_emulator(name: &str) -> Option<u32> {
    links::list()
        .unwrap()
        .into_iter()
        .find(|link| link.name == name)
        .unwrap()
        .emulator
}

fn a_link_comes_and_goes(name: &str) {
    let config = links::up(name, &Options::default()).unwrap();
    let report = links::report(name).unwrap();
    assert_eq!((report.name.as_str(), report.directions.len()), (name, 2));
    assert_eq!(listed_emulator(name), Some(report.pid));
    assert_eq!(
        links::device_drops(name).unwrap(),
        [DeviceDrops::default(); 2]
    );
    let again = links::up(name, &Options::default()).unwrap_err();
    assert!(matches!(again, Error::Exists { .. }), "{again}");
    assert!(again.to_string().contains("exists already"), "{again}");
    // The first one is none the worse for it.
    assert_eq!(links::report(name).unwrap().pid, report.pid);
    assert_ne!(links::reset(name).unwrap().wall_seconds, 0.0);
    let mut sleeper = netns::within(&config.namespace(Side::Cli), || {
        Command::new("sleep").arg("60").spawn().unwrap()
    })
    .unwrap();
    assert_eq!(links::down(name).unwrap(), [sleeper.id()]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    nothing_is_left(name);
}

fn a_dead_emulator_is_noticed_and_removed(name: &str) {
    links::up(name, &Options::default()).unwrap();
    let pid = links::report(name).unwrap().pid;
    let killed = Command::new("sh")
        .args(["-c", &format!("kill -KILL {pid}")])
        .status()
        .unwrap();
    assert!(killed.success());
    let mut patience = 100;
    while listed_emulator(name).is_some() && patience > 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        patience -= 1;
    }
    assert_eq!(listed_emulator(name), None);
    assert!(matches!(links::report(name), Err(Error::NotRunning(_))));
    assert!(matches!(
        links::up(name, &Options::default()),
        Err(Error::Exists { .. })
    ));
    links::down(name).unwrap();
    nothing_is_left(name);
}

fn a_missing_namespace_is_noticed(name: &str) {
    links::up(name, &Options::default()).unwrap();
    let whole = || {
        links::list()
            .unwrap()
            .iter()
            .any(|link| link.name == name && link.namespaces)
    };
    assert!(whole());
    netns::delete(&namespace(name, Side::Cli)).unwrap();
    assert!(!whole());
    let refused = links::exec(name, Side::Cli, &["true".to_owned()]).unwrap_err();
    assert!(matches!(refused, Error::Io { .. }), "{refused}");
    links::down(name).unwrap();
    nothing_is_left(name);
}

fn leftovers_are_removed(name: &str) {
    netns::create(&namespace(name, Side::Cli), &[]).unwrap();
    assert!(matches!(
        links::up(name, &Options::default()),
        Err(Error::Exists { .. })
    ));
    assert!(netns::exists(&namespace(name, Side::Cli)));
    links::down(name).unwrap();
    nothing_is_left(name);
}

fn a_failed_start_leaves_nothing(name: &str) {
    // No device takes packets that small (RFC 791).
    let failed = links::up(
        name,
        &Options {
            mtu: 60,
            ..Options::default()
        },
    );
    assert!(matches!(failed, Err(Error::Start { .. })), "{failed:?}");
    nothing_is_left(name);
}
