//! Looking after file servers that nobody talks to.
//!
//! A server that was killed has forgotten whom it promised what, and cannot tell anybody that a file
//! has changed. It says so to each client that calls, before it answers (InitCallBackState). So one
//! that is idle calls now and then, as other clients of AFS do.

use std::collections::BTreeMap;
use std::sync::Weak;

use tokio::task::JoinSet;

use crate::cache::Inner;

/// Asks servers that have not been asked for anything by which they tell that, as long as there is a cache.
pub(crate) async fn watch(cache: Weak<Inner>) {
    // The calls each server had when it was looked at last.
    let mut calls = BTreeMap::new();
    loop {
        let Some(time) = cache.upgrade().map(|cache| cache.config.probe) else {
            return;
        };
        tokio::time::sleep(time).await;
        let Some(cache) = cache.upgrade() else {
            return;
        };
        let mut asked = JoinSet::new();
        for server in cache.client.servers() {
            let (address, before) = (server.address(), server.telling_calls());
            let idle = calls.insert(address, before) == Some(before);
            if idle {
                // This call does not count.
                calls.insert(address, before + 1);
                asked.spawn(async move {
                    let answers = server.probe().await;
                    tracing::debug!(server = %server.address(), answers, "asked an idle server");
                });
            }
        }
        drop(cache);
        asked.join_all().await;
    }
}
