//! Which weight to measure next (KnapsackLB §4.3, Algorithm 1), one state machine per backend.
//!
//! Run: after a good measurement `w ← w + w·α·l0/l`. Backtrack: after a bad one, half-way back to the
//! last good weight. Two modes:
//!
//! - [`ExploreMode::Bisect`], the default: stops when `|w − last good| ≤ D·w` (last good starts at 0),
//!   calls a weight bad from `latency_factor · l0` on, never grows by more than `max_step`, never comes
//!   back to a weight known as bad, and goes no further than the packing can use. On the paper's pool of
//!   M/M/c backends, started at 1/N: 3–11 measurements, 5.5 in the mean.
//! - [`ExploreMode::Literal`]: Algorithm 1 as printed. Its line 1, `w_now − w_prev ≤ D·w_now`, is true
//!   after any back-off, whose difference is negative; so it ends in 2–6 steps, with `w_max = 0` where
//!   the first weight already overloads. For reproduction only.
//!
//! Cost O(steps) per backend. It fails where latency stays flat up to the very edge (many cores): no
//! step rule sees that coming, only `useful_max` and `max_step` bound the harm.

/// A first weight halved this often without one good measurement: the backend cannot take any load.
const MAX_HALVINGS: i32 = 10;
/// Weights closer than this to a bound have reached it.
const REACHED: f64 = 1.0 - 1e-9;

/// The rule for steps and for the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExploreMode {
    /// Bisection between the last good and the first bad weight, with little harm to clients.
    #[default]
    Bisect,
    /// Algorithm 1 as printed, flaw included.
    Literal,
}

/// Parameters of an exploration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExploreOptions {
    /// The rule for steps and for the end.
    pub mode: ExploreMode,
    /// D: the exploration ends when the step is within this part of the weight.
    pub step_window: f64,
    /// α: rate of growth.
    pub alpha: f64,
    /// Literal: latency of this many l0 counts as a drop.
    pub drop_factor: f64,
    /// Bisect: latency above this many l0 is bad. Below the paper's 5, because clients feel it.
    pub latency_factor: f64,
    /// Bisect: a weight grows at most by this factor in one step.
    pub max_step: f64,
    /// No weight above this is requested, because the packing could not use it. In literal mode the paper has no bound
    /// but the whole traffic, 1.
    pub useful_max: Option<f64>,
    /// The exploration ends after this many measurements, whatever they say.
    pub max_steps: u32,
}

impl Default for ExploreOptions {
    fn default() -> Self {
        ExploreOptions {
            mode: ExploreMode::Bisect,
            step_window: 0.05,
            alpha: 1.0,
            drop_factor: 5.0,
            latency_factor: 3.0,
            max_step: 2.0,
            useful_max: None,
            max_steps: 40,
        }
    }
}

/// A measurement at a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// The weight that the backend really had; the scheduler may not have granted the requested one.
    pub weight: f64,
    /// Latency at weight 0, microseconds.
    pub l0_us: f64,
    /// Mean latency at `weight`, microseconds. Not a positive number: counts as a drop.
    pub latency_us: f64,
    /// Requests were lost.
    pub dropped: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Measure at this weight.
    Measure(f64),
    /// The exploration is over.
    Done {
        /// The greatest weight measured and found good; 0 when there was none.
        w_max: f64,
    },
}

/// Why an exploration cannot begin.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ClimbError {
    /// A number is out of its range.
    #[error("exploration: `{name}` is {value}, expected {expected}")]
    OutOfRange {
        /// Which number.
        name: &'static str,
        /// Its value.
        value: f64,
        /// Its range.
        expected: &'static str,
    },
}

/// One backend's exploration.
#[derive(Clone, Debug, PartialEq)]
pub struct Climb {
    options: ExploreOptions,
    first: f64,
    now: f64,
    previous: f64,
    w_max: f64,
    /// Weights found good, ascending; bounded by `max_steps`.
    good: Vec<f64>,
    /// The least weight found bad: lost requests, or latency above the bound.
    first_bad: Option<f64>,
    steps: u32,
    done: bool,
}

