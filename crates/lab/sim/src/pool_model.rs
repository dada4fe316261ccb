//! What is simulated beyond the controller: clients, a balancer and the backends behind it.

use plimsoll_model::{BalancerReport, FailureKind, Nanos, Outcome, ServerStatus};

use crate::pool::Method;

/// How a backend is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// It serves.
    #[default]
    Well,
    /// It answers every request at once with an error; it is alive all the same.
    FailsFast,
    /// Its probes succeed; what clients ask for is answered at once with an error.
    FailsClients,
    /// It takes connections and never answers.
    Hangs,
    /// Nobody listens.
    Dead,
}

/// A pool behind a balancer. Backends are known by their position.
pub trait PoolModel {
    /// The time.
    fn now(&self) -> Nanos;
    /// Lets the time pass.
    fn advance(&mut self, to: Nanos);
    /// How many backends there are.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// What the balancer answers when it is read now.
    fn report(&self) -> BalancerReport;
    /// The weight that the balancer holds.
    fn weight(&self, i: usize) -> u32;
    /// Sets some weights in the balancer.
    fn set_weights(&mut self, weights: &[(usize, u32)]);
    /// How a backend is.
    fn condition(&self, i: usize) -> Condition;
    /// Changes how a backend is. What it was serving when it dies is lost.
    fn set_condition(&mut self, i: usize, condition: Condition);
    /// What the balancer and its administrators make of a backend.
    fn set_status(&mut self, i: usize, status: ServerStatus);
    /// Multiplies the speed of a backend as it was made: a neighbour takes the rest.
    fn set_pace(&mut self, i: usize, pace: f64);
    /// Changes the traffic, requests per second.
    fn set_rate(&mut self, rate_rps: f64);
    /// Restarts the balancer: counters begin anew, weights and method are those of its configuration.
    fn restart(&mut self, weights: &[u32], method: Method);
    /// A probe of a backend: what came of it, and the response time in microseconds.
    fn probe(&mut self, i: usize) -> (Outcome, f64);
    /// Requests per second that a backend bears now.
    fn capacity_rps(&self, i: usize) -> f64;
    /// Requests per second that arrive.
    fn rate_rps(&self) -> f64;

    /// A liveness check: why it fails, if it does. A backend that fails fast is alive.
    fn liveness(&self, i: usize) -> Option<FailureKind> {
        match self.condition(i) {
            Condition::Well | Condition::FailsFast | Condition::FailsClients => None,
            Condition::Hangs => Some(FailureKind::Timeout),
            Condition::Dead => Some(FailureKind::Refused),
        }
    }
}
