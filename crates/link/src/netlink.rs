//! The two requests to the kernel's routing socket that a link needs (RFC 3549, rtnetlink(7)).

use std::io;

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

const RTM_NEWLINK: u16 = 16;
const RTM_NEWQDISC: u16 = 36;
const NLMSG_ERROR: u16 = 2;
const F_REQUEST_ACK: u16 = 0x1 | 0x4;
const F_CREATE_REPLACE: u16 = 0x400 | 0x100;
const TCA_KIND: u16 = 1;
const TC_H_ROOT: u32 = u32::MAX;
const IFF_UP: u32 = 1;
const HEADER_LEN: usize = 16;

/// Sets a device up, in the calling thread's namespace. The loopback device has index 1.
///
/// # Errors
///
/// What the kernel said.
pub fn set_up(index: u32) -> io::Result<()> {
    // struct ifinfomsg: family, pad, type, index, flags, change mask.
    let words = [0, index, IFF_UP, IFF_UP];
    request(RTM_NEWLINK, 0, &words.map(u32::to_ne_bytes).concat())
}

/// Takes the queue in front of a device away, so that its only queue is the link's.
///
/// # Errors
///
/// What the kernel said.
pub fn set_no_queue(index: u32) -> io::Result<()> {
    // struct tcmsg: family and padding, index, handle, parent, info.
    let words = [0, index, 0, TC_H_ROOT, 0];
    let mut body = words.map(u32::to_ne_bytes).concat();
    let kind = b"noqueue\0";
    body.extend_from_slice(&12_u16.to_ne_bytes());
    body.extend_from_slice(&TCA_KIND.to_ne_bytes());
    body.extend_from_slice(kind);
    request(RTM_NEWQDISC, F_CREATE_REPLACE, &body)
}

fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let socket = net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None, // NETLINK_ROUTE
    )?;
    let len = u32::try_from(HEADER_LEN + body.len()).map_err(io::Error::other)?;
    let mut message = len.to_ne_bytes().to_vec();
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(F_REQUEST_ACK | flags).to_ne_bytes());
    message.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    message.extend_from_slice(body);
    net::sendto(
        &socket,
        &message,
        SendFlags::empty(),
        &netlink::SocketAddrNetlink::new(0, 0),
    )?;
    let mut answer = [0; 4096];
    let (len, _) = net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    parse_answer(&answer[..len])
}

/// The kernel answers with an error message whose code is 0 if all went well.
fn parse_answer(answer: &[u8]) -> io::Result<()> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "unexpected netlink answer");
    let kind = answer.get(4..6).ok_or_else(bad)?;
    let code: [u8; 4] = answer
        .get(HEADER_LEN..HEADER_LEN + 4)
        .and_then(|b| b.try_into().ok())
        .ok_or_else(bad)?;
    match i32::from_ne_bytes(code) {
        _ if kind != NLMSG_ERROR.to_ne_bytes() => Err(bad()),
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        let answer = |kind: u16, code: i32| {
            let mut bytes = vec![0; HEADER_LEN];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(&code.to_ne_bytes());
            bytes
        };
        parse_answer(&answer(NLMSG_ERROR, 0)).unwrap();
        let refused = parse_answer(&answer(NLMSG_ERROR, -1)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(1));
        assert!(parse_answer(&answer(3, 0)).is_err());
        assert!(parse_answer(&answer(NLMSG_ERROR, 0)[..18]).is_err());
        assert!(parse_answer(&[]).is_err());
    }
}
