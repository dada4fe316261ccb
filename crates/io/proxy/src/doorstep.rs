//! What a connection begins with: the `PROXY` protocol of a balancer in front that is trusted; or TLS or HTTP/2, which are
//! not spoken here, and are refused in their own words as far as that goes.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::linger::Lingering;
use crate::serve::{Client, Handler};
use crate::wire::Wire;

/// A balancer sends its announcement with its first packet; it is not waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest announcement, with what a version 2 header may carry beside addresses.
const MOST: usize = 1_024;
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// What a connection begins with that a balancer opens for itself, as for a check: version 1, and 2 (LOCAL).
pub(crate) const OWN_1: &[u8] = b"PROXY UNKNOWN\r\n";
pub(crate) const OWN_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// A record of TLS: an alert, fatal, "protocol version".
const TLS_ALERT: &[u8] = &[21, 3, 1, 0, 2, 2, 70];
const NOT_HTTP_2: &[u8] =
    b"HTTP/1.1 505 HTTP Version Not Supported\r\ncontent-type: text/plain; charset=utf-8\r\n\
    content-length: 51\r\nconnection: close\r\n\r\nexpected HTTP/1.1: HTTP/2 is not spoken here (yet)\n";

/// What is not spoken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    Tls,
    Http2,
}

/// Whether a connection that begins so is neither HTTP/1.1 nor a mistake in it.
pub(crate) fn foreign(first: &[u8]) -> Option<Foreign> {
    match first {
        // A handshake of any version since SSL 3.
        [22, 3, ..] => Some(Foreign::Tls),
        [b'P', b'R', b'I', b' ', ..] => Some(Foreign::Http2),
        _ => None,
    }
}

/// The same of what has come and was not read yet; pending where nothing has: readiness may be said of a socket in vain.
pub(crate) async fn foreign_unread(stream: &Lingering<Wire>) -> Poll<Option<Foreign>> {
    let unread = stream.stream().unread_bytes();
    if !unread.is_empty() {
        // It came in one piece with an announcement.
        return Poll::Ready(foreign(unread));
    }
    let mut bytes = [0; 4];
    let peeked = poll_fn(|cx| {
        let mut buffer = tokio::io::ReadBuf::new(&mut bytes);
        Poll::Ready(stream.stream().stream.poll_peek(cx, &mut buffer))
    });
    peeked.await.map(|count| foreign(&bytes[..count.unwrap_or(0)]))
}

/// Says that it is not spoken here.
pub(crate) async fn turn_away(
    handler: &impl Handler,
    client: &Client,
    stream: &mut Lingering<Wire>,
    foreign: Foreign,
) {
    let (count, answer, what) = match foreign {
        Foreign::Tls => (&handler.tally().tls, TLS_ALERT, "TLS"),
        Foreign::Http2 => (&handler.tally().http2, NOT_HTTP_2, "HTTP/2"),
    };
    count.one_more();
    let peer = client.peer;
    match count.get() {
        1 => {
            warn!(%peer, "a client speaks {what}, where HTTP/1.1 is spoken; further ones are counted")
        }
        _ => debug!(%peer, "a client speaks {what}"),
    }
    // One that has left needs no answer.
    let _ = timeout(PATIENCE, async {
        stream.write_all(answer).await?;
        stream.shutdown().await
    })
    .await;
}

/// Reads the announcement that a connection must begin with; whether it did. What comes after it is HTTP.
pub(crate) async fn read_announcement(client: &Client, stream: &mut Lingering<Wire>) -> bool {
    let read = timeout(PATIENCE, async {
        let mut bytes = Vec::with_capacity(MOST);
        loop {
            match parse(&bytes) {
                Parsed::Whole(length, source) => return Some((bytes.split_off(length), source)),
                Parsed::Part if bytes.len() < MOST => {
                    if stream.read_buf(&mut bytes).await.ok()? == 0 {
                        return None;
                    }
                }
                Parsed::Part | Parsed::Wrong => return None,
            }
        }
    });
    let Ok(Some((rest, source))) = read.await else {
        debug!(peer = %client.peer, "expected the PROXY protocol, found something else");
        return false;
    };
    client.open.announced.set(source);
    if !rest.is_empty() {
        stream.stream_mut().precede(&rest);
    }
    true
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    /// An announcement of so many bytes, and whose connection it is; none: the balancer's own, a check of it.
    Whole(usize, Option<SocketAddr>),
    /// More is to come.
    Part,
    /// It is none.
    Wrong,
}

