//! The egress' account of confidence chips: which backends have lately shown that they have room.
//!
//! For each backend: `chips` (starts at 1, never below 0, at most [`LedgerOptions::most_chips`]) and
//! `ready_at = received_at + reset_interval`. A backend of weight above 0 is *eligible* when
//! `chips > 0` or `now ≥ ready_at`.
//!
//! * dispatch: `chips −= 1` · response with chip 1: `chips += 1` · response with chip 0: nothing
//! * refusal: `chips = 0`, `ready_at = now + reset_interval`
//! * pick: two distinct eligible backends at random, the one with less load; when that one was eligible
//!   by time alone, `ready_at = now + reset_interval`, so that it is probed once per interval
//! * none eligible: the backend whose `ready_at` is earliest, or none at all, by config; counted
//!
//! Source: Bhattacharya, Gao, Wood, "Dynamically Balancing Load with Overload Control for
//! Microservices" (TAAS 2024), §4.1–4.3, algorithms 2 and 3. The paper's loop spins until something
//! becomes eligible; here eligible backends stand in a dense list and the others in a heap by `ready_at`,
//! so a pick is O(1) and whoever changes sides costs O(log n), whatever is eligible; but for very unequal
//! weights (see [`TRIES`]), and for a fall-back where the oldest is not allowed, which are O(n). A request that
//! is given up or reset brings no chip back: what is lost that way returns with time.

mod waiting;

use std::time::Duration;

use plimsoll_model::Nanos;
use rand::RngCore;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use waiting::Waiting;

/// Most chips kept for a backend, by default. Few, for a chip is news that ages: with a hundred of them
/// an egress would send a hundred requests on what was true long ago.
pub const MOST_CHIPS: u32 = 16;
/// Every backend starts with so many, so that it is tried at all.
const FIRST_CHIPS: u32 = 1;
/// Draws tried before all eligible backends are looked through: weights of 1 to 256, one of each kind,
/// need two on average, and a lone heavy backend among many light ones all of them.
const TRIES: u32 = 16;
const NOWHERE: u32 = u32::MAX;

/// What happens to a request when no backend is eligible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenNone {
    /// It goes to the backend that has been left alone the longest.
    #[default]
    ProbeOldest,
    /// It goes nowhere.
    FailFast,
}

/// How chips are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LedgerOptions {
    /// How long a backend without chips is left alone after it refused or was probed, milliseconds. The
    /// authors' public artifact has 1 s.
    pub reset_interval_ms: u64,
    /// Most chips kept for a backend, at least 1.
    pub most_chips: u32,
    /// What happens when no backend is eligible.
    pub when_none: WhenNone,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        LedgerOptions {
            reset_interval_ms: 1_000,
            most_chips: MOST_CHIPS,
            when_none: WhenNone::default(),
        }
    }
}

/// An option outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LedgerOptionsError {
    /// Backends would always be eligible.
    #[error("reset_interval_ms is 0, expected at least 1")]
    ResetInterval,
    /// No backend could ever earn a chip.
    #[error("most_chips is 0, expected at least 1")]
    MostChips,
}

impl LedgerOptions {
    /// Says what is out of range, if anything is.
    pub fn check(&self) -> Result<(), LedgerOptionsError> {
        if self.reset_interval_ms == 0 {
            return Err(LedgerOptionsError::ResetInterval);
        }
        if self.most_chips == 0 {
            return Err(LedgerOptionsError::MostChips);
        }
        Ok(())
    }
}

/// What became of picks that no chip allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerCounts {
    /// Went to a backend without a chip, whose interval had passed.
    pub probes: u64,
    /// Went to the backend left alone the longest, for none was eligible.
    pub forced: u64,
    /// Went nowhere, for none was eligible.
    pub failed_fast: u64,
}

#[derive(Clone, Debug)]
struct Account {
    weight: u32,
    chips: u32,
    ready_at: Nanos,
    /// Position in `open`, or nowhere.
    slot: u32,
}

