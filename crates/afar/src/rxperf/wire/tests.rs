use proptest::prelude::*;

use super::*;

fn encode(operation: &Operation) -> Request {
    Request::encode(operation, 0x8_0000, 0x1_0000).unwrap()
}

/// Reads a request back the way a server does.
fn decode(request: &Request) -> Result<(Exchange, usize), WireError> {
    let (header, rest) = request.head.split_first_chunk::<HEADER_LEN>().unwrap();
    match Header::decode(header)?.next {
        Next::Payload(exchange) => Ok((exchange, HEADER_LEN)),
        Next::ReplyBytes { request } => {
            let word = u32::from_be_bytes(rest[..4].try_into().unwrap());
            let reply = decode_amount(word)?;
            Ok((
                Exchange {
                    request,
                    reply,
                    cookie: true,
                },
                HEADER_LEN + 4,
            ))
        }
        Next::Entries(count) => Ok((
            Exchange::decode_entries(&rest[..count * 4])?,
            HEADER_LEN + count * 4,
        )),
    }
}

#[test]
fn send_is_laid_out_as_in_openafs() {
    let request = encode(&Operation::Send(0x0010_0000));
    let expected = [
        0, 0, 0, 3, // version
        0, 0, 0, 0, // send
        0, 8, 0, 0, // read size
        0, 1, 0, 0, // write size
        0, 0x10, 0, 0, // bytes
    ];
    assert_eq!(request.head[..], expected);
    assert_eq!(request.rest, 0x0010_0000);
}

#[test]
fn rpc_carries_its_short_payload_with_its_words() {
    let request = encode(&Operation::Rpc {
        request: 3,
        reply: 30,
    });
    assert_eq!(request.head[4..8], [0, 0, 0, 3]);
    assert_eq!(request.head[16..], [0, 0, 0, 3, 0, 0, 0, 30, 0, 0, 0]);
    assert_eq!(request.rest, 0);
}

#[test]
fn every_operation_is_read_back() {
    let file = Operation::File(vec![1, 2, 0, 3]);
    let cases = [
        (
            Operation::Send(5),
            Exchange {
                request: 5,
                reply: 0,
                cookie: true,
            },
        ),
        (
            Operation::Recv(1 << 20),
            Exchange {
                request: 0,
                reply: 1 << 20,
                cookie: true,
            },
        ),
        (
            Operation::Rpc {
                request: 0,
                reply: 0,
            },
            Exchange {
                request: 0,
                reply: 0,
                cookie: true,
            },
        ),
        (
            file,
            Exchange {
                request: 12,
                reply: 12,
                cookie: false,
            },
        ),
    ];
    for (operation, exchange) in cases {
        let request = encode(&operation);
        let (decoded, words) = decode(&request).unwrap();
        assert_eq!(decoded, exchange, "{operation:?}");
        assert_eq!(request.exchange, exchange, "{operation:?}");
        let payload = (request.head.len() - words) as u64 + request.rest;
        assert_eq!(payload, exchange.request, "{operation:?}");
    }
}

#[test]
fn amounts_beyond_a_word_become_file_entries() {
    let four_gib = 4 << 30;
    let request = encode(&Operation::Send(four_gib));
    assert_eq!(request.head[4..8], [0, 0, 0, 4]);
    assert_eq!(
        decode(&request).unwrap().0,
        Exchange {
            request: four_gib,
            reply: 0,
            cookie: false
        }
    );
    let request = encode(&Operation::Recv((1 << 31) + 4));
    assert_eq!(decode(&request).unwrap().0.reply, (1 << 31) + 4);
    for bytes in [(1 << 31) + 1, u64::MAX, 1 << 62] {
        let result = Request::encode(&Operation::Send(bytes), 1, 1);
        assert_eq!(result.unwrap_err(), WireError::Amount(bytes));
    }
}

#[test]
fn file_requests_turn_around_once() {
    let exchange = |entries: &[u32]| Exchange::of_entries(entries.iter().copied());
    assert_eq!(
        exchange(&[]).unwrap(),
        Exchange {
            request: 0,
            reply: 0,
            cookie: false
        }
    );
    assert_eq!(exchange(&[0, 0, 1, 0, 1]).unwrap().reply, 4);
    assert_eq!(exchange(&[1, 0, 1, 0, 1]), Err(WireError::TurnsBack));
    assert_eq!(exchange(&[0x2000_0000]), Err(WireError::Entry(0x2000_0000)));
}

