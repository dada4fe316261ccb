//! The agent's pinned maps, opened from bpffs: by the agent that fills them, and by what only reads.

use std::path::{Path, PathBuf};

use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use plimsoll_cookie::{Epoch, Layout};

use super::layout::{AGENT_LAYOUT, COUNTS, MAX_AGENT_VIPS, SETTINGS_BYTES, Settings};
use crate::error::L4Error;
use crate::layout::{NAME_BYTES, PERMUTATION_BYTES, name_from_bytes, name_to_bytes};
use crate::maps::{MAPS_DIR, clear, opened};

/// A service: its key as the programs have it, and its number with this server's id.
pub type Entry = ([u32; 5], [u32; 2]);

/// The pinned maps.
pub struct AgentMaps {
    settings: Array<MapData, [u8; SETTINGS_BYTES]>,
    permutations: Array<MapData, [u8; PERMUTATION_BYTES]>,
    vips: HashMap<MapData, [u32; 5], [u32; 2]>,
    counts: PerCpuArray<MapData, u64>,
    meta: Array<MapData, u32>,
    names: Array<MapData, [u8; NAME_BYTES]>,
    dir: PathBuf,
}

impl std::fmt::Debug for AgentMaps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentMaps").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Refuses maps of another shape, before anything is loaded onto them.
pub(crate) fn check(dir: &Path, layout: Layout) -> Result<(), L4Error> {
    let maps = dir.join(MAPS_DIR);
    if !maps.join("meta").exists() {
        return Ok(());
    }
    let meta: Array<MapData, u32> = opened!(&maps, "meta");
    let word = |at| meta.get(&at, 0).map_err(L4Error::map("meta"));
    fits(dir, (word(0)?, word(1)?), (AGENT_LAYOUT, layout.version_bits()))
}

fn fits(dir: &Path, found: (u32, u32), wanted: (u32, u32)) -> Result<(), L4Error> {
    if found == (0, 0) || found == wanted {
        return Ok(());
    }
    let describe = |(layout, bits)| format!("layout {layout}, {bits} version bits");
    let (found, expected) = (describe(found), describe(wanted));
    Err(L4Error::Pinned { path: dir.to_owned(), found, expected })
}

impl AgentMaps {
    /// Opens what is pinned in a directory.
    ///
    /// # Errors
    /// When nothing is pinned.
    pub fn open(dir: &Path) -> Result<Self, L4Error> {
        let maps = &dir.join(MAPS_DIR);
        if !maps.join("meta").exists() {
            let error = format!(
                "{}: nothing is pinned here; expected `plimsoll l4 agent run` to have been started",
                dir.display()
            );
            return Err(L4Error::Map { name: "meta", error });
        }
        Ok(AgentMaps {
            settings: opened!(maps, "settings"),
            permutations: opened!(maps, "permutations"),
            vips: opened!(maps, "vips"),
            counts: opened!(maps, "counts"),
            meta: opened!(maps, "meta"),
            names: opened!(maps, "names"),
            dir: dir.to_owned(),
        })
    }

    /// Layout and version bits by which the maps were made; zeros in new ones.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn made_by(&self) -> Result<(u32, u32), L4Error> {
        let word = |at| self.meta.get(&at, 0).map_err(L4Error::map("meta"));
        Ok((word(0)?, word(1)?))
    }

    /// Marks new maps; refuses those of another shape.
    ///
    /// # Errors
    /// When the maps were made otherwise.
    pub fn claim(&mut self, layout: Layout) -> Result<(), L4Error> {
        let wanted = (AGENT_LAYOUT, layout.version_bits());
        fits(&self.dir, self.made_by()?, wanted)?;
        for (at, word) in [(0, wanted.0), (1, wanted.1)] {
            self.meta.set(at, word, 0).map_err(L4Error::map("meta"))?;
        }
        Ok(())
    }

    /// The settings in force.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn settings(&self) -> Result<Settings, L4Error> {
        let bytes = self.settings.get(&0, 0).map_err(L4Error::map("settings"))?;
        Ok(Settings::from_bytes(&bytes))
    }

    pub(crate) fn set_settings(&mut self, settings: Settings) -> Result<(), L4Error> {
        self.settings.set(0, settings.to_bytes(), 0).map_err(L4Error::map("settings"))
    }

    pub(crate) fn set_permutation(
        &mut self,
        epoch: Epoch,
        bytes: &[u8; PERMUTATION_BYTES],
    ) -> Result<(), L4Error> {
        self.permutations.set(epoch.bit(), bytes, 0).map_err(L4Error::map("permutations"))
    }

    /// The services.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn vips(&self) -> Result<Vec<Entry>, L4Error> {
        self.vips.iter().collect::<Result<_, _>>().map_err(L4Error::map("vips"))
    }

    pub(crate) fn set_vip(&mut self, key: [u32; 5], number: u32, id: u16) -> Result<(), L4Error> {
        self.vips.insert(key, [number, u32::from(id)], 0).map_err(L4Error::map("vips"))
    }

    pub(crate) fn remove_vip(&mut self, key: [u32; 5]) -> Result<(), L4Error> {
        self.vips.remove(&key).map_err(L4Error::map("vips"))
    }

    /// A service's counters over all CPUs, in the order of [`super::AGENT_COUNTS`].
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn counts(&self, number: u32) -> Result<[u64; COUNTS], L4Error> {
        let mut sums = [0; COUNTS];
        for (what, sum) in sums.iter_mut().enumerate() {
            let place = number * COUNTS as u32 + what as u32;
            *sum = self.counts.get(&place, 0).map_err(L4Error::map("counts"))?.iter().sum();
        }
        Ok(sums)
    }

    fn clear_counts(&mut self, number: u32) -> Result<(), L4Error> {
        for what in 0..COUNTS as u32 {
            clear(&mut self.counts, number * COUNTS as u32 + what, 0, "counts")?;
        }
        Ok(())
    }

    /// A service's name; empty where there is none.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn name(&self, number: u32) -> Result<String, L4Error> {
        let bytes = self.names.get(&number, 0).map_err(L4Error::map("names"))?;
        Ok(name_from_bytes(&bytes))
    }

    /// The number of a service: the one it had, or the first that is free, with its counters at zero.
    pub(crate) fn number_of(&mut self, name: &str) -> Result<u32, L4Error> {
        let mut free = None;
        for number in 0..MAX_AGENT_VIPS {
            let taken = self.name(number)?;
            if taken == name {
                return Ok(number);
            }
            if taken.is_empty() && free.is_none() {
                free = Some(number);
            }
        }
        let full = || L4Error::Full { what: "l4.vips".to_owned(), limit: MAX_AGENT_VIPS };
        let number = free.ok_or_else(full)?;
        self.clear_counts(number)?;
        self.names.set(number, name_to_bytes(name), 0).map_err(L4Error::map("names"))?;
        Ok(number)
    }

    pub(crate) fn forget(&mut self, number: u32) -> Result<(), L4Error> {
        self.names.set(number, [0; NAME_BYTES], 0).map_err(L4Error::map("names"))
    }
}
