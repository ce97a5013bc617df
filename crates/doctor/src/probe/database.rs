//! Whether each of a cell's location servers answers.

use std::net::SocketAddr;
use std::time::Duration;

use afar_net::Endpoint;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::calls::Asker;
use crate::measured::Database;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(4);
/// Servers asked: a cell has fewer.
const MOST: usize = 32;

/// Asks all at the same time.
pub(crate) async fn databases(endpoint: &Endpoint, servers: &[SocketAddr]) -> Vec<Database> {
    let mut asked = JoinSet::new();
    for (number, &address) in servers.iter().take(MOST).enumerate() {
        let asker = Asker::new(endpoint, address);
        asked.spawn(async move {
            let begin = Instant::now();
            let answer = timeout(LIMIT, asker.ask()).await;
            let is_answered = matches!(answer, Ok(Ok(_)));
            let answer_s = is_answered.then(|| begin.elapsed().as_secs_f64());
            (number, Database { address, answer_s })
        });
    }
    let mut found = asked.join_all().await;
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, database)| database).collect()
}
