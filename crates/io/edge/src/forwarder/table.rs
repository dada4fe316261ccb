//! The flow table, for whoever asks where a flow is.

use aya::maps::{HashMap, MapData};

use super::kernel::{Programs, word};
use crate::error::EdgeError;
use crate::wire::FlowKey;

/// `SIGN_TURNED` and those after it, for whoever is shown a flow.
const SIGN_ANSWERED: u32 = 2;
const SIGN_PEER: u32 = 4;

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
    /// A flow, where it is known.
    pub(super) fn flow(&self, key: &FlowKey) -> Result<Option<Flow>, EdgeError> {
        let found = match (key.key4(), key.key6()) {
            (Some(key), _) => self.flows4.get(&key, 0).map(|value| value[..16].to_vec()),
            (_, Some(key)) => self.flows6.get(&key, 0).map(|value| value[..16].to_vec()),
            (None, None) => return Ok(None),
        };
        let bytes = match found {
            Ok(bytes) => bytes,
            Err(aya::maps::MapError::KeyNotFound) => return Ok(None),
            Err(error) => return Err(EdgeError::kernel("flows")(error)),
        };
        let signs = word(&bytes, 12);
        let now_s = self.programs.now_ms()? / 1000;
        Ok(Some(Flow {
            target: word(&bytes, 0),
            idle_ms: now_s.saturating_sub(u64::from(word(&bytes, 4))) * 1000,
            answered: signs & SIGN_ANSWERED != 0,
            rewritten: signs & SIGN_PEER != 0,
        }))
    }
}