/// Reads the PROXY protocol, version 1 or 2 (haproxy.org, `proxy-protocol.txt`).
fn parse(bytes: &[u8]) -> Parsed {
    if bytes.len() >= V2.len() && bytes.starts_with(V2) {
        return version_2(bytes);
    }
    if V2.starts_with(bytes) || b"PROXY ".starts_with(bytes) {
        return Parsed::Part;
    }
    if bytes.starts_with(b"PROXY ") { version_1(bytes) } else { Parsed::Wrong }
}

/// `PROXY TCP4 SOURCE DESTINATION SPORT DPORT\r\n`, or `PROXY UNKNOWN …\r\n`.
fn version_1(bytes: &[u8]) -> Parsed {
    /// Its longest line.
    const LINE: usize = 107;
    let Some(end) = bytes.iter().take(LINE).position(|byte| *byte == b'\n') else {
        return if bytes.len() < LINE { Parsed::Part } else { Parsed::Wrong };
    };
    let line = bytes[..end].strip_suffix(b"\r").and_then(|line| std::str::from_utf8(line).ok());
    let words: Vec<&str> = line.map(|line| line.split(' ').collect()).unwrap_or_default();
    let source = match words[..] {
        ["PROXY", "UNKNOWN", ..] => return Parsed::Whole(end + 1, None),
        ["PROXY", family @ ("TCP4" | "TCP6"), source, destination, port, other] => {
            let address = |text: &str| {
                let address: IpAddr = text.parse().ok()?;
                (address.is_ipv4() == (family == "TCP4")).then_some(address)
            };
            let is_whole = address(destination).is_some() && other.parse::<u16>().is_ok();
            let source = address(source).zip(port.parse::<u16>().ok());
            source.filter(|_| is_whole)
        }
        _ => None,
    };
    source.map_or(Parsed::Wrong, |source| Parsed::Whole(end + 1, Some(source.into())))
}

fn version_2(bytes: &[u8]) -> Parsed {
    let [command, family, high, low] = match bytes.get(12..16) {
        Some(head) => [head[0], head[1], head[2], head[3]],
        None => return Parsed::Part,
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if command >> 4 != 2 || 16 + length > MOST {
        return Parsed::Wrong;
    }
    let Some(block) = bytes.get(16..16 + length) else { return Parsed::Part };
    let source = match (command & 0xf, family) {
        // LOCAL: the balancer's own.
        (0, _) | (1, 0) => None,
        (1, 0x11) => match block {
            [a, b, c, d, _, _, _, _, high, low, ..] => {
                let port = u16::from_be_bytes([*high, *low]);
                Some((IpAddr::from(Ipv4Addr::new(*a, *b, *c, *d)), port).into())
            }
            _ => return Parsed::Wrong,
        },
        (1, 0x21) => match (block.first_chunk::<16>(), block.get(32..34)) {
            (Some(address), Some(port)) => {
                let port = u16::from_be_bytes([port[0], port[1]]);
                Some((IpAddr::from(Ipv6Addr::from(*address)), port).into())
            }
            _ => return Parsed::Wrong,
        },
        _ => return Parsed::Wrong,
    };
    Parsed::Whole(16 + length, source)
}

/// An announcement of the same, version 1, for a backend.
pub(crate) fn announcement_1(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let (from, to) = same_family(source, destination);
    let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to, port, other) = (from, to, source.port(), destination.port());
    format!("PROXY {family} {from} {to} {port} {other}\r\n").into_bytes()
}

