//! Services: which flows are theirs, and what is done with their packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_config::{Cursor, Once};

use super::{all, name};

/// Functions of a chain at the most.
pub const MOST_FUNCTIONS: usize = 8;

/// A network: an address whose host bits are zero, and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// The prefix, in bits.
    pub bits: u8,
}

impl Cidr {
    /// Of this family, every address.
    pub fn everything(v4: bool) -> Cidr {
        let address =
            if v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
        Cidr { address, bits: 0 }
    }

    /// Whether it is IPv4.
    pub fn is_v4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Address and mask, as they lie in packets, in the first bytes.
    pub(crate) fn words(&self) -> ([u8; 16], [u8; 16]) {
        let (mut address, mut mask) = ([0; 16], [0; 16]);
        match self.address {
            IpAddr::V4(v4) => address[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => address = v6.octets(),
        }
        for bit in 0..usize::from(self.bits) {
            mask[bit / 8] |= 0x80 >> (bit % 8);
        }
        (address, mask)
    }

    fn parse(text: &str) -> Option<Cidr> {
        let (address, bits) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 = bits.parse().ok().filter(|bits| *bits <= most)?;
        let cidr = Cidr { address, bits };
        let (address, mask) = cidr.words();
        let host_bits = address.iter().zip(mask).any(|(byte, mask)| byte & !mask != 0);
        (!host_bits).then_some(cidr)
    }

    fn read(cursor: &Cursor<'_>) -> Option<Cidr> {
        let what = "a network such as \"10.0.0.0/8\" or \"2001:db8::/32\", its host bits zero";
        match Cidr::parse(cursor.text(what)?) {
            Some(cidr) => Some(cidr),
            None => cursor.expected(what),
        }
    }
}

/// An IP protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Every one.
    Any,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP and ICMPv6: echoes. Errors go with the flow that they are about.
    Icmp,
}

/// Which first packets are a service's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Where the flow begins; none: anywhere.
    pub source: Option<Cidr>,
    /// Where it leads; none: anywhere.
    pub destination: Option<Cidr>,
    /// By which protocol.
    pub protocol: Protocol,
    /// The destination's ports, from and to; none: all.
    pub ports: Option<(u16, u16)>,
}

/// A function in XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Counts packets.
    Counter,
    /// Works for so long on every packet, as inspection does.
    Work(Duration),
    /// Sources in one network become those of another of the same size, and back.
    Rewrite {
        /// As clients have it.
        from: Cidr,
        /// As all others see it.
        to: Cidr,
    },
}

/// A part of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// A namespace with rules of nftables, in this file.
    Nftables(PathBuf),
    /// A function in XDP.
    Xdp(Function),
}

/// A chain of functions, and which flows pass through it.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Any of these.
    pub matches: Vec<Match>,
    /// In their order.
    pub chain: Vec<Element>,
}

impl Service {
    pub(super) fn read(cursor: &Cursor<'_>, names: &mut Once<String>) -> Option<Self> {
        let fields = cursor.fields(&["name", "match", "chain"])?;
        let name = fields.required("name", "the service's name", |c| {
            let name = name(c, 32)?;
            names.take(name.clone(), c, "a name that no other service has")?;
            Some(name)
        });
        let matches = fields.required("match", "which flows are its own", |c| {
            let read: Vec<_> = c.items_or_one().iter().map(Match::read).collect();
            read.into_iter().collect::<Option<Vec<_>>>()
        });
        let chain = fields.required("chain", "a list such as [ { xdp: counter } ]", |c| {
            let chain = all(c, "a list of functions", element)?;
            if chain.len() > MOST_FUNCTIONS {
                return c.problem(format!(
                    "{} functions; expected at most {MOST_FUNCTIONS}",
                    chain.len()
                ));
            }
            let rulesets = chain.iter().filter(|one| matches!(one, Element::Nftables(_))).count();
            if rulesets > 1 {
                return c.problem("expected nftables once in a chain: put all rules into one file");
            }
            Some(chain)
        });
        Some(Service { name: name?, matches: matches?, chain: chain? })
    }

