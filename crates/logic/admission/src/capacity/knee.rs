//! The knee of latency over requests in flight: how many the application works on at once, and how long
//! one takes.
//!
//! Model: a request that finds `k` others takes on average `L(k) = s · max(1, (k + 1) / c)`: up to `c`
//! are worked on at once, and beyond that each waits its turn. What a request finds does not depend on
//! how long it takes itself, so the mean over a level is unbiased for any spread of service times; the
//! number in flight *while* it was there would depend on it.
//!
//! A block is [`BLOCK`] requests or [`STAYS`] times as many as any of them found. In each, for every
//! candidate `c`, `ln s` is fitted to the logarithms of the latencies by least squares; what is left is that candidate's
//! misfit, in units of the least one per degree of freedom, times [`NOISE`] (neighbours in a queue share their wait, so they
//! are worth fewer). Logarithms, because waiting lengthens short requests too, and a few long ones, which may take half of
//! all time, hide that in a mean. As `s` is fitted block by block, a backend whose speed changes contradicts nothing.
//! Misfits are summed and forgotten by [`KEPT`] per block.
//!
//! Cost: O(1) per request, O(candidates) per block, no allocation. It fails where all share the
//! processor and the number in flight stays the same for longer than a request: each then takes as long
//! as the others, whatever it found. [`Trials`](super::trial::Trials) see to that.

use std::time::Duration;

use super::grid::{CANDIDATES, EQUAL, Misfits, cores, position};

/// Shorter latencies are taken for this: a microsecond.
const LEAST_S: f64 = 1e-6;
/// Least requests of a block.
pub const BLOCK: u32 = 64;
/// A block has so many times the requests that any of it found.
pub const STAYS: u32 = 4;
/// Part of the misfits that a further block leaves.
pub const KEPT: f64 = 0.95;
/// Variance of a level's mean over that of as many independent requests.
const NOISE: f64 = 2.0;
/// Most that one block says against a candidate.
const MOST_PER_BLOCK: f64 = 10.0;
/// Of a new block's service time, the part that counts at once.
const FRESH: f64 = 0.5;
/// And of its variation: long requests are rare, and blocks without any say little.
const VARIATION_FRESH: f64 = 0.05;

/// The part of requests that take no longer than the low quantile …
const LOW: f64 = 0.05;
/// … and how far one request moves it, in mean service times.
const LOW_STEP: f64 = 0.02;

/// Sums over the requests that found about as many others; `j` is their number, the request included.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    requests: f64,
    j: f64,
    jj: f64,
    seconds: f64,
    seconds_j: f64,
    ln_seconds: f64,
}

/// Latency as a function of what is in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delay {
    /// Requests worked on at once.
    pub cores: f64,
    /// How long one takes, seconds.
    pub service_s: f64,
}

impl Delay {
    /// What a request is expected to take that finds so many others.
    pub fn expected(&self, found: u32) -> Duration {
        let turns = ((f64::from(found) + 1.0) / self.cores).max(1.0);
        Duration::from_secs_f64(self.service_s * turns)
    }
}

/// Learns the knee; see the module's description.
#[derive(Clone, Debug)]
pub struct Knee {
    levels: [Level; CANDIDATES],
    squares: f64,
    /// Of the logarithms of latencies.
    ln_squares: f64,
    requests: u32,
    most_found: u32,
    misfits: Misfits,
    /// Smoothed service time by candidate; 0 before the first block.
    service_s: [f64; CANDIDATES],
    delay: Option<Delay>,
    /// Squared coefficient of variation of service times, smoothed.
    variation: f64,
    /// Of [`LOW`] of the requests, how long they take at most, in mean service times.
    low: f64,
}

impl Default for Knee {
    fn default() -> Self {
        Self::new()
    }
}

impl Knee {
    /// Knows nothing.
    pub fn new() -> Self {
        Knee {
            levels: [Level::default(); CANDIDATES],
            squares: 0.0,
            ln_squares: 0.0,
            requests: 0,
            most_found: 0,
            misfits: Misfits::NONE,
            service_s: [0.0; CANDIDATES],
            delay: None,
            variation: 1.0,
            low: 0.0,
        }
    }