impl Climb {
    /// Begins at `first_weight`, 1/N in the paper, with l0 measured before.
    ///
    /// # Errors
    /// [`ClimbError::OutOfRange`] names the invalid number.
    pub fn new(first_weight: f64, options: ExploreOptions) -> Result<Climb, ClimbError> {
        let positive = "a positive number";
        let checks = [
            ("first_weight", first_weight, first_weight > 0.0, positive),
            (
                "step_window",
                options.step_window,
                options.step_window > 0.0 && options.step_window < 1.0,
                "a number between 0 and 1",
            ),
            ("alpha", options.alpha, options.alpha > 0.0, positive),
            ("drop_factor", options.drop_factor, options.drop_factor > 1.0, "more than 1"),
            ("latency_factor", options.latency_factor, options.latency_factor > 1.0, "more than 1"),
            ("max_step", options.max_step, options.max_step > 1.0, "more than 1"),
            (
                "useful_max",
                options.useful_max.unwrap_or(1.0),
                options.useful_max.is_none_or(|most| most > 0.0),
                positive,
            ),
        ];
        for (name, value, holds, expected) in checks {
            if !(holds && value.is_finite()) {
                return Err(ClimbError::OutOfRange { name, value, expected });
            }
        }
        let first = options.useful_max.map_or(first_weight, |most| first_weight.min(most));
        Ok(Climb {
            options,
            first,
            now: first,
            previous: 0.0,
            w_max: 0.0,
            good: Vec::new(),
            first_bad: None,
            steps: 0,
            done: false,
        })
    }

    /// The pending step: the one [`Climb::next`] returned last, or the first.
    pub fn pending(&self) -> Step {
        if self.done { Step::Done { w_max: self.w_max } } else { Step::Measure(self.now) }
    }

    /// The greatest weight found good so far; 0 when there is none.
    pub fn w_max(&self) -> f64 {
        self.w_max
    }

    /// From this multiple of l0 on a weight is bad.
    pub fn factor(&self) -> f64 {
        match self.options.mode {
            ExploreMode::Bisect => self.options.latency_factor,
            ExploreMode::Literal => self.options.drop_factor,
        }
    }

    /// Ends it with what it has found.
    pub fn end(&mut self) {
        self.done = true;
    }

    /// Measurements taken so far, without that at weight 0.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Takes the measurement that the last step requested.
    pub fn next(&mut self, measured: &Measurement) -> Step {
        if self.done {
            return self.pending();
        }
        self.steps += 1;
        match self.options.mode {
            ExploreMode::Literal => self.literal(measured),
            ExploreMode::Bisect => self.bisect(measured),
        }
        self.done |= self.steps >= self.options.max_steps;
        self.pending()
    }

    /// Algorithm 1, line by line.
    fn literal(&mut self, measured: &Measurement) {
        let now = measured.weight;
        if now - self.previous <= self.options.step_window * now {
            self.done = true;
            return;
        }
        let next = if !bad(measured, self.options.drop_factor) {
            self.w_max = self.w_max.max(now);
            self.good.push(now);
            now + now * self.options.alpha * measured.l0_us / measured.latency_us
        } else {
            self.mark_bad(now);
            0.5 * (now + self.previous)
        };
        self.previous = now;
        self.now = self.options.useful_max.map_or(next, |most| next.min(most));
    }

    fn bisect(&mut self, measured: &Measurement) {
        let now = measured.weight;
        if bad(measured, self.options.latency_factor) {
            self.mark_bad(now);
            // A weight that was good may turn bad: noise, or the backend changed. The newer measurement counts.
            self.good.retain(|&weight| weight < now);
        } else {
            let at = self.good.partition_point(|&weight| weight < now);
            self.good.insert(at, now);
            self.first_bad = self.first_bad.filter(|&weight| weight > now);
        }
        let last_good = self.good.last().copied().unwrap_or(0.0);
        self.previous = last_good;
        self.w_max = last_good;

        let mut next = match self.first_bad {
            Some(bad) => 0.5 * (last_good + bad),
            None => f64::INFINITY,
        };
        if last_good == now && now > 0.0 {
            let pace = 1.0 + self.options.alpha * measured.l0_us / measured.latency_us;
            next = next.min(now * pace.min(self.options.max_step));
        }
        if let Some(most) = self.options.useful_max {
            self.done |= last_good >= most * REACHED;
            next = next.min(most);
        }
        if !next.is_finite() {
            // A good measurement at weight 0: the scheduler granted nothing. Request it again.
            next = self.now;
        }
        self.done |= next - last_good <= self.options.step_window * next
            || next <= self.first * 0.5_f64.powi(MAX_HALVINGS);
        self.now = next;
    }

