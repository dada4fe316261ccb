//! Encodes and decodes: the salts, the layout, and which ids are in use.

use crate::layout::{Layout, ServerId};
use crate::salt::{Epoch, Salt, Tuple};

/// What the balancer knows of an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdState {
    /// No server's.
    #[default]
    Unused,
    /// A server's, that takes connections or drains.
    Live,
    /// Of a server that is gone.
    Gone,
}

/// What a cookie says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet belongs to this server.
    Valid(ServerId),
    /// It belonged to this one, which is gone.
    Stale(ServerId),
    /// No server has this id, or no salt this epoch: the cookie is not the balancer's.
    Foreign,
}

/// A decoded timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Whose it is.
    pub verdict: Verdict,
    /// The low 16 + n bits of the server's clock, for [`crate::Restorer::restore`].
    pub known: u32,
}

/// Writes cookies into timestamps, and reads them.
#[derive(Clone, Debug)]
pub struct CookieCodec {
    layout: Layout,
    salts: [Option<Salt>; 2],
    ids: Vec<IdState>,
}

impl CookieCodec {
    /// A codec with one salt and no servers.
    pub fn new(layout: Layout, epoch: Epoch, salt: Salt) -> Self {
        let mut salts = [None, None];
        salts[epoch.bit() as usize] = Some(salt);
        CookieCodec { layout, salts, ids: vec![IdState::Unused; 1 << layout.id_bits()] }
    }

    /// Sets or forgets the salt of an epoch. The old one must stay for as long as a connection may be
    /// silent, or its next packet is foreign.
    pub fn set_salt(&mut self, epoch: Epoch, salt: Option<Salt>) {
        self.salts[epoch.bit() as usize] = salt;
    }

    /// Says what an id is; `false` when it is zero or beyond the layout's.
    pub fn set_id(&mut self, id: ServerId, state: IdState) -> bool {
        match self.ids.get_mut(usize::from(id.0)) {
            Some(place) if id.0 != 0 => {
                *place = state;
                true
            }
            _ => false,
        }
    }

    /// The timestamp on the wire for one that a server sent; `None` without a salt for the epoch.
    pub fn encode(&self, id: ServerId, tuple: &Tuple, real: u32, epoch: Epoch) -> Option<u32> {
        let salt = self.salts[epoch.bit() as usize].as_ref()?;
        Some(self.layout.join(real, epoch.bit(), salt.hide(id, tuple)))
    }

    /// Whose packet an echoed timestamp belongs to.
    pub fn decode(&self, tuple: &Tuple, wire: u32) -> Decoded {
        let (epoch, cookie, known) = self.layout.split(wire);
        let verdict = match &self.salts[epoch as usize] {
            None => Verdict::Foreign,
            Some(salt) => {
                let id = salt.reveal(cookie, tuple);
                match self.ids[usize::from(id.0)] {
                    IdState::Live => Verdict::Valid(id),
                    IdState::Gone => Verdict::Stale(id),
                    IdState::Unused => Verdict::Foreign,
                }
            }
        };
        Decoded { verdict, known }
    }
}
