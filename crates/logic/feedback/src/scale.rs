//! When a standby joins, and when it leaves (E6).
//!
//! A standby is activated when the mean predicted load of the cores that serve stays at or above `up` for [`CONFIRM`];
//! the last one activated leaves when without it the mean would stay below `down` for `hold`. That mean is taken over
//! the cores that would remain, so that leaving never overloads them: with `down` below `up` it cannot flap.

use std::time::Duration;

use plimsoll_model::Nanos;
use thiserror::Error;

/// How long the mean must stay high before a standby is activated: two intervals of 10 ms more than the first that was
/// high. What comes meanwhile goes to full cores and stays there until it ends, which is worse than a standby that
/// joined for a burst: `hold` later it leaves.
pub const CONFIRM: Duration = Duration::from_millis(20);

/// When to scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleSettings {
    /// Mean predicted load at which a standby is activated, fraction of a core.
    pub up: f64,
    /// Mean predicted load of the rest below which a standby is given back.
    pub down: f64,
    /// For how long it must be so.
    pub hold: Duration,
}

impl Default for ScaleSettings {
    fn default() -> Self {
        ScaleSettings { up: 0.95, down: 0.60, hold: Duration::from_secs(10) }
    }
}

/// Settings that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("scale: 0 < down < up is required, not down {down} and up {up}")]
pub struct BadScale {
    down: f64,
    up: f64,
}

/// What to do with a standby, by its index among the standbys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleAction {
    /// Send it new flows.
    Activate(usize),
    /// Send it no new flows; its flows stay until they end.
    Release(usize),
}

/// The standbys and since when the load has been high or low.
#[derive(Clone, Debug)]
pub struct Scale {
    settings: ScaleSettings,
    /// Indices of active standbys in the order of their activation.
    active: Vec<usize>,
    high_since: Option<Nanos>,
    low_since: Option<Nanos>,
}

impl Scale {
    /// No standby is active.
    ///
    /// # Errors
    /// [`BadScale`] unless 0 < down < up.
    pub fn new(settings: ScaleSettings) -> Result<Self, BadScale> {
        let ScaleSettings { up, down, .. } = settings;
        if !(down > 0.0 && down < up && up.is_finite()) {
            return Err(BadScale { down, up });
        }
        Ok(Scale { settings, active: Vec::new(), high_since: None, low_since: None })
    }

    /// Active standbys in the order of their activation.
    pub fn active(&self) -> &[usize] {
        &self.active
    }

    /// What to do now.
    ///
    /// `load` is the predicted load of all cores together, also of those that are leaving; `cores` the number of
    /// cores in service without standbys; `standbys` the cores of each standby, 0 for one that cannot serve (it failed
    /// or was never reached).
    pub fn step(
        &mut self,
        now: Nanos,
        load: f64,
        cores: usize,
        standbys: &[usize],
    ) -> Option<ScaleAction> {
        self.active.retain(|&index| standbys.get(index).is_some_and(|&cores| cores > 0));
        let serving = cores + self.active.iter().map(|&index| standbys[index]).sum::<usize>();
        let mean = |cores: usize| if cores > 0 { load / cores as f64 } else { f64::INFINITY };
        let high = load > 0.0 && mean(serving) >= self.settings.up;
        since(&mut self.high_since, high, now);
        let last = self.active.last().copied();
        let rest = serving - last.map_or(0, |index| standbys[index]);
        let low = last.is_some() && rest > 0 && mean(rest) < self.settings.down;
        since(&mut self.low_since, low, now);
        if held(self.high_since, now, CONFIRM) {
            let free = |index: &usize| standbys[*index] > 0 && !self.active.contains(index);
            let next = (0..standbys.len()).find(free)?;
            (self.high_since, self.low_since) = (None, None);
            self.active.push(next);
            return Some(ScaleAction::Activate(next));
        }
        if held(self.low_since, now, self.settings.hold) {
            self.low_since = None;
            return self.active.pop().map(ScaleAction::Release);
        }
        None
    }
}

fn since(mark: &mut Option<Nanos>, holds: bool, now: Nanos) {
    *mark = if holds { Some(mark.unwrap_or(now)) } else { None };
}

fn held(mark: Option<Nanos>, now: Nanos, span: Duration) -> bool {
    mark.is_some_and(|mark| now.since(mark) >= span)
}
