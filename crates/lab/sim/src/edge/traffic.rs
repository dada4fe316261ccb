//! Flows: when they start, how often they send, when they end.

use super::TICKS_PER_MS;
use crate::RandomStream;

/// How long mice last. They send a packet each millisecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mice {
    /// So many packets each: the paper's have 10.
    Packets(u32),
    /// Exponential with this mean, milliseconds.
    Exponential(f64),
}

impl Mice {
    /// Mean number of packets.
    pub fn mean(self) -> f64 {
        match self {
            Mice::Packets(packets) => f64::from(packets),
            Mice::Exponential(mean) => mean,
        }
    }

    fn draw(self, rng: &mut RandomStream) -> u32 {
        match self {
            Mice::Packets(packets) => packets.max(1),
            Mice::Exponential(mean) => 1 + rng.exponential(mean) as u32,
        }
    }
}

/// Flows much heavier than mice, by the part of all traffic that they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Elephants {
    /// None.
    None,
    /// One that is there from the start to the end, on core 0.
    Fixed {
        /// Its part of all traffic.
        share: f64,
    },
    /// They come and go.
    Moving {
        /// Their part of all traffic.
        share: f64,
        /// What one of them loads a core with, fraction of the core.
        load: f64,
        /// How long they last in the mean (exponential), milliseconds.
        mean_ms: f64,
    },
}

/// More traffic from a moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// When, milliseconds.
    pub at_ms: u64,
    /// So many times the mice that start in a millisecond.
    pub factor: f64,
    /// Mice that start beyond that, evenly over `ramp_ms`, so that their number is at once what it will be: as many as
    /// are there in the mean, with the lifetimes that a look at a steady state finds.
    pub ramp_ms: u64,
}

/// Traffic of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Packets per millisecond in the mean, mice and elephants together.
    pub packets_per_ms: f64,
    /// What mice are like.
    pub mice: Mice,
    /// What else there is.
    pub elephants: Elephants,
    /// Packets a mouse sends per millisecond.
    pub packets_per_mouse_ms: u32,
    /// Whether mice start at even intervals, as a packet generator's, instead of at random.
    pub even: bool,
    /// Whether the run starts with as many mice as there will be in the mean.
    pub steady: bool,
    /// A step, if any.
    pub step: Option<Step>,
}

/// A flow in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mouse {
    pub core: u16,
    /// Milliseconds that it still sends, and that it has sent.
    pub left: u32,
    pub sent: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Elephant {
    pub core: u16,
    /// Packets per tick, and the part of a packet that is due.
    pub rate: f64,
    pub due: f64,
    pub began: u64,
    pub ends: u64,
}

/// All flows that there are.
#[derive(Debug)]
pub(super) struct Flows {
    traffic: Traffic,
    /// Mice by the tick within the millisecond at which they send.
    pub mice: Vec<Vec<Mouse>>,
    pub elephants: Vec<Elephant>,
    rng: RandomStream,
    /// Mice that start per tick in the mean, elephants likewise.
    mice_per_tick: f64,
    /// Mice that are due, where they start at even intervals: those of every day, and those of a step.
    due: [f64; 2],
    elephants_per_tick: f64,
    elephant_packets_per_tick: f64,
}

impl Flows {
    /// None yet; `capacity` is what a core serves, packets per millisecond.
    pub fn new(traffic: Traffic, capacity: f64, seed: u64) -> Self {
        let ticks = TICKS_PER_MS as f64;
        let (share, each, mean_ms) = match traffic.elephants {
            Elephants::None => (0.0, 0.0, 0.0),
            Elephants::Fixed { share } => (share, share * traffic.packets_per_ms, 0.0),
            Elephants::Moving { share, load, mean_ms } => (share, load * capacity, mean_ms),
        };
        let mice = traffic.packets_per_ms * (1.0 - share);
        let per_mouse = traffic.mice.mean() * f64::from(traffic.packets_per_mouse_ms);
        let moving = share * traffic.packets_per_ms;
        let elephants_per_tick =
            if mean_ms > 0.0 { moving / (each * mean_ms * ticks) } else { 0.0 };
        Flows {
            traffic,
            mice: vec![Vec::new(); TICKS_PER_MS as usize],
            elephants: Vec::new(),
            rng: RandomStream::new(seed, 24),
            mice_per_tick: mice / per_mouse / ticks,
            due: [0.0; 2],
            elephants_per_tick,
            elephant_packets_per_tick: each / ticks,
        }
    }