#[test]
fn bad_headers_are_refused_by_cause() {
    let header = |words: [u32; 5]| {
        let mut bytes = [0; HEADER_LEN];
        for (at, word) in bytes.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_be_bytes());
        }
        Header::decode(&bytes)
    };
    assert_eq!(header([2, 0, 1, 1, 0]), Err(WireError::Version(2)));
    assert_eq!(header([3, 2, 1, 1, 0]), Err(WireError::Operation(2)));
    assert_eq!(
        header([3, u32::MAX, 1, 1, 0]),
        Err(WireError::Operation(u32::MAX))
    );
    assert_eq!(
        header([3, 0, 0x8_0001, 1, 0]),
        Err(WireError::IoSize(0x8_0001))
    );
    assert_eq!(
        header([3, 0, 1, u32::MAX, 0]),
        Err(WireError::IoSize(u32::MAX))
    );
    assert_eq!(
        header([3, 1, 1, 1, 1 << 31]),
        Err(WireError::Amount(1 << 31))
    );
    assert_eq!(
        header([3, 4, 1, 1, 0x1_0001]),
        Err(WireError::Entries(0x1_0001))
    );
    assert_eq!(header([3, 1, 0, 0, 9]).unwrap().write_size, 1);
}

#[test]
fn replies_are_checked_however_they_are_cut() {
    let exchange = Exchange {
        request: 0,
        reply: 10,
        cookie: true,
    };
    let reply = tail(10, true).unwrap();
    assert_eq!(reply.len(), 14);
    for size in 1..=reply.len() {
        let mut check = ReplyCheck::new(exchange);
        let payload: u64 = reply
            .chunks(size)
            .map(|piece| check.take(piece).unwrap())
            .sum();
        assert_eq!(payload, 10);
        check.end().unwrap();
    }
}

#[test]
fn wrong_replies_are_refused() {
    let exchange = Exchange {
        request: 0,
        reply: 2,
        cookie: true,
    };
    let mut short = ReplyCheck::new(exchange);
    short.take(&[0, 0, 0, 0]).unwrap();
    assert_eq!(
        short.end(),
        Err(WireError::Length {
            expected: 6,
            got: 4
        })
    );
    let mut long = ReplyCheck::new(exchange);
    assert_eq!(
        long.take(&[0; 7]),
        Err(WireError::Length {
            expected: 6,
            got: 7
        })
    );
    let mut other = ReplyCheck::new(exchange);
    other.take(&[0, 0, 0, 0, 0x47, 0x12]).unwrap();
    assert_eq!(other.end(), Err(WireError::Cookie(0x4712)));
}

#[test]
fn tails_hold_payload_and_cookie_only_if_they_fit() {
    assert_eq!(tail(0, true).unwrap()[..], [0, 0, 0x47, 0x11]);
    assert_eq!(tail(3, false).unwrap()[..], [0, 0, 0]);
    assert_eq!(tail(TAIL_LEN as u64, true), None);
    assert_eq!(zeros(u64::MAX).len(), IO_SIZE_MAX as usize);
}

proptest! {
    #[test]
    fn no_words_panic_or_ask_for_too_much(
        bytes: [u8; HEADER_LEN], small in prop::array::uniform5(0u32..6), entries: Vec<u8>
    ) {
        let mut plausible = [0; HEADER_LEN];
        for (at, word) in plausible.chunks_exact_mut(4).zip(small) {
            at.copy_from_slice(&word.to_be_bytes());
        }
        for bytes in [bytes, plausible] {
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert!((1..=IO_SIZE_MAX as usize).contains(&header.write_size));
                if let Next::Entries(count) = header.next {
                    prop_assert!(count <= FILE_ENTRIES_MAX);
                }
            }
        }
        if let Ok(exchange) = Exchange::decode_entries(&entries) {
            prop_assert!(exchange.request + exchange.reply <= entries.len() as u64 * (1 << 29));
        }
    }

    #[test]
    fn any_amount_is_encoded_as_itself_or_refused(bytes: u64, shift in 0u32..40) {
        let bytes = bytes >> shift;
        let cases = [(Operation::Send(bytes), true), (Operation::Recv(bytes), false)];
        for (operation, sends) in cases {
            match Request::encode(&operation, 1, 1) {
                Ok(request) => {
                    let exchange = decode(&request).unwrap().0;
                    let (there, back) = if sends { (bytes, 0) } else { (0, bytes) };
                    prop_assert_eq!((exchange.request, exchange.reply), (there, back));
                }
                Err(error) => prop_assert_eq!(error, WireError::Amount(bytes)),
            }
        }
    }
}
