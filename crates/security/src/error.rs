//! Why rxkad refuses.

use afar_rx::AbortCode;
use afar_types::error;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:ident: $text:literal;)*) => {
        /// Why rxkad refuses a connection or a packet. The peer is told the code and nothing else.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
        pub enum RxkadError {
            $($(#[$doc])* #[error($text)] $name,)*
        }

        impl RxkadError {
            /// All of them, in the order of their codes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The code the peer gets.
            #[must_use]
            pub const fn code(self) -> AbortCode {
                match self {
                    $(Self::$name => AbortCode(error::$code),)*
                }
            }
        }
    };
}

refusals! {
    /// Something of ours is not as it must be.
    Inconsistency = RXKADINCONSISTENCY: "the security state of the connection is damaged";
    /// A challenge, response or packet has fewer bytes than its fixed part.
    PacketShort = RXKADPACKETSHORT: "a packet is too short";
    /// The level asked for is below the least allowed, or none.
    LevelFail = RXKADLEVELFAIL: "the level of protection is not allowed";
    /// The ticket has fewer or more bytes than tickets have, or than the packet.
    TicketLen = RXKADTICKETLEN: "the ticket is too long or too short";
    /// A response answers another challenge.
    OutOfSequence = RXKADOUTOFSEQUENCE: "the response is to another challenge";
    /// The ticket is not valid yet.
    NoAuth = RXKADNOAUTH: "the ticket is not valid yet";
    /// A key has the wrong length, or is weak.
    BadKey = RXKADBADKEY: "the key is weak or not valid";
    /// The ticket cannot be opened, or says what tickets may not say.
    BadTicket = RXKADBADTICKET: "the ticket is not valid";
    /// The ticket was made with a key that is not here.
    UnknownKey = RXKADUNKNOWNKEY: "the server does not have the key of the ticket";
    /// The ticket has expired.
    Expired = RXKADEXPIRED: "the token has expired";
    /// A checksum is wrong: damage, or another key.
    SealedIncon = RXKADSEALEDINCON: "sealed data is damaged, or the key is wrong";
    /// A packet says that it has more data than came.
    DataLen = RXKADDATALEN: "a packet says it has more data than it has";
    /// The level is not allowed to this caller.
    IllegalLevel = RXKADILLEGALLEVEL: "the level may not be used";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_table_and_in_a_row() {
        for (code, refusal) in (19_270_400..).zip(RxkadError::ALL) {
            assert_eq!(refusal.code(), AbortCode(code), "{refusal}");
        }
        assert_eq!(RxkadError::ALL.len(), 13);
    }
}