    /// The rules, where it has a namespace.
    pub fn nftables(&self) -> Option<&PathBuf> {
        self.chain.iter().find_map(|element| match element {
            Element::Nftables(path) => Some(path),
            Element::Xdp(_) => None,
        })
    }

    /// The functions before its namespace, or all where there is none, and those behind it.
    pub fn functions(&self) -> (Vec<Function>, Vec<Function>) {
        let of = |elements: &[Element]| {
            let functions = elements.iter().filter_map(|element| match element {
                Element::Xdp(function) => Some(*function),
                Element::Nftables(_) => None,
            });
            functions.collect()
        };
        let is_namespace = |element: &Element| matches!(element, Element::Nftables(_));
        let at = self.chain.iter().position(is_namespace).unwrap_or(self.chain.len());
        (of(&self.chain[..at]), of(&self.chain[at..]))
    }
}

impl Match {
    fn read(cursor: &Cursor<'_>) -> Option<Self> {
        let fields = cursor.fields(&["source", "destination", "protocol", "ports"])?;
        let source = fields.optional("source", Cidr::read);
        let destination = fields.optional("destination", Cidr::read);
        let protocol = fields.or("protocol", Protocol::Any, |c| {
            c.one_of(&[
                ("any", Protocol::Any),
                ("tcp", Protocol::Tcp),
                ("udp", Protocol::Udp),
                ("icmp", Protocol::Icmp),
            ])
        });
        let ports = fields.optional("ports", ports);
        let read = Match {
            source: source?,
            destination: destination?,
            protocol: protocol?,
            ports: ports?,
        };
        if let (Some(source), Some(destination)) = (read.source, read.destination)
            && source.is_v4() != destination.is_v4()
        {
            return cursor.problem("expected source and destination of one address family");
        }
        if read.ports.is_some() && matches!(read.protocol, Protocol::Any | Protocol::Icmp) {
            return cursor.problem("ports need protocol: tcp or udp");
        }
        Some(read)
    }

    /// Whether first packets of this family may match.
    pub fn is_for(&self, v4: bool) -> bool {
        self.source.or(self.destination).is_none_or(|cidr| cidr.is_v4() == v4)
    }
}

fn ports(cursor: &Cursor<'_>) -> Option<(u16, u16)> {
    let what = "a port from 1 to 65535, or a range such as 8000-8099";
    let text = cursor.scalar(what)?;
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    match (port(low), port(high)) {
        (Some(low), Some(high)) if low <= high => Some((low, high)),
        _ => cursor.expected(what),
    }
}

fn element(cursor: &Cursor<'_>) -> Option<Element> {
    let fields = cursor.fields(&["nftables", "xdp"])?;
    match (fields.get("nftables"), fields.get("xdp")) {
        (Some(file), None) => {
            let path = file.text_if("the file with the rules", |path| !path.is_empty())?;
            Some(Element::Nftables(PathBuf::from(path)))
        }
        (None, Some(xdp)) => function(xdp).map(Element::Xdp),
        _ => cursor.expected("{ nftables: FILE } or { xdp: FUNCTION }"),
    }
}

fn function(cursor: &Cursor<'_>) -> Option<Function> {
    if cursor.is_scalar() {
        return cursor.one_of(&[("counter", Function::Counter)]);
    }
    let fields = cursor.fields(&["work", "rewrite"])?;
    match (fields.get("work"), fields.get("rewrite")) {
        (Some(work), None) => {
            let bounds = Duration::from_micros(1)..=Duration::from_millis(1);
            work.duration(bounds).map(Function::Work)
        }
        (None, Some(rewrite)) => {
            let fields = rewrite.fields(&["from", "to"])?;
            let from = fields.required("from", "a network", Cidr::read);
            let to = fields.required("to", "a network", Cidr::read);
            let (from, to) = (from?, to?);
            if from.bits != to.bits || !from.is_v4() || !to.is_v4() {
                return rewrite.problem("expected two IPv4 networks of the same size");
            }
            Some(Function::Rewrite { from, to })
        }
        _ => cursor.expected("counter, { work: TIME } or { rewrite: { from, to } }"),
    }
}
