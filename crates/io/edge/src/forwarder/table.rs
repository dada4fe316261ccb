//! The flow table, for whoever asks where a flow is.

use aya::maps::{HashMap, MapData, MapError};

use super::kernel::{Programs, word};
use crate::error::EdgeError;
use crate::wire::FlowKey;

/// `SIGN_TURNED` and those after it, for whoever is shown a flow.
const SIGN_ANSWERED: u32 = 2;
const SIGN_PEER: u32 = 4;
/// `struct flow`: the peer's key follows.
const FLOW_BYTES: usize = 16;

/// A flow as the table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) target: u32,
    pub(super) idle_ms: u64,
    pub(super) answered: bool,
    pub(super) rewritten: bool,
}

/// The flow table.
pub(super) struct Table {
    pub(super) flows4: HashMap<MapData, [u8; 16], [u8; 32]>,
    pub(super) flows6: HashMap<MapData, [u8; 40], [u8; 56]>,
    pub(super) programs: Programs,
}

impl Table {
    /// A flow, where it is known, by either side of a NAT.
    pub(super) fn flow(&self, key: &FlowKey) -> Result<Option<Flow>, EdgeError> {
        let found = match (key.key4(), key.key6()) {
            (Some(key), _) => both(&self.flows4, key)?,
            (_, Some(key)) => both(&self.flows6, key)?,
            (None, None) => None,
        };
        let Some((own, peer)) = found else { return Ok(None) };
        let Entry { target, mut seen_s, signs } = own;
        let mut all = signs;
        if let Some(peer) = peer {
            all |= peer.signs;
            seen_s = seen_s.max(peer.seen_s);
        }
        let now_s = self.programs.now_ms()? / 1000;
        Ok(Some(Flow {
            target,
            idle_ms: now_s.saturating_sub(u64::from(seen_s)) * 1000,
            answered: all & SIGN_ANSWERED != 0,
            rewritten: signs & SIGN_PEER != 0,
        }))
    }
}

/// `struct flow`, what is shown of it.
struct Entry {
    target: u32,
    seen_s: u32,
    signs: u32,
}

impl Entry {
    fn of<const BYTES: usize>(value: &[u8; BYTES]) -> Entry {
        Entry { target: word(value, 0), seen_s: word(value, 4), signs: word(value, 12) }
    }
}

/// The entry of a key, and that of its peer where it holds this one for its own, as bpf/sweep.h has it.
fn both<const KEY: usize, const VALUE: usize>(
    map: &HashMap<MapData, [u8; KEY], [u8; VALUE]>,
    key: [u8; KEY],
) -> Result<Option<(Entry, Option<Entry>)>, EdgeError> {
    let get = |key: &[u8; KEY]| match map.get(key, 0) {
        Ok(value) => Ok(Some(value)),
        Err(MapError::KeyNotFound) => Ok(None),
        Err(error) => Err(EdgeError::kernel("flows")(error)),
    };
    let Some(value) = get(&key)? else { return Ok(None) };
    let own = Entry::of(&value);
    if own.signs & SIGN_PEER == 0 {
        return Ok(Some((own, None)));
    }
    let back: [u8; KEY] = value[FLOW_BYTES..].try_into().expect("a key");
    let peer = get(&back)?.filter(|peer| peer[FLOW_BYTES..] == key);
    Ok(Some((own, peer.map(|peer| Entry::of(&peer)))))
}
