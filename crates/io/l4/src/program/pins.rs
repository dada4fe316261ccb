//! What is pinned in bpffs: links by the names of their interfaces.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use aya::programs::links::{FdLink, PinnedLink};

use crate::carry::NEXT_DIR;
use crate::error::L4Error;
use crate::maps::MAPS_DIR;
use crate::turn::Turn;

/// Where the links of interfaces are pinned.
pub(super) const LINKS_DIR: &str = "links";
/// The program of the daemon in charge.
pub(super) const PROGRAM: &str = "balancer";

/// `statfs` of a bpffs.
const BPF_FS_MAGIC: i128 = 0xcafe_4a11;

/// Whether a path is in a bpffs.
pub(crate) fn is_bpffs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| i128::from(stat.f_type) == BPF_FS_MAGIC)
}

/// Takes the program off every interface and removes all that Plimsoll has pinned in this directory, and nothing else.
///
/// # Errors
/// When it is not in a bpffs, or something cannot be removed.
pub fn detach(dir: &Path) -> Result<(), L4Error> {
    match fs::File::open(dir) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(L4Error::Unremoved { path: dir.to_owned(), error }),
    }
    if !is_bpffs(dir) {
        return Err(L4Error::NoPins(dir.to_owned()));
    }
    let _turn = Turn::wait(dir)?;
    // First what a daemon is in charge by: it writes no more, and ends.
    let program = fs::remove_file(dir.join(PROGRAM));
    let parts = [LINKS_DIR, MAPS_DIR, NEXT_DIR].map(|part| fs::remove_dir_all(dir.join(part)));
    for removed in parts.into_iter().chain([program]) {
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(L4Error::Unremoved { path: dir.to_owned(), error });
            }
            _ => {}
        }
    }
    // It stays where it is a mount point, or where somebody else has pins in it.
    let _ = fs::remove_dir(dir);
    Ok(())
}

pub(super) fn clear_maps(dir: &Path) -> Result<(), L4Error> {
    let failed = |error| L4Error::Bpffs { path: dir.to_owned(), error };
    for entry in fs::read_dir(dir.join(MAPS_DIR)).map_err(failed)? {
        fs::remove_file(entry.map_err(failed)?.path()).map_err(failed)?;
    }
    Ok(())
}

/// Takes the program off an interface, or off one that is gone.
pub fn detach_interface(dir: &Path, name: &str) {
    let _ = fs::remove_file(link_pin(dir, name));
}

/// The interfaces whose links are pinned; a link outlives its interface.
pub fn pinned_links(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join(LINKS_DIR)).into_iter().flatten().flatten();
    entries.map(|entry| unpinned(&entry.file_name().to_string_lossy())).collect()
}

/// Where the link of an interface is pinned.
pub fn link_pin(dir: &Path, interface: &str) -> PathBuf {
    dir.join(LINKS_DIR).join(pinned(interface))
}

/// An interface's name as one that bpffs takes, which takes no dot: no interface has a colon.
pub(crate) fn pinned(interface: &str) -> String {
    interface.replace('.', ":")
}

/// The interface of such a name.
pub(crate) fn unpinned(name: &str) -> String {
    name.replace(':', ".")
}

/// Whether the pinned link of an interface is on any: not when that is gone, or the link was detached. In
/// whatever network namespace it is, for the kernel says so of the link itself (`fdinfo`).
pub fn is_link_on(dir: &Path, name: &str) -> bool {
    let Ok(pinned) = PinnedLink::from_pin(link_pin(dir, name)) else { return false };
    let link = FdLink::from(pinned);
    let Ok(id) = link.info().map(|info| info.id().to_string()) else { return false };
    let is_its = |text: &String| line(text, "link_id:") == Some(&id);
    let mut held = fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten();
    let about = held.find_map(|entry| fs::read_to_string(entry.path()).ok().filter(is_its));
    drop(link);
    about.is_some_and(|text| line(&text, "ifindex:").is_some_and(|index| index != "0"))
}

fn line<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_of_a_vlan_is_pinned_without_a_dot() {
        let path = link_pin(Path::new("/pins"), "eth0.100");
        assert_eq!(path, Path::new("/pins/links/eth0:100"));
        assert_eq!(unpinned("eth0:100"), "eth0.100");
    }
}
