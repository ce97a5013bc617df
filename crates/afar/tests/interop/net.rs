//! A network of namespaces, joined by a bridge in one of their own.

use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sched::{CloneFlags, setns};

/// Names of namespaces begin so; the process id of their owner follows, by which what a killed
/// test has left behind is found.
const PREFIX: &str = "afari";

/// A network for the length of a test.
pub(crate) struct Net {
    tag: String,
    members: Vec<(&'static str, &'static str)>,
}

impl Net {
    /// One namespace for each name, with this address.
    pub(crate) fn new(members: &[(&'static str, &'static str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let net = Self {
            tag: format!("{PREFIX}{}-{count}", std::process::id()),
            members: members.to_vec(),
        };
        let hub = net.namespace("hub");
        ip(&["netns", "add", &hub]);
        ip(&["-n", &hub, "link", "add", "br0", "type", "bridge"]);
        ip(&["-n", &hub, "link", "set", "br0", "up"]);
        for (number, (name, address)) in members.iter().enumerate() {
            let (member, port) = (net.namespace(name), format!("m{number}"));
            ip(&["netns", "add", &member]);
            ip(&[
                "link", "add", "afs0", "netns", &member, "type", "veth", "peer", "name", &port,
                "netns", &hub,
            ]);
            ip(&["-n", &hub, "link", "set", &port, "master", "br0", "up"]);
            let subnet = format!("{address}/24");
            ip(&["-n", &member, "address", "add", &subnet, "dev", "afs0"]);
            ip(&["-n", &member, "link", "set", "lo", "up"]);
            ip(&["-n", &member, "link", "set", "afs0", "up"]);
        }
        net
    }

    /// The name of a member's namespace.
    pub(crate) fn namespace(&self, member: &str) -> String {
        format!("{}-{member}", self.tag)
    }

    /// A member's address.
    pub(crate) fn address(&self, member: &str) -> &'static str {
        let found = self.members.iter().find(|(name, _)| *name == member);
        found.unwrap_or_else(|| panic!("no member {member}")).1
    }

    /// Adds a machine that is emulated: the name of a device of the namespace `hub`, which is the
    /// machine's end of its cable.
    pub(crate) fn tap(&self) -> &'static str {
        const NAME: &str = "guest0";
        let hub = self.namespace("hub");
        ip(&["-n", &hub, "tuntap", "add", "dev", NAME, "mode", "tap"]);
        ip(&["-n", &hub, "link", "set", NAME, "master", "br0", "up"]);
        NAME
    }

    /// Names of all hosts, as in /etc/hosts.
    pub(crate) fn hosts(&self, cell: &str) -> String {
        let mut hosts = "127.0.0.1 localhost\n".to_owned();
        for (name, address) in &self.members {
            hosts.push_str(&format!("{address} {name}.{cell} {name}\n"));
        }
        hosts
    }

    /// Does something on a thread whose sockets are in a member's namespace.
    pub(crate) fn inside<T: Send>(&self, member: &str, work: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.namespace(member))).unwrap();
        let in_there = move || {
            setns(file, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        std::thread::scope(|scope| {
            let done = scope.spawn(in_there).join();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let hub = ("hub", "");
        for (name, _) in self.members.iter().chain([&hub]) {
            let mut command = Command::new("ip");
            command.args(["netns", "del", &self.namespace(name)]);
            // One that is not there was never made.
            command.stderr(Stdio::null()).status().unwrap();
        }
    }
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words:?}: {errors}");
}
