//! A core that polls: it takes what waits, at most a batch, and is busy for the batch's overhead and its packets.

use super::TICK_S;

/// The most packets of a batch: DPDK's and the kernel's usual burst is 32 to 64.
const BATCH: u32 = 32;

/// What a packet costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    /// Seconds per packet.
    pub packet: f64,
    /// Seconds per batch, whatever is in it.
    pub batch: f64,
    /// Packets that may wait.
    pub queue: u32,
}

/// The core.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Core {
    waiting: u32,
    /// Until when it is busy with the batch that it took, relative to the tick, seconds.
    until: f64,
    /// Busy time, packets served and packets lost since they were last taken.
    pub busy: f64,
    pub served: u64,
    pub lost: u64,
}

impl Core {
    /// One tick in which so many packets arrive, evenly. Returns how long those that were let in wait and are served in
    /// the mean, seconds.
    pub fn tick(&mut self, arrivals: u32, costs: &Costs) -> f64 {
        let room = costs.queue.saturating_sub(self.waiting);
        let taken = arrivals.min(room);
        self.lost += u64::from(arrivals - taken);
        let ahead = self.until.max(0.0) + f64::from(self.waiting) * costs.packet;
        let gap = TICK_S / f64::from(taken.max(1));
        let (mut at, mut arrived) = (self.until.max(0.0), 0);
        while at < TICK_S {
            let here = ((at / gap + 0.5) as u32).min(taken);
            self.waiting += here - arrived;
            arrived = here;
            if self.waiting == 0 {
                if arrived == taken {
                    at = TICK_S;
                    break;
                }
                at = at.max((f64::from(arrived) + 0.5) * gap);
                self.waiting += 1;
                arrived += 1;
            }
            let batch = self.waiting.min(BATCH);
            let lasts = costs.batch + f64::from(batch) * costs.packet;
            self.waiting -= batch;
            self.served += u64::from(batch);
            self.busy += lasts;
            at += lasts;
        }
        self.waiting += taken - arrived;
        self.until = at - TICK_S;
        // Half of the tick's own packets are ahead of one of them in the mean, less what is served meanwhile.
        let own = (f64::from(taken) * costs.packet - TICK_S).max(0.0) / 2.0;
        (ahead - TICK_S / 2.0).max(0.0) + own + costs.packet + costs.batch
    }

    /// Busy seconds and packets served since the last call.
    pub fn take(&mut self) -> (f64, u64) {
        (std::mem::take(&mut self.busy), std::mem::take(&mut self.served))
    }
}
