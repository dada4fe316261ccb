use serde::{Deserialize, Serialize};
use thiserror::Error;

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
}

impl Default for Settings {
    fn default() -> Self {
        Settings { choices: 2, draw: Draw::ByWeight, decay_ms: 10_000 }
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
        Ok(())
    }

    pub(crate) fn decay_us(&self) -> f64 {
        self.decay_ms as f64 * 1e3
    }
}
