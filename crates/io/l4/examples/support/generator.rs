//! A packet generator: frames made in the kernel by live-frame test runs
//! (`BPF_F_TEST_XDP_LIVE_FRAMES`), sent out of an interface of this thread's namespace, a million and
//! more a second from one core; and a counter at the other end of the way.
//!
//! Every frame is a packet of another flow's, with the cookie of one of the balancer's servers. Sender,
//! balancer and counter share a core where veth hands a frame on without an interrupt, so that what
//! arrives in a second tells the cost of the whole way.

use std::time::{Duration, Instant};

use aya::maps::{Array, PerCpuArray};
use aya::programs::xdp::XdpMode;
use aya::programs::{TestRun, TestRunAttrs, TestRunOptions};

use super::{Load, context};

/// What the kernel hands on at a time; more than a veth's ring holds would be dropped there.
const BATCH: u32 = 64;
const HEAD_WORDS: usize = 10;

impl Load {
    /// Sets the packet that every frame is made from; at least 80 bytes.
    pub fn set_head(&mut self, packet: &[u8]) {
        let mut words = [0u64; HEAD_WORDS];
        for (word, bytes) in words.iter_mut().zip(packet.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight"));
        }
        let map = self.ebpf.map_mut("head").expect("the map");
        let mut map: Array<_, [u64; HEAD_WORDS]> = map.try_into().expect("an array");
        map.set(0, words, 0).expect("set");
    }

    /// Sends frames out of an interface; how long that took.
    pub fn send(&mut self, packet: &[u8], ifindex: u32, frames: u32) -> Duration {
        let program = self.program("generate");
        let context = context(packet.len(), ifindex);
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.ctx_in = Some(&context);
        options.repeat = frames;
        options.attrs = TestRunAttrs::new().xdp_live_frames(BATCH);
        let began = Instant::now();
        program.test_run(options).expect("sends");
        began.elapsed()
    }

    /// Counts, and takes, every TCP packet that comes in by an interface.
    pub fn count_at(&mut self, ifindex: u32) {
        let program = self.program("count_arrived");
        program.attach_to_if_index(ifindex, XdpMode::Driver).expect("attaches");
    }

    /// Packets that were counted.
    pub fn arrived(&mut self) -> u64 {
        let map = self.ebpf.map_mut("arrived").expect("the map");
        let map: PerCpuArray<_, [u64; 2]> = map.try_into().expect("an array");
        map.get(&0, 0).expect("read").iter().map(|cpu| cpu[0]).sum()
    }
}
