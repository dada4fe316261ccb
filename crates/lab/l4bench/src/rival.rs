//! Balancers without a cookie on real packets (`bpf/rival.h`): they take the place of a running
//! balancer's program, on its interfaces and by its tables. With policy `hash` the list is a plain one,
//! with `maglev` consistent.

use aya::maps::Array;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::{XdpLink, XdpMode};

use crate::{BenchError, Load};
use plimsoll_l4::Balancer;
use plimsoll_l4::lab::{Candidate, MAGLEV_PLACES, maglev};

impl Load {
    /// Puts `by_hash` or `by_chain` in the place of the balancer's program on all its interfaces.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn take_over(&mut self, balancer: &Balancer, name: &str) -> Result<(), BenchError> {
        for interface in &balancer.config().interfaces {
            let path = balancer.maps().dir().join("links").join(&interface.name);
            let pinned = PinnedLink::from_pin(&path).map_err(BenchError::kernel(name))?;
            let link = XdpLink::try_from(FdLink::from(pinned)).map_err(BenchError::kernel(name))?;
            let program = self.program(name)?;
            program.attach_to_link(link).map_err(BenchError::kernel(name))?;
            balancer.give_way_to(program.info().map_err(BenchError::kernel(name))?.id());
        }
        Ok(())
    }

    /// Puts a server of a daisy chain's program onto an interface of this thread's namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn chain_at(&mut self, ifindex: u32) -> Result<(), BenchError> {
        let name = "pass_on_to_previous";
        let attached = self.program(name)?.attach_to_if_index(ifindex, XdpMode::Driver);
        attached.map(|_| ()).map_err(BenchError::kernel(name))
    }

    /// Tells which server each place of the list had before.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn set_previous(&mut self, chain: &Chain) -> Result<(), BenchError> {
        let map = self.map("previous")?;
        let mut map: Array<_, u32> = map.try_into().map_err(BenchError::kernel("previous"))?;
        for (place, id) in chain.previous.iter().enumerate() {
            let set = map.set(place as u32, u32::from(*id), 0);
            set.map_err(BenchError::kernel("previous"))?;
        }
        Ok(())
    }
}

/// Which server each place of a Maglev table had before its present one.
#[derive(Clone, Debug)]
pub struct Chain {
    current: Vec<u16>,
    previous: Vec<u16>,
}

impl Chain {
    /// No flow had a place before these.
    pub fn new(servers: &[Candidate]) -> Chain {
        Chain { current: maglev(servers), previous: vec![0; MAGLEV_PLACES] }
    }

    /// These follow: a place that changes hands remembers who had it, one that does not whom it
    /// remembered.
    pub fn follow(&mut self, servers: &[Candidate]) {
        let next = maglev(servers);
        for ((now, before), next) in self.current.iter().zip(&mut self.previous).zip(&next) {
            if now != next {
                *before = *now;
            }
        }
        self.current = next;
    }
}
