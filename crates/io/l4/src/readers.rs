//! Waiting for the program's runs that read what is to be written next.
//!
//! What the program walks is written beside what it reads, and one write flips over. A CPU that has read which half
//! is in force may stay there for as long as the hypervisor runs another guest; the half that it walks must not be
//! filled anew meanwhile, so before that the writer waits for an RCU grace period: every run that began before has
//! ended by then. The kernel gives one with each update of a map of maps (`maybe_wait_bpf_programs`, since 4.20),
//! where `membarrier(MEMBARRIER_CMD_GLOBAL)` refuses with `nohz_full`. To hold the tables in such maps themselves
//! would cost every packet a look-up more for each, and give no single step for all of them.

use aya::Ebpf;
use aya::maps::{Array, ArrayOfMaps, MapData};

use crate::error::L4Error;

const NAME: &str = "readers";

/// The map of maps, which no program reads.
pub(crate) struct Readers {
    outer: ArrayOfMaps<MapData, Array<MapData, u32>>,
    inner: Array<MapData, u32>,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readers").finish_non_exhaustive()
    }
}

impl Readers {
    /// Takes the map out of the loaded object.
    pub(crate) fn of(ebpf: &mut Ebpf) -> Result<Readers, L4Error> {
        let outer = ebpf.take_map(NAME).ok_or("expected it in the object");
        let outer = outer.map_err(L4Error::map(NAME))?.try_into().map_err(L4Error::map(NAME))?;
        let inner = Array::create(1, 0).map_err(L4Error::map(NAME))?;
        Ok(Readers { outer, inner })
    }

    /// Returns when every run of a program that had begun before has ended: some 10 ms.
    pub(crate) fn wait(&mut self) -> Result<(), L4Error> {
        self.outer.set(0, &self.inner, 0).map_err(L4Error::map(NAME))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use aya::programs::{TestRun, TestRunOptions, Xdp};
    use aya::{Ebpf, EbpfLoader};

    use super::*;
    use crate::Balancer;
    use crate::fixture::{Pins, config, keys};
    use crate::tables::vip_bits;

    static OBJECT: &[u8] =
        aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tests-slow_reader.bpf.o"));

    /// What the reader says: see `bpf/tests/slow_reader.bpf.c`.
    fn told(reader: &Ebpf) -> [u32; 3] {
        let map: Array<_, [u32; 3]> =
            reader.map("told").expect("there").try_into().expect("an array");
        map.get(&0, 0).expect("read")
    }

    #[test]
    fn a_half_is_not_filled_while_a_run_still_reads_it() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root (BPF)");
            return;
        }
        let name = format!("/sys/fs/bpf/plimsoll-readers-{}", std::process::id());
        let pins = Pins(name.into());
        let config = config(pins.0.clone(), &[], Vec::new());
        let (mut balancer, _) = Balancer::start_with(&config, keys()).expect("starts");
        let mut loader = EbpfLoader::new();
        for map in ["config", "vips"] {
            loader.map_pin_path(map, pins.0.join("maps").join(map));
        }
        let bits = vip_bits(config.limits.vips);
        loader.override_global("vip_bits", &bits, true);
        let mut reader = loader.load(OBJECT).expect("loads");
        let program: &mut Xdp =
            reader.program_mut("slow_reader").expect("there").try_into().expect("XDP");
        program.load().expect("loads");
        std::thread::scope(|scope| {
            let run = || {
                let program: &Xdp =
                    reader.program("slow_reader").expect("there").try_into().expect("XDP");
                let mut options = TestRunOptions::new();
                let packet = [0; 64];
                options.data_in = Some(&packet);
                program.test_run(options).expect("runs");
            };
            let running = scope.spawn(run);
            let began = Instant::now();
            while told(&reader)[0] == 0 {
                assert!(began.elapsed() < Duration::from_secs(10), "the reader does not begin");
                std::thread::sleep(Duration::from_millis(1));
            }
            // The second one fills the half that the reader is in.
            for _ in 0..2 {
                balancer.apply(&config).expect("applies");
            }
            running.join().expect("ended");
        });
        let [began, looked, lost] = told(&reader);
        assert_eq!((began, lost), (1, 0), "after {looked} looks");
        assert!(looked > 1000, "{looked}: it was over before anything was written");
    }
}
