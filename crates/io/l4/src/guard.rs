//! What stands in for the program while an interface changes the mode of XDP. The kernel takes one mode at a time, so
//! there is a moment without the program, and replies that the kernel forwards then have no cookie: what the client sends
//! next goes to any server. The guard (`bpf/guard.bpf.c`, on tcx) drops them, and what clients send; TCP sends it again.

use std::path::Path;

use aya::programs::links::LinkOrder;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader};

use crate::error::L4Error;
use crate::refused::{refused, undisturbed, was_disturbed};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/guard.bpf.o"));

/// Its pinned maps.
const MAPS: [&str; 2] = ["config", "vips"];

/// On an interface until it is dropped, or the process ends.
pub(crate) struct Guard {
    _attached: Ebpf,
}

impl Guard {
    /// Loads it onto the balancer's maps in a directory and puts it onto an interface.
    ///
    /// # Errors
    /// When the kernel has no tcx.
    pub(crate) fn on(maps: &Path, vip_bits: u32, interface: &str) -> Result<Guard, L4Error> {
        let mut loader = EbpfLoader::new();
        for name in MAPS {
            loader.map_pin_path(name, maps.join(name));
        }
        loader.override_global("vip_bits", &vip_bits, true);
        let mut ebpf = loader.load(OBJECT).map_err(|error| refused(&error))?;
        let absent = || L4Error::Load("the object holds no program guard".to_owned());
        let program: &mut SchedClassifier = ebpf
            .program_mut("guard")
            .ok_or_else(absent)?
            .try_into()
            .map_err(|error: ProgramError| refused(&error))?;
        undisturbed(|| program.load(), was_disturbed).map_err(|error| refused(&error))?;
        let order = TcAttachOptions::TcxOrder(LinkOrder::first());
        program
            .attach_with_options(interface, TcAttachType::Ingress, order)
            .map_err(|error| refused(&error))?;
        Ok(Guard { _attached: ebpf })
    }
}
