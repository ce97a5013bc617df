//! Names as tickets carry them.

use std::fmt;

/// Bytes that OpenAFS has for a name, an instance or a realm, less the final zero.
const PART_MAX: usize = 63;

/// Whose ticket it is, in the shape of Kerberos 4 that AFS thinks in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    /// The user or service; never empty in an opened ticket.
    pub name: String,
    /// The second part of the name, `admin` in `root.admin`; mostly empty.
    pub instance: String,
    /// The Kerberos realm, as the ticket spells it; empty in tickets that servers print themselves.
    pub realm: String,
}

impl Principal {
    /// The principal of an opened ticket; `None` if tickets of AFS cannot name it so.
    ///
    /// One component is a name, two are a name and an instance. Services whose instance is a host
    /// lose the host's domain, and `host` is called `rcmd`, as in `krb5_524_conv_principal` of MIT.
    /// A dot in the first component is refused unless `dots` are allowed: `a.b` and `a/b` would be
    /// the same user. So is a part that a peer would cut off at 63 bytes or at a zero byte, and
    /// become somebody else's name.
    pub(crate) fn from_kerberos(components: &[&str], realm: &str, dots: bool) -> Option<Self> {
        let (name, instance) = match *components {
            [name] => (name, ""),
            [name, instance] => converted(name, instance)?,
            _ => return None,
        };
        let fits = |part: &str| part.len() <= PART_MAX && !part.contains('\0');
        let named = !name.is_empty() && (dots || !name.contains('.'));
        (named && [name, instance, realm].into_iter().all(fits)).then(|| Self {
            name: name.to_owned(),
            instance: instance.to_owned(),
            realm: realm.to_owned(),
        })
    }

    /// `name` or `name.instance`: what the user is called within the realm.
    #[must_use]
    pub fn local_name(&self) -> String {
        if self.instance.is_empty() {
            self.name.clone()
        } else {
            format!("{}.{}", self.name, self.instance)
        }
    }
}

impl fmt::Display for Principal {
    /// `name.instance@REALM`, without what is empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.local_name())?;
        if !self.realm.is_empty() {
            write!(f, "@{}", self.realm)?;
        }
        Ok(())
    }
}

/// The services whose instance is a host: of it only the first label is kept.
///
/// `kadmin` and `zephyr` are in MIT's table too, to keep their instance, as everything does that is
/// not here. OpenAFS drops their instance instead, by which all of `kadmin/...` become one user.
// spec: security#names-of-users
const HOST_SERVICES: &[&str] = &[
    "abs",
    "acap",
    "afpserver",
    "argus",
    "changepw",
    "daemon",
    "discuss",
    "ecat",
    "ftp",
    "gdss",
    "gnats",
    "host",
    "http",
    "imap",
    "irc",
    "khttp",
    "ldap",
    "lmtp",
    "mandarin",
    "mandarin-agent",
    "moira",
    "mupdate",
    "news",
    "nfs",
    "olc",
    "palladium",
    "pgpsigner",
    "pop",
    "prms",
    "register",
    "rfs",
    "rvdsrv",
    "sample",
    "sis",
    "sms",
    "smtp",
    "tftp",
    "write",
];

/// Name and instance in the words of Kerberos 4; `None` for a service on a host without domain.
fn converted<'a>(name: &'a str, instance: &'a str) -> Option<(&'a str, &'a str)> {
    if !HOST_SERVICES.contains(&name) {
        return Some((name, instance));
    }
    let (host, _) = instance.split_once('.')?;
    let name = if name == "host" { "rcmd" } else { name };
    (!host.is_empty()).then_some((name, host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(components: &[&str]) -> Option<String> {
        Principal::from_kerberos(components, "EXAMPLE.ORG", false).map(|p| p.to_string())
    }

    #[test]
    fn components_become_name_and_instance() {
        for (components, expected) in [
            (&["alice"][..], Some("alice@EXAMPLE.ORG")),
            (&["root", "admin"], Some("root.admin@EXAMPLE.ORG")),
            (&["root", "a.b"], Some("root.a.b@EXAMPLE.ORG")),
            (&["host", "fs1.example.org"], Some("rcmd.fs1@EXAMPLE.ORG")),
            (&["ftp", "fs1.example.org"], Some("ftp.fs1@EXAMPLE.ORG")),
            (&["kadmin", "admin"], Some("kadmin.admin@EXAMPLE.ORG")),
            (&["host", "fs1"], None),
            (&["host", ".example.org"], None),
            (&["alice", ""], Some("alice@EXAMPLE.ORG")),
            (&["a", "b", "c"], None),
            (&[], None),
            (&[""], None),
            (&["", "admin"], None),
        ] {
            assert_eq!(of(components).as_deref(), expected, "{components:?}");
        }
    }

    #[test]
    fn dots_are_refused_where_they_would_confuse() {
        assert_eq!(of(&["root.admin"]), None);
        let allowed = Principal::from_kerberos(&["root.admin"], "R", true).unwrap();
        assert_eq!(
            (allowed.name.as_str(), allowed.instance.as_str()),
            ("root.admin", "")
        );
    }

    #[test]
    fn nothing_is_cut_off() {
        let long = "x".repeat(64);
        assert_eq!(of(&[&long]), None);
        assert!(of(&[&long[1..]]).is_some());
        assert_eq!(of(&["alice", &long]), None);
        assert!(Principal::from_kerberos(&["alice"], &long, false).is_none());
        assert_eq!(of(&["admin\0x"]), None);
    }

    #[test]
    fn the_services_are_sorted_and_each_there_once() {
        assert!(HOST_SERVICES.is_sorted_by(|a, b| a < b));
    }
}
