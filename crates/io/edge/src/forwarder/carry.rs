//! A flow table of another size: pinned maps cannot grow, so a new table takes the place of the old one, and its flows are
//! carried over. The Rust side of `bpf/carry.bpf.c`.
//!
//! The old maps are pinned by names of their own until all interfaces have the program of the new ones. A start that ends
//! before leaves them there, and the next one goes on.

use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::maps::{HashMap, MapData, MapInfo};
use tracing::{info, warn};

use super::kernel::{load_object, word};
use crate::error::EdgeError;
use crate::kernel;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/carry.bpf.o"));

const TABLES: [&str; 2] = ["flows4", "flows6"];
const OLD: [&str; 2] = ["old_flows4", "old_flows6"];
/// A smaller table must have room for flows that begin while it is made.
const FULL: f64 = 0.8;

/// Entries that the pinned table takes, of each address family.
pub(super) fn entries(maps: &Path) -> Result<[u32; 2], EdgeError> {
    let of = |name| MapInfo::from_pin(maps.join(name)).map_err(EdgeError::kernel(name));
    Ok([of(TABLES[0])?.max_entries(), of(TABLES[1])?.max_entries()])
}

/// Flows in a pinned table, of the address family that has more.
fn held(maps: &Path) -> Result<usize, EdgeError> {
    let four: HashMap<_, [u8; 16], [u8; 32]> = open(maps, TABLES[0])?;
    let six: HashMap<_, [u8; 40], [u8; 56]> = open(maps, TABLES[1])?;
    Ok(four.keys().count().max(six.keys().count()))
}

fn open<M>(maps: &Path, name: &str) -> Result<M, EdgeError>
where
    M: TryFrom<aya::maps::Map, Error = aya::maps::MapError>,
{
    let data = MapData::from_pin(maps.join(name)).map_err(EdgeError::kernel(name))?;
    let map = aya::maps::Map::from_map_data(data).map_err(EdgeError::kernel(name))?;
    map.try_into().map_err(EdgeError::kernel(name))
}

/// Makes room for a table of this size where one of another size is pinned; whether there are flows to be carried. One
/// whose flows would not fit stays.
pub(super) fn set_aside(maps: &Path, limit: u32) -> Result<bool, EdgeError> {
    if OLD.iter().any(|name| maps.join(name).exists()) {
        return Ok(true);
    }
    if !TABLES.iter().all(|name| maps.join(name).exists()) {
        return Ok(false);
    }
    let was = entries(maps)?;
    if was == [limit; 2] {
        return Ok(false);
    }
    let flows = held(maps)?;
    if flows as f64 > FULL * f64::from(limit) {
        warn!(
            flows,
            limit, "the flow table keeps its {} entries: more flows are there than fit", was[0]
        );
        return Ok(false);
    }
    // The first one last: a start that ends in between finds another size there still.
    for (name, old) in TABLES.iter().zip(OLD).rev() {
        let (from, to) = (maps.join(name), maps.join(old));
        std::fs::rename(&from, to)
            .map_err(EdgeError::system(format!("rename {}", from.display())))?;
    }
    Ok(true)
}

/// Flows on their way from the old table into the new one.
pub(super) struct Carry {
    maps: PathBuf,
    ebpf: Ebpf,
    carried: u32,
}

impl Carry {
    /// Carries those that are there, while packets go by the old table.
    pub(super) fn start(maps: &Path) -> Result<Carry, EdgeError> {
        let loaded = load_object(OBJECT, maps, 1, &OLD);
        let mut ebpf = loaded.map_err(EdgeError::kernel("carry"))?;
        kernel::load_all(&mut ebpf, &["carry"])?;
        let mut carry = Carry { maps: maps.to_owned(), ebpf, carried: 0 };
        carry.run(false)?;
        Ok(carry)
    }

    /// Carries what was added since the last time; `switched`: packets go by the new table already.
    pub(super) fn run(&mut self, switched: bool) -> Result<(), EdgeError> {
        let mut packet = [0; 64];
        packet[..4].copy_from_slice(&u32::from(switched).to_ne_bytes());
        let ran = kernel::run(kernel::program(&mut self.ebpf, "carry")?, "carry", &packet, None)?;
        self.carried += word(&ran.packet, 4);
        let refused = word(&ran.packet, 8);
        if refused > 0 {
            warn!(refused, "flows found no room in the new table");
        }
        Ok(())
    }

    /// Nobody needs the old table any more.
    pub(super) fn end(self, limit: u32) -> Result<(), EdgeError> {
        for name in OLD {
            let path = self.maps.join(name);
            std::fs::remove_file(&path)
                .map_err(EdgeError::system(format!("remove {}", path.display())))?;
        }
        info!(flows = self.carried, limit, "the flow table has another size");
        Ok(())
    }
}