    fn mark_bad(&mut self, weight: f64) {
        self.first_bad = Some(self.first_bad.map_or(weight, |known| known.min(weight)));
    }
}

fn bad(measured: &Measurement, factor: f64) -> bool {
    let valid = measured.latency_us > 0.0 && measured.latency_us.is_finite();
    measured.dropped || !valid || measured.latency_us >= factor * measured.l0_us
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(weight: f64, latency_us: f64) -> Measurement {
        Measurement { weight, l0_us: 10.0, latency_us, dropped: false }
    }

    fn lost(weight: f64) -> Measurement {
        Measurement { weight, l0_us: 10.0, latency_us: f64::NAN, dropped: true }
    }

    fn start(mode: ExploreMode) -> Climb {
        Climb::new(0.1, ExploreOptions { mode, ..ExploreOptions::default() })
            .expect("valid options")
    }

    #[test]
    fn run_step_follows_the_paper_and_max_step() {
        for mode in [ExploreMode::Bisect, ExploreMode::Literal] {
            let mut climb = start(mode);
            assert_eq!(climb.pending(), Step::Measure(0.1));
            let Step::Measure(next) = climb.next(&at(0.1, 20.0)) else { panic!("ended") };
            assert!((next - 0.15).abs() < 1e-12, "0.1 + 0.1·10/20");
        }
        let options = ExploreOptions { max_step: 1.25, ..ExploreOptions::default() };
        let mut careful = Climb::new(0.1, options).expect("valid");
        assert_eq!(careful.next(&at(0.1, 10.0)), Step::Measure(0.125));
    }

    #[test]
    fn literal_ends_at_zero_where_the_first_weight_overloads() {
        let mut climb = start(ExploreMode::Literal);
        assert_eq!(climb.next(&lost(0.1)), Step::Measure(0.05));
        assert_eq!(climb.next(&at(0.05, 12.0)), Step::Done { w_max: 0.0 });
    }

    #[test]
    fn bisect_continues_where_the_first_weight_overloads() {
        let mut climb = start(ExploreMode::Bisect);
        assert_eq!(climb.next(&lost(0.1)), Step::Measure(0.05));
        let Step::Measure(middle) = climb.next(&at(0.05, 12.0)) else { panic!("ended") };
        assert!((middle - 0.075).abs() < 1e-12);
        assert_eq!(climb.next(&at(0.075, 31.0)), Step::Measure(0.0625));
        assert_eq!(climb.first_bad, Some(0.075));
        assert_eq!(climb.w_max(), 0.05);
    }

    #[test]
    fn exploration_goes_no_further_than_the_packing_can_use() {
        let options = ExploreOptions { useful_max: Some(0.15), ..ExploreOptions::default() };
        let mut climb = Climb::new(0.1, options).expect("valid");
        assert_eq!(climb.next(&at(0.1, 10.0)), Step::Measure(0.15));
        assert_eq!(climb.next(&at(0.15, 11.0)), Step::Done { w_max: 0.15 });
        assert_eq!(climb.next(&at(0.15, 11.0)), Step::Done { w_max: 0.15 }, "stays done");
    }

    #[test]
    fn exploration_of_a_dead_backend_ends() {
        let mut climb = start(ExploreMode::Bisect);
        let mut steps = 0;
        while let Step::Measure(weight) = climb.pending() {
            climb.next(&lost(weight));
            steps += 1;
        }
        assert_eq!((steps, climb.w_max()), (10, 0.0));
    }

    #[test]
    fn a_good_weight_that_turns_bad_is_no_longer_good() {
        let mut climb = start(ExploreMode::Bisect);
        climb.next(&at(0.1, 10.0));
        climb.next(&at(0.2, 10.0));
        climb.next(&lost(0.15));
        assert_eq!(climb.w_max(), 0.1);
        assert_eq!(climb.first_bad, Some(0.15));
    }

    #[test]
    fn errors_name_the_invalid_number() {
        let broken = ExploreOptions { max_step: 1.0, ..ExploreOptions::default() };
        let error = Climb::new(0.1, broken).expect_err("a step of 1 never moves");
        assert!(error.to_string().contains("max_step"), "{error}");
        assert!(Climb::new(f64::NAN, ExploreOptions::default()).is_err());
        let broken = ExploreOptions { useful_max: Some(f64::INFINITY), ..Default::default() };
        assert!(Climb::new(0.1, broken).is_err());
    }
}
