//! Verbs for many entries, volumes or addresses at once.

use std::net::Ipv4Addr;

use afar_admin::vos::words::{date, error_text};
use afar_admin::vos::{Failure, LOCK_ALL, ServerPartition, SyncScope};
use afar_types::error::{RXGEN_OPCODE, VL_MULTIPADDR, VL_NOENT};
use afar_types::{
    AddrsU, ListAddrByAttributes, ListByAttributes, SiteFlags, SiteServer, UnixTime, VldbEntry,
    VldbFlags, VolumeId,
};
use regex::Regex;

use super::args::{
    BackupsysArgs, ChangeaddrArgs, DelentryArgs, RemaddrsArgs, SetaddrsArgs, SyncservArgs,
    SyncvldbArgs, UnlockvldbArgs,
};
use super::query::uuid_text;
use super::{Context, Outcome, Quit, err, out};

/// Addresses a server can be given.
const ADDRESSES_MAX: usize = 16;

/// The beginning of a name, or a regular expression.
enum Pattern {
    Prefix(String),
    Expression(Regex),
}

impl Pattern {
    fn parse(text: &str, option: &str) -> Result<Self, Quit> {
        if !text.starts_with('^') {
            return Ok(Self::Prefix(text.to_owned()));
        }
        Regex::new(text).map(Self::Expression).map_err(|error| {
            let error = error.to_string();
            let error = error.lines().last().unwrap_or_default();
            err!("Unrecognizable {option} regular expression: '{text}': {error}\n");
            Quit::EXIT
        })
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Prefix(prefix) => name.starts_with(prefix.as_str()),
            Self::Expression(expression) => expression.is_match(name),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Prefix(prefix) => format!("prefix '{prefix}'"),
            Self::Expression(expression) => format!("expression '{expression}'"),
        }
    }
}

fn patterns(texts: &[String], option: &str) -> Result<Vec<Pattern>, Quit> {
    texts
        .iter()
        .map(|text| Pattern::parse(text, option))
        .collect()
}

/// Which volumes `backupsys` means.
struct Selection {
    prefix: Vec<Pattern>,
    xprefix: Vec<Pattern>,
    exclude: bool,
}

impl Selection {
    fn takes(&self, name: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(name));
        let matches = (self.prefix.is_empty() || any(&self.prefix)) && !any(&self.xprefix);
        matches != self.exclude
    }

    fn shown(&self) -> String {
        let mut text = String::new();
        let or = |text: &mut String, patterns: &[Pattern], or: &str| {
            for pattern in patterns {
                text.push_str(&format!(" {or} {}", pattern.shown()));
            }
        };
        let (first, not) = match self.prefix.is_empty() {
            false => (&self.prefix, self.exclude),
            true => (&self.xprefix, !self.exclude),
        };
        if let [pattern, rest @ ..] = first.as_slice() {
            let do_not = if not { "do not " } else { "" };
            text.push_str(&format!(" which {do_not}match {}", pattern.shown()));
            or(&mut text, rest, if not { "nor" } else { "or" });
        }
        if !self.prefix.is_empty()
            && let [pattern, rest @ ..] = self.xprefix.as_slice()
        {
            let what = if self.exclude { "adding" } else { "removing" };
            text.push_str(&format!(" {what} those which match {}", pattern.shown()));
            or(&mut text, rest, "or");
        }
        text
    }
}

