//! What the flow table notes of TCP's ends.

use aya::maps::{HashMap, Map, MapData};

use crate::bad::{one, rig};
use crate::packet::{REDIRECT, ip4};
use crate::rig::{CLIENT, Rig, SERVER, privileged};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
/// As in bpf/forwarder.h.
const SIGN_FIN: u16 = 8;
const SIGN_RESET: u16 = 32;

/// A segment without options, its checksum never looked at; `back`: from the server.
fn segment(flags: u8, back: bool) -> Vec<u8> {
    let ((from, source), (to, destination)) = ((CLIENT, 4000u16), (SERVER, 80u16));
    let ((from, source), (to, destination)) = if back {
        ((to, destination), (from, source))
    } else {
        ((from, source), (to, destination))
    };
    let mut tcp = source.to_be_bytes().to_vec();
    tcp.extend_from_slice(&destination.to_be_bytes());
    tcp.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    ip4(from, to, 6, 0x4000, &tcp)
}

/// Signs of the only flow, after a segment.
fn signs_after(rig: &Rig, flags: u8, back: bool) -> u16 {
    assert_eq!(one(rig, &segment(flags, back)).verdict, REDIRECT);
    let path = plimsoll_edge::forwarder_dir(&rig.config).join("maps/flows4");
    let map = Map::from_map_data(MapData::from_pin(path).expect("pinned")).expect("a map");
    let flows: HashMap<_, [u8; 16], [u8; 32]> = map.try_into().expect("a hash");
    let (_, flow) = flows.iter().next().expect("a flow").expect("read");
    u16::from_ne_bytes([flow[12], flow[13]])
}

#[test]
fn a_reset_that_the_ends_ignore_is_forgotten() {
    if !privileged() {
        return;
    }
    let rig = rig("forward");
    let after = |flags, back| signs_after(&rig, flags, back);
    assert_eq!(after(SYN, false) & SIGN_RESET, 0);
    for (data_back, reset_back) in [(false, false), (true, false), (false, true)] {
        assert_eq!(after(RST | ACK, reset_back) & SIGN_RESET, SIGN_RESET);
        assert_eq!(after(ACK, data_back) & SIGN_RESET, 0, "data after the reset");
    }
    assert_eq!(after(FIN | ACK, false) & SIGN_FIN, SIGN_FIN);
    assert_eq!(after(ACK, true) & SIGN_FIN, SIGN_FIN, "an end is acknowledged, not taken back");
    assert_eq!(after(RST, true) & (SIGN_FIN | SIGN_RESET), SIGN_FIN | SIGN_RESET);
}
