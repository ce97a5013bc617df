//! Settings of an endpoint.

use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};

/// Settings of an [`Endpoint`](crate::Endpoint): those of the engine and those of its shell.
#[derive(Clone, Debug)]
pub struct Config {
    /// The engine's settings. The default's seed comes from the system's generator.
    pub rx: afar_rx::Config,
    /// Bytes the socket may hold that the I/O thread has not taken yet (SO_RCVBUF).
    ///
    /// What arrives while it is full is lost. 8 MiB hold what 1 GB/s brings while another thread
    /// has the processor for 8 ms. The kernel may allow less: see
    /// [`Endpoint::buffer_hint`](crate::Endpoint::buffer_hint).
    pub receive_buffer: usize,
    /// Bytes the socket may hold that the network has not taken yet (SO_SNDBUF).
    pub send_buffer: usize,
    /// How long the I/O thread looks for work without sleeping after it had some.
    ///
    /// It costs a processor as much, and saves the wake-up of an idle one, about 30 µs in a virtual
    /// machine, on each packet that arrives within that time. Zero never spins.
    pub spin: Duration,
    /// How long [`Endpoint::shutdown`](crate::Endpoint::shutdown) waits for running calls.
    pub shutdown_limit: Duration,
    /// Whether what arrives waits in the socket until [`Endpoint::listen`](crate::Endpoint::listen),
    /// when all services are there. Otherwise calls that come first are refused: clients take a server
    /// that starts for one that lacks the service.
    pub hold: bool,
}

impl Default for Config {
    /// 8 MiB each way, no spinning, 10 s for shutting down.
    ///
    /// # Panics
    /// If the kernel has no random generator: connections must not be guessable.
    fn default() -> Self {
        Self {
            rx: afar_rx::Config {
                seed: random(),
                ..afar_rx::Config::default()
            },
            receive_buffer: 8 << 20,
            send_buffer: 8 << 20,
            spin: Duration::ZERO,
            shutdown_limit: Duration::from_secs(10),
            hold: false,
        }
    }
}

/// Eight bytes of the system's generator.
pub(crate) fn random() -> u64 {
    let mut seed = [0; 8];
    let filled = getrandom(&mut seed, GetRandomFlags::empty()).expect("Linux has getrandom");
    assert_eq!(filled, seed.len(), "small requests are answered whole");
    u64::from_ne_bytes(seed)
}
