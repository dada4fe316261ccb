//! Page's CUSUM for a Poisson process in busy time: the log-likelihood ratio of service at `θ` times the known rate
//! against the known rate, `(D·ln θ + (1 − θ)·E)/φ`, with D completions where E were expected, bounded below by 0.
//!
//! Without a change it loses `κ = θ − 1 − ln θ` nats per completion, and exceeds a threshold of h nats once in about
//! `e^h / κ` completions (Siegmund 1985, §2.6; Lorden 1971: never more often than once in `e^h`); no test with that
//! rate of false alarms is faster. With a dispersion of φ, φ completions count as one.

/// Ratios that the charts are tuned to. The outer ones detect a slow-down to 60 % in 1.003 times the least possible
/// number of requests (0.156 nats each); the inner ones detect what the outer ones miss.
pub(super) const TUNED: [f64; 4] = [0.62, 0.85, 1.18, 1.6];

/// Completions and expected completions since a chart left zero, the time since then, and request-seconds in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Excursion {
    pub nats: f64,
    pub completions: f64,
    pub expected: f64,
    pub seconds: f64,
    pub in_flight_s: f64,
}

/// The gain of every chart over an interval with known busy core-seconds. `rate` is that of a core.
pub(super) fn gains(
    completions: f64,
    core_seconds: f64,
    rate: impl Fn(f64) -> f64,
) -> [f64; TUNED.len()] {
    TUNED.map(|theta| completions * theta.ln() + (1.0 - theta) * core_seconds * rate(theta))
}

/// The state of one chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Evidence {
    pub excursion: Excursion,
    /// Its value as a part of the alarm threshold.
    pub part: f64,
}

/// The charts of one backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Charts([Excursion; TUNED.len()]);

impl Charts {
    /// Takes an interval: completions, expected completions, and the gain of each chart.
    pub fn note(
        &mut self,
        completions: f64,
        expected: f64,
        gains: [f64; TUNED.len()],
        seconds: f64,
        in_flight_s: f64,
    ) {
        for (gain, chart) in gains.iter().zip(&mut self.0) {
            let nats = chart.nats + gain;
            if nats <= 0.0 {
                *chart = Excursion::default();
                continue;
            }
            chart.nats = nats;
            chart.completions += completions;
            chart.expected += expected;
            chart.seconds += seconds;
            chart.in_flight_s += in_flight_s;
        }
    }

    /// The chart closest to an alarm, where one false alarm in this many completions is tolerated.
    pub fn nearest(&self, completions_between: f64, noise: f64) -> Evidence {
        let part = |(theta, chart): (&f64, &Excursion)| {
            let loss = theta - 1.0 - theta.ln();
            let needed = (completions_between * TUNED.len() as f64 * loss / noise).max(10.0).ln();
            Evidence { excursion: *chart, part: chart.nats / needed }
        };
        let all = TUNED.iter().zip(&self.0).map(part);
        let nothing = Evidence { excursion: Excursion::default(), part: 0.0 };
        all.max_by(|a, b| a.part.total_cmp(&b.part)).unwrap_or(nothing)
    }

    /// Whether every chart is below this many nats.
    pub fn are_below(&self, nats: f64) -> bool {
        self.0.iter().all(|chart| chart.nats < nats)
    }

    /// Sets all charts to zero.
    pub fn clear(&mut self) {
        *self = Charts::default();
    }
}