impl Context<'_> {
    /// Attributes of a server and partition, and the server's address.
    fn attributes(
        &self,
        server: Option<&str>,
        partition: Option<&str>,
        quit: Quit,
    ) -> Result<(ListByAttributes, Option<Ipv4Addr>), Quit> {
        let mut attributes = ListByAttributes::default();
        let mut address = None;
        if let Some(name) = server {
            let found = self.server(name, "server", quit)?;
            attributes.server = found.into();
            attributes.mask |= 1;
            address = Some(found);
        }
        if let Some(name) = partition {
            attributes.partition = self.partition(name, quit)?;
            attributes.mask |= 2;
        }
        Ok((attributes, address))
    }

    async fn listed(
        &self,
        attributes: ListByAttributes,
        quit: Quit,
    ) -> Result<Vec<VldbEntry>, Quit> {
        let listed = self.vos.all_entries(attributes).await;
        listed.map_err(|Failure(code)| {
            err!(
                "Could not access the VLDB for attributes\n{}",
                error_text(code)
            );
            quit
        })
    }

    pub(super) async fn backupsys(&self, args: &BackupsysArgs) -> Outcome {
        let (server, partition) = (args.server.as_deref(), args.partition.as_deref());
        let (attributes, address) = self.attributes(server, partition, Quit::EXIT)?;
        let selection = Selection {
            prefix: patterns(&args.prefix, "-prefix")?,
            xprefix: patterns(&args.xprefix, "-xprefix")?,
            exclude: args.exclude,
        };
        let entries = self.listed(attributes, Quit::EXIT).await?;
        let verbose = args.common.verbose;
        if server.is_some() || partition.is_some() || verbose {
            let what = if args.dryrun {
                "Would have backed"
            } else {
                "Backing"
            };
            let mut text = format!("{what} up volumes");
            match (server, partition) {
                (Some(server), _) => text.push_str(&format!(" on server {server}")),
                (None, Some(_)) => text.push_str(" for all servers"),
                (None, None) => {}
            }
            if partition.is_some() {
                text.push_str(&format!(" partition {}", attributes.partition));
            }
            let end = if verbose { "\n" } else { "" };
            out!("{text}{} .. {end}", selection.shown());
        }
        self.session.stop_in_order();
        let (mut done, mut failed) = (0, 0);
        for entry in &entries {
            let name = entry.name.to_string();
            if !selection.takes(&name) {
                continue;
            }
            if *self.session.interrupt.borrow() {
                err!("vos: interrupted before {name}\n");
                return Err(Quit(130));
            }
            if args.dryrun {
                out!("     {name}\n");
                continue;
            }
            match self
                .backup_one(args, entry, &name, attributes, address)
                .await
            {
                Some(true) => done += 1,
                Some(false) => failed += 1,
                None => {}
            }
        }
        out!("done\nTotal volumes backed up: {done}; failed to backup: {failed}\n");
        Ok(())
    }

    /// Makes one backup volume. `None` if there is none to make.
    async fn backup_one(
        &self,
        args: &BackupsysArgs,
        entry: &VldbEntry,
        name: &str,
        attributes: ListByAttributes,
        address: Option<Ipv4Addr>,
    ) -> Option<bool> {
        let verbose = args.common.verbose;
        if !entry.flags.contains(VldbFlags::READ_WRITE_EXISTS) {
            if verbose {
                out!("Omitting to backup {name} since RW volume does not exist \n\n");
            }
            return None;
        }
        let mut sites = entry.sites.iter();
        let site = sites.find(|site| site.flags.contains(SiteFlags::READ_WRITE));
        let Some((SiteServer::Address(server), partition)) =
            site.map(|site| (site.server, site.partition))
        else {
            out!("could not backup {name}, invalid VLDB entry\n");
            return Some(false);
        };
        let here = match address {
            Some(address) => match self.vos.is_same_server(address, server).await {
                Ok(same) => same,
                Err(code) => {
                    err!(
                        "Failed to get info about server's {address} address(es) from vlserver \
                         (err={code}); aborting call!\n"
                    );
                    return Some(false);
                }
            },
            None => true,
        };
        if !here || (args.partition.is_some() && attributes.partition != partition) {
            if verbose {
                out!("Omitting to backup {name} since the RW is in a different location\n");
            }
            return None;
        }
        if verbose {
            let now = date(UnixTime::from(std::time::SystemTime::now()));
            out!("Creating backup volume for {name} on {now}\n");
        }
        let [id, ..] = entry.volume_ids;
        let made = self
            .vos
            .backup(ServerPartition { server, partition }, id)
            .await;
        if made.is_err() {
            out!("Could not backup {name}\n");
        }
        if verbose {
            out!("\n");
        }
        Some(made.is_ok())
    }

    pub(super) async fn delentry(&self, args: &DelentryArgs) -> Outcome {
        let dry_run = args.noexecute || args.dryrun;
        let (server, partition) = (args.server.as_deref(), args.partition.as_deref());
        let others = server.is_some() || partition.is_some() || args.prefix.is_some();
        let wrong = |text: &str| {
            err!("{text}\n");
            Err(Quit::USE)
        };
        if !args.id.is_empty() {
            if others {
                return wrong(
                    "You cannot use -server, -partition, or -prefix with the -id argument",
                );
            }
            return self.delete_named(&args.id, dry_run).await;
        }
        if !others {
            return wrong("You must specify an option");
        }
        if args.prefix.is_some() && server.is_none() && partition.is_none() {
            return wrong("You must provide -server with the -prefix argument");
        }
        if partition.is_some() && server.is_none() {
            return wrong("You must provide -server with the -partition argument");
        }
        let (attributes, _) = self.attributes(server, partition, Quit::RETURN)?;
        let mut heading = "Deleting VLDB entries for ".to_owned();
        if let Some(server) = server {
            heading.push_str(&format!("server {server} "));
        }
        if partition.is_some() {
            heading.push_str(&format!("partition {} ", attributes.partition));
        }
        if let Some(prefix) = &args.prefix {
            heading.push_str(&format!("which are prefixed with {prefix} "));
        }
        out!("{heading}\n");
        let (mut deleted, mut failed) = (0, 0);
        for entry in self.listed(attributes, Quit::RETURN).await? {
            let name = entry.name.to_string();
            let verbose = args.common.verbose;
            if let Some(prefix) = &args.prefix
                && !name.starts_with(prefix.as_str())
            {
                if verbose {
                    out!("Omitting to delete {name} due to prefix {prefix} mismatch\n");
                }
                continue;
            }
            if dry_run {
                out!("Would have deleted VLDB entry for {name} \n");
                continue;
            }
            match self.vos.forget(entry.volume_ids[0]).await {
                Ok(()) => {
                    deleted += 1;
                    if verbose {
                        out!("Deleted VLDB entry for {name} \n");
                    }
                }
                Err(Failure(code)) => {
                    failed += 1;
                    out!("Could not delete VLDB entry for  {name}\n");
                    err!("{}", error_text(code));
                }
            }
        }
        out!(
            "----------------------\nTotal VLDB entries deleted: {deleted}; failed to delete: \
             {failed}\n"
        );
        Ok(())
    }

    async fn delete_named(&self, typed: &[String], dry_run: bool) -> Outcome {
        let (mut deleted, mut failed) = (0, 0);
        for name in typed {
            let id = match self.vos.volume_id(name).await {
                Ok(VolumeId(0)) => {
                    err!("vos: can't find volume '{name}'\n");
                    continue;
                }
                Ok(id) => id,
                Err(code) => {
                    err!("{}", error_text(code));
                    continue;
                }
            };
            if dry_run {
                out!("Would have deleted VLDB entry for {name} \n");
                continue;
            }
            match self.vos.forget(id).await {
                Ok(()) => deleted += 1,
                Err(Failure(code)) => {
                    failed += 1;
                    err!(
                        "Could not delete entry for volume {name}\nYou must specify a RW volume \
                         name or ID (the entire VLDB entry will be deleted)\n{}",
                        error_text(code)
                    );
                }
            }
        }
        out!("Deleted {deleted} VLDB entries\n");
        if failed == 0 {
            Ok(())
        } else {
            Err(Quit::RETURN)
        }
    }

    pub(super) async fn unlockvldb(&self, args: &UnlockvldbArgs) -> Outcome {
        let (server, partition) = (args.server.as_deref(), args.partition.as_deref());
        let (mut attributes, address) = self.attributes(server, partition, Quit::EXIT)?;
        if let (Some(address), Some(name)) = (address, partition) {
            self.partition_there(address, name, Quit::EXIT).await?;
        }
        attributes.mask |= 0x10;
        attributes.flag = LOCK_ALL;
        let entries = self.listed(attributes, Quit::EXIT).await?;
        let mut failed = 0;
        for entry in &entries {
            if self.vos.unlock(entry.volume_ids[0]).await.is_err() {
                err!("Could not unlock entry for volume {}\n", entry.name);
                failed += 1;
            }
        }
        let partition = attributes.partition;
        if failed > 0 {
            out!(
                "Could not lock {failed} VLDB entries of {} locked entries\n",
                entries.len()
            );
        } else if let Some(server) = server {
            let at = match args.partition {
                Some(_) => format!("partition {partition}"),
                None => String::new(),
            };
            out!("Unlocked all the VLDB entries for volumes on server {server} {at}\n");
        } else if args.partition.is_some() {
            out!(
                "Unlocked all the VLDB entries for volumes on partition {partition} on all \
                 servers\n"
            );
        }
        Ok(())
    }

    pub(super) async fn syncvldb(&self, args: &SyncvldbArgs) -> Outcome {
        let server = match &args.server {
            Some(name) => Some(self.server(name, "host", Quit::EXIT)?),
            None => None,
        };
        let mut partition = None;
        if let Some(name) = &args.partition {
            self.partition(name, Quit::EXIT)?;
            let Some(server) = server else {
                err!("vos: The -partition option requires the -server option.\n");
                return Err(Quit::EXIT);
            };
            partition = Some(
                self.partition_there(server, name, Quit::EXIT)
                    .await?
                    .partition,
            );
        }
        let diagnose = |code| self.diagnose("syncvldb", code, Quit::EXIT);
        match (&args.volume, server) {
            (Some(volume), _) => {
                let synced = self
                    .vos
                    .sync_volume(volume, server, partition, args.dryrun)
                    .await;
                synced.map_err(diagnose)?;
                out!("VLDB volume {volume} synchronized");
            }
            (None, Some(server)) => {
                let scope = SyncScope {
                    server,
                    partition,
                    dry_run: args.dryrun,
                };
                self.vos.sync_vldb(scope).await.map_err(diagnose)?;
                out!("VLDB synchronized");
            }
            (None, None) => {
                err!("Without a -volume option, the -server option is required\n");
                return Err(Quit::EXIT);
            }
        }
        if let Some(name) = &args.server {
            out!(" with state of server {name}");
        }
        if let Some(partition) = partition {
            out!(" partition {partition}\n");
        }
        out!("\n");
        Ok(())
    }

    pub(super) async fn syncserv(&self, args: &SyncservArgs) -> Outcome {
        let server = self.server(&args.server, "host", Quit::EXIT)?;
        let mut partition = None;
        if let Some(name) = &args.partition {
            partition = Some(
                self.partition_there(server, name, Quit::EXIT)
                    .await?
                    .partition,
            );
        }
        let scope = SyncScope {
            server,
            partition,
            dry_run: args.dryrun,
        };
        let synced = self.vos.sync_server(scope).await;
        synced.map_err(|code| self.diagnose("syncserv", code, Quit::EXIT))?;
        match partition {
            Some(partition) => out!(
                "Server {} partition {partition} synchronized with VLDB\n",
                args.server
            ),
            None => out!("Server {} synchronized with VLDB\n", args.server),
        }
        Ok(())
    }

    fn address(&self, text: &str, noresolve: bool) -> Option<Ipv4Addr> {
        match noresolve {
            true => text.parse().ok(),
            false => self.hosts.address_of(text),
        }
    }

    pub(super) async fn changeaddr(&self, args: &ChangeaddrArgs) -> Outcome {
        let noresolve = args.common.noresolve;
        let invalid = || {
            err!("vos: invalid host address\n");
            Quit::RETURN
        };
        let old = self.address(&args.oldaddr, noresolve).ok_or_else(invalid)?;
        let Some(newaddr) = args.newaddr.as_ref().filter(|_| !args.remove) else {
            if !args.remove || args.newaddr.is_some() {
                err!("vos: Must specify either '-newaddr <addr>' or '-remove' flag\n");
                return Err(Quit::RETURN);
            }
            self.vos
                .remove_address(old)
                .await
                .map_err(|Failure(code)| {
                    err!("Could not remove server {old} from the VLDB\n");
                    if code == VL_NOENT {
                        err!("vlserver does not support the remove flag or ");
                    }
                    err!("{}", error_text(code));
                    Quit::RETURN
                })?;
            out!("Removed server {} from the VLDB\n", args.oldaddr);
            return Ok(());
        };
        let new = self.address(newaddr, noresolve).ok_or_else(invalid)?;
        if !args.force {
            let known = ListAddrByAttributes::by_address(old);
            match self.vos.server_addresses(known).await {
                Ok(server) => {
                    err!(
                        "vos: Refusing to change address in multi-homed server entry.\n     \
                         -oldaddr address is registered to file server UUID {}\n     Please \
                         restart the file server or use vos setaddrs.\n",
                        uuid_text(&server.uuid)
                    );
                    return Err(Quit::RETURN);
                }
                Err(Failure(VL_NOENT)) => {}
                Err(Failure(code)) => {
                    err!(
                        "vos: could not list the server addresses\n{}",
                        error_text(code)
                    );
                    return Err(Quit::RETURN);
                }
            }
        }
        self.vos
            .change_address(old, new)
            .await
            .map_err(|Failure(code)| {
                err!(
                    "Could not change server {old} to server {new}\n{}",
                    error_text(code)
                );
                Quit::RETURN
            })?;
        out!("Changed server {} to server {newaddr}\n", args.oldaddr);
        Ok(())
    }

    pub(super) async fn setaddrs(&self, args: &SetaddrsArgs) -> Outcome {
        let uuid = self.uuid(&args.uuid, Quit::RETURN)?;
        let mut addresses = Vec::new();
        for host in args.host.iter().take(ADDRESSES_MAX) {
            let Some(address) = self.address(host, args.common.noresolve) else {
                err!("vos: Can't get host info for '{host}'\n");
                return Err(Quit::RETURN);
            };
            addresses.push(address);
        }
        let set = self.vos.register_addresses(uuid, &addresses).await;
        set.map_err(|Failure(code)| {
            match code {
                VL_MULTIPADDR => err!(
                    "vos: VL_RegisterAddrs rpc failed; The IP address exists on a different \
                     server; repair it\n"
                ),
                RXGEN_OPCODE => {
                    err!("vlserver doesn't support VL_RegisterAddrs rpc; ignored\n");
                }
                _ => err!("vos: VL_RegisterAddrs rpc failed\n"),
            }
            err!("{}", error_text(code));
            Quit::RETURN
        })?;
        if args.common.verbose {
            out!("vos: Changed UUID with addresses:\n");
            let addresses: Vec<u32> = addresses.into_iter().map(u32::from).collect();
            let server = AddrsU {
                uuid,
                addresses: addresses.try_into().unwrap_or_default(),
                ..AddrsU::default()
            };
            self.print_addresses(&server, true);
        }
        Ok(())
    }

    pub(super) async fn remaddrs(&self, args: &RemaddrsArgs) -> Outcome {
        let uuid = self.uuid(&args.uuid, Quit::RETURN)?;
        let found = self
            .vos
            .server_addresses(ListAddrByAttributes::by_uuid(uuid))
            .await;
        let server = found.map_err(|Failure(code)| {
            match code {
                VL_NOENT => err!("vos: UUID not found\n"),
                _ => err!(
                    "vos: could not list the server addresses\n{}",
                    error_text(code)
                ),
            }
            Quit::RETURN
        })?;
        let Some(address) = server.addresses().next() else {
            err!("vos: no addresses found for UUID\n");
            return Ok(());
        };
        if args.common.verbose {
            out!("vos: Removing UUID with hosts:\n");
            self.print_addresses(&server, true);
        }
        self.vos
            .remove_address(address)
            .await
            .map_err(|Failure(code)| {
                err!(
                    "Could not remove server entry from the VLDB.\n{}",
                    error_text(code)
                );
                Quit::RETURN
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(prefix: &[&str], xprefix: &[&str], exclude: bool) -> Selection {
        let parse = |texts: &[&str]| {
            let texts = texts.iter();
            texts
                .map(|text| Pattern::parse(text, "-prefix").unwrap())
                .collect()
        };
        Selection {
            prefix: parse(prefix),
            xprefix: parse(xprefix),
            exclude,
        }
    }

    #[test]
    fn volumes_are_selected_as_said() {
        let all = ["root.afs", "user.pat", "user.terry", "project.x"];
        let taken = |selection: &Selection| -> Vec<_> {
            all.into_iter()
                .filter(|name| selection.takes(name))
                .collect()
        };
        assert_eq!(taken(&selection(&[], &[], false)), all);
        let users = selection(&["user."], &[], false);
        assert_eq!(taken(&users), ["user.pat", "user.terry"]);
        assert_eq!(users.shown(), " which match prefix 'user.'");
        let others = selection(&["user.", "^root"], &[], true);
        assert_eq!(taken(&others), ["project.x"]);
        assert_eq!(
            others.shown(),
            " which do not match prefix 'user.' nor expression '^root'"
        );
        let some = selection(&["user."], &["^.*terry$"], false);
        assert_eq!(taken(&some), ["user.pat"]);
        assert_eq!(
            some.shown(),
            " which match prefix 'user.' removing those which match expression '^.*terry$'"
        );
        let no_users = selection(&[], &["user."], false);
        assert_eq!(taken(&no_users), ["root.afs", "project.x"]);
        assert_eq!(no_users.shown(), " which do not match prefix 'user.'");
    }
}
