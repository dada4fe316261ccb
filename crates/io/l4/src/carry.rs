//! Tables of another size, or of a version before: what they hold moves to new ones, and no connection notices.
//!
//! New maps are made beside the pinned ones. What must last is copied, and the daemon fills the rest as ever, while
//! packets go by the old program and its maps. Then every interface's link goes over to the new program, and last the
//! directories of pins trade places, each in one step: a start that is killed or refused on the way leaves the old
//! ones. Not copied: what packets fill again within seconds (routes, fragments, owners of RSTs).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use aya::maps::{Array, MapData};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::error::L4Error;
use crate::layout::{ConfigValue, LAST_ROWS, LINE_BYTES, META_LAYOUT, VipValue};
use crate::maps::{MAPS_DIR, Maps, Meta, opened, write_meta};
use crate::program::Program;
use crate::reason::REASONS;

/// Where maps are filled that are to take the pinned ones' place. bpffs takes no dot in a name.
pub(crate) const NEXT_DIR: &str = "maps-next";
/// The oldest layout that is understood: servers' clocks were in their entries.
const OLDEST: u32 = 9;

/// Whether maps are understood, but for a size.
pub(crate) fn is_understood(found: Meta, wanted: Meta) -> bool {
    (OLDEST..=META_LAYOUT).contains(&found.layout) && found.version_bits == wanted.version_bits
}

/// Loads the program onto the pinned maps, or onto new ones that hold what must last of those.
///
/// # Errors
/// With pinned maps that are not understood, with more in them than there is room for, or when the kernel refuses.
pub(crate) fn load(
    dir: &Path,
    found: Option<Meta>,
    wanted: Meta,
) -> Result<(Program, Maps, Option<Before>), L4Error> {
    let next = dir.join(NEXT_DIR);
    clear(&next)?;
    let other = found.filter(|found| !found.is_as(wanted) && is_understood(*found, wanted));
    let Some(found) = other else {
        let program = Program::load(dir, wanted)?;
        return Ok((program, Maps::open(dir)?, None));
    };
    let before = Before::open(dir, found)?;
    fs::create_dir(&next).map_err(|error| L4Error::Bpffs { path: next.clone(), error })?;
    let program = Program::load_in(dir, NEXT_DIR, wanted)?;
    write_meta(&next, wanted)?;
    let mut maps = Maps::open_in(dir, NEXT_DIR, wanted)?;
    before.copy(&mut maps)?;
    Ok((program, maps, Some(before)))
}

/// The maps that packets go by until the new ones are filled. Dropped, those of both that are not pinned in the end
/// are gone.
pub(crate) struct Before {
    dir: PathBuf,
    maps: Maps,
}

impl Drop for Before {
    fn drop(&mut self) {
        let _ = clear(&self.dir.join(NEXT_DIR));
    }
}

impl Before {
    fn open(dir: &Path, found: Meta) -> Result<Before, L4Error> {
        if found.layout == OLDEST {
            take_out_clocks(&dir.join(MAPS_DIR), found)?;
        }
        Ok(Before { dir: dir.to_owned(), maps: Maps::open_in(dir, MAPS_DIR, found)? })
    }

    /// The services that are served.
    pub(crate) fn vips(&self) -> Result<Vec<VipValue>, L4Error> {
        self.maps.vips()
    }

    fn copy(&self, new: &mut Maps) -> Result<(), L4Error> {
        let old = &self.maps;
        let (from, to) = (old.meta(), new.meta());
        for epoch in [0, 1] {
            new.set_permutation(epoch, &old.permutation(epoch)?)?;
        }
        // Both halves are empty.
        let held = old.config()?;
        let halves = ConfigValue::default();
        new.set_config(ConfigValue {
            index: halves.index,
            mac_seed: halves.mac_seed,
            vip_half: 0,
            mac_half: 0,
            ..held
        })?;
        // Servers that drain keep their place among the interfaces.
        for (port, ifindex) in old.ports() {
            // The kernel takes none that is not in this network namespace.
            if new.set_port(port, ifindex).is_ok() {
                new.set_port_flags(port, old.port_flags(port)?)?;
            }
        }
        for number in 0..from.vips {
            let name = old.vip_name(number)?;
            if name.is_empty() {
                continue;
            }
            if number >= to.vips {
                let what = "l4.vips, those that drain included".to_owned();
                return Err(L4Error::Full { what, limit: to.vips });
            }
            new.set_vip_name(number, &name)?;
            new.set_vip_note(number, &old.vip_note(number)?)?;
        }
        let places: BTreeMap<u32, u32> = self.places(to)?.into_iter().collect();
        for (&was, &is) in &places {
            new.set_member(is, old.member(was)?)?;
            new.set_member_name(is, &old.member_name(was)?)?;
            new.set_member_note(is, old.member_note(was)?)?;
            if let Some(offset_ms) = old.clock(was)? {
                new.set_clock(is, offset_ms)?;
            }
        }
        for row in 0..LAST_ROWS {
            new.set_last(row, old.last(row)?.map(|event| moved(event, &places)))?;
        }
        for (place, open) in new.remembered()? {
            new.set_open(place, open)?;
        }
        Ok(())
    }

