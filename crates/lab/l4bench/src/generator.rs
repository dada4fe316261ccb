//! A packet generator: frames made in the kernel by live-frame test runs
//! (`BPF_F_TEST_XDP_LIVE_FRAMES`), sent out of an interface of this thread's namespace, a million and
//! more a second from one core; and a counter at the other end of the way.
//!
//! Every frame is a packet of another flow's, from a client with the cookie of one of the balancer's servers,
//! or from one of them. Sender, balancer and counter share a core where veth hands a frame on without an
//! interrupt, so that what arrives in a second tells the cost of the whole way.

use std::time::{Duration, Instant};

use aya::maps::{Array, PerCpuArray};
use aya::programs::xdp::XdpMode;
use aya::programs::{TestRun, TestRunAttrs, TestRunOptions};

use crate::BenchError;
use crate::load::{Load, context};

/// What the kernel hands on at a time; more than a veth's ring holds would be dropped there.
const BATCH: u32 = 64;
const HEAD_WORDS: usize = 10;

/// What frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// From clients, with the cookie of a server.
    Requests,
    /// From servers.
    Replies,
}

impl Load {
    /// Sets the packet that every frame is made from; at least 80 bytes.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn set_head(&mut self, packet: &[u8]) -> Result<(), BenchError> {
        let mut words = [0u64; HEAD_WORDS];
        for (word, bytes) in words.iter_mut().zip(packet.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let mut map: Array<_, [u64; HEAD_WORDS]> =
            self.map("head")?.try_into().map_err(BenchError::kernel("head"))?;
        map.set(0, words, 0).map_err(BenchError::kernel("head"))
    }

    /// Sends frames out of an interface; how long that took.
    ///
    /// # Errors
    /// When the kernel does not send.
    pub fn send(
        &mut self,
        kind: Frames,
        packet: &[u8],
        ifindex: u32,
        frames: u32,
    ) -> Result<Duration, BenchError> {
        let name = match kind {
            Frames::Requests => "generate_requests",
            Frames::Replies => "generate_replies",
        };
        let program = self.program(name)?;
        let context = context(packet.len(), ifindex);
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.ctx_in = Some(&context);
        options.repeat = frames;
        options.attrs = TestRunAttrs::new().xdp_live_frames(BATCH);
        let began = Instant::now();
        program.test_run(options).map_err(BenchError::kernel(name))?;
        Ok(began.elapsed())
    }

    /// Counts, and takes, every TCP packet that comes in by an interface.
    ///
    /// # Errors
    /// When the program cannot be attached.
    pub fn count_at(&mut self, ifindex: u32) -> Result<(), BenchError> {
        let program = self.program("count_arrived")?;
        let attached = program.attach_to_if_index(ifindex, XdpMode::Driver);
        attached.map(|_| ()).map_err(BenchError::kernel("count_arrived"))
    }

    /// Packets that were counted.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn arrived(&mut self) -> Result<u64, BenchError> {
        let map: PerCpuArray<_, [u64; 2]> =
            self.map("arrived")?.try_into().map_err(BenchError::kernel("arrived"))?;
        let each = map.get(&0, 0).map_err(BenchError::kernel("arrived"))?;
        Ok(each.iter().map(|cpu| cpu[0]).sum())
    }
}
