//! Drain time: for how long requests placed by the old weights remain after a change of weights (KnapsackLB, appendix
//! A). Points measured within it show the load before the change.
//!
//! Measured passively: whenever a backend is set to weight 0 for another reason, the time until it has nothing in
//! flight.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_model::{BackendId, Nanos};

use crate::backend::Backend;
use crate::tuning::experiments::drain::{KEPT, LEAST_WAITED, LONGEST, MOST_WAITED};

/// Measured drain times.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrainTimes {
    seen: VecDeque<Duration>,
}

impl DrainTimes {
    fn note(&mut self, took: Duration) {
        if self.seen.len() == KEPT {
            self.seen.pop_front();
        }
        self.seen.push_back(took);
    }

    /// The longest of the recent ones.
    pub fn longest(&self) -> Option<Duration> {
        self.seen.iter().max().copied()
    }

    /// The same, within [`LEAST_WAITED`] and [`MOST_WAITED`].
    pub fn to_wait(&self) -> Option<Duration> {
        self.longest().map(|d| d.clamp(LEAST_WAITED, MOST_WAITED))
    }
}

impl DrainTimes {
    /// Records which backends were just set to weight 0, and which no longer are.
    pub fn note_zeroed(now: Nanos, backends: &mut [Backend], before: &[(BackendId, u32)]) {
        for b in backends {
            let had = before.iter().any(|(id, w)| *id == b.id && *w > 0);
            match b.programmed {
                Some(0) if had && !b.health.is_down() => b.zeroed_at = Some(now),
                Some(0) => {}
                _ => b.zeroed_at = None,
            }
        }
    }

    /// After every report: records the backends that have drained.
    pub fn note_drained(&mut self, now: Nanos, backends: &mut [Backend]) {
        for b in backends {
            let Some(since) = b.zeroed_at else { continue };
            if b.health.is_down() {
                b.zeroed_at = None;
                continue;
            }
            let took = now.since(since);
            if b.in_flight == 0 || took >= LONGEST {
                self.note(took);
                b.zeroed_at = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Controller;
    use crate::spec::{BackendSpec, ServiceSpec};

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    fn note_zeroed(controller: &mut Controller, now: Nanos, before: &[(BackendId, u32)]) {
        DrainTimes::note_zeroed(now, &mut controller.backends, before);
    }

    fn note_drained(controller: &mut Controller, now: Nanos) {
        controller.experiments.drain.note_drained(now, &mut controller.backends);
    }

    /// The first of two backends had this weight and is set to weight 0 after 100 s, with five requests in flight.
    fn parked_from(weight: u32) -> Controller {
        let backends = (0..2).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        let b = &mut controller.backends[0];
        (b.programmed, b.in_flight) = (Some(0), 5);
        note_zeroed(&mut controller, at(100), &[(BackendId(0), weight), (BackendId(1), 10)]);
        controller
    }

    #[test]
    fn backend_set_to_0_shows_the_drain_time_and_measurements_wait_for_it() {
        let mut controller = parked_from(8);
        note_drained(&mut controller, at(103));
        assert_eq!(controller.experiments.longest_drain(), None, "it is still busy");
        controller.backends[0].in_flight = 0;
        note_drained(&mut controller, at(107));
        note_drained(&mut controller, at(140));
        assert_eq!(controller.experiments.longest_drain(), Some(Duration::from_secs(7)));
        assert_eq!(controller.view(at(140)).drain_s, Some(7.0), "an operator sees it");
        controller.traffic.note_change(at(200));
        assert!(!controller.is_calm(at(206)) && controller.is_calm(at(207)));
    }

    #[test]
    fn backend_without_weight_before_or_after_shows_no_drain_time() {
        let mut idle = parked_from(0);
        let mut back = parked_from(8);
        back.backends[0].programmed = Some(8);
        note_zeroed(&mut back, at(102), &[(BackendId(0), 0), (BackendId(1), 10)]);
        for controller in [&mut idle, &mut back] {
            controller.backends[0].in_flight = 0;
            note_drained(controller, at(107));
            assert_eq!(controller.experiments.longest_drain(), None);
        }
    }

    #[test]
    fn connections_that_never_end_count_as_the_longest_drain() {
        let mut controller = parked_from(8);
        note_drained(&mut controller, at(699));
        assert_eq!(controller.experiments.longest_drain(), None);
        note_drained(&mut controller, at(700));
        assert_eq!(controller.experiments.longest_drain(), Some(LONGEST));
    }

    #[test]
    fn the_longest_recent_drain_counts() {
        let mut drain = DrainTimes::default();
        assert_eq!(drain.to_wait(), None);
        drain.note(Duration::from_secs(90));
        assert_eq!(drain.to_wait(), Some(MOST_WAITED));
        for _ in 0..KEPT {
            drain.note(Duration::from_millis(200));
        }
        assert_eq!(drain.longest(), Some(Duration::from_millis(200)));
        assert_eq!(drain.to_wait(), Some(Duration::from_secs(1)));
    }
}
