//! Looking after file servers that nobody talks to.
//!
//! A server that was killed has forgotten whom it promised what, and cannot tell anybody that a file
//! has changed. It says so to each client that calls, before it answers (InitCallBackState). So one
//! that is idle calls now and then, as other clients of AFS do. The same call tells a server where we are,
//! when a NAT between us has given us another port.

use std::collections::BTreeMap;
use std::sync::Weak;

use afar_cell::Moves;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::ops::cache::Inner;

/// Looks in the time after which an idle server is asked.
const LOOKS: u32 = 4;

/// Asks servers that have not been asked for anything by which they tell that, as long as there is a cache.
pub(crate) async fn watch(cache: Weak<Inner>) {
    // The calls each server had when it was looked at last, and since when.
    let mut calls: BTreeMap<_, (u64, Instant)> = BTreeMap::new();
    let mut asked = JoinSet::new();
    loop {
        let Some(time) = cache.upgrade().map(|cache| cache.config.probe) else {
            return;
        };
        tokio::time::sleep(time / LOOKS).await;
        let Some(cache) = cache.upgrade() else {
            return;
        };
        while asked.try_join_next().is_some() {}
        let now = Instant::now();
        // One that several users asked is there for each.
        let servers = cache.client.servers().into_iter();
        let each: BTreeMap<_, _> = servers.map(|server| (server.address(), server)).collect();
        for (address, server) in each {
            let made = server.telling_calls();
            let known = calls.entry(address).or_insert((made, now));
            if known.0 != made {
                *known = (made, now);
            } else if now.duration_since(known.1) + time / LOOKS > time {
                // This call does not count.
                *known = (made + 1, now);
                asked.spawn(async move {
                    let answers = server.probe().await;
                    tracing::debug!(server = %server.address(), answers, "asked an idle server");
                });
            }
        }
    }
}

/// Tells servers where this machine is when that changes, as long as there is a cache.
pub(crate) async fn follow(cache: Weak<Inner>) {
    let mut moves = match Moves::watch() {
        Ok(moves) => moves,
        Err(error) => {
            tracing::warn!(%error, "changes of this machine's addresses are noticed late");
            return;
        }
    };
    loop {
        if let Err(error) = moves.changed().await {
            tracing::warn!(%error, "changes of this machine's addresses are noticed late from now on");
            return;
        }
        let Some(client) = cache.upgrade().map(|cache| cache.client.clone()) else {
            return;
        };
        moves.tell(&client).await;
    }
}
