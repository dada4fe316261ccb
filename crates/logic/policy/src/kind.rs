use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::policies::{
    Bloc, CpuRandom, ExpectedDelay, First, HaproxyLeastconnPolicy, HaproxyRoundRobinPolicy,
    HashMaglev, HashRing, LeastConnections, LeastTime, MapHash, PeakEwma, PowerOfN,
    PowerOfNLatency, Prequal, Random, RoundRobin, StaticRoundRobin,
};
use crate::{Draw, Guarded, InvalidSetting, Policy, Ramping, Settings};

/// One table makes the enum, its names, its list and its summaries, so that none can miss a policy.
macro_rules! registry {
    ($($kind:ident = $name:literal: $summary:literal,)+) => {
        /// Every policy there is, by the name that configuration uses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum PolicyKind {
            $(
                #[doc = $summary]
                #[serde(rename = $name)]
                $kind,
            )+
        }

        impl PolicyKind {
            /// All of them.
            pub const ALL: &'static [PolicyKind] = &[$(PolicyKind::$kind),+];

            /// Its name in configuration.
            pub fn name(self) -> &'static str {
                match self { $(PolicyKind::$kind => $name),+ }
            }

            /// What it does, in a line.
            pub fn summary(self) -> &'static str {
                match self { $(PolicyKind::$kind => $summary),+ }
            }
        }
    };
}

registry! {
    Random = "random": "A draw in proportion to weight.",
    RoundRobin = "round_robin": "Turns in proportion to weight, spread smoothly.",
    RoundrobinHaproxy = "roundrobin_haproxy": "HAProxy's roundrobin with the keys it really uses.",
    StaticRoundRobin = "static_round_robin": "Turns in proportion to weight, in a fixed order.",
    First = "first": "The first backend that is not full.",
    HashMap = "hash_map": "The request's key modulo a map by weight: HAProxy's default hash.",
    HashRing = "hash_ring": "The request's key on a ring: few keys move when backends change.",
    HashMaglev = "hash_maglev": "The request's key in a Maglev table: even, and few keys move.",
    CpuRandom = "cpu_random": "Of a few drawn at random whose CPU has room, the fewest requests in flight per weight.",
    LeastConnections = "least_connections": "The fewest requests in flight per weight.",
    LeastconnHaproxy = "leastconn_haproxy": "HAProxy's leastconn with the key it really uses.",
    PowerOfN = "power_of_n": "Of a few drawn at random, the fewest requests in flight per weight.",
    PowerOfNLatency = "power_of_n_latency": "Of a few drawn at random, the lowest recent latency.",
    PeakEwma = "peak_ewma": "Of a few drawn, the lowest peak-sensitive latency times load.",
    LeastTime = "least_time": "The lowest recent latency times load per weight, over all.",
    ExpectedDelay = "expected_delay": "The least expected delay, cores and speeds learned.",
    Prequal = "prequal": "Of recent probe answers the lowest latency among those not loaded.",
    Bloc = "bloc": "Of two backends with a chip, the fewest requests in flight per weight.",
}

impl PolicyKind {
    /// Makes the policy over backends of these weights.
    ///
    /// # Errors
    /// [`InvalidSetting`] when a setting is out of range.
    pub fn build(
        self,
        weights: &[u32],
        settings: &Settings,
    ) -> Result<Box<dyn Policy>, InvalidSetting> {
        self.build_limited(weights, settings, &[])
    }

    /// The same with a limit of requests in flight for each backend, by index, as HAProxy's `maxconn` of a
    /// server; those beyond the list have `max_in_flight`, or none where that is not set.
    ///
    /// # Errors
    /// [`InvalidSetting`] when a setting is out of range or a limit is 0.
    pub fn build_limited(
        self,
        weights: &[u32],
        settings: &Settings,
        limits: &[u32],
    ) -> Result<Box<dyn Policy>, InvalidSetting> {
        settings.check()?;
        if limits.contains(&0) {
            return Err(InvalidSetting::MaxInFlight);
        }
        let policy = self.build_bare(weights, settings)?;
        if !Guarded::is_asked_for(settings, limits) {
            return Ok(policy);
        }
        let ramping = self.ramping(weights, settings)?;
        Ok(Box::new(Guarded::new(policy, ramping, weights, settings, limits)))
    }

