//! What can go wrong around a controller.

use std::fmt;
use std::str::FromStr;

use crate::names::{from_name, kebab};

/// One kind of fault. A run has at most one of a kind at a time, and any number of kinds at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A backend's process dies and is started again.
    Death,
    /// A backend takes connections and does not answer.
    Hang,
    /// A backend dies and comes back every few seconds.
    Flapping,
    /// A backend answers everything with an error, at once.
    FailsFast,
    /// Most of the pool dies at once.
    MassDeath,
    /// A neighbour takes part of a backend's speed.
    Neighbour,
    /// A backend is slower or faster from now on.
    NewSpeed,
    /// Probes of the work URL do not come back.
    ProbesLost,
    /// Probes of the work URL come back late.
    ProbesLate,
    /// Every probe of the work URL gets the wrong answer.
    WrongUrl,
    /// Liveness rounds do not come back.
    RoundsLost,
    /// Liveness rounds come back late and out of order.
    RoundsLate,
    /// No liveness check gets through, though the backends are well.
    Blind,
    /// The balancer refuses a weight in the middle of a plan; what was changed is put back.
    SinkRejects,
    /// The same, and what was changed cannot be put back.
    SinkHalfApplied,
    /// The connection is cut after a plan was sent: carried out, and reported as failed.
    SinkInterrupted,
    /// A plan is carried out or not, and nobody says so.
    SinkSilent,
    /// A plan takes seconds.
    SinkSlow,
    /// The socket no longer allows weights to be set; only an administrator can mend that.
    SinkForbidden,
    /// The balancer cannot be reached.
    BalancerAway,
    /// The balancer is reloaded: counters and weights begin anew.
    Reload,
    /// The balancer is reloaded with another method.
    NewMethod,
    /// Somebody else sets a weight.
    ForeignWeight,
    /// Somebody else sets a weight again and again.
    ForeignFight,
    /// The controller dies and is started again from its store.
    Crash,
    /// The same, and the store is lost.
    CrashStoreLost,
    /// The same, and the store was not written for minutes.
    CrashStoreStale,
    /// The controller's process gets no time; its clock goes on.
    Pause,
    /// The controller's machine sleeps: its clock stands still while the world goes on.
    Sleep,
    /// The controller's machine is suspended for minutes to hours; its clock may count that or not.
    Suspend,
    /// The controller's clock steps forward by minutes to hours. (Backwards it cannot: it is monotonic.)
    ClockStep,
    /// An administrator drains a backend.
    Drain,
    /// An administrator takes a backend out.
    Maintenance,
    /// A backend is taken from the configuration and put back.
    Leave,
    /// The administrator asks for observing only.
    Observe,
    /// Traffic rises at once.
    Burst,
    /// Traffic stops.
    Silence,
    /// More traffic than the pool can bear.
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

    /// Whether the controller ends by it.
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
    fn names_go_there_and_back() {
        for fault in Fault::ALL {
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        assert_eq!(Fault::CrashStoreLost.to_string(), "crash-store-lost");
        assert!("crash-store".parse::<Fault>().is_err());
    }
}
