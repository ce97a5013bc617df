//! Verbs that only look: `examine`, `listvol`, `listvldb`, `listpart`, `partinfo`, `status`,
//! `listaddrs`.

use std::net::Ipv4Addr;

use afar_admin::vos::words::error_text;
use afar_admin::vos::{
    Examined, Failure, LOCK_ALL, Member, ServerPartition, enumerate, sub_enumerate,
};
use afar_types::error::VL_NOENT;
use afar_types::error::errno::ENODEV;
use afar_types::{AddrsU, AfsUuid, ListAddrByAttributes, ListByAttributes, VldbEntry, VolumeType};
use serde_json::json as object;

use super::args::{
    ExamineArgs, ListaddrsArgs, ListpartArgs, ListvldbArgs, ListvolArgs, PartinfoArgs, StatusArgs,
};
use super::show::{self, Totals};
use super::{Context, Outcome, Quit, err, json, out};

/// A UUID as AFS's tools write it, its fourth part in two.
pub(super) fn uuid_text(uuid: &AfsUuid) -> String {
    let text = uuid.to_string();
    let (head, tail) = text.split_at(21);
    format!("{head}-{tail}")
}

impl Context<'_> {
    fn host(&self, address: Ipv4Addr) -> String {
        self.hosts.name_of(address)
    }

    fn enumerate(&self, entry: &VldbEntry) -> String {
        enumerate(entry, &|server| self.vos.name_of(server))
    }

    pub(super) async fn listpart(&self, args: &ListpartArgs) -> Outcome {
        let server = self.server(&args.server, "server", Quit::EXIT)?;
        let listed = self.vos.partitions(server).await;
        let listed = listed.map_err(|code| self.diagnose("listpart", code, Quit::EXIT))?;
        if self.json {
            let names: Vec<_> = listed.iter().map(ToString::to_string).collect();
            json::print(&object!({ "partitions": names }));
            return Ok(());
        }
        let mut text = "The partitions on the server are:\n".to_owned();
        for (number, partition) in listed.iter().enumerate() {
            text.push_str(&format!(" {:>10} ", partition.to_string()));
            if number % 5 == 0 && number != 0 {
                text.push('\n');
            }
        }
        out!("{text}\nTotal: {}\n", listed.len());
        Ok(())
    }

    /// The partitions of a server, or the one that is named.
    async fn partitions(
        &self,
        server: Ipv4Addr,
        named: Option<&str>,
        verb: &str,
    ) -> Result<Vec<ServerPartition>, Quit> {
        if let Some(name) = named {
            return Ok(vec![self.partition_there(server, name, Quit::EXIT).await?]);
        }
        let listed = self.vos.partitions(server).await;
        let listed = listed.map_err(|code| self.diagnose(verb, code, Quit::EXIT))?;
        let place = |partition| ServerPartition { server, partition };
        Ok(listed.into_iter().map(place).collect())
    }

    pub(super) async fn partinfo(&self, args: &PartinfoArgs) -> Outcome {
        let server = self.server(&args.server, "server", Quit::EXIT)?;
        let named = args.partition.as_deref();
        if let Some(name) = named {
            self.partition(name, Quit::EXIT)?;
        }
        let (mut free, mut total, mut count) = (0_u64, 0_u64, 0);
        for at in self.partitions(server, named, "listpart").await? {
            let size = match self.vos.partition_size(at).await {
                Ok(size) => size,
                Err(Failure(code)) => {
                    err!("Could not get information on partition {}\n", at.partition);
                    err!("{}", error_text(code));
                    return Err(Quit::EXIT);
                }
            };
            count += 1;
            free = free.wrapping_add_signed(size.free);
            total = total.wrapping_add_signed(size.total);
            if self.json {
                json::print(&json::partition(&size));
            } else {
                out!(
                    "Free space on partition {}: {} K blocks out of total {}\n",
                    at.partition,
                    size.free,
                    size.total
                );
            }
        }
        if args.summary && !self.json {
            let (free, total) = (show::sum(free), show::sum(total));
            out!("Summary: {free} free out of {total} on {count} partitions\n");
        }
        Ok(())
    }

    pub(super) async fn listvol(&self, args: &ListvolArgs) -> Outcome {
        if args.fast && args.extended {
            err!("vos: Can't use the -fast and -extended flags together\n");
            return Err(Quit::EXIT);
        }
        let named = args.partition.as_deref();
        if let Some(name) = named {
            self.partition(name, Quit::EXIT)?;
        }
        let server = self.server(&args.server, "server", Quit::EXIT)?;
        for at in self.partitions(server, named, "listvol").await? {
            let diagnose = |code| self.diagnose("listvol", code, Quit::EXIT);
            if args.extended {
                self.list_extended(args, at).await.map_err(diagnose)?;
            } else {
                self.list_plain(args, at).await.map_err(diagnose)?;
            }
        }
        Ok(())
    }

    fn heading(&self, args: &ListvolArgs, at: ServerPartition, count: usize) {
        if !args.quiet && !self.json {
            out!(
                "Total number of volumes on server {} partition {}: {count} \n",
                args.server,
                at.partition
            );
        }
    }

    async fn list_plain(&self, args: &ListvolArgs, at: ServerPartition) -> Result<(), Failure> {
        let mut volumes = self.vos.volumes(at, !args.fast).await?;
        if args.fast {
            volumes.sort_by_key(|info| info.volume);
        } else {
            volumes.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        }
        self.heading(args, at, volumes.len());
        let host = self.host(at.server);
        let mut totals = Totals::default();
        let mut text = String::new();
        for info in &volumes {
            if self.json {
                json::print(&match args.fast {
                    true => object!({ "id": info.volume.0 }),
                    false => json::volume(info, at),
                });
            } else if args.format {
                let volume = show::format(info, at, &host);
                text.push_str(&format!("BEGIN_OF_ENTRY\n{volume}END_OF_ENTRY\n\n"));
            } else if args.fast {
                text.push_str(&format!("{:<10}\n", info.volume.0));
            } else if args.long {
                text.push_str(&show::long(info, at, &host, &mut totals, false));
            } else {
                text.push_str(&show::short(info, &mut totals));
            }
        }
        if self.json {
            return Ok(());
        }
        if !args.format {
            text.push_str(&totals.troubles());
            if !args.quiet {
                text.push('\n');
                if !args.fast {
                    text.push_str(&format!(
                        "Total volumes onLine {} ; Total volumes offLine {} ; Total busy {}\n\n",
                        totals.online,
                        totals.offline(),
                        totals.busy()
                    ));
                }
            }
        }
        out!("{text}");
        Ok(())
    }

    async fn list_extended(&self, args: &ListvolArgs, at: ServerPartition) -> Result<(), Failure> {
        let mut volumes = self.vos.volumes_extended(at).await?;
        volumes.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        self.heading(args, at, volumes.len());
        let host = self.host(at.server);
        let mut totals = Totals::default();
        let mut text = String::new();
        for info in &volumes {
            if self.json {
                json::print(&json::volume_extended(info, at));
            } else if args.format {
                let volume = show::format_extended(info, at, &host, &mut totals);
                text.push_str(&format!("BEGIN_OF_ENTRY\n{volume}END_OF_ENTRY\n"));
            } else {
                text.push_str(&show::extended(info, at, &host, &mut totals, false));
            }
        }
        if self.json {
            return Ok(());
        }
        let (online, offline, busy) = (totals.online, totals.offline(), totals.busy());
        if args.format {
            text.push_str(&totals.format_troubles());
        } else {
            text.push_str(&totals.troubles());
        }
        if !args.quiet {
            text.push('\n');
            text.push_str(&match args.format {
                true => format!(
                    "VOLUMES_ONLINE\t{online}\nVOLUMES_OFFLINE\t{offline}\nVOLUMES_BUSY\t{busy}\n"
                ),
                false => format!(
                    "Total volumes: {online} on-line, {offline} off-line, {busy}  busyd\n\n"
                ),
            });
        }
        out!("{text}");
        Ok(())
    }

    pub(super) async fn examine(&self, args: &ExamineArgs) -> Outcome {
        let id = self
            .volume_id(&args.id, "Unknown volume ID or name", Quit::RETURN)
            .await?;
        let mut found = false;
        let mut enumerated = false;
        let mut failed = false;
        let examined = self
            .vos
            .examine(id, args.extended, |entry, kind, at, member| {
                if self.json {
                    match member {
                        Ok(_) => found = true,
                        Err(_) => failed = true,
                    }
                    return;
                }
                match member {
                    Ok(member) => {
                        found = true;
                        enumerated |= self.show_member(args, entry, at, member);
                    }
                    Err(Failure(code)) => {
                        failed = true;
                        self.show_missing(args, entry, kind, at, *code);
                    }
                }
                let exists = afar_types::VldbFlags::BACKUP_EXISTS;
                if member.is_ok() && kind == VolumeType::Backup && !entry.flags.contains(exists) {
                    err!("Volume {} does not exist in VLDB\n", args.id);
                    failed = true;
                }
            })
            .await;
        let examined = examined.map_err(|_| Quit::RETURN)?;
        if self.json {
            self.examined_json(&examined);
        } else {
            if examined.members.is_empty() {
                err!("Volume {} does not exist in VLDB\n\n", args.id);
                failed = true;
            }
            if !found {
                err!("Dump only information from VLDB\n\n");
                out!("{} \n", examined.entry.name);
            }
            if !enumerated {
                let entry = sub_enumerate(&examined.entry, &|server| self.vos.name_of(server));
                out!("{entry}{}", show::locked(examined.entry.flags));
            }
        }
        if failed { Err(Quit::RETURN) } else { Ok(()) }
    }

    /// Prints what a server said. Returns whether the entry was printed with it.
    fn show_member(
        &self,
        args: &ExamineArgs,
        entry: &VldbEntry,
        at: ServerPartition,
        member: &Member,
    ) -> bool {
        let host = self.host(at.server);
        let mut totals = Totals::default();
        match member {
            Member::Extended(info) => {
                out!("{}", show::extended(info, at, &host, &mut totals, true));
            }
            Member::Plain(info) if args.format => {
                let volume = show::format(info, at, &host);
                out!("{volume}{}", self.enumerate(entry));
                return true;
            }
            Member::Plain(info) => {
                out!("{}", show::long(info, at, &host, &mut totals, true));
            }
        }
        false
    }

    fn show_missing(
        &self,
        args: &ExamineArgs,
        entry: &VldbEntry,
        kind: VolumeType,
        at: ServerPartition,
        code: i32,
    ) {
        let exists = afar_types::VldbFlags::BACKUP_EXISTS;
        if code != ENODEV {
            self.diagnose("examine", Failure(code), Quit::RETURN);
        } else if kind == VolumeType::Backup && !entry.flags.contains(exists) {
            err!("Volume {} does not exist\n", args.id);
        } else {
            let host = self.host(at.server);
            err!("Volume does not exist on server {host} as indicated by the VLDB\n");
        }
        out!("\n");
    }

    fn examined_json(&self, examined: &Examined) {
        let members = examined.members.iter().map(|(at, member)| match member {
            Ok(Member::Plain(info)) => json::volume(info, *at),
            Ok(Member::Extended(info)) => json::volume_extended(info, *at),
            Err(Failure(code)) => object!({
                "server": at.server,
                "partition": at.partition.to_string(),
                "error": code,
            }),
        });
        json::print(&object!({
            "entry": json::entry(&examined.entry),
            "volumes": members.collect::<Vec<_>>(),
        }));
    }

    pub(super) async fn listvldb(&self, args: &ListvldbArgs) -> Outcome {
        if let Some(name) = &args.name {
            return self.list_entry(args, name).await;
        }
        let mut attributes = ListByAttributes::default();
        let mut heading = "all servers".to_owned();
        if let Some(server) = &args.server {
            attributes.server = self.server(server, "server", Quit::EXIT)?.into();
            attributes.mask |= 1;
            heading = format!("server {server}");
        }
        if let Some(partition) = &args.partition {
            attributes.partition = self.partition(partition, Quit::EXIT)?;
            attributes.mask |= 2;
            heading.push_str(&format!(" partition {}", attributes.partition));
        }
        if args.locked {
            attributes.mask |= 0x10;
            attributes.flag = LOCK_ALL;
        }
        if !args.quiet && !self.json {
            let locked = if args.locked { "which are locked:" } else { "" };
            out!("VLDB entries for {heading} {locked}\n");
        }
        let mut sorted = Vec::new();
        let mut count = 0;
        let mut next = Some(0);
        while let Some(from) = next {
            let listed = self.vos.entries(attributes, from).await;
            let (entries, following) = listed.map_err(|Failure(code)| {
                err!(
                    "Could not access the VLDB for attributes\n{}",
                    error_text(code)
                );
                Quit::EXIT
            })?;
            next = following;
            count += entries.len();
            if args.nosort {
                self.print_entries(&entries);
            } else {
                sorted.extend(entries);
            }
        }
        sorted.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        self.print_entries(&sorted);
        if !args.quiet && !self.json {
            out!("\nTotal entries: {count}\n");
        }
        Ok(())
    }

    fn print_entries(&self, entries: &[VldbEntry]) {
        for some in entries.chunks(1000) {
            let text = some.iter().map(|entry| match self.json {
                true => format!("{}\n", json::entry(entry)),
                false => self.enumerate(entry) + &show::locked(entry.flags),
            });
            out!("{}", text.collect::<String>());
        }
    }

    async fn list_entry(&self, args: &ListvldbArgs, name: &str) -> Outcome {
        if args.locked {
            err!("vos: illegal use of '-locked' switch, need to specify server and/or partition\n");
            return Err(Quit::EXIT);
        }
        match self.vos.entry_by_name(name).await {
            Ok(entry) => {
                self.print_entries(&[entry]);
                Ok(())
            }
            Err(code) => {
                err!("{}", error_text(code));
                Err(Quit::EXIT)
            }
        }
    }

    pub(super) async fn status(&self, args: &StatusArgs) -> Outcome {
        let server = self.server(&args.server, "host", Quit::EXIT)?;
        let listed = self.vos.transactions(server).await;
        let listed = listed.map_err(|code| self.diagnose("status", code, Quit::EXIT))?;
        if self.json {
            for info in &listed {
                json::print(&json::transaction(info));
            }
            return Ok(());
        }
        match listed.len() {
            0 => out!("No active transactions on {}\n", args.server),
            count => out!("Total transactions: {count}\n"),
        }
        for info in &listed {
            out!("{}", show::transaction(info));
        }
        Ok(())
    }

    pub(super) fn uuid(&self, text: &str, quit: Quit) -> Result<AfsUuid, Quit> {
        text.parse().map_err(|_| {
            err!("vos: invalid UUID '{text}'\n");
            quit
        })
    }

    pub(super) async fn listaddrs(&self, args: &ListaddrsArgs) -> Outcome {
        let failed = |Failure(code)| {
            err!(
                "vos: could not list the server addresses\n{}",
                error_text(code)
            );
            Quit::RETURN
        };
        let (which, missing) = match (&args.uuid, &args.host) {
            (Some(_), Some(_)) => {
                err!("vos: Can't use the -uuid and -host flags together\n");
                return Err(Quit::RETURN);
            }
            (None, None) => {
                for server in self.vos.all_server_addresses().await.map_err(failed)? {
                    self.print_addresses(&server, args.printuuid);
                }
                return Ok(());
            }
            (Some(uuid), None) => (
                ListAddrByAttributes::by_uuid(self.uuid(uuid, Quit::RETURN)?),
                format!("UUID '{uuid}'"),
            ),
            (None, Some(host)) => {
                let Some(address) = self.hosts.address_of(host) else {
                    err!("vos: Can't get host info for '{host}'\n");
                    return Err(Quit::RETURN);
                };
                let number = u32::from(address);
                (
                    ListAddrByAttributes::by_address(address),
                    format!("host '{host}' [0x{number:08x}]"),
                )
            }
        };
        match self.vos.server_addresses(which).await {
            Ok(server) => {
                self.print_addresses(&server, args.printuuid);
                Ok(())
            }
            Err(Failure(VL_NOENT)) => {
                err!("vos: no entry for {missing} found in VLDB\n");
                Err(Quit::RETURN)
            }
            Err(failure) => Err(failed(failure)),
        }
    }

    pub(super) fn print_addresses(&self, server: &AddrsU, with_uuid: bool) {
        if self.json {
            json::print(&json::addresses(server));
            return;
        }
        let mut text = String::new();
        if with_uuid {
            text.push_str(&format!("UUID: {}\n", uuid_text(&server.uuid)));
        }
        for address in server.addresses() {
            text.push_str(&self.vos.name_of(address));
            text.push('\n');
        }
        if with_uuid {
            text.push('\n');
        }
        out!("{text}");
    }
}