    /// A request that found so many others took so long.
    pub fn observe(&mut self, found: u32, took: Duration) {
        let (j, seconds) = (f64::from(found) + 1.0, took.as_secs_f64());
        let level = &mut self.levels[position(found.saturating_add(1))];
        level.requests += 1.0;
        level.j += j;
        level.jj += j * j;
        level.seconds += seconds;
        level.seconds_j += seconds * j;
        let ln_seconds = seconds.max(LEAST_S).ln();
        level.ln_seconds += ln_seconds;
        self.squares += seconds * seconds;
        self.ln_squares += ln_seconds * ln_seconds;
        self.requests += 1;
        self.most_found = self.most_found.max(found);
        if let Some(delay) = self.delay {
            let times = took.as_secs_f64() / delay.expected(found).as_secs_f64();
            self.low += LOW_STEP * (LOW - f64::from(u8::from(times < self.low)));
            self.low = self.low.clamp(0.0, 1.0);
        }
        if self.requests >= BLOCK.max(self.most_found.saturating_mul(STAYS)) {
            self.close();
        }
    }

    /// A request took no longer than what was held to be impossible: the speed is another one now. Its
    /// time counts as a block's would, the number of cores stays, and what the block under way has seen
    /// is of the old speed.
    pub fn contradict(&mut self, found: u32, took: Duration) {
        let j = f64::from(found) + 1.0;
        for (k, smooth) in self.service_s.iter_mut().enumerate() {
            let fresh = took.as_secs_f64() / (j / cores(k)).max(1.0);
            *smooth += FRESH * (fresh - *smooth).min(0.0);
        }
        if let Some(delay) = &mut self.delay {
            delay.service_s = self.service_s[position(delay.cores as u32)];
        }
        self.forget_block();
    }

    fn forget_block(&mut self) {
        self.levels = [Level::default(); CANDIDATES];
        (self.squares, self.ln_squares) = (0.0, 0.0);
        (self.requests, self.most_found) = (0, 0);
    }

    /// The best guess at latency; none before the first block.
    pub fn delay(&self) -> Option<Delay> {
        self.delay
    }

    /// Service time in seconds if the cores were those at this position.
    pub(crate) fn service_with(&self, position: usize) -> Option<f64> {
        Some(self.service_s[position]).filter(|&seconds| seconds > 0.0)
    }

    /// Squared coefficient of variation of service times, about: a request that waits for others has theirs
    /// added to its own, so variance is taken to grow as latency does.
    pub(crate) fn variation(&self) -> f64 {
        self.variation
    }

    /// The part of the requests in service that a short one may leave behind, in the mean: 1 for exponential service times,
    /// of which some are next to nothing, and `1 − least ÷ mean` where each takes at least some time.
    pub(crate) fn reach(&self) -> f64 {
        1.0 - self.low
    }

    pub(crate) fn misfits(&self) -> &Misfits {
        &self.misfits
    }

    /// What each candidate leaves of the squares of the logarithms. All of a level count as its mean.
    fn misfits_of_logarithms(&self) -> [f64; CANDIDATES] {
        let requests = f64::from(self.requests);
        let all: f64 = self.levels.iter().map(|level| level.ln_seconds).sum();
        // From more cores than any request found others, nobody waits.
        let mut left = [self.ln_squares - all * all / requests; CANDIDATES];
        let reached = &self.levels[..=position(self.most_found.saturating_add(1))];
        for (k, left) in left.iter_mut().enumerate().take(reached.len()) {
            // Sums over the levels from the candidate on, where each takes `turns` times as long.
            let (mut sum, mut squares, mut product) = (0.0, 0.0, 0.0);
            for level in reached[k..].iter().filter(|level| level.requests > 0.0) {
                let turns = (level.j / level.requests / cores(k)).ln();
                sum += turns * level.requests;
                squares += turns * turns * level.requests;
                product += turns * level.ln_seconds;
            }
            let rest = all - sum;
            *left = self.ln_squares - 2.0 * product + squares - rest * rest / requests;
        }
        left
    }

