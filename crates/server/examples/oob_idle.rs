//! What idle connections for out-of-band transfers cost a server: its memory for each, and how many small calls of
//! others it serves without and with them.
//!
//! `cargo run --release -p afar-server --example oob_idle`; prints one JSON object. The server is a process of its own.

#![expect(clippy::print_stdout, reason = "an example for a terminal")]

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_cell::CallbackService;
use afar_net::{Endpoint, RxNull};
use afar_oob::frame::{self, ClientFrame, Fetch, FromServer, Incoming};
use afar_oob::secret::Side;
use afar_oob::{
    Agreement, Codecs, EXPORTER, Hello, Offer, PROTOCOL, Question, Secret, ServerFrame, VERSION,
    offer,
};
use afar_rpc::{rxafs, vl};
use afar_server::config::Config;
use afar_server::{Process, local_cell};
use afar_types::{AclText, Fid, FileName, Rights, StoreStatus, VolumeName};
use afar_xdr::{FixedOpaque, Opaque};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// AFS's ports are fixed, so the server has a loopback address of its own.
const ADDRESS: &str = "127.93.0.20";
/// Clients' addresses, each with so many connections.
const CLIENTS: u8 = 4;
const EACH: usize = 500;
/// Bytes of the file of which each connection fetches all, once.
const FILE: usize = 1 << 20;
/// For how long small calls are counted.
const TIME: Duration = Duration::from_secs(3);
/// Small calls at a time.
const CALLS: usize = 8;

#[tokio::main]
async fn main() -> Result<()> {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: most,
            maximum: most,
        },
    )?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [] => measure().await,
        [word, dir] if word == "--serve" => serve(Path::new(dir)).await,
        [word] if word == "-V" => {
            println!("oob_idle {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        _ => bail!("{words:?}: there are no options"),
    }
}

/// The server, until nobody holds the other end of its standard input.
async fn serve(dir: &Path) -> Result<()> {
    let process = Process::start(config(dir)?).await?;
    process.found_cell().await?;
    println!("ready");
    let end = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    end.await??;
    process.stop().await
}

fn config(dir: &Path) -> Result<Config> {
    std::fs::create_dir_all(dir.join("a"))?;
    let text = format!(
        "cell = \"test.example\"\ndata = {data:?}\nrun = {run:?}\nlisten = \"{ADDRESS}\"\n\
         [oob]\nenabled = true\n[partition.a]\npath = {a:?}\n",
        data = dir.join("data"),
        run = dir.join("run"),
        a = dir.join("a"),
    );
    Config::parse(&text)
}

async fn measure() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut server = Command::new(std::env::current_exe()?)
        .arg("--serve")
        .arg(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let out = server.stdout.take().context("it has an output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    ensure!(line == "ready\n", "the server does not start");
    let admin = local_cell::endpoint(&dir.path().join("run"), afar_net::Config::default())?;
    let (root, file) = prepare(&admin).await?;
    admin.shutdown().await;
    let own = SocketAddr::new(ADDRESS.parse()?, 0);
    let endpoint = Endpoint::bind(own, afar_net::Config::default())?;
    let _callbacks = CallbackService::start(&endpoint);
    // What is allocated once is.
    let warm = connect(1, 10, file).await?;
    rate(&endpoint, root).await?;
    let without = rate(&endpoint, root).await?;
    drop(warm);
    let before = resident(&server)?;
    let mut connections = Vec::new();
    for client in 1..=CLIENTS {
        connections.extend(connect(client, EACH, file).await?);
    }
    // What their transfers took is given back.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = resident(&server)?;
    let with = rate(&endpoint, root).await?;
    let number = connections.len();
    endpoint.shutdown().await;
    drop(server.stdin.take());
    server.wait()?;
    let said = serde_json::json!({
        "connections": number,
        "bytes_each": after.saturating_sub(before) / number as u64,
        "calls_without": without,
        "calls_with": with,
    });
    println!("{said}");
    Ok(())
}

/// Bytes of memory that a process has.
fn resident(child: &Child) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: u64 = number.context("a process has memory")?.parse()?;
    Ok(kib * 1024)
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
    store.send(Bytes::from(vec![7; FILE])).await?;
    store.finish().await?;
    Ok((root, file))
}

/// So many connections of the client with this number, each of which has fetched the file.
async fn connect(client: u8, number: usize, file: Fid) -> Result<Vec<TlsStream<TcpStream>>> {
    let own: IpAddr = [127, 93, 1, client].into();
    let endpoint = Endpoint::bind(SocketAddr::new(own, 0), afar_net::Config::default())?;
    let _callbacks = CallbackService::start(&endpoint);
    let agreement = Agreement::new()?;
    let question = offer::encode(&Question::new(agreement.share()));
    let files = file_server(&endpoint)?;
    let answer = files.oob_offer(Opaque::new(&question[..])?).await?;
    let offer: Offer = offer::decode(&answer.offer)?;
    let secret = agreement.agree(Side::Client, &offer.share.0)?;
    let mut connections = Vec::new();
    for _ in 0..number {
        connections.push(one(own, &offer, &secret, file).await?);
    }
    endpoint.shutdown().await;
    Ok(connections)
}

async fn one(
    own: IpAddr,
    offer: &Offer,
    secret: &Secret,
    file: Fid,
) -> Result<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(own, 0))?;
    let server = SocketAddr::new(ADDRESS.parse()?, u16::try_from(offer.port)?);
    let stream = socket.connect(server).await?;
    stream.set_nodelay(true)?;
    let config = afar_tls::client(PROTOCOL, Some(offer.fingerprint.0.into()))?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(server.ip().into(), stream).await?;
    let exported: [u8; 32] = stream
        .get_ref()
        .1
        .export_keying_material([0; 32], EXPORTER, None)?;
    let hello = ClientFrame::Hello(Hello {
        version: VERSION,
        grant: offer.grant.clone(),
        proof: FixedOpaque(secret.proof(&exported)),
        parts: afar_oob::no_parts(),
    });
    let fetch = ClientFrame::Fetch(Fetch {
        id: 1,
        fid: file,
        offset: 0,
        length: FILE as u64,
        codecs: Codecs::RAW,
        credit: 1 << 24,
    });
    stream.write_all(&frame::encode(&hello)).await?;
    stream.write_all(&frame::encode(&fetch)).await?;
    stream.flush().await?;
    let mut incoming = Incoming::<FromServer>::default();
    loop {
        match incoming.frame()? {
            Some(FromServer::Frame(ServerFrame::End(_))) => return Ok(stream),
            Some(FromServer::Frame(ServerFrame::Welcome(_) | ServerFrame::Reply { .. })) => {}
            Some(FromServer::Frame(other)) => bail!("the server says {other:?}"),
            Some(FromServer::Data(_)) => {}
            None => {
                let read = stream.read_buf(incoming.room()).await?;
                ensure!(read > 0, "the server has closed the connection");
            }
        }
    }
}

/// Small calls a second, several at a time.
async fn rate(endpoint: &Endpoint, root: Fid) -> Result<f64> {
    let until = Instant::now() + TIME;
    let mut callers = Vec::new();
    for _ in 0..CALLS {
        let files = file_server(endpoint)?;
        callers.push(tokio::spawn(async move {
            let mut done = 0_u32;
            while Instant::now() < until {
                files.fetch_status(root).await?;
                done += 1;
            }
            anyhow::Ok(done)
        }));
    }
    let mut done = 0;
    for caller in callers {
        done += caller.await??;
    }
    Ok(f64::from(done) / TIME.as_secs_f64())
}
