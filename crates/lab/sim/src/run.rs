//! Whole runs, by seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use plimsoll_model::Nanos;

use crate::ledger::{Rule, Violation};
use crate::plant::Plant;
use crate::rig::{Rig, Tally};
use crate::sabotage::Sabotage;
use crate::sample::SamplePlant;
use crate::scenario::Scenario;

/// A run that found something.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What the controller did and may not do.
    pub violation: Violation,
    /// What the run was.
    pub scenario: Scenario,
}

/// Runs a scenario at sample level for so many seconds.
///
/// # Errors
/// The first violation.
pub fn run_samples(
    scenario: Scenario,
    seconds: f64,
    sabotage: Option<Sabotage>,
) -> Result<Tally, Box<Failure>> {
    let s = &scenario;
    let plant = SamplePlant::new(&s.pool, s.service_us, s.method, s.seed);
    run(scenario, plant, seconds, sabotage)
}

fn run<P: Plant>(
    scenario: Scenario,
    plant: P,
    seconds: f64,
    sabotage: Option<Sabotage>,
) -> Result<Tally, Box<Failure>> {
    let mut rig = Rig::new(scenario.clone(), plant, sabotage);
    let ended = catch_unwind(AssertUnwindSafe(|| rig.run_until(seconds)));
    let violation = match ended {
        Ok(Ok(())) => return Ok(rig.tally()),
        Ok(Err(violation)) => violation,
        Err(panic) => Violation {
            rule: Rule::NoPanic,
            backend: None,
            at: Nanos(rig.plant().now().0),
            what: panic_text(&panic),
        },
    };
    Err(Box::new(Failure { violation, scenario }))
}

fn panic_text(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
