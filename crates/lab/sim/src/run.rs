//! Whole runs, determined by a seed.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use plimsoll_model::Nanos;
use plimsoll_queueing::ServiceTime;

use crate::fault::Fault;
use crate::invariants::{Rule, Violation};
use crate::mutant::Mutant;
use crate::pool_model::PoolModel;
use crate::request::RequestPool;
use crate::rig::{Rig, Tally};
use crate::sample::SampledPool;
use crate::scenario::{Cadence, Scenario};

/// Detail of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Readings only: for days.
    #[default]
    Samples,
    /// Every request, at the daemon's own intervals: for minutes to hours.
    Requests,
}

/// The specification of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Order {
    /// The run's seed.
    pub seed: u64,
    /// Detail.
    pub level: Level,
    /// Simulated time, seconds.
    pub seconds: f64,
    /// Faults that are left out.
    pub without: Vec<Fault>,
    /// The defect of the controller, if any.
    pub mutant: Option<Mutant>,
    /// Rules whose violations are ignored.
    pub beyond: Vec<Rule>,
    /// From this time on everything is printed, seconds.
    pub trace_from: Option<f64>,
}

impl Order {
    /// This seed for this many simulated days.
    pub fn days(seed: u64, days: f64) -> Self {
        Order { seed, seconds: days * 86_400.0, ..Order::default() }
    }

    /// The scenario of the run.
    pub fn scenario(&self) -> Scenario {
        let cadence = match self.level {
            Level::Samples => Cadence::SAMPLE_LEVEL,
            Level::Requests => Cadence::REQUEST_LEVEL,
        };
        let scenario = Scenario::from_seed(self.seed, cadence);
        self.without.iter().fold(scenario, |scenario, &fault| scenario.without(fault))
    }

    /// This seed for this many simulated minutes at request level.
    pub fn minutes(seed: u64, minutes: f64) -> Self {
        let level = Level::Requests;
        Order { seed, level, seconds: minutes * 60.0, ..Order::default() }
    }

    /// Runs it.
    ///
    /// # Errors
    /// The first violation.
    pub fn run(&self) -> Result<Tally, Box<Failure>> {
        let s = self.scenario();
        match self.level {
            Level::Samples => {
                let pool_model = SampledPool::new(&s.pool, s.service_us, s.method, s.seed);
                self.run_in(s, pool_model)
            }
            Level::Requests => {
                let service = ServiceTime::Exponential;
                let pool_model =
                    RequestPool::new(&s.pool, &s.weights, s.service_us, service, s.method, s.seed);
                self.run_in(s, pool_model)
            }
        }
    }

    fn run_in<P: PoolModel>(
        &self,
        scenario: Scenario,
        pool_model: P,
    ) -> Result<Tally, Box<Failure>> {
        let mut rig = Rig::new(scenario.clone(), pool_model, self.mutant);
        rig.tolerate(&self.beyond);
        if let Some(seconds) = self.trace_from {
            rig.trace_from(seconds);
        }
        let ended = catch_unwind(AssertUnwindSafe(|| rig.run_until(self.seconds)));
        let mut beliefs = String::new();
        let violation = match ended {
            Ok(Ok(())) => return Ok(rig.tally()),
            Ok(Err(violation)) => {
                beliefs = rig.beliefs();
                violation
            }
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
                let what = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Violation {
                    rule: Rule::NoPanic,
                    backend: None,
                    at: Nanos(rig.pool_model().now().0),
                    what: what.unwrap_or_default(),
                }
            }
        };
        Err(Box::new(Failure { violation, beliefs, scenario, order: self.clone() }))
    }
}

/// A run with a violation.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What the controller did.
    pub violation: Violation,
    /// The controller's beliefs about the pool.
    pub beliefs: String,
    /// The scenario.
    pub scenario: Scenario,
    /// The specification of the run.
    pub order: Order,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = (self.violation.at.as_secs_f64() - 30.0).max(0.0);
        writeln!(f, "{}", self.violation)?;
        write!(f, "{}{}", self.beliefs, self.scenario)?;
        let command = self.order.command();
        write!(f, "again:  {command}\ncloser: {command} --trace {from:.0}")
    }
}
