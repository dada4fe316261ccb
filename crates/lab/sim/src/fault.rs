//! Faults in the controller's environment.

use std::fmt;
use std::str::FromStr;

use crate::names::{from_name, kebab};

/// One kind of fault. A run has at most one of a kind at a time, and any number of kinds at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A backend's process dies and is restarted later.
    Death,
    /// A backend accepts connections and does not answer.
    Hang,
    /// A backend dies and comes back every few seconds.
    Flapping,
    /// A backend answers every request immediately with an error.
    FailsFast,
    /// Most of the pool dies at once.
    MassDeath,
    /// Another process takes a part of a backend's CPU.
    Neighbour,
    /// A backend's speed changes for good.
    NewSpeed,
    /// Probes of the work URL get lost.
    ProbesLost,
    /// Probes of the work URL come back late.
    ProbesLate,
    /// Every probe of the work URL gets the wrong answer.
    WrongUrl,
    /// Liveness rounds get lost.
    RoundsLost,
    /// Liveness rounds come back late and out of order.
    RoundsLate,
    /// Every liveness check times out, though all backends are healthy.
    Blind,
    /// The balancer refuses a weight in the middle of a plan; the weights before it are restored.
    SinkRejects,
    /// The same, and the weights before it cannot be restored.
    SinkHalfApplied,
    /// The connection breaks after a plan was sent: it takes effect and is reported as failed.
    SinkInterrupted,
    /// A plan takes effect or not, and is never answered.
    SinkSilent,
    /// Plans take seconds.
    SinkSlow,
    /// The socket no longer permits setting weights, until an administrator acts.
    SinkForbidden,
    /// The balancer cannot be reached.
    BalancerAway,
    /// The balancer is reloaded: counters and weights are reset.
    Reload,
    /// The balancer is reloaded with another method.
    NewMethod,
    /// Another party sets a weight.
    ForeignWeight,
    /// Another party sets a weight again and again.
    ForeignFight,
    /// The controller dies and is restarted from its store.
    Crash,
    /// The same, and the store is lost.
    CrashStoreLost,
    /// The same, and the store has not been written for minutes.
    CrashStoreStale,
    /// The controller's process gets no CPU time; its clock continues.
    Pause,
    /// The controller's machine sleeps: its clock stops while the world continues.
    Sleep,
    /// The controller's machine is suspended for minutes to hours; its clock may count that or not.
    Suspend,
    /// The controller's clock steps forward by minutes to hours. (It is monotonic, so it cannot step back.)
    ClockStep,
    /// An administrator drains a backend.
    Drain,
    /// An administrator puts a backend into maintenance.
    Maintenance,
    /// A backend is removed from the configuration and added again.
    Leave,
    /// An administrator configures observe mode.
    Observe,
    /// Traffic rises suddenly.
    Burst,
    /// Traffic stops.
    Silence,
    /// Traffic exceeds the pool's capacity.
    Overload,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 38] = [
        Fault::Death,
        Fault::Hang,
        Fault::Flapping,
        Fault::FailsFast,
        Fault::MassDeath,
        Fault::Neighbour,
        Fault::NewSpeed,
        Fault::ProbesLost,
        Fault::ProbesLate,
        Fault::WrongUrl,
        Fault::RoundsLost,
        Fault::RoundsLate,
        Fault::Blind,
        Fault::SinkRejects,
        Fault::SinkHalfApplied,
        Fault::SinkInterrupted,
        Fault::SinkSilent,
        Fault::SinkSlow,
        Fault::SinkForbidden,
        Fault::BalancerAway,
        Fault::Reload,
        Fault::NewMethod,
        Fault::ForeignWeight,
        Fault::ForeignFight,
        Fault::Crash,
        Fault::CrashStoreLost,
        Fault::CrashStoreStale,
        Fault::Pause,
        Fault::Sleep,
        Fault::Suspend,
        Fault::ClockStep,
        Fault::Drain,
        Fault::Maintenance,
        Fault::Leave,
        Fault::Observe,
        Fault::Burst,
        Fault::Silence,
        Fault::Overload,
    ];

    /// The bounds of the mean time that it lasts, seconds.
    pub fn lasts_s(self) -> (f64, f64) {
        match self {
            Fault::Pause | Fault::Sleep => (0.3, 30.0),
            Fault::Suspend => (60.0, 3_600.0),
            Fault::Crash | Fault::CrashStoreLost | Fault::CrashStoreStale => (1.0, 120.0),
            Fault::SinkSilent | Fault::SinkRejects | Fault::SinkInterrupted => (2.0, 30.0),
            Fault::SinkHalfApplied | Fault::SinkSlow => (2.0, 60.0),
            Fault::Neighbour => (2.0, 600.0),
            Fault::Flapping | Fault::ForeignFight => (30.0, 300.0),
            Fault::MassDeath | Fault::Blind | Fault::Overload => (5.0, 120.0),
            Fault::Reload | Fault::ForeignWeight | Fault::NewSpeed | Fault::ClockStep => (1.0, 1.0),
            Fault::NewMethod => (300.0, 7_200.0),
            _ => (5.0, 600.0),
        }
    }

    /// Whether it ends the controller's process.
    pub fn is_crash(self) -> bool {
        matches!(self, Fault::Crash | Fault::CrashStoreLost | Fault::CrashStoreStale)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&kebab(&format!("{self:?}")))
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        from_name(name, &Fault::ALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_parsed_again() {
        for fault in Fault::ALL {
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        assert_eq!(Fault::CrashStoreLost.to_string(), "crash-store-lost");
        assert!("crash-store".parse::<Fault>().is_err());
    }
}