    /// Those that are there at the start.
    pub fn begin(&mut self, pick: &mut dyn FnMut() -> u16) {
        if let Elephants::Fixed { .. } = self.traffic.elephants {
            let rate = self.elephant_packets_per_tick;
            let (began, ends) = (0, u64::MAX);
            self.elephants.push(Elephant { core: 0, rate, due: 0.0, began, ends });
        }
        if self.traffic.steady {
            let mean = self.mice_per_tick * TICKS_PER_MS as f64 * self.traffic.mice.mean();
            let count = mean.round() as u64;
            for index in 0..count {
                let phase = self.rng.index(TICKS_PER_MS as usize);
                self.grown(pick(), phase, index as f64 / count as f64);
            }
        }
    }

    /// One that has lived for this part of its life, where lives are all as long; it goes on as new where not.
    fn grown(&mut self, core: u16, phase: usize, part: f64) {
        let all = self.traffic.mice.draw(&mut self.rng);
        let sent = match self.traffic.mice {
            Mice::Packets(_) => (part * f64::from(all)) as u32,
            Mice::Exponential(_) => 0,
        };
        self.mice[phase].push(Mouse { core, left: all - sent, sent });
    }

    /// Those that start in this tick.
    pub fn arrive(&mut self, tick: u64, pick: &mut dyn FnMut() -> u16) {
        let phase = (tick % TICKS_PER_MS) as usize;
        let ms = tick / TICKS_PER_MS;
        let step = self.traffic.step.filter(|step| ms >= step.at_ms);
        let rate = self.mice_per_tick * step.map_or(1.0, |step| step.factor);
        for _ in 0..self.starting(0, rate) {
            let left = self.traffic.mice.draw(&mut self.rng);
            self.mice[phase].push(Mouse { core: pick(), left, sent: 0 });
        }
        if let Some(step) = step.filter(|step| ms < step.at_ms + step.ramp_ms) {
            let more = (step.factor - 1.0) * self.mice_per_tick * self.traffic.mice.mean();
            // The ramp is given in milliseconds, mice in ticks.
            for _ in 0..self.starting(1, more / step.ramp_ms as f64) {
                let left = self.traffic.mice.draw(&mut self.rng);
                let part = self.rng.uniform();
                let left = ((f64::from(left) * part) as u32).max(1);
                self.mice[phase].push(Mouse { core: pick(), left, sent: 0 });
            }
        }
        for _ in 0..self.rng.count(self.elephants_per_tick) {
            let Elephants::Moving { mean_ms, .. } = self.traffic.elephants else { break };
            let lasts = self.rng.exponential(mean_ms) * TICKS_PER_MS as f64;
            let (rate, ends) = (self.elephant_packets_per_tick, tick + 1 + lasts as u64);
            self.elephants.push(Elephant { core: pick(), rate, due: 0.0, began: tick, ends });
        }
    }

    /// How many start in this tick at such a rate.
    fn starting(&mut self, which: usize, rate: f64) -> u64 {
        if !self.traffic.even {
            return self.rng.count(rate);
        }
        self.due[which] += rate;
        let whole = self.due[which] as u64;
        self.due[which] -= whole as f64;
        whole
    }

    /// Packets of this tick: `send` gets core, packets, age in milliseconds and packets that the flow sent before.
    pub fn send(&mut self, tick: u64, send: &mut dyn FnMut(u16, u32, u32, u32)) {
        let phase = (tick % TICKS_PER_MS) as usize;
        let each = self.traffic.packets_per_mouse_ms;
        let mice = &mut self.mice[phase];
        let mut place = 0;
        while let Some(mouse) = mice.get_mut(place) {
            send(mouse.core, each, mouse.sent, mouse.sent * each);
            mouse.sent += 1;
            mouse.left -= 1;
            if mouse.left == 0 {
                mice.swap_remove(place);
            } else {
                place += 1;
            }
        }
        self.elephants.retain(|elephant| elephant.ends > tick);
        for elephant in &mut self.elephants {
            elephant.due += elephant.rate;
            let packets = elephant.due as u32;
            elephant.due -= f64::from(packets);
            let ticks = tick - elephant.began;
            let sent = (ticks as f64 * elephant.rate) as u32;
            send(elephant.core, packets, (ticks / TICKS_PER_MS) as u32, sent);
        }
    }
}
