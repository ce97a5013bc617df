//! An Rx service that sends back what it receives, and a client that tries it.
//!
//! `rx-echo serve 127.0.0.1:7009` in one terminal, `rx-echo call 127.0.0.1:7009 hello` in another.

use std::net::SocketAddr;
use std::sync::Arc;

use afar_net::{AbortCode, Call, Config, Endpoint, Handler, RxNull, ServiceId};

const ECHO: ServiceId = ServiceId(1);

struct Echo;

impl Handler for Echo {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        while let Some(chunk) = call.recv().await.map_err(|error| error.code())? {
            call.send(chunk).await.map_err(|error| error.code())?;
        }
        Ok(())
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example prints")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", addr] => {
            let endpoint = Endpoint::bind(addr.parse()?, Config::default())?;
            endpoint.serve(ECHO, "echo", Echo);
            println!("answering at {}, Ctrl-C ends", endpoint.local_addr());
            tokio::signal::ctrl_c().await?;
            endpoint.shutdown().await;
        }
        ["call", addr, text] => {
            let peer: SocketAddr = addr.parse()?;
            let any = if peer.is_ipv4() {
                "0.0.0.0:0"
            } else {
                "[::]:0"
            };
            let endpoint = Endpoint::bind(any.parse()?, Config::default())?;
            let connection = endpoint.connect(peer, ECHO, Arc::new(RxNull));
            let mut call = connection.call().await?;
            call.send(text.to_owned().into()).await?;
            call.finish().await?;
            let reply = call.read_to_end(1 << 20).await?;
            println!("{}", String::from_utf8_lossy(&reply));
            endpoint.shutdown().await;
        }
        _ => return Err("usage: rx-echo serve ADDRESS:PORT | call ADDRESS:PORT TEXT".into()),
    }
    Ok(())
}
