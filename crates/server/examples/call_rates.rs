//! How many calls a server serves over the loopback, how much data, and the processor time of both: one process with a
//! server, and a client that has eight calls under way. `cargo xtask bench telemetry` runs it in turns with a build that counts nothing.
//!
//! `cargo run --release -p afar-server --example call_rates [-- --watched]`; prints one JSON object.

#![expect(clippy::print_stdout, reason = "an example for a terminal")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_cell::CallbackService;
use afar_net::{Endpoint, RxNull};
use afar_rpc::{rxafs, vl};
use afar_server::config::Config;
use afar_server::view::View;
use afar_server::{Process, local_cell};
use afar_types::{AclText, Fid, FileName, Rights, StoreStatus, VolumeName};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// AFS's ports are fixed, so the server has a loopback address of its own.
const ADDRESS: &str = "127.93.0.19";
/// Calls under way at a time.
const CALLS: usize = 8;
/// How long each kind of load is measured, after a tenth of that.
const TIME: Duration = Duration::from_secs(2);
/// Bytes of the file that is read.
const FILE: usize = 16 << 20;
/// More than that: a fetch gets what there is.
const WHOLE: i64 = 1 << 40;
/// How often a watched server is asked for everything: as often as `afar top` asks, and 15 times as often as
/// Prometheus does.
const LOOKS: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<()> {
    let watched = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--watched") => true,
        Some("-V") => {
            println!("call_rates {}", env!("CARGO_PKG_VERSION"));
            return Ok(());
        }
        Some(other) => bail!("{other}: the only option is --watched"),
    };
    let dir = tempfile::tempdir()?;
    let process = Process::start(config(dir.path())?).await?;
    process.found_cell().await?;
    let viewer = watched.then(|| tokio::spawn(look(dir.path().join("run/metrics.sock"))));
    let own = SocketAddr::new(ADDRESS.parse()?, 0);
    let endpoint = Endpoint::bind(own, afar_net::Config::default())?;
    let _callbacks = CallbackService::start(&endpoint);
    let admin = local_cell::endpoint(&dir.path().join("run"), afar_net::Config::default())?;
    let (root, file) = prepare(&admin).await?;
    admin.shutdown().await;
    let calls = rate(&endpoint, move |files| async move {
        files.fetch_status(root).await?;
        Ok(1)
    });
    let calls = calls.await?;
    let data = rate(
        &endpoint,
        move |files| async move { read(&files, file).await },
    );
    let data = data.await?;
    if let Some(viewer) = viewer {
        if viewer.is_finished() {
            viewer.await??;
        } else {
            viewer.abort();
        }
    }
    endpoint.shutdown().await;
    process.stop().await?;
    let rates = serde_json::json!({ "calls": calls, "data": data });
    println!("{rates}");
    Ok(())
}

fn config(dir: &Path) -> Result<Config> {
    std::fs::create_dir_all(dir.join("a"))?;
    let text = format!(
        "cell = \"test.example\"\ndata = {data:?}\nrun = {run:?}\nlisten = \"{ADDRESS}\"\n\
         [partition.a]\npath = {a:?}\n",
        data = dir.join("data"),
        run = dir.join("run"),
        a = dir.join("a"),
    );
    Config::parse(&text)
}

fn file_server(endpoint: &Endpoint) -> Result<rxafs::Client> {
    let address = SocketAddr::new(ADDRESS.parse()?, 7000);
    let connection = endpoint.connect(address, rxafs::SERVICE, Arc::new(RxNull));
    Ok(rxafs::Client::new(connection))
}

/// The root of the cell, and a file that it makes there.
async fn prepare(endpoint: &Endpoint) -> Result<(Fid, Fid)> {
    let address = SocketAddr::new(ADDRESS.parse()?, 7003);
    let volumes = vl::Client::new(endpoint.connect(address, vl::SERVICE, Arc::new(RxNull)));
    let name = VolumeName::new("root.cell")?;
    let entry = volumes.get_entry_by_name_n(name).await?.entry;
    let root = Fid::root(entry.volume_id[0]);
    let files = file_server(endpoint)?;
    let all = AclText::new(format!("1\n0\nsystem:anyuser\t{}\n\0", Rights::ALL.0))?;
    files.store_acl(root, all).await?;
    let (name, plain) = (FileName::new("file")?, StoreStatus::default());
    let file = files.create_file(root, name, plain).await?.fid;
    let length = FILE as u64;
    let mut store = files.store_data64(file, plain, 0, length, length).await?;
    let mut left = Bytes::from(vec![7; FILE]);
    while !left.is_empty() {
        store.send(left.split_to(left.len().min(100_000))).await?;
    }
    store.finish().await?;
    Ok((root, file))
}

/// Reads the whole file; its length.
async fn read(files: &rxafs::Client, file: Fid) -> Result<u64> {
    let mut fetch = files.fetch_data64(file, 0, WHOLE).await?;
    let mut read = 0;
    while let Some(chunk) = fetch.chunk().await? {
        read += chunk.len() as u64;
    }
    fetch.finish().await?;
    ensure!(read == FILE as u64, "the file has {read} bytes");
    Ok(read)
}

/// What calls did, the sum of what each says that it did.
#[derive(serde::Serialize)]
struct Rate {
    per_second: f64,
    /// Seconds of processor time of client and server.
    processor_each: f64,
}

/// What calls do; [`CALLS`] at a time, each on a connection.
async fn rate<F: Future<Output = Result<u64>> + Send + 'static>(
    endpoint: &Endpoint,
    call: impl Fn(rxafs::Client) -> F + Clone + Send + Sync + 'static,
) -> Result<Rate> {
    let from = Instant::now() + TIME / 10;
    let mut callers = Vec::new();
    for _ in 0..CALLS {
        let (files, call) = (file_server(endpoint)?, call.clone());
        callers.push(tokio::spawn(async move {
            let mut done = 0;
            loop {
                let more = call(files.clone()).await?;
                let now = Instant::now();
                if now >= from + TIME {
                    return anyhow::Ok(done);
                }
                if now >= from {
                    done += more;
                }
            }
        }));
    }
    tokio::time::sleep_until(from.into()).await;
    let before = processor_time();
    tokio::time::sleep_until((from + TIME).into()).await;
    let used = processor_time().saturating_sub(before);
    let mut done = 0;
    for caller in callers {
        done += caller.await??;
    }
    Ok(Rate {
        per_second: done as f64 / TIME.as_secs_f64(),
        processor_each: used.as_secs_f64() / done as f64,
    })
}

/// Processor time of all threads since the process began.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(used.tv_sec).unwrap_or(0),
        u32::try_from(used.tv_nsec).unwrap_or(0),
    )
}

/// Asks for the metrics, and for all that `afar top` shows, again and again.
async fn look(socket: PathBuf) -> Result<()> {
    loop {
        let views = View::SERVER.map(View::path).into_iter();
        for path in views.chain(["/metrics".to_owned()]) {
            let mut stream = UnixStream::connect(&socket).await?;
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            let read = stream.read_to_string(&mut answer).await;
            read.with_context(|| format!("reading {path}"))?;
            ensure!(
                answer.starts_with("HTTP/1.1 200 OK\r\n"),
                "{path}: {answer}"
            );
        }
        tokio::time::sleep(LOOKS).await;
    }
}