/// Chips of one egress for each of its backends; see the module's description. Backends are dense
/// indices from 0.
#[derive(Clone, Debug)]
pub struct ChipLedger {
    options: LedgerOptions,
    accounts: Vec<Account>,
    heaviest: u32,
    /// Eligible, as of the last look; in no order.
    open: Vec<u32>,
    /// Not eligible, by `ready_at`.
    waiting: Waiting,
    counts: LedgerCounts,
}

impl ChipLedger {
    /// A ledger of backends with these weights, of any scale; see [`ChipLedger::set_weights`].
    ///
    /// # Errors
    /// [`LedgerOptionsError`] when an option is out of range.
    pub fn new(weights: &[u32], options: LedgerOptions) -> Result<Self, LedgerOptionsError> {
        options.check()?;
        let mut ledger = ChipLedger {
            options,
            accounts: Vec::new(),
            heaviest: 0,
            open: Vec::new(),
            waiting: Waiting::default(),
            counts: LedgerCounts::default(),
        };
        ledger.set_weights(weights.iter().copied());
        Ok(ledger)
    }

    /// Replaces all weights: a backend is drawn in proportion to its own (equal ones for the paper's
    /// draw), and never with weight 0. Those beyond a shorter list have weight 0. Chips stay.
    pub fn set_weights(&mut self, weights: impl ExactSizeIterator<Item = u32>) {
        while self.accounts.len() < weights.len() {
            self.accounts.push(Account {
                weight: 0,
                chips: FIRST_CHIPS,
                ready_at: Nanos::ZERO,
                slot: NOWHERE,
            });
        }
        self.waiting.grow(self.accounts.len());
        self.open.reserve(self.accounts.len().saturating_sub(self.open.len()));
        self.heaviest = 0;
        let weights = weights.chain(std::iter::repeat(0));
        for (backend, weight) in (0..self.accounts.len()).zip(weights) {
            self.heaviest = self.heaviest.max(weight);
            let served = self.accounts[backend].weight > 0;
            self.accounts[backend].weight = weight;
            match (served, weight > 0) {
                // Whoever's time has not come waits from the next look on.
                (false, true) => self.open(backend as u32),
                (true, false) => self.take_out(backend as u32),
                _ => {}
            }
        }
        // `now` is not known here: with time zero no backend is let in too early.
        (0..self.accounts.len()).for_each(|backend| self.place(backend, Nanos::ZERO));
    }

    /// Two distinct eligible backends among those allowed, drawn by weight, and of these the one with
    /// the lesser load; when equal the first, so that weights hold among idle ones (the paper takes the second, which for
    /// its equal weights is the same in law). With none eligible the fall-back.
    /// `None` when none is allowed at all, or by [`WhenNone::FailFast`].
    pub fn pick(
        &mut self,
        now: Nanos,
        rng: &mut dyn RngCore,
        allowed: impl Fn(usize) -> bool,
        mut load: impl FnMut(usize) -> f64,
    ) -> Option<usize> {
        self.admit_those_ready(now);
        let Some(one) = self.draw(rng, &allowed) else {
            return self.without_eligible(now, &allowed);
        };
        let other = self.draw(rng, &|backend| backend != one && allowed(backend));
        let backend = match other {
            Some(other) if load(other) < load(one) => other,
            _ => one,
        };
        if self.accounts[backend].chips == 0 {
            self.counts.probes += 1;
            self.stamp(backend, now);
        }
        Some(backend)
    }

    /// A request was sent to this backend: a chip is spent, where there is one.
    pub fn on_dispatch(&mut self, backend: usize, now: Nanos) {
        let account = &mut self.accounts[backend];
        account.chips = account.chips.saturating_sub(1);
        self.place(backend, now);
    }

    /// A response carried this chip.
    pub fn on_chip(&mut self, backend: usize, chip: bool, now: Nanos) {
        let account = &mut self.accounts[backend];
        if chip && account.chips < self.options.most_chips {
            account.chips += 1;
            self.place(backend, now);
        }
    }

    /// This backend's admission refused a request.
    pub fn on_rejection(&mut self, backend: usize, now: Nanos) {
        self.accounts[backend].chips = 0;
        self.stamp(backend, now);
    }

