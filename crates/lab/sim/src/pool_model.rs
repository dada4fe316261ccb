//! The model of everything beyond the controller: clients, a balancer and the backends behind it.

use plimsoll_model::{BalancerReport, FailureKind, Nanos, Outcome, ServerStatus};

use crate::pool::Method;

/// Condition of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// It serves.
    #[default]
    Well,
    /// It answers every request immediately with an error; liveness checks succeed.
    FailsFast,
    /// Its probes succeed; clients get errors immediately.
    FailsClients,
    /// It accepts connections and never answers.
    Hangs,
    /// Connections are refused.
    Dead,
}

/// A pool behind a balancer. Backends are identified by position.
pub trait PoolModel {
    /// The simulated time.
    fn now(&self) -> Nanos;
    /// Simulates until this time.
    fn advance(&mut self, to: Nanos);
    /// How many backends there are.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The balancer's answer to a reading now.
    fn report(&self) -> BalancerReport;
    /// The weight that the balancer holds.
    fn weight(&self, i: usize) -> u32;
    /// Sets some weights in the balancer.
    fn set_weights(&mut self, weights: &[(usize, u32)]);
    /// Condition of a backend.
    fn condition(&self, i: usize) -> Condition;
    /// Changes the condition of a backend. Requests in service are lost when it dies.
    fn set_condition(&mut self, i: usize, condition: Condition);
    /// Sets the status that the balancer reports for a backend.
    fn set_status(&mut self, i: usize, status: ServerStatus);
    /// Multiplies the original speed of a backend: another process takes the rest.
    fn set_pace(&mut self, i: usize, pace: f64);
    /// Changes the traffic, requests per second.
    fn set_rate(&mut self, rate_rps: f64);
    /// Restarts the balancer: counters are reset, weights and method are those of its configuration.
    fn restart(&mut self, weights: &[u32], method: Method);
    /// Probes a backend: the outcome, and the response time in microseconds.
    fn probe(&mut self, i: usize) -> (Outcome, f64);
    /// The present capacity of a backend, requests per second.
    fn capacity_rps(&self, i: usize) -> f64;
    /// The rate of arrivals, requests per second.
    fn rate_rps(&self) -> f64;

    /// A liveness check: the failure, if it fails. A backend that fails fast passes.
    fn liveness(&self, i: usize) -> Option<FailureKind> {
        match self.condition(i) {
            Condition::Well | Condition::FailsFast | Condition::FailsClients => None,
            Condition::Hangs => Some(FailureKind::Timeout),
            Condition::Dead => Some(FailureKind::Refused),
        }
    }
}