/// The same, version 2.
pub(crate) fn announcement_2(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut bytes = V2.to_vec();
    let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    let (family, addresses) = match same_family(source, destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (0x11, [from.octets(), to.octets()].concat()),
        (from, to) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            (0x21, [octets(from), octets(to)].concat())
        }
    };
    bytes.extend([0x21, family, 0, (addresses.len() + ports.len()) as u8]);
    bytes.extend(addresses);
    bytes.extend(ports);
    bytes
}

/// Both as IPv6 where one is.
fn same_family(source: SocketAddr, destination: SocketAddr) -> (IpAddr, IpAddr) {
    let (from, to) = (source.ip().to_canonical(), destination.ip().to_canonical());
    let to = match (to.is_unspecified(), from) {
        // Of a socket that listens for both families.
        (true, IpAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
        (true, IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        (false, _) => to,
    };
    let mapped = |address: IpAddr| match address {
        IpAddr::V4(address) => IpAddr::V6(address.to_ipv6_mapped()),
        IpAddr::V6(_) => address,
    };
    if from.is_ipv4() == to.is_ipv4() { (from, to) } else { (mapped(from), mapped(to)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_read_as_they_are_written_wherever_they_are_cut() {
        for (source, destination) in [
            ("10.1.2.3:5000", "10.0.0.1:80"),
            ("[fd00::7]:5000", "[fd00::1]:80"),
            ("[::1]:1", "10.0.0.1:80"),
            ("10.1.2.3:5000", "[::]:80"),
        ] {
            let (source, destination): (SocketAddr, SocketAddr) =
                (source.parse().unwrap(), destination.parse().unwrap());
            for announced in
                [announcement_1(source, destination), announcement_2(source, destination)]
            {
                for cut in 0..announced.len() {
                    assert_eq!(parse(&announced[..cut]), Parsed::Part, "{cut}");
                }
                let length = announced.len();
                let is_v4 =
                    announced.starts_with(b"PROXY TCP4 ") || announced.get(13) == Some(&0x11);
                assert_eq!(is_v4, source.is_ipv4(), "{source}");
                let mut more = announced;
                more.extend(b"GET / HTTP/1.1\r\n");
                assert_eq!(parse(&more), Parsed::Whole(length, Some(source)));
            }
        }
    }

    #[test]
    fn a_proxy_protocol_header_of_the_balancer_itself_has_no_client_address() {
        assert_eq!(parse(OWN_1), Parsed::Whole(15, None));
        assert_eq!(OWN_2, [V2, &[0x20, 0, 0, 0]].concat());
        assert_eq!(parse(OWN_2), Parsed::Whole(16, None));
    }

    #[test]
    fn what_is_no_announcement_is_refused() {
        for wrong in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP4 1.2.3.4 1.2.3.5 80\r\n",
            b"PROXY TCP4 ::1 ::1 80 80\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.5 80 99999\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.5 80 80\n",
            b"PROXY  \r\n",
            &[b'P'; 200],
            &[b"PROXY ".as_slice(), &[b'x'; 200]].concat(),
            &[V2, &[0x11, 0x11, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat(),
            &[V2, &[0x21, 0x11, 0, 4, 0, 0, 0, 0]].concat(),
            &[V2, &[0x21, 0x11, 0xff, 0xff]].concat(),
            &[V2, &[0x21, 0x31, 0, 0]].concat(),
        ] {
            assert_eq!(parse(wrong), Parsed::Wrong, "{:?}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn other_protocols_are_known_by_their_first_bytes() {
        assert_eq!(foreign(&[22, 3, 1, 2, 0]), Some(Foreign::Tls));
        assert_eq!(foreign(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Some(Foreign::Http2));
        assert_eq!((foreign(b"PRINT / HTTP/1.1"), foreign(b""), foreign(b"G")), (None, None, None));
        let text = String::from_utf8(NOT_HTTP_2.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
    }
}