    /// Whether a pick may find this backend.
    pub fn is_eligible(&self, backend: usize, now: Nanos) -> bool {
        let account = &self.accounts[backend];
        account.weight > 0 && (account.chips > 0 || account.ready_at <= now)
    }

    /// Chips of this backend.
    pub fn chips(&self, backend: usize) -> u32 {
        self.accounts[backend].chips
    }

    /// Picks that no chip allowed.
    pub fn counts(&self) -> LedgerCounts {
        self.counts
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(self.options.reset_interval_ms)
    }

    fn stamp(&mut self, backend: usize, now: Nanos) {
        let ready_at = now + self.interval();
        self.accounts[backend].ready_at = ready_at;
        if self.waiting.contains(backend) {
            self.waiting.remove(backend);
            self.waiting.insert(backend, ready_at);
        } else {
            self.place(backend, now);
        }
    }

    /// One of the open ones, by weight.
    fn draw(&self, rng: &mut dyn RngCore, allowed: &impl Fn(usize) -> bool) -> Option<usize> {
        if self.open.is_empty() {
            return None;
        }
        for _ in 0..TRIES {
            let drawn = rng.next_u64();
            let at = ((drawn >> 32) * self.open.len() as u64) >> 32;
            let backend = self.open[at as usize] as usize;
            // One draw serves twice: the lower half decides whether the weight suffices.
            let bar = ((drawn & 0xffff_ffff) * u64::from(self.heaviest)) >> 32;
            if bar < u64::from(self.accounts[backend].weight) && allowed(backend) {
                return Some(backend);
            }
        }
        let weight = |backend: usize| {
            if allowed(backend) { u64::from(self.accounts[backend].weight) } else { 0 }
        };
        let all: u64 = self.open.iter().map(|&backend| weight(backend as usize)).sum();
        let mut point = ((u128::from(rng.next_u64()) * u128::from(all)) >> 64) as u64;
        self.open.iter().map(|&backend| backend as usize).find(|&backend| {
            let found = point < weight(backend);
            point = point.saturating_sub(weight(backend));
            found
        })
    }

    fn without_eligible(&mut self, now: Nanos, allowed: &impl Fn(usize) -> bool) -> Option<usize> {
        let at = self.waiting.earliest(allowed)?;
        match self.options.when_none {
            WhenNone::ProbeOldest => {
                self.counts.forced += 1;
                self.stamp(at, now);
                Some(at)
            }
            WhenNone::FailFast => {
                self.counts.failed_fast += 1;
                None
            }
        }
    }

    fn admit_those_ready(&mut self, now: Nanos) {
        while let Some(backend) = self.waiting.first().filter(|&b| self.accounts[b].ready_at <= now)
        {
            self.take_out(backend as u32);
            self.open(backend as u32);
        }
    }

    /// Puts a backend among the open or among those that wait, where it belongs.
    fn place(&mut self, backend: usize, now: Nanos) {
        if self.accounts[backend].weight == 0 {
            return;
        }
        let is_open = self.accounts[backend].slot != NOWHERE;
        match (is_open, self.is_eligible(backend, now)) {
            (true, false) => {
                self.take_out(backend as u32);
                self.waiting.insert(backend, self.accounts[backend].ready_at);
            }
            (false, true) => {
                self.take_out(backend as u32);
                self.open(backend as u32);
            }
            _ => {}
        }
    }

    fn open(&mut self, backend: u32) {
        self.accounts[backend as usize].slot = self.open.len() as u32;
        self.open.push(backend);
    }

    /// Takes a backend out of wherever it stands.
    fn take_out(&mut self, backend: u32) {
        let slot = std::mem::replace(&mut self.accounts[backend as usize].slot, NOWHERE);
        if slot == NOWHERE {
            return self.waiting.remove(backend as usize);
        }
        self.open.swap_remove(slot as usize);
        if let Some(&moved) = self.open.get(slot as usize) {
            self.accounts[moved as usize].slot = slot;
        }
    }
}

#[cfg(test)]
mod tests;
