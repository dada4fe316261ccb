//! What Plimsoll did in a lane: the weights over time and its decisions, without which a response time explains nothing.

use std::time::Duration;

use plimsoll_lanes::{Daemon, Event};
use serde::{Deserialize, Serialize};

use crate::outcome::{Table, row};
use crate::{Failure, Provenance};

/// Between two looks at the weights.
const EVERY: Duration = Duration::from_secs(10);

/// The weights that the balancer held, seconds after the lane's first request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Held {
    at_s: f64,
    /// By backend; none while it is not known.
    weights: Vec<(String, Option<u32>)>,
}

/// What Plimsoll did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steering {
    held: Vec<Held>,
    decisions: Vec<Event>,
    /// When the lane's first request came, milliseconds since 1970.
    began_ms: i64,
}

impl Steering {
    /// Of a lane whose first request comes now.
    pub fn begin() -> Self {
        Steering { began_ms: now_ms(), ..Steering::default() }
    }

    /// Looks at the weights, if it is time.
    pub fn look(&mut self, daemon: &Daemon) {
        let at_s = (now_ms() - self.began_ms) as f64 / 1e3;
        if self.held.last().is_some_and(|last| at_s - last.at_s < EVERY.as_secs_f64()) {
            return;
        }
        let Some(view) = daemon.view() else { return };
        let weights = view.backends.into_iter().map(|b| (b.backend, b.programmed)).collect();
        self.held.push(Held { at_s, weights });
    }

    /// Takes down its decisions, when the lane is over.
    pub fn end(&mut self, daemon: &Daemon) {
        self.decisions = daemon.events();
    }

    /// A row for each look and backend, and one for each decision.
    ///
    /// # Errors
    /// When a row does not fit.
    pub fn write(
        &self,
        [weights, decisions]: &mut [Table; 2],
        (load, lane): (f64, &str),
        from: Provenance,
    ) -> Result<(), Failure> {
        for Held { at_s, weights: held } in &self.held {
            for (backend, weight) in held {
                row!(weights, from, {
                    load: load, "part of the capacity";
                    lane: lane;
                    time: *at_s, "s after the first request";
                    backend: backend.as_str();
                    weight: *weight;
                })?;
            }
        }
        for Event { unix_ms, kind, backend, reason, .. } in &self.decisions {
            row!(decisions, from, {
                load: load, "part of the capacity";
                lane: lane;
                time: (unix_ms - self.began_ms) as f64 / 1e3, "s after the first request";
                kind: kind;
                backend: backend.as_deref();
                reason: reason.as_str();
            })?;
        }
        Ok(())
    }
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use plimsoll_control::RecordKind;

    use super::*;

    #[test]
    fn weights_and_decisions_are_told_by_the_time_of_the_lane() {
        let weights = vec![("s1".to_owned(), Some(3)), ("s2".to_owned(), None)];
        let decision = Event {
            seq: 1,
            unix_ms: 12_500,
            kind: RecordKind::SetAside,
            backend: Some("s2".to_owned()),
            reason: "no answer".to_owned(),
        };
        let steering = Steering {
            held: vec![Held { at_s: 10.0, weights }],
            decisions: vec![decision],
            began_ms: 10_000,
        };
        let mut tables = ["w", "d"].map(|name| Table::empty(name, ""));
        steering.write(&mut tables, (0.7, "leastconn"), Provenance::Measured).unwrap();
        let [weights, decisions] = &tables;
        let text = |table: &Table| table.csv().unwrap();
        assert!(text(weights).contains("0.7,leastconn,10,s1,3,measured\n0.7,leastconn,10,s2,,"));
        assert!(text(decisions).contains("0.7,leastconn,2.5,set_aside,s2,no answer,measured\n"));
    }
}