    fn close(&mut self) {
        let (levels, squares, requests) = (self.levels, self.squares, f64::from(self.requests));
        let mut off = self.misfits_of_logarithms();
        self.forget_block();
        // Levels below the candidate take s, those from it on s·j/c.
        let (mut below, mut below_s) = (0.0, 0.0);
        let mut above_jj: f64 = levels.iter().map(|level| level.jj).sum();
        let mut above_sj: f64 = levels.iter().map(|level| level.seconds_j).sum();
        let mut residues = [0.0; CANDIDATES];
        for k in 0..CANDIDATES {
            let c = cores(k);
            let cross = below_s + above_sj / c;
            let norm = below + above_jj / (c * c);
            residues[k] = squares - cross * cross / norm;
            let fresh = cross / norm;
            let smooth = &mut self.service_s[k];
            *smooth = if *smooth > 0.0 { *smooth + FRESH * (fresh - *smooth) } else { fresh };
            below += levels[k].requests;
            below_s += levels[k].seconds;
            above_jj -= levels[k].jj;
            above_sj -= levels[k].seconds_j;
        }
        let least = off.iter().copied().fold(f64::INFINITY, f64::min);
        // Where all take exactly as long there is no noise to divide by: a part in 10⁴ will do.
        let variance = (NOISE * least / (requests - 2.0)).max(1e-4);
        off.iter_mut().for_each(|off| *off /= variance);
        self.misfits.add(&off, KEPT, MOST_PER_BLOCK);
        let Some(best) = (0..CANDIDATES).find(|&k| self.misfits.at(k) <= EQUAL) else { return };
        let delay = Delay { cores: cores(best), service_s: self.service_s[best] };
        let turns: f64 = levels.iter().map(|level| level.requests.max(level.j / delay.cores)).sum();
        let fresh =
            residues[best] / (delay.service_s * delay.service_s * turns).max(f64::MIN_POSITIVE);
        self.variation += VARIATION_FRESH * (fresh - self.variation);
        self.delay = Some(delay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngCore, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Requests that find 0 to 11 others, of an application with these cores, noise of ±`spread`.
    fn observe(knee: &mut Knee, cores: f64, service_s: f64, spread: f64, requests: u32) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let truth = Delay { cores, service_s };
        for k in 0..requests {
            let luck = rng.next_u32() as f64 / f64::from(u32::MAX) - 0.5;
            let took = truth.expected(k * 5 % 12).mul_f64(1.0 + 2.0 * spread * luck);
            knee.observe(k * 5 % 12, took);
        }
    }

    fn misfit(knee: &Knee, cores: u32) -> f64 {
        knee.misfits().at(position(cores))
    }

    #[test]
    fn the_knee_is_found_and_predicts() {
        for (cores, spread) in [(1.0, 0.0), (1.0, 0.9), (4.0, 0.0), (4.0, 0.9), (8.0, 0.5)] {
            let mut knee = Knee::new();
            assert_eq!(knee.delay(), None);
            observe(&mut knee, cores, 0.05, spread, 1_280);
            let delay = knee.delay().expect("twenty blocks");
            assert!((delay.cores / cores - 1.0).abs() < 0.3, "{cores} {spread}: {delay:?}");
            let truth = Delay { cores, service_s: 0.05 }.expected(10).as_secs_f64();
            let off = delay.expected(10).as_secs_f64() / truth - 1.0;
            assert!(off.abs() < 0.15, "{cores} {spread}: {off}");
        }
    }

    #[test]
    fn without_a_queue_any_number_beyond_what_was_seen_is_as_good() {
        let mut knee = Knee::new();
        observe(&mut knee, 100.0, 0.05, 0.5, 1_280);
        let most = misfit(&knee, 65_536);
        assert!(most < EQUAL && misfit(&knee, 12) < EQUAL, "{most}");
        assert!(misfit(&knee, 1) > 10.0 && misfit(&knee, 4) > 10.0);
    }

    #[test]
    fn a_few_long_requests_do_not_hide_the_knee() {
        // One in twenty takes nineteen times as long, and a quarter waits for a third of a service or less.
        let seen = |seed| {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut knee = Knee::new();
            for k in 0..1_280u32 {
                let found = k * 5 % 43;
                let waits = (f64::from(found) + 1.0 - 32.0).max(0.0) / 32.0;
                let takes = if rng.next_u32() % 20 == 0 { 10.0 } else { 10.0 / 19.0 };
                knee.observe(found, Duration::from_secs_f64(0.03 * (takes + waits)));
            }
            misfit(&knee, 65_536) > 4.0 && misfit(&knee, 16) > 4.0
        };
        let seen = (0..20).filter(|&seed| seen(seed)).count();
        assert!(seen >= 18, "32 cores are seen in {seen} of 20 runs");
    }

    #[test]
    fn another_speed_contradicts_nothing() {
        let mut knee = Knee::new();
        observe(&mut knee, 4.0, 0.05, 0.3, 640);
        observe(&mut knee, 4.0, 0.10, 0.3, 640);
        let delay = knee.delay().expect("twenty blocks");
        assert_eq!(delay.cores, 4.0);
        assert!((delay.service_s / 0.1 - 1.0).abs() < 0.1, "{delay:?}");
    }
}
