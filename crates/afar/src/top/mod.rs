//! `afar top`: what loads a server, or a mount.
//!
//! - `source`: where the server's snapshots come from; `remote`: those of servers elsewhere; `mounts`: those of mounts
//! - `rates`: what happened between two snapshots
//! - `columns`: what of that each table shows
//! - `table`: rows in an order, filtered; `layout`: how they fit a width; `units`: numbers in words
//! - `state`: what keys do; `screen`: the picture; `live`: both on a terminal

mod columns;
mod far;
mod layout;
mod live;
mod mounts;
mod rates;
mod remote;
mod screen;
mod source;
mod state;
mod table;
mod units;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use afar_server::view::View;
use afar_types::CellName;
use anyhow::{Context, ensure};
use clap::Args;
use clap::builder::PossibleValue;

use crate::output;
use rates::Between;
use remote::Remote;
pub(crate) use remote::server_address;
pub(crate) use source::Socket;
use source::Source;
use table::{Order, Table};
pub(crate) use units::{long, short_bytes, shown};

/// Options of `afar top`.
#[derive(Debug, Args)]
#[command(
    about = "Show what loads a server: volumes, clients, files, calls, disks; or a mount: mounts",
    long_about = "Show what loads a server, usually of this machine: volumes, clients, files, calls, disks. The table mounts \
    shows the processes that use the mounts of this machine.\n\n\
    On a terminal the table is live, with keys as in htop: ? lists them. Elsewhere, and with --once or \
    --json, one table is printed. Numbers are rates over the interval, in bytes or calls in a second, except \
    for calls, which are those being served at the moment.",
    after_help = "The server counts by file only while somebody watches files, and a mount by process only while \
    somebody watches mounts; this costs them little.\n\n\
    Examples:\n  afar top volumes\n  afar top clients --once --sort write --limit 10\n  \
    afar top calls --json\n  afar top mounts --once"
)]
pub(crate) struct TopArgs {
    /// What to show
    #[arg(value_name = "TABLE", value_parser = view_parser())]
    view: View,
    /// Print one table and exit
    #[arg(long, short = '1')]
    once: bool,
    /// Print one JSON object for each row and exit
    #[arg(long)]
    json: bool,
    /// Time between two looks at the server, in seconds
    #[arg(long, short = 'i', value_name = "SECONDS", default_value = "2", value_parser = interval)]
    interval: Duration,
    /// Sort by this column, named as in the table's heading or as in JSON; the greatest comes first
    #[arg(long, short, value_name = "COLUMN")]
    sort: Option<String>,
    /// Reverse the order
    #[arg(long, short)]
    reverse: bool,
    /// Show only rows that contain this text
    #[arg(
        long,
        short,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,
    /// Show at most this many rows
    #[arg(long, short = 'n', value_name = "NUMBER")]
    limit: Option<usize>,
    /// The cell whose server to ask, if several run here; with --server the cell whose token to use
    #[arg(long, short)]
    cell: Option<CellName>,
    /// The server's socket [default: metrics.sock in the run directory of the server that runs here]
    #[arg(long, value_name = "PATH", conflicts_with = "cell")]
    socket: Option<PathBuf>,
    /// A server elsewhere: one of afar tells its administrators everything; others, also of OpenAFS, tell everybody
    /// clients and calls, as far as rxdebug shows them
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "socket")]
    server: Option<String>,
    /// Ask the server elsewhere as its cell, with this machine's server keys
    #[arg(long, requires = "server")]
    localauth: bool,
    /// For mounts: the directory of a mount, instead of all of this machine
    #[arg(long, value_name = "MOUNTPOINT", conflicts_with_all = ["cell", "socket", "server"])]
    mount: Option<PathBuf>,
}

/// The tables by name.
fn view_parser() -> impl clap::builder::TypedValueParser<Value = View> {
    use clap::builder::TypedValueParser;
    let values = View::ALL.map(|view| PossibleValue::new(view.name()));
    clap::builder::PossibleValuesParser::new(values).try_map(|name| {
        let mut all = View::ALL.into_iter();
        all.find(|view| view.name() == name).ok_or("no such table")
    })
}

/// Seconds between two looks.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.5..=300.0).contains(seconds));
    let seconds = seconds.ok_or("use a number of seconds from 0.5 to 300")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Does what the command says.
///
/// # Errors
/// No server can be asked, or there is no such column.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let order = Order::new(args.view, args.sort.as_deref(), args.reverse)?;
    let source = source(args)?;
    if !args.once && !args.json && std::io::stdout().is_terminal() {
        let options = live::Options {
            view: args.view,
            interval: args.interval,
            order,
            filter: args.filter.clone(),
            limit: args.limit,
        };
        live::run(source, options)?;
        return Ok(ExitCode::SUCCESS);
    }
    let between = looks(&source, args)?;
    if source.is_for_everybody() && !args.json {
        let missing = Remote::missing(args.view);
        output::note(&format_args!(
            "servers do not tell others {missing}: these cells show -"
        ));
    }
    let mut table = Table::of(args.view, &between);
    table.filter(&args.filter);
    table.sort(&order);
    table.rows.truncate(args.limit.unwrap_or(usize::MAX));
    let text = match args.json {
        true => table.json()?,
        false => layout::text(&table, between.now.beyond),
    };
    output::document(text.as_bytes()).context("cannot write the table")?;
    Ok(ExitCode::SUCCESS)
}

/// Where what is to be shown comes from.
fn source(args: &TopArgs) -> anyhow::Result<Source> {
    if args.view == View::Mounts {
        let of_server = args.cell.is_some() || args.socket.is_some() || args.server.is_some();
        ensure!(
            !of_server,
            "afar top mounts shows mounts of this machine, not a server; choose one with --mount"
        );
        return Source::mounts(args.mount.as_deref());
    }
    ensure!(
        args.mount.is_none(),
        "--mount is for `afar top mounts`; afar top {} shows a server",
        args.view.name()
    );
    match &args.server {
        Some(name) => Source::remote(name, args.cell.as_ref(), args.localauth, args.view),
        None => Source::find(args.socket.as_deref(), args.cell.as_ref()),
    }
}

/// What happens in one interval; of calls, what goes on now.
fn looks(source: &Source, args: &TopArgs) -> anyhow::Result<Between> {
    let mut between = Between::default();
    between.next(source.fetch(args.view, args.interval)?);
    if args.view != View::Calls {
        std::thread::sleep(args.interval);
        between.next(source.fetch(args.view, args.interval)?);
    }
    Ok(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(interval("1.5").unwrap(), Duration::from_millis(1500));
        for wrong in ["0", "0.1", "-1", "NaN", "inf", "1e9", "a", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
