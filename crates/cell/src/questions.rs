//! What a cache manager is asked about itself, as OpenAFS's `cmdebug` and `xstat_cm_test` ask it.

use std::fmt;
use std::net::Ipv4Addr;
use std::pin::Pin;

use afar_types::{CellName, DbCacheEntry64};

/// The version of the collections of counters.
pub(crate) const X_STATS: i32 = 2;
/// The form of the cache's settings (OpenAFS's `AFS_CLIENT_RETRIEVAL_FIRST_EDITION`).
pub(crate) const SETTINGS: u32 = 1;

/// A collection of counters, by the number that asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collection {
    /// 0: requests and calls by their names.
    Calls,
    /// 1: what is cached, and servers.
    Performance,
    /// 2: the same, and times by operation.
    Full,
}

impl Collection {
    pub(crate) fn of(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::Calls,
            1 => Self::Performance,
            2 => Self::Full,
            _ => return None,
        })
    }
}

/// A cell, and the addresses of its database servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellServers {
    /// The cell.
    pub name: CellName,
    /// The servers.
    pub servers: Vec<Ipv4Addr>,
}

/// The settings of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSettings {
    /// Files whose status is kept.
    pub files: u64,
    /// Bytes that the data may take.
    pub bytes: u64,
}

/// A server and its rank, which may have to be asked for; `None` behind the last.
pub type Ranked<'a> = Pin<Box<dyn Future<Output = Option<(Ipv4Addr, u16)>> + Send + 'a>>;

/// Answers what the cache manager is asked about itself. Each answer takes a bounded time, whatever is asked.
pub trait Answers: fmt::Debug + Send + Sync {
    /// The cached file in this place of a list that the question for place 0 begins.
    fn entry(&self, index: usize) -> Option<DbCacheEntry64>;

    /// The cell in this place of the list of cells.
    fn cell(&self, index: usize) -> Option<CellServers>;

    /// The cell that entries have by this number.
    fn cell_of_entries(&self, number: i32) -> Option<CellServers>;

    /// The cell that the cache manager is for, if there is one.
    fn own_cell(&self) -> Option<CellName>;

    /// The server in this place of the list of servers, and its rank.
    fn server(&self, index: usize) -> Ranked<'_>;

    /// The settings of the cache.
    fn settings(&self) -> CacheSettings;

    /// The words of a collection of counters, in the places of OpenAFS's.
    fn counters(&self, collection: Collection) -> Vec<u32>;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use afar_net::{AbortCode, Config, Endpoint};
    use afar_rpc::rxafscb::{self, Service as _};
    use afar_rpc::{Caller, Identity};
    use afar_types::error::errno::EACCES;

    use super::*;
    use crate::callback::CallbackService;

    #[derive(Debug)]
    struct Fake;

    impl Answers for Fake {
        fn entry(&self, index: usize) -> Option<DbCacheEntry64> {
            (index < 2).then(|| DbCacheEntry64 {
                length: 5 << 30,
                ..DbCacheEntry64::default()
            })
        }

        fn cell(&self, index: usize) -> Option<CellServers> {
            (index == 0).then(|| CellServers {
                name: "a.example".parse().unwrap(),
                servers: vec![Ipv4Addr::LOCALHOST; 20],
            })
        }

        fn cell_of_entries(&self, _: i32) -> Option<CellServers> {
            None
        }

        fn own_cell(&self) -> Option<CellName> {
            None
        }

        fn server(&self, index: usize) -> Ranked<'_> {
            Box::pin(std::future::ready(
                (index == 0).then_some((Ipv4Addr::LOCALHOST, 20_001)),
            ))
        }

        fn settings(&self) -> CacheSettings {
            CacheSettings {
                files: 7,
                bytes: 1 << 50,
            }
        }

        fn counters(&self, collection: Collection) -> Vec<u32> {
            vec![u32::MAX; 1 + collection as usize]
        }
    }

    #[tokio::test]
    async fn files_are_for_this_machine_and_numbers_for_everybody() {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
        let service = CallbackService::start(&endpoint);
        let from = |peer: &str| Caller {
            peer: peer.parse().unwrap(),
            service: rxafscb::SERVICE,
            identity: Identity::Anonymous,
        };
        let (near, far) = (from("127.0.0.1:5"), from("192.0.2.1:7001"));
        let stats = |collection| rxafscb::get_x_stats::Request {
            client_version: 2,
            collection,
        };
        let ce = |index| rxafscb::get_ce::Request { index };
        // A client that is no cache manager has nothing to tell.
        let unknown = service.get_x_stats(&near, stats(0)).await.unwrap_err();
        assert_eq!(unknown, AbortCode::RXGEN_OPCODE);
        assert_eq!(
            service.get_ce(&near, ce(0)).await.unwrap_err(),
            AbortCode::RXGEN_OPCODE
        );
        service.set_answers(Arc::new(Fake));

        for caller in [&near, &far] {
            for number in 0..3 {
                let told = service.get_x_stats(caller, stats(number)).await.unwrap();
                assert_eq!(told.data.iter().max(), Some(&-1));
                assert_eq!(i32::try_from(told.data.len()).unwrap(), number + 1);
            }
            let end = service.get_x_stats(caller, stats(3)).await.unwrap_err();
            assert_eq!(end, AbortCode(1));
            let config = rxafscb::get_cache_config::Request { caller_version: 1 };
            let config = service.get_cache_config(caller, config).await.unwrap();
            assert_eq!((config.count, config.config.len()), (36, 9));
            assert_eq!((config.config[1], config.config[6]), (7, i32::MAX as u32));
            let lock = rxafscb::get_lock::Request { index: 0 };
            assert_eq!(
                service.get_lock(caller, lock).await.unwrap_err(),
                AbortCode(1)
            );
        }

        // A length that does not fit is the greatest that does.
        let told = service.get_ce(&near, ce(1)).await.unwrap();
        assert_eq!(told.entry.length, i32::MAX);
        for index in [2, -1, i32::MAX] {
            let end = service.get_ce(&near, ce(index)).await.unwrap_err();
            assert_eq!(end, AbortCode(1), "{index}");
        }
        let prefs = |index| rxafscb::get_server_prefs::Request { index };
        let told = service.get_server_prefs(&near, prefs(0)).await.unwrap();
        assert_eq!((told.address, told.rank), (0x7f00_0001, 20_001));
        let told = service.get_server_prefs(&near, prefs(-1)).await.unwrap();
        assert_eq!((told.address, told.rank), (u32::MAX, -1));
        let cells = |index| rxafscb::get_cell_serv_db::Request { index };
        let told = service.get_cell_serv_db(&near, cells(0)).await.unwrap();
        assert_eq!(
            (told.cell.to_string(), told.hosts.len()),
            ("a.example".to_owned(), 8)
        );
        let told = service.get_cell_serv_db(&near, cells(1)).await.unwrap();
        assert!(told.cell.as_bytes().is_empty() && told.hosts.is_empty());

        let denied = AbortCode(EACCES);
        assert_eq!(service.get_ce(&far, ce(0)).await.unwrap_err(), denied);
        assert_eq!(
            service.get_server_prefs(&far, prefs(0)).await.unwrap_err(),
            denied
        );
        assert_eq!(
            service.get_cell_serv_db(&far, cells(0)).await.unwrap_err(),
            denied
        );
        let local = rxafscb::get_local_cell::Request {};
        assert_eq!(
            service.get_local_cell(&far, local).await.unwrap_err(),
            denied
        );
    }
}