    fn build_bare(
        self,
        weights: &[u32],
        settings: &Settings,
    ) -> Result<Box<dyn Policy>, InvalidSetting> {
        Ok(match self {
            PolicyKind::Random => Box::new(Random::new(weights)),
            PolicyKind::RoundRobin => Box::new(RoundRobin::new(weights)),
            PolicyKind::RoundrobinHaproxy => Box::new(HaproxyRoundRobinPolicy::new(weights)),
            PolicyKind::StaticRoundRobin => Box::new(StaticRoundRobin::new(weights)),
            PolicyKind::First => Box::new(First::new(weights, settings)),
            PolicyKind::HashMap => Box::new(MapHash::new(weights)),
            PolicyKind::HashRing => Box::new(HashRing::new(weights, settings)),
            PolicyKind::HashMaglev => Box::new(HashMaglev::new(weights, settings)),
            PolicyKind::CpuRandom => Box::new(CpuRandom::new(weights, settings)),
            PolicyKind::LeastConnections => Box::new(LeastConnections::new(weights)),
            PolicyKind::LeastconnHaproxy => Box::new(HaproxyLeastconnPolicy::new(weights)),
            PolicyKind::ExpectedDelay => Box::new(ExpectedDelay::new(weights, settings)),
            PolicyKind::PowerOfN => Box::new(PowerOfN::new(weights, settings)),
            PolicyKind::PowerOfNLatency => Box::new(PowerOfNLatency::new(weights, settings)),
            PolicyKind::PeakEwma => Box::new(PeakEwma::new(weights, settings)),
            PolicyKind::LeastTime => Box::new(LeastTime::new(weights, settings)),
            PolicyKind::Prequal => Box::new(Prequal::new(weights, settings)),
            PolicyKind::Bloc => Box::new(Bloc::new(weights, settings)?),
        })
    }

    /// How slow start reaches it: those keep their tables in which a change of one weight moves many
    /// turns or keys, and weights do not reach a draw that is alike for all. In Maglev's what a newcomer turned away
    /// would go to the next backend, seldom to the one that had it, and the table costs too much to make within a pick.
    fn ramping(self, weights: &[u32], settings: &Settings) -> Result<Ramping, InvalidSetting> {
        Ok(match self {
            PolicyKind::HashMaglev if settings.slow_start.is_some() => {
                Ramping::ByRefusalTo(self.build_bare(weights, settings)?)
            }
            PolicyKind::StaticRoundRobin
            | PolicyKind::RoundrobinHaproxy
            | PolicyKind::ExpectedDelay
            | PolicyKind::First
            | PolicyKind::HashMap
            | PolicyKind::HashRing => Ramping::ByRefusal,
            PolicyKind::PowerOfN
            | PolicyKind::PowerOfNLatency
            | PolicyKind::PeakEwma
            | PolicyKind::Prequal
            | PolicyKind::Bloc
                if settings.draw == Draw::Uniform =>
            {
                Ramping::ByRefusal
            }
            _ => Ramping::ByWeight,
        })
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no policy is called {name:?}; there are {}", names())]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
}

fn names() -> String {
    let names: Vec<&str> = PolicyKind::ALL.iter().map(|k| k.name()).collect();
    names.join(", ")
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let known = PolicyKind::ALL.iter().copied().find(|k| k.name() == name);
        known.ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_and_text_use_the_same_names() {
        for &kind in PolicyKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{kind}\""));
            assert_eq!(serde_json::from_str::<PolicyKind>(&json).unwrap(), kind);
        }
    }

    #[test]
    fn an_unknown_policy_is_refused_with_the_known_ones() {
        let error = "leastconn".parse::<PolicyKind>().unwrap_err().to_string();
        assert!(
            error.starts_with("no policy is called \"leastconn\"; there are random, "),
            "{error}"
        );
        assert!(error.contains("leastconn_haproxy") && error.contains("least_time"), "{error}");
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let build = |s: Settings| PolicyKind::PowerOfN.build(&[1, 1], &s).err();
        let ok = Settings::default();
        assert_eq!(build(ok), None);
        assert_eq!(build(Settings { choices: 0, ..ok }), Some(InvalidSetting::Choices(0)));
        assert_eq!(build(Settings { choices: 17, ..ok }), Some(InvalidSetting::Choices(17)));
        assert_eq!(build(Settings { decay_ms: 0, ..ok }), Some(InvalidSetting::Decay));
        assert!(serde_json::from_str::<Settings>("{\"choice\": 3}").is_err());
        let limited = PolicyKind::PowerOfN.build_limited(&[1, 1], &ok, &[3, 0]).err();
        assert_eq!(limited, Some(InvalidSetting::MaxInFlight));
    }
}
