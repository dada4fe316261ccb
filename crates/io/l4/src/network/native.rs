//! Whether a driver takes native XDP: the family `netdev` of generic netlink says so (Linux 6.3).

use std::io::{self, Error, ErrorKind};

use netlink_packet_core::NLM_F_REQUEST;
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

/// `GENL_ID_CTRL` and `CTRL_CMD_GETFAMILY`, with `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME`.
const CONTROL: (u16, u8) = (0x10, 3);
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `NETDEV_CMD_DEV_GET`, with `NETDEV_A_DEV_IFINDEX` and `NETDEV_A_DEV_XDP_FEATURES`.
const DEVICE: u8 = 1;
const IFINDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_BASIC`.
const BASIC: u64 = 1;
/// `struct nlmsghdr` and `struct genlmsghdr`.
const HEADERS: usize = 20;
const NLMSG_ERROR: u16 = 2;

/// Whether native programs can be put onto an interface, as its driver says; none: this kernel does not tell.
///
/// # Errors
/// When there is no such interface, or the kernel does not answer.
pub fn takes_native(ifindex: u32) -> io::Result<Option<bool>> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let family = match ask(&socket, CONTROL, &attribute(FAMILY_NAME, b"netdev\0")) {
        Ok(answer) => {
            find(&answer, FAMILY_ID).and_then(|id| Some(u16::from_ne_bytes(*id.first_chunk()?)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(family) = family else { return Ok(None) };
    let answer = ask(&socket, (family, DEVICE), &attribute(IFINDEX, &ifindex.to_ne_bytes()))?;
    let features = find(&answer, XDP_FEATURES).and_then(|value| value.first_chunk());
    Ok(features.map(|value| u64::from_ne_bytes(*value) & BASIC != 0))
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (4 + value.len()) as u16;
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Attributes of the answer.
fn ask(socket: &Socket, (family, command): (u16, u8), attributes: &[u8]) -> io::Result<Vec<u8>> {
    let length = (HEADERS + attributes.len()) as u32;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend_from_slice(&family.to_ne_bytes());
    message.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    // Sequence and port; command, version 1.
    message.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, command, 1, 0, 0]);
    message.extend_from_slice(attributes);
    socket.send(&message, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let short = || Error::new(ErrorKind::InvalidData, "an answer that is cut short");
    let (headers, rest) = answer.split_first_chunk::<HEADERS>().ok_or_else(short)?;
    if u16::from_ne_bytes([headers[4], headers[5]]) == NLMSG_ERROR {
        let code = i32::from_ne_bytes([headers[16], headers[17], headers[18], headers[19]]);
        return Err(Error::from_raw_os_error(-code));
    }
    Ok(rest.to_vec())
}

fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(([a, b, c, d], _)) = attributes.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        let value = attributes.get(4..length)?;
        if u16::from_ne_bytes([*c, *d]) == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_behind_others_and_not_where_they_are_cut() {
        let list = [attribute(FAMILY_NAME, b"netdev\0"), attribute(FAMILY_ID, &[7, 0])].concat();
        assert_eq!(find(&list, FAMILY_ID), Some(&[7, 0][..]));
        assert_eq!(find(&list, FAMILY_NAME), Some(&b"netdev\0"[..]));
        assert_eq!(find(&list, 9), None);
        assert_eq!(find(&list[..14], FAMILY_ID), None);
    }
}
