//! Options of OpenAFS's file server, for those who bring their command lines: each is understood,
//! checked, and answered with what takes its place here.

use anyhow::{Context, bail};

use super::config::{Config, within};

/// What became of an option.
enum Meaning {
    /// It is this key now.
    Key(&'static str, fn(&mut Config, u64) -> anyhow::Result<()>),
    /// It needs no setting any more, for this reason.
    Automatic(&'static str),
}

/// An option, and what it takes.
struct OldOption {
    name: &'static str,
    takes: Takes,
}

/// What an option takes.
enum Takes {
    /// A number in these bounds.
    Number(u64, u64, Meaning),
    /// A word: it is this key now.
    Word(&'static str, fn(&mut Config, &str)),
    /// A word, and needs no setting any more, for this reason.
    NeedlessWord(&'static str),
    /// Nothing: it is this key now.
    Nothing(&'static str, fn(&mut Config)),
}

const fn automatic(name: &'static str, least: u64, most: u64, why: &'static str) -> OldOption {
    OldOption {
        name,
        takes: Takes::Number(least, most, Meaning::Automatic(why)),
    }
}

const fn number(
    name: &'static str,
    (least, most): (u64, u64),
    key: &'static str,
    set: fn(&mut Config, u64) -> anyhow::Result<()>,
) -> OldOption {
    OldOption {
        name,
        takes: Takes::Number(least, most, Meaning::Key(key, set)),
    }
}

/// Why there is no file of its own for the audit.
const AUDIT: &str = "who did what is in the log, as its part audit: `afar config explain log`";

/// The largest number OpenAFS reads.
const INT_MAX: u64 = i32::MAX as u64;

const OPTIONS: &[OldOption] = &[
    automatic(
        "-p",
        6,
        16_384,
        "a call is a task, not a thread; calls at a time are bounded by files.max_calls",
    ),
    number(
        "-busyat",
        (10, 1 << 20),
        "files.max_calls",
        |config, value| {
            config.files.max_calls.0 = u32::try_from(value)?;
            Ok(())
        },
    ),
    number(
        "-cb",
        (10_000, INT_MAX),
        "files.max_callbacks",
        |config, value| {
            config.files.max_callbacks.0 = value;
            Ok(())
        },
    ),
    number(
        "-udpsize",
        (65_536, 1 << 30),
        "net.receive_buffer",
        |config, value| {
            config.net.receive_buffer.0 = u32::try_from(value)?;
            Ok(())
        },
    ),
    OldOption {
        name: "-realm",
        takes: Takes::Word("security.realms", |config, realm| {
            config.security.realms.push(realm.to_owned());
        }),
    },
    OldOption {
        name: "-allow-dotted-principals",
        takes: Takes::Nothing("security.allow_dotted_principals", |config| {
            config.security.allow_dotted_principals = true;
        }),
    },
    OldOption {
        name: "-auditlog",
        takes: Takes::NeedlessWord(AUDIT),
    },
    OldOption {
        name: "-audit-interface",
        takes: Takes::NeedlessWord(AUDIT),
    },
    automatic(
        "-rxpck",
        0,
        INT_MAX,
        "packets are not taken from a pool of fixed size",
    ),
    automatic(
        "-s",
        0,
        INT_MAX,
        "vnodes are read from the system's page cache, which grows and shrinks by itself",
    ),
    automatic(
        "-l",
        0,
        INT_MAX,
        "vnodes are read from the system's page cache, which grows and shrinks by itself",
    ),
    automatic(
        "-b",
        0,
        INT_MAX,
        "directory pages are read from the system's page cache",
    ),
    automatic(
        "-vc",
        0,
        INT_MAX,
        "a volume costs memory only while it is in use",
    ),
    automatic(
        "-sendsize",
        16_384,
        INT_MAX,
        "data is read in pieces that fit the call's window",
    ),
    automatic(
        "-vhashsize",
        6,
        28,
        "volumes are found through an index on disk; no table has a size to choose",
    ),
];

/// Takes old options off a command line into the configuration. Returns a remark for each.
pub(crate) fn apply(options: &[String], config: &mut Config) -> anyhow::Result<Vec<String>> {
    let mut remarks = Vec::new();
    let mut rest = options.iter();
    while let Some(name) = rest.next() {
        let Some(option) = OPTIONS.iter().find(|option| option.name == name) else {
            let known: Vec<_> = OPTIONS.iter().map(|option| option.name).collect();
            bail!(
                "{name}: of the options of OpenAFS's fileserver these are understood: {}; `afar \
                 config explain` tells what else can be set",
                known.join(" ")
            );
        };
        let mut word = |takes: &str| rest.next().with_context(|| format!("{name} takes {takes}"));
        remarks.push(match &option.takes {
            Takes::Number(least, most, meaning) => {
                let text = word("a number")?;
                let value: u64 = text
                    .parse()
                    .with_context(|| format!("{name} {text}: not a number"))?;
                within(name, value, *least, *most)?;
                match meaning {
                    Meaning::Key(key, set) => {
                        set(config, value)?;
                        format!("{name} {value}: taken as {key} = {value}")
                    }
                    Meaning::Automatic(why) => format!("{name} {value}: not needed; {why}"),
                }
            }
            Takes::Word(key, set) => {
                let text = word("a word")?;
                set(config, text);
                format!("{name} {text}: taken as {key} = {text:?}")
            }
            Takes::NeedlessWord(why) => {
                let text = word("a word")?;
                format!("{name} {text}: not needed; {why}")
            }
            Takes::Nothing(key, set) => {
                set(config);
                format!("{name}: taken as {key} = true")
            }
        });
    }
    Ok(remarks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_command_line_of_a_large_site_is_understood() {
        let mut config = Config::default();
        let line = "-p 128 -busyat 600 -rxpck 400 -s 1200 -l 1200 -cb 65535 -b 240 -vc 1200 \
                    -sendsize 4000000 -udpsize 4000000 -vhashsize 11 -realm OTHER.ORG \
                    -allow-dotted-principals -auditlog /var/log/openafs/FileAuditLog";
        let remarks = apply(&words(line), &mut config).unwrap();
        assert_eq!(remarks.len(), 14);
        assert_eq!(config.security.realms, ["OTHER.ORG"]);
        assert!(config.security.allow_dotted_principals);
        assert_eq!(config.files.max_calls.0, 600);
        assert_eq!(config.files.max_callbacks.0, 65_535);
        assert_eq!(config.net.receive_buffer.0, 4_000_000);
    }

    #[test]
    fn what_is_out_of_range_is_refused_with_the_range() {
        for (line, says) in [
            ("-vhashsize 30", "6 to 28"),
            ("-p 5", "6 to 16384"),
            ("-cb 64", "10000 to"),
            ("-busyat x", "not a number"),
            ("-busyat", "takes a number"),
            ("-realm", "takes a word"),
            ("-jumbo", "are understood"),
        ] {
            let error = apply(&words(line), &mut Config::default()).unwrap_err();
            assert!(format!("{error:#}").contains(says), "{line}: {error:#}");
        }
    }
}
