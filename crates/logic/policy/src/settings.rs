use plimsoll_admission::{LedgerOptions, LedgerOptionsError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{EjectionSettings, ExpectedDelaySettings, PrequalSettings, SlowStartSettings};

/// The most backends that a policy of random choices compares.
pub const MAX_CHOICES: u32 = 16;

/// How random choices are drawn before they are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    /// In proportion to weight, as HAProxy and NGINX do.
    #[default]
    ByWeight,
    /// All backends of weight above 0 alike, as in the papers on the power of two choices. On unequal
    /// backends the small ones are drawn too often for any comparison to mend: with one backend of
    /// eight cores among sixteen of one, the large one is seen by 2 requests in 17.
    Uniform,
}

impl Draw {
    /// The chance to be drawn of a backend with this weight.
    pub(crate) fn chance(self, weight: u32) -> u32 {
        match self {
            Draw::ByWeight => weight,
            Draw::Uniform => weight.min(1),
        }
    }
}

/// What can be set; each policy reads what concerns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How many backends the policies of random choices compare, 1…[`MAX_CHOICES`].
    pub choices: u32,
    /// How they are drawn.
    pub draw: Draw,
    /// How long a latency estimate remembers, milliseconds, above 0. Default 10 s, as in Finagle and
    /// linkerd.
    pub decay_ms: u64,
    /// How old a load that a backend reported may be, milliseconds, above 0.
    pub load_age_ms: u64,
    /// Above this busy part of its CPU a backend gets nothing from `cpu_random`, percent, 1…100.
    pub cpu_threshold_percent: u32,
    /// Consistent hashing gives no backend more than this percentage of the average number of requests
    /// in flight, above 100; `None` for no bound. HAProxy's `hash-balance-factor`.
    pub hash_balance_factor: Option<u32>,
    /// How `expected_delay` sees.
    pub expected_delay: ExpectedDelaySettings,
    /// Prequal's probes.
    pub prequal: PrequalSettings,
    /// BLOC's chips.
    pub bloc: LedgerOptions,
    /// For any policy: most requests in flight per backend, above 0; a request for which all are full
    /// gets none. Backends of different size are given their own by
    /// [`build_limited`](crate::PolicyKind::build_limited).
    pub max_in_flight: Option<u32>,
    /// For any policy: ejection of outliers.
    pub ejection: Option<EjectionSettings>,
    /// For any policy: slow start of backends that join or return.
    pub slow_start: Option<SlowStartSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            choices: 2,
            draw: Draw::ByWeight,
            decay_ms: 10_000,
            load_age_ms: 1_000,
            cpu_threshold_percent: 80,
            hash_balance_factor: None,
            expected_delay: ExpectedDelaySettings::default(),
            prequal: PrequalSettings::default(),
            bloc: LedgerOptions::default(),
            max_in_flight: None,
            ejection: None,
            slow_start: None,
        }
    }
}

/// A setting outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidSetting {
    /// Too few or too many choices.
    #[error("choices is {0}, expected 1 to {MAX_CHOICES}")]
    Choices(u32),
    /// No memory at all.
    #[error("decay_ms is 0, expected at least 1")]
    Decay,
    /// No load would ever be believed.
    #[error("load_age_ms is 0, expected at least 1")]
    LoadAge,
    /// No backend or all of them would be over it.
    #[error("cpu_threshold_percent is {0}, expected 1 to 100")]
    CpuThreshold(u32),
    /// The average itself leaves no choice.
    #[error("hash_balance_factor is {0}, expected more than 100")]
    HashBalanceFactor(u32),
    /// No probes, or too many, for `expected_delay`.
    #[error("expected_delay has {0} probes, expected 1 to {MAX_CHOICES}")]
    Probes(u32),
    /// Prequal's probes or its pool.
    #[error(
        "prequal has {0:?}, expected probes_per_100 of 1 to 1600, removals_per_100 of at most 1600, \
         pool of 2 to 64, hot_percentile of at most 100"
    )]
    Prequal(PrequalSettings),
    /// BLOC's chips.
    #[error("bloc: {0}")]
    Bloc(#[from] LedgerOptionsError),
    /// No backend could be sent anything.
    #[error("max_in_flight is 0, expected at least 1")]
    MaxInFlight,
    /// Ejection.
    #[error(
        "ejection has {0:?}, expected interval_ms and base_ms above 0, max_ms of at least base_ms, \
         max_percent of at most 100"
    )]
    Ejection(EjectionSettings),
    /// Slow start.
    #[error("slow_start has {0:?}, expected window_ms above 0, least_percent of 1 to 100")]
    SlowStart(SlowStartSettings),
}

impl Settings {
    /// Says what is out of range, if anything is.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        if self.choices == 0 || self.choices > MAX_CHOICES {
            return Err(InvalidSetting::Choices(self.choices));
        }
        if self.decay_ms == 0 {
            return Err(InvalidSetting::Decay);
        }
        if self.load_age_ms == 0 {
            return Err(InvalidSetting::LoadAge);
        }
        if !(1..=100).contains(&self.cpu_threshold_percent) {
            return Err(InvalidSetting::CpuThreshold(self.cpu_threshold_percent));
        }
        if let Some(factor) = self.hash_balance_factor.filter(|f| *f <= 100) {
            return Err(InvalidSetting::HashBalanceFactor(factor));
        }
        if !self.expected_delay.is_valid() {
            return Err(InvalidSetting::Probes(self.expected_delay.probes));
        }
        if !self.prequal.is_valid() {
            return Err(InvalidSetting::Prequal(self.prequal));
        }
        self.bloc.check()?;
        self.check_guards()
    }

    fn check_guards(&self) -> Result<(), InvalidSetting> {
        if self.max_in_flight == Some(0) {
            return Err(InvalidSetting::MaxInFlight);
        }
        if let Some(ejection) = self.ejection.filter(|e| !e.is_valid()) {
            return Err(InvalidSetting::Ejection(ejection));
        }
        if let Some(slow_start) = self.slow_start.filter(|s| !s.is_valid()) {
            return Err(InvalidSetting::SlowStart(slow_start));
        }
        Ok(())
    }

    pub(crate) fn decay_us(&self) -> f64 {
        self.decay_ms as f64 * 1e3
    }
}
