//! Asks the program where a packet would go, by giving it the packet.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use serde::Serialize;

use crate::error::L4Error;
use crate::maps::Maps;
use crate::program::Program;

/// The packet to ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The service's address.
    pub vip: SocketAddr,
    /// The client's.
    pub client: SocketAddr,
    /// The timestamp the client echoes; without one, the packet opens a connection.
    pub echo: Option<u32>,
    /// Whether it carries timestamps at all.
    pub timestamps: bool,
}

/// What the program does with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// `pass` to the kernel, `drop`, `redirect` or `tx`.
    pub verdict: &'static str,
    /// The service.
    pub service: Option<String>,
    /// The server.
    pub backend: Option<String>,
    /// Its id in cookies.
    pub id: Option<u32>,
    /// The echo as the server would see it.
    pub echo: Option<u32>,
}

/// Asks the program pinned in a directory. Nothing is counted and no server's turn is taken.
///
/// # Errors
/// When nothing is pinned, the addresses are of different families, or the kernel refuses.
pub fn ask(dir: &Path, question: Question) -> Result<Answer, L4Error> {
    let packet = packet(question).ok_or_else(|| {
        L4Error::Load(format!(
            "{} and {}: expected addresses of one family",
            question.client, question.vip
        ))
    })?;
    let maps = Maps::open(dir)?;
    let ran = Program::load_dry(dir)?.run(&packet, 1)?;
    let verdict = match ran.verdict {
        1 => "drop",
        2 => "pass",
        3 => "tx",
        4 => "redirect",
        _ => "aborted",
    };
    let mut answer = Answer { verdict, service: None, backend: None, id: None, echo: None };
    let Some(vip) = maps.vips()?.into_iter().find(|vip| vip.address() == question.vip) else {
        return Ok(answer);
    };
    answer.service = Some(maps.vip_name(vip.number)?);
    if ran.verdict < 3 {
        return Ok(answer);
    }
    for id in 1..maps.meta().stride {
        let place = vip.base + id;
        let name = maps.member_name(place)?;
        if maps.member(place)?.mac != ran.packet[..6] || name.is_empty() {
            continue;
        }
        // Of two names for one machine, the one that is configured.
        let drains = maps.member_note(place)?.until_ms != 0;
        if answer.backend.is_none() || !drains {
            answer.backend = Some(name);
            answer.id = Some(id);
        }
        if !drains {
            break;
        }
    }
    if question.echo.is_some() {
        answer.echo = ran.packet.last_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    }
    Ok(answer)
}

/// A bare TCP segment; its checksums are of no interest to the program.
fn packet(question: Question) -> Option<Vec<u8>> {
    let mut packet = vec![0; 12];
    let option_bytes: u8 = if question.timestamps { 12 } else { 0 };
    match (question.client.ip(), question.vip.ip()) {
        (IpAddr::V4(client), IpAddr::V4(vip)) => {
            packet.extend([8, 0, 0x45, 0, 0, 20 + 20 + option_bytes, 0, 0, 0, 0, 64, 6, 0, 0]);
            packet.extend(client.octets());
            packet.extend(vip.octets());
        }
        (IpAddr::V6(client), IpAddr::V6(vip)) => {
            packet.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20 + option_bytes, 6, 64]);
            packet.extend(client.octets());
            packet.extend(vip.octets());
        }
        _ => return None,
    }
    packet.extend(question.client.port().to_be_bytes());
    packet.extend(question.vip.port().to_be_bytes());
    packet.extend([0; 8]);
    // SYN for a connection that begins, ACK for one that goes on.
    packet.extend([(20 + option_bytes) * 4, if question.echo.is_some() { 16 } else { 2 }]);
    packet.extend([0; 6]);
    if question.timestamps {
        packet.extend([1, 1, 8, 10, 0, 0, 0, 1]);
        packet.extend(question.echo.unwrap_or(0).to_be_bytes());
    }
    Some(packet)
}
