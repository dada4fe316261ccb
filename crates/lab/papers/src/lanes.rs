//! The runner of the experiments that use emulated lanes: it lets lanes run for a while, tells how far the run
//! is, ends with whatever ends, and reads what clients and backends did between two moments.

use std::time::{Duration, Instant};

use plimsoll_lanes::Lane;
use plimsoll_testbed::BackendStats;
use plimsoll_testbed::load::{LoadReport, Summary};

use crate::{Context, Failure};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Lets whatever runs go on for so long; `look` is called all the while. Progress goes from `part.0` to
/// `part.1`.
///
/// # Errors
/// When the run is interrupted, or what `look` says.
pub fn wait(
    context: &Context,
    time: Duration,
    part: (f64, f64),
    what: &str,
    mut look: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let begin = Instant::now();
    while begin.elapsed() < time {
        let passed = begin.elapsed().as_secs_f64() / time.as_secs_f64();
        context.progress(part.0 + (part.1 - part.0) * passed, what)?;
        look()?;
        std::thread::sleep(LOOK_EVERY.min(time.saturating_sub(begin.elapsed())));
    }
    Ok(())
}

/// What a lane had done at some moment.
pub struct Moment {
    /// When.
    pub at: Instant,
    clients: LoadReport,
    backends: Vec<BackendStats>,
}

impl Moment {
    /// Now, of clients and backends as they are.
    ///
    /// # Errors
    /// When they have stopped.
    pub fn now(
        clients: Option<LoadReport>,
        backends: Option<Vec<BackendStats>>,
    ) -> Result<Self, Failure> {
        match (clients, backends) {
            (Some(clients), Some(backends)) => Ok(Moment { at: Instant::now(), clients, backends }),
            _ => Err(Failure::Other("clients or backends have stopped".to_owned())),
        }
    }

    /// Now, of a lane.
    ///
    /// # Errors
    /// When its clients or backends have stopped.
    pub fn of(lane: &Lane) -> Result<Self, Failure> {
        Moment::now(lane.so_far(), lane.backends())
    }

    /// Seconds since another moment.
    pub fn seconds(&self, since: &Moment) -> f64 {
        (self.at - since.at).as_secs_f64()
    }

    /// Requests answered since another moment, and the sum of their latencies, milliseconds.
    pub fn served(&self, since: &Moment) -> (f64, f64) {
        served(&since.clients.total, &self.clients.total)
    }

    /// The same of the backend at this place, and the busy part of its cores.
    pub fn served_by(&self, place: usize, since: &Moment) -> (f64, f64, f64) {
        let (before, after) = (&since.backends[place], &self.backends[place]);
        let none = Summary::default();
        let by =
            |moment: &Moment| moment.clients.by_backend.get(&after.name).unwrap_or(&none).clone();
        let (count, sum_ms) = served(&by(since), &by(self));
        let worked_s = after.busy_core_seconds - before.busy_core_seconds;
        (count, sum_ms, worked_s / self.seconds(since) / f64::from(after.cores))
    }

    /// Requests without an answer since another moment.
    pub fn errors(&self, since: &Moment) -> u64 {
        self.clients.total.errors - since.clients.total.errors
    }
}

/// Requests answered between two reports, and the sum of their latencies, milliseconds.
pub fn served(first: &Summary, last: &Summary) -> (f64, f64) {
    let until = |summary: &Summary| {
        let count = (summary.requests - summary.errors) as f64;
        (count, count * summary.mean_ms.unwrap_or(0.0))
    };
    let (before, after) = (until(first), until(last));
    (after.0 - before.0, after.1 - before.1)
}

#[cfg(test)]
mod tests {
    use plimsoll_lanes::Interrupt;

    use super::*;

    #[test]
    fn what_was_served_between_two_moments_is_their_difference() {
        let summary = |requests, errors, mean_ms| Summary {
            requests,
            errors,
            mean_ms: Some(mean_ms),
            ..Summary::default()
        };
        let (count, sum_ms) = served(&summary(11, 1, 20.0), &summary(33, 3, 30.0));
        assert_eq!((count, sum_ms), (20.0, 700.0));
        assert_eq!(served(&Summary::default(), &summary(2, 0, 5.0)), (2.0, 10.0));
    }

    #[test]
    fn a_wait_ends_with_what_ends() {
        let context = Context::new(1, true, Interrupt::never());
        let time = Duration::from_millis(150);
        let mut looks = 0;
        let begin = Instant::now();
        wait(&context, time, (0.0, 1.0), "", || {
            looks += 1;
            Ok(())
        })
        .unwrap();
        assert!(begin.elapsed() >= time && looks >= 1, "{looks}");
        let ended = || Err(Failure::Other("it has ended".to_owned()));
        assert!(wait(&context, Duration::from_secs(3600), (0.0, 1.0), "", ended).is_err());
    }
}
