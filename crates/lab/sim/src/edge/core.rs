//! A core that polls: it takes what waits, at most a batch, and is busy for the batch's overhead and its packets.

use super::TICK_S;

/// The most packets of a batch: DPDK's and the kernel's usual burst is 32 to 64.
const BATCH: u32 = 32;

/// The core.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Core {
    /// Packets that may wait, and seconds that a batch costs besides its packets.
    pub queue: u32,
    pub batch_cost: f64,
    /// Packets that wait, and what they cost together, seconds.
    waiting: u32,
    work: f64,
    /// Until when it is busy with the batch that it took, relative to the tick, seconds.
    until: f64,
    /// Busy time, packets served and packets lost since they were last taken.
    busy: f64,
    served: u64,
    lost: u64,
}

impl Core {
    pub fn new(queue: u32, batch_cost: f64) -> Self {
        Core { queue, batch_cost, ..Core::default() }
    }

    /// One tick in which so many packets arrive, evenly, which cost so much each. Returns how long one of them waits and
    /// is served in the mean, seconds.
    pub fn tick(&mut self, arrivals: u32, cost: f64) -> f64 {
        let taken = arrivals.min(self.queue.saturating_sub(self.waiting));
        self.lost += u64::from(arrivals - taken);
        let ahead = self.until.max(0.0) + self.work;
        let gap = TICK_S / f64::from(taken.max(1));
        let (mut at, mut arrived) = (self.until.max(0.0), 0);
        while at < TICK_S {
            self.admit(((at / gap + 0.5) as u32).min(taken) - arrived, cost, &mut arrived);
            if self.waiting == 0 {
                if arrived == taken {
                    at = TICK_S;
                    break;
                }
                at = at.max((f64::from(arrived) + 0.5) * gap);
                self.admit(1, cost, &mut arrived);
            }
            at += self.serve();
        }
        self.admit(taken - arrived, cost, &mut arrived);
        self.until = at - TICK_S;
        // Half of the tick's own packets are ahead of one of them in the mean, less what is served meanwhile.
        let own = (f64::from(taken) * cost - TICK_S).max(0.0) / 2.0;
        (ahead - TICK_S / 2.0).max(0.0) + own + cost + self.batch_cost
    }

    fn admit(&mut self, packets: u32, cost: f64, arrived: &mut u32) {
        self.waiting += packets;
        self.work += f64::from(packets) * cost;
        *arrived += packets;
    }

    /// Takes a batch; returns how long it lasts.
    fn serve(&mut self) -> f64 {
        let batch = self.waiting.min(BATCH);
        let work = self.work * f64::from(batch) / f64::from(self.waiting);
        self.waiting -= batch;
        self.work = if self.waiting == 0 { 0.0 } else { self.work - work };
        self.served += u64::from(batch);
        let lasts = self.batch_cost + work;
        self.busy += lasts;
        lasts
    }

    /// Busy seconds, packets served and packets lost since the last call.
    pub fn take(&mut self) -> (f64, u64, u64) {
        use std::mem::take;
        (take(&mut self.busy), take(&mut self.served), take(&mut self.lost))
    }
}
