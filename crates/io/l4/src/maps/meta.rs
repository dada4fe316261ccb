//! The sizes that maps were made with, pinned beside them.

use std::path::Path;

use aya::maps::{Array, MapData, MapInfo};

use super::{MAPS_DIR, opened};
use crate::error::L4Error;
use crate::layout::META_LAYOUT;

/// By what the maps were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// [`META_LAYOUT`] of the daemon that made them.
    pub layout: u32,
    /// Of the cookies.
    pub version_bits: u32,
    /// Services at most.
    pub vips: u32,
    /// Ids of a service.
    pub stride: u32,
    /// Fragmented packets remembered at a time.
    pub fragments: u32,
    /// Clients to which each CPU remembers the next hop.
    pub clients: u32,
}

impl Meta {
    /// In words, to report a difference.
    pub(crate) fn describe(&self) -> String {
        format!(
            "layout {}, {} version bits, room for {} VIPs of {} servers, for {} fragmented packets and for \
             the next hops to {} clients",
            self.layout,
            self.version_bits,
            self.vips,
            self.stride.saturating_sub(1),
            self.fragments,
            self.clients
        )
    }
}

/// By what the maps pinned in a directory were made; `None` where there are none.
///
/// # Errors
/// When there are some and they cannot be read.
pub fn read_meta(dir: &Path) -> Result<Option<Meta>, L4Error> {
    let maps = dir.join(MAPS_DIR);
    if !maps.join("meta").exists() {
        return Ok(None);
    }
    let meta: Array<MapData, [u32; 4]> = opened!(&maps, "meta");
    let [layout, version_bits, vips, stride] = meta.get(&0, 0).map_err(L4Error::map("meta"))?;
    // 0: it is not there, and is made with the next start.
    let places = |name: &str| MapInfo::from_pin(maps.join(name)).map_or(0, |map| map.max_entries());
    let (fragments, clients) = (places("fragments"), places("hops"));
    Ok(Some(Meta { layout, version_bits, vips, stride, fragments, clients }))
}

/// The same, where there are some of this version.
pub(crate) fn read_own_meta(dir: &Path) -> Result<Meta, L4Error> {
    let meta = read_meta(dir)?.ok_or_else(|| L4Error::NotRunning(dir.to_owned()))?;
    if meta.layout != META_LAYOUT {
        return Err(L4Error::Pinned {
            path: dir.to_owned(),
            found: meta.describe(),
            expected: format!("layout {META_LAYOUT}"),
        });
    }
    Ok(meta)
}

pub(crate) fn write_meta(maps: &Path, meta: Meta) -> Result<(), L4Error> {
    let mut map: Array<MapData, [u32; 4]> = opened!(maps, "meta");
    let words = [meta.layout, meta.version_bits, meta.vips, meta.stride];
    map.set(0, words, 0).map_err(L4Error::map("meta"))
}
