//! Answers that need no connection: VERSION, and DEBUG for `rxdebug`.

use std::net::SocketAddr;
use std::time::Instant;

use super::Endpoint;
use crate::packet::{Flags, Header};

/// Octets of a version answer, NUL-padded.
const VERSION_SIZE: usize = 65;

impl Endpoint {
    /// Answers a VERSION request; those without CLIENT_INITIATED are answers or NAT keep-alives.
    pub(super) fn on_version(&mut self, now: Instant, from: SocketAddr, header: &Header) {
        if !header.from_client() || !self.strangers.take(now) {
            return;
        }
        let mut body = [0; VERSION_SIZE];
        let text = self.config.version.as_bytes();
        let len = text.len().min(VERSION_SIZE - 1);
        body[..len].copy_from_slice(&text[..len]);
        let answer = Header { flags: header.flags.without(Flags::CLIENT_INITIATED), ..*header };
        self.push_datagram(from, &answer, &body);
    }

    /// Answers a DEBUG request of `rxdebug`.
    pub(super) fn on_debug(&mut self, _: Instant, _: SocketAddr, _: &Header, _: &[u8]) {}
}