    /// Where servers were, and where they are.
    fn places(&self, to: Meta) -> Result<Vec<(u32, u32)>, L4Error> {
        let from = self.maps.meta();
        let mut places = Vec::new();
        for number in 0..from.vips {
            for id in 1..from.stride {
                let was = number * from.stride + id;
                if self.maps.member_name(was)?.is_empty() {
                    continue;
                }
                if id >= to.stride {
                    let what = "ids of servers, those that drain included".to_owned();
                    return Err(L4Error::Full { what, limit: to.stride - 1 });
                }
                places.push((was, number * to.stride + id));
            }
        }
        Ok(places)
    }

    /// The new maps take the old ones' place, when no run of the old program is left: what that counted, they count on.
    pub(crate) fn hand_over(self, new: &mut Maps) -> Result<(), L4Error> {
        let (from, to) = (self.maps.meta(), new.meta());
        for (was, is) in self.places(to)? {
            new.add_count(is, &self.maps, was)?;
        }
        let strays = (from.vips, to.vips);
        let kept = (0..from.vips.min(to.vips)).map(|number| (number, number));
        for (was, is) in kept.chain([strays]) {
            for reason in 0..REASONS.len() as u32 {
                new.add_reason(is, &self.maps, was, reason)?;
            }
        }
        let (old, next) = (self.dir.join(MAPS_DIR), self.dir.join(NEXT_DIR));
        let failed =
            |error: rustix::io::Errno| L4Error::Bpffs { path: old.clone(), error: error.into() };
        renameat_with(CWD, &next, CWD, &old, RenameFlags::EXCHANGE).map_err(failed)
    }
}

/// An event of a connection with the place that its server has now; none where that server is gone, for its number may
/// be another's by now.
fn moved(event: u64, places: &BTreeMap<u32, u32>) -> u64 {
    let (low, mask) = (event as u32, crate::layout::LAST_AT);
    places
        .get(&(low >> 1 & mask))
        .map_or(0, |place| event & !u64::from(mask << 1) | u64::from((place & mask) << 1))
}

/// Makes the map of clocks of what layout 9 has in the servers' entries, which its program goes on writing.
fn take_out_clocks(maps: &Path, found: Meta) -> Result<(), L4Error> {
    let path = maps.join("clocks");
    let _ = fs::remove_file(&path);
    let members: Array<MapData, [u8; LINE_BYTES]> = opened!(maps, "members");
    let places = found.vips * found.stride;
    let mut clocks: Array<MapData, [u32; 2]> =
        Array::create(places, 0).map_err(L4Error::map("clocks"))?;
    for place in 0..places {
        let bytes = members.get(&place, 0).map_err(L4Error::map("members"))?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        if word(28) != 0 {
            clocks.set(place, [word(24), 1], 0).map_err(L4Error::map("clocks"))?;
        }
    }
    clocks.pin(&path).map_err(L4Error::map("clocks"))
}

fn clear(dir: &Path) -> Result<(), L4Error> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(L4Error::Bpffs { path: dir.to_owned(), error })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_all_but_its_place() {
        let places = BTreeMap::from([(0x0307, 0x0607)]);
        let event = 0xabcd_ef01_2345_6789 & !(0x3f_ffff << 1) | 0x0307 << 1;
        let is = moved(event, &places);
        assert_eq!(is >> 1 & 0x3f_ffff, 0x0607);
        assert_eq!((is ^ event) & !(0x3f_ffff << 1), 0);
        assert_eq!(moved(event, &BTreeMap::new()), 0, "of a server that is gone");
    }
}
