//! What every policy must hold to, run over the whole registry.
//!
//! ```text
//! stream.rs     requests at backends, simulated
//! picks.rs      whatever happens, the pick is allowed
//! shares.rs     100,000 picks: equal weights, unequal weights, weights changed mid-stream
//! trouble.rs    what fails or refuses fast must not attract load
//! guards.rs     a limit, ejection and slow start around every policy
//! page.rs       docs/policies.md names what there is, and nothing else
//! ```

mod guards;
mod page;
mod picks;
mod shares;
mod stream;
mod trouble;

use std::fmt;

use plimsoll_policy::{Draw, ExpectedDelaySettings, Policy, PolicyKind, Settings, Sight};

/// A policy and what is set in it.
#[derive(Clone, Copy)]
struct Way {
    kind: PolicyKind,
    settings: Settings,
    note: &'static str,
}

/// Every policy with its defaults, and those that what is set makes into others.
fn ways() -> impl Iterator<Item = Way> {
    use PolicyKind::{ExpectedDelay, HashMaglev, HashRing, PowerOfN};
    let plain = |&kind: &PolicyKind| Way { kind, settings: Settings::default(), note: "" };
    let sight = |sight| {
        let expected_delay = ExpectedDelaySettings { sight, ..ExpectedDelaySettings::default() };
        Settings { expected_delay, ..Settings::default() }
    };
    let uniform = Settings { draw: Draw::Uniform, ..Settings::default() };
    let bounded = Settings { hash_balance_factor: Some(125), ..Settings::default() };
    let set = [
        (ExpectedDelay, sight(Sight::Own), ", own counts"),
        (ExpectedDelay, sight(Sight::Refusals), ", refusals"),
        (ExpectedDelay, sight(Sight::Probes), ", probes"),
        (PowerOfN, uniform, ", uniform"),
        (HashRing, bounded, ", loads bounded"),
        (HashMaglev, bounded, ", loads bounded"),
    ];
    let set = set.map(|(kind, settings, note)| Way { kind, settings, note });
    PolicyKind::ALL.iter().map(plain).chain(set)
}

impl Way {
    fn build(&self, weights: &[u32]) -> Box<dyn Policy> {
        self.guarded(weights, Settings::default())
    }

    /// With the limit, the ejection and the slow start of `guards`.
    fn guarded(&self, weights: &[u32], guards: Settings) -> Box<dyn Policy> {
        let Settings { max_in_flight, ejection, slow_start, .. } = guards;
        // Without a limit the first backend gets everything, as it should.
        let first = (self.kind == PolicyKind::First).then_some(LIMIT_OF_FIRST);
        let max_in_flight = max_in_flight.or(first);
        let settings = Settings { max_in_flight, ejection, slow_start, ..self.settings };
        self.kind.build(weights, &settings).expect("these settings are valid")
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind, self.note)
    }
}

/// Enough for all that these tests have in flight.
const LIMIT_OF_FIRST: u32 = 200;

/// For messages: what a new policy may lack.
const IS_BLIND: &str =
    "`is_blind` in tests/registry/main.rs lists those that look at neither load nor latency";

/// The policies that look neither at load nor at latency.
fn is_blind(way: &Way) -> bool {
    use PolicyKind::{
        HashMaglev, HashMap, HashRing, Random, RoundRobin, RoundrobinHaproxy, StaticRoundRobin,
    };
    let blind =
        [Random, RoundRobin, RoundrobinHaproxy, StaticRoundRobin, HashMap, HashRing, HashMaglev];
    blind.contains(&way.kind) && way.settings.hash_balance_factor.is_none()
}
