//! What backends get to know of the clients whose requests they serve.

use std::net::SocketAddr;

use plimsoll_config::{Cursor, Fields};

use super::all;
use super::entry::cidr;
use crate::cidr::Cidr;
use crate::doorstep;

/// What is done with a header that says which client a request is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// It passes as it comes.
    Off,
    /// The client is added to what was there.
    Append,
    /// The client takes the place of what was there.
    Replace,
}

/// Headers that say which client a request is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    pub x_forwarded: Note,
    /// `Forwarded` (RFC 7239).
    pub forwarded: Note,
}

impl Forwarding {
    /// None is touched.
    pub const OFF: Self = Forwarding { x_forwarded: Note::Off, forwarded: Note::Off };

    /// An entry on a loopback address stands beside its one caller, of which there is nothing to say; any other is a
    /// gateway, whose backends want to know their clients.
    pub(super) fn read(fields: &Fields<'_>, listen: Option<SocketAddr>) -> Option<Self> {
        let is_gateway = listen.is_some_and(|listen| !listen.ip().is_loopback());
        let default = if is_gateway { Note::Append } else { Note::Off };
        let note = |c: &Cursor<'_>| {
            c.one_of(&[("off", Note::Off), ("append", Note::Append), ("replace", Note::Replace)])
        };
        let x_forwarded = fields.or("x_forwarded", default, note);
        let forwarded = fields.or("forwarded", Note::Off, note);
        Some(Forwarding { x_forwarded: x_forwarded?, forwarded: forwarded? })
    }
}

/// What of local processes' connections an entry captures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// To these networks …
    pub networks: Vec<Cidr>,
    /// … and these ports.
    pub ports: Vec<u16>,
    /// The user of the proxy itself, whose connections are not captured.
    pub except_user: u32,
}

impl Capture {
    pub(super) fn read(cursor: &Cursor<'_>, listen: Option<SocketAddr>) -> Option<Self> {
        let fields = cursor.fields(&["networks", "ports", "except_user"])?;
        let networks = fields.required("networks", "the networks to capture", |c| {
            all(c, "a list of networks", cidr)
        });
        let ports = fields.required("ports", "the ports to capture", |c| {
            all(c, "a list of ports", |c| c.integer(1..=65_535).map(|port| port as u16))
        });
        let what = "the number of the proxy's own user, whose connections are not captured";
        let except_user = fields.required("except_user", what, |c| {
            c.integer(0..=u64::from(u32::MAX - 1)).map(|user| user as u32)
        });
        // Where the kernel redirects what is sent here.
        let is_reached =
            |listen: &SocketAddr| listen.ip().is_loopback() || listen.ip().is_unspecified();
        if listen.is_some_and(|listen| !is_reached(&listen)) {
            cursor.problem::<()>(
                "expected an entry that listens on a loopback address or on all: captured \
                 connections are redirected there",
            );
        }
        if let (Some(listen), Some(networks)) =
            (listen.filter(|listen| listen.is_ipv4()), &networks)
            && networks.iter().any(|network| !network.is_ipv4())
        {
            let why = format!("{listen} is not reached by others");
            cursor.problem::<()>(format!("expected networks of IPv4: {why}"));
        }
        Some(Capture { networks: networks?, ports: ports?, except_user: except_user? })
    }
}

/// A version of the `PROXY` protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// In words.
    V1,
    /// In bytes.
    V2,
}

impl ProxyProtocol {
    pub(super) fn read(cursor: &Cursor<'_>) -> Option<Self> {
        cursor.one_of(&[("v1", ProxyProtocol::V1), ("v2", ProxyProtocol::V2)])
    }

    /// What a connection begins with that is the proxy's own, for no client.
    pub(crate) fn own(self) -> &'static [u8] {
        match self {
            ProxyProtocol::V1 => doorstep::OWN_1,
            ProxyProtocol::V2 => doorstep::OWN_2,
        }
    }

    /// What a connection begins with that is for this client, which came in there.
    pub(crate) fn announcement(self, client: SocketAddr, here: SocketAddr) -> Vec<u8> {
        match self {
            ProxyProtocol::V1 => doorstep::announcement_1(client, here),
            ProxyProtocol::V2 => doorstep::announcement_2(client, here),
        }
    }
}
