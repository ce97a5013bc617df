//! What stands behind `-o` and is no flag of `afar mount`.

use anyhow::bail;

/// Options of a mount that are the kernel's or FUSE's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// The other users who may use the mount; by default all if root mounts, else none.
    pub(super) allow_other: Option<bool>,
    /// Whether it is unmounted when the process that serves it ends, however it ends.
    pub(super) auto_unmount: bool,
    pub(super) read_only: bool,
    pub(super) no_exec: bool,
    pub(super) suid: bool,
    pub(super) no_atime: bool,
}

/// Options of fstab and mount(8) that are for others, or say what is so anyway.
const IGNORED: &[&str] = &[
    "_netdev",
    "async",
    "atime",
    "auto",
    "defaults",
    "dev",
    "diratime",
    "exec",
    "group",
    "loud",
    "nodev",
    "noauto",
    "nodiratime",
    "nofail",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "nouser",
    "owner",
    "relatime",
    "rw",
    "silent",
    "strictatime",
    "user",
    "users",
];
/// The beginnings of more of them.
const IGNORED_BEGINNINGS: &[&str] = &["x-", "X-", "comment=", "user="];

impl Options {
    /// Reads options, each as it stands between two commas. Of two that exclude each other the
    /// later counts.
    ///
    /// # Errors
    /// One that nobody knows.
    pub(super) fn read<'a>(list: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Self> {
        let mut options = Self::default();
        for option in list {
            match option {
                "allow_other" => options.allow_other = Some(true),
                "no_allow_other" => options.allow_other = Some(false),
                "auto_unmount" => options.auto_unmount = true,
                "ro" => options.read_only = true,
                "rw" => options.read_only = false,
                "noexec" => options.no_exec = true,
                "exec" => options.no_exec = false,
                "suid" => options.suid = true,
                "nosuid" => options.suid = false,
                "noatime" => options.no_atime = true,
                "atime" | "relatime" => options.no_atime = false,
                _ if IGNORED.contains(&option) => {}
                _ if IGNORED_BEGINNINGS
                    .iter()
                    .any(|with| option.starts_with(with)) => {}
                _ => bail!(
                    "-o {option}: not understood; use allow_other, no_allow_other, auto_unmount, \
                     ro, noexec, suid, noatime, or the flags of `afar mount --help` such as \
                     cache=DIR"
                ),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_counts_and_what_is_for_others_is_ignored() {
        let list = "defaults,_netdev,ro,x-systemd.automount,allow_other,rw,noexec,user";
        let read = Options::read(list.split(',')).unwrap();
        assert_eq!(
            read,
            Options {
                allow_other: Some(true),
                no_exec: true,
                ..Options::default()
            }
        );
    }

    #[test]
    fn an_unknown_option_is_named() {
        let error = Options::read(["ro", "direct_io"]).unwrap_err();
        assert!(error.to_string().contains("direct_io"), "{error}");
    }
}
