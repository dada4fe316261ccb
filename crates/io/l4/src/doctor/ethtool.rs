//! The offloads of an interface, over the kernel's generic netlink family `ethtool`
//! (Documentation/networking/ethtool-netlink.rst, FEATURES_GET): what is active, by name.
//!
//! Two small messages written by hand: the ioctl would need `unsafe`, and the crates that speak this
//! family are asynchronous.

use std::collections::BTreeSet;
use std::io::{Error, ErrorKind, Result};

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

const HEADER_BYTES: usize = 16;
const GENERIC_BYTES: usize = 4;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const CONTROL_FAMILY: u16 = 16;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
const FEATURES_GET: u8 = 11;
const FEATURES_HEADER: u16 = 1;
const FEATURES_ACTIVE: u16 = 4;
const DEVICE_INDEX: u16 = 1;
const BITSET_BITS: u16 = 3;
const BIT_NAME: u16 = 2;
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;

/// The names of the features that are active, such as `rx-gro`.
pub fn active(ifindex: u32) -> Result<BTreeSet<String>> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let name = attribute(CONTROL_FAMILY_NAME, b"ethtool\0");
    let family = ask(&socket, CONTROL_FAMILY, CONTROL_GET_FAMILY, &name)?;
    let id = attributes(&family)
        .find(|(kind, _)| *kind == CONTROL_FAMILY_ID)
        .and_then(|(_, value)| Some(u16::from_ne_bytes(value.get(..2)?.try_into().ok()?)))
        .ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "the kernel has no ethtool over netlink")
        })?;
    let device = attribute(DEVICE_INDEX, &ifindex.to_ne_bytes());
    let answer = ask(&socket, id, FEATURES_GET, &attribute(FEATURES_HEADER | NESTED, &device))?;
    Ok(names(&answer))
}

fn names(answer: &[u8]) -> BTreeSet<String> {
    let nested = |bytes: &[u8], wanted: u16| -> Vec<u8> {
        let found = attributes(bytes).find(|(kind, _)| *kind == wanted);
        found.map(|(_, value)| value.to_vec()).unwrap_or_default()
    };
    let bits = nested(&nested(answer, FEATURES_ACTIVE), BITSET_BITS);
    attributes(&bits)
        .filter_map(|(_, bit)| attributes(bit).find(|(kind, _)| *kind == BIT_NAME))
        .map(|(_, name)| String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
        .collect()
}

/// Sends one request; the attributes of the answer.
fn ask(socket: &Socket, family: u16, command: u8, attributes: &[u8]) -> Result<Vec<u8>> {
    let length = HEADER_BYTES + GENERIC_BYTES + attributes.len();
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    socket.send(&message, 0)?;
    let mut answer = vec![0; 64 * 1024];
    let size = socket.recv(&mut &mut answer[..], 0)?;
    answer.truncate(size);
    if size < HEADER_BYTES + GENERIC_BYTES {
        return Err(Error::new(ErrorKind::UnexpectedEof, "a short answer"));
    }
    if u16::from_ne_bytes([answer[4], answer[5]]) == NLMSG_ERROR {
        let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
        return Err(Error::from_raw_os_error(-code));
    }
    Ok(answer.split_off(HEADER_BYTES + GENERIC_BYTES))
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The attributes in a row of them; what contradicts itself ends it.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = rest.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & TYPE_MASK;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_and_lies_about_length_end_them() {
        let mut bytes = attribute(7 | NESTED, b"abc");
        bytes.extend(attribute(8, b""));
        bytes.extend([200, 0, 9, 0, 1]);
        let read: Vec<_> = attributes(&bytes).collect();
        assert_eq!(read, [(7, &b"abc"[..]), (8, &b""[..])]);
        assert_eq!(attributes(&[1, 0, 0, 0]).count(), 0, "a length below its own header");
    }
}
