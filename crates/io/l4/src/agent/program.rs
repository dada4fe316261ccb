//! The agent's programs: loaded onto their pinned maps, put onto tcx by pinned links. An agent that
//! starts over, or a newer one, puts its programs into the same links, so that no packet misses them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use aya::programs::links::{FdLink, LinkOrder, PinnedLink};
use aya::programs::tc::{SchedClassifierLink, TcAttachOptions};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader};
use plimsoll_cookie::Layout;
use rustix::io::Errno;

use super::maps::check;
use crate::error::L4Error;
use crate::program::{pinned, prepare, unpinned};
use crate::refused::{errno, refused, undisturbed, was_disturbed};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/agent.bpf.o"));

/// Every map of the programs.
const MAPS: [&str; 6] = ["settings", "permutations", "vips", "counts", "meta", "names"];

/// Both ways past an interface, with the program for each.
const HOOKS: [(&str, TcAttachType, &str); 2] = [
    ("agent_ingress", TcAttachType::Ingress, "ingress"),
    ("agent_egress", TcAttachType::Egress, "egress"),
];

/// The loaded programs.
#[derive(Debug)]
pub struct AgentProgram {
    ebpf: Ebpf,
    dir: PathBuf,
}

impl AgentProgram {
    /// Loads the programs onto the maps pinned in a directory; makes them when there are none.
    ///
    /// # Errors
    /// Without privileges or bpffs, or when the kernel refuses.
    pub fn load(dir: &Path, layout: Layout) -> Result<Self, L4Error> {
        prepare(dir)?;
        check(dir, layout)?;
        let mut loader = EbpfLoader::new();
        for name in MAPS {
            loader.map_pin_path(name, dir.join("maps").join(name));
        }
        let version_bits = layout.version_bits();
        loader.override_global("version_bits", &version_bits, true);
        let mut ebpf = loader.load(OBJECT).map_err(|error| refused(&error))?;
        for (name, ..) in HOOKS {
            let program = program(&mut ebpf, name)?;
            undisturbed(|| program.load(), was_disturbed).map_err(|error| refused(&error))?;
        }
        Ok(AgentProgram { ebpf, dir: dir.to_owned() })
    }

    /// Puts the programs onto an interface: into the pinned links where there are some. Ingress comes
    /// first, so that no cookie leaves before its echo would be understood.
    ///
    /// # Errors
    /// When the interface is not there, or the kernel has no tcx.
    pub fn attach(&mut self, interface: &str) -> Result<(), L4Error> {
        for (name, hook, way) in HOOKS {
            let path = pin_of(&self.dir, interface, way);
            let failed = |error: String| L4Error::Interface { name: interface.to_owned(), error };
            let program = program(&mut self.ebpf, name)?;
            if let Some(link) = existing(&path) {
                match program.attach_to_link(link) {
                    Ok(id) => {
                        // The pin alone holds it: without that it is off the interface.
                        drop(program.take_link(id));
                        continue;
                    }
                    // The interface was removed, and there is a new one of its name.
                    Err(_) => fs::remove_file(&path).map_err(|error| failed(error.to_string()))?,
                }
            } else {
                let _ = fs::remove_file(&path);
            }
            let order = TcAttachOptions::TcxOrder(LinkOrder::default());
            let id = program
                .attach_with_options(interface, hook, order)
                .map_err(|error| failed(why_not_attached(&error)))?;
            let taken = program.take_link(id).map_err(|error| failed(error.to_string()))?;
            let link = FdLink::try_from(taken).map_err(|_| failed(NO_TCX.to_owned()))?;
            link.pin(&path).map_err(|error| failed(error.to_string()))?;
        }
        Ok(())
    }
}

const NO_TCX: &str = "expected a kernel with tcx (6.6 or later)";

/// The interfaces whose links are pinned.
pub fn attached(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join("links")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.strip_suffix(":ingress").map(unpinned)
        })
        .collect();
    names.sort();
    names
}

/// Whether nothing is pinned for an interface any more; not so where that is not known.
pub fn is_unpinned(dir: &Path, interface: &str) -> bool {
    HOOKS.iter().all(|(_, _, way)| {
        let pin = pin_of(dir, interface, way);
        fs::symlink_metadata(pin).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    })
}

/// Takes the programs off an interface, or off one that is gone.
pub fn detach_interface(dir: &Path, interface: &str) {
    for (_, _, way) in HOOKS {
        let _ = fs::remove_file(pin_of(dir, interface, way));
    }
}

fn pin_of(dir: &Path, interface: &str, way: &str) -> PathBuf {
    dir.join("links").join(format!("{}:{way}", pinned(interface)))
}

fn existing(path: &Path) -> Option<SchedClassifierLink> {
    let pinned = PinnedLink::from_pin(path).ok()?;
    SchedClassifierLink::try_from(FdLink::from(pinned)).ok()
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut SchedClassifier, L4Error> {
    let absent = || L4Error::Load(format!("the object holds no program {name}"));
    let program = ebpf.program_mut(name).ok_or_else(absent)?;
    program.try_into().map_err(|error: ProgramError| refused(&error))
}

fn why_not_attached(error: &ProgramError) -> String {
    let text = refused(error).to_string();
    match errno(error) {
        Some(Errno::INVAL | Errno::OPNOTSUPP) => format!("{NO_TCX}: {text}"),
        _ => text,
    }
}
