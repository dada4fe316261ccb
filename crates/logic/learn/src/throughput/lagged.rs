//! Completions between two polls by the number in flight some time before: this shows the cores at a single load,
//! whatever arrivals depend on.
//!
//! Completions less `v·∫min(n, c)` have the mean 0 given anything known beforehand. The number in flight at the first
//! poll is not enough under an in-flight method: a backend with one request less gets the next one within milliseconds,
//! so the number says little about the time until the second poll. The number in flight a service time earlier
//! correlates with the present one through the load of the whole pool, which changes slowly, so the integral follows
//! from the means of both polls. (An instrumental variable.) Where loads do not last, or polls are far apart, all
//! groups show the same: they say nothing, and nothing wrong.
//!
//! Requests in service have a part of their work behind them: in steady state the rest takes `(1 + C²)/2` services in
//! the mean, with C² the squared coefficient of variation of service times (renewal theory: the mean residual life).
//! Hence `(1 - C²)/2` more complete for every core that is busy at the first poll and not at the second: none where
//! service is exponential, and a half where all requests take the same, which otherwise looks like more cores. C² is
//! the dispersion of completions over long stretches ([`Dispersion`]). Where service times scatter much it takes many
//! services to reach steady state, because long requests stay: then pairs of a service time before underestimate the
//! cores, and those of long before are used.
//!
//! Where no number of cores explains the pairs, they are not used.

use serde::{Deserialize, Serialize};

use super::Dispersion;
use super::block::bucket;

/// Groups with fewer pairs are not used: their variance is unknown.
const LEAST_PAIRS: f64 = 8.0;
/// Weight of the prior that completions scatter as a Poisson process does, in pairs.
const POISSON: f64 = 4.0;
/// A deviation of which more than this part remains counts as constant, which it cannot be distinguished from.
const STAYS: f64 = 0.99;
const LEAST_KEPT: f64 = 0.01;
/// The course from one poll to the other is known to this part of its extent.
const WAY: f64 = 0.2;
/// Numbers in flight up to this are groups of their own, greater ones are grouped by a quarter of an octave.
const EXACT: u32 = 16;

/// All pairs of polls with one number in flight before them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Group {
    before: u32,
    pairs: f64,
    completions: f64,
    /// Sum of squares.
    cc: f64,
    seconds: f64,
    /// The numbers in flight at the polls, ascending.
    levels: Vec<Level>,
}

/// Seconds in which the first and the second polls of pairs had this number in flight; each pair's time is added to the
/// levels that its polls had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Level {
    in_flight: f64,
    first_s: f64,
    second_s: f64,
}

impl Group {
    fn add(&mut self, fresh: Level) {
        let at = self.levels.partition_point(|level| level.in_flight < fresh.in_flight);
        match self.levels.get_mut(at) {
            Some(level) if level.in_flight == fresh.in_flight => {
                level.first_s += fresh.first_s;
                level.second_s += fresh.second_s;
            }
            _ => self.levels.insert(at, fresh),
        }
    }

    fn join(&mut self, other: &Group) {
        self.pairs += other.pairs;
        self.completions += other.completions;
        self.cc += other.cc;
        self.seconds += other.seconds;
        other.levels.iter().for_each(|&level| self.add(level));
    }

    fn discount(&mut self, kept: f64) {
        self.pairs *= kept;
        self.completions *= kept;
        self.cc *= kept;
        self.seconds *= kept;
        for level in &mut self.levels {
            level.first_s *= kept;
            level.second_s *= kept;
        }
    }

    /// Variance of the sum of all completions.
    fn variance(&self) -> f64 {
        let mean = self.completions / self.pairs;
        let scatter = (self.cc - mean * self.completions).max(0.0) + POISSON * mean;
        (self.pairs * scatter / (self.pairs + POISSON)).max(1.0)
    }

    /// Mean busy cores out of c at the first polls, and at the second.
    fn busy(&self, c: f64) -> (f64, f64) {
        let add = |(first, second): (f64, f64), level: &Level| {
            let cores = level.in_flight.min(c);
            (first + cores * level.first_s, second + cores * level.second_s)
        };
        let (first, second) = self.levels.iter().fold((0.0, 0.0), add);
        (first / self.seconds, second / self.seconds)
    }
}

/// Pairs of polls of one backend by the number in flight some time before the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lagged {
    /// Ascending.
    groups: Vec<Group>,
}

impl Lagged {
    /// Adds one pair of polls: the number in flight `before`, a service time or more earlier, at the first and at the
    /// second, and the completions in between.
    pub fn note(&mut self, before: u32, polls: [u32; 2], completions: f64, seconds: f64) {
        let group = self.group(step(before));
        group.pairs += 1.0;
        group.completions += completions;
        group.cc += completions * completions;
        group.seconds += seconds;
        let [first, second] = polls.map(|in_flight| f64::from(bucket(in_flight)));
        group.add(Level { in_flight: first, first_s: seconds, second_s: 0.0 });
        group.add(Level { in_flight: second, first_s: 0.0, second_s: seconds });
    }

    /// Drops all pairs.
    pub fn clear(&mut self) {
        self.groups.clear();
    }

    fn group(&mut self, before: u32) -> &mut Group {
        let at = self.groups.partition_point(|group| group.before < before);
        if self.groups.get(at).is_none_or(|group| group.before != before) {
            self.groups.insert(at, Group { before, ..Group::default() });
        }
        &mut self.groups[at]
    }

    pub(super) fn join(&mut self, other: &Lagged) {
        other.groups.iter().for_each(|group| self.group(group.before).join(group));
    }

    pub(super) fn discount(&mut self, kept: f64) {
        self.groups.iter_mut().for_each(|group| group.discount(kept));
        self.groups.retain(|group| group.pairs > 0.5);
    }

    fn judged(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| group.pairs >= LEAST_PAIRS)
    }

    /// Degrees of freedom of the groups about the cores: one less than there are groups.
    pub(super) fn freedom(&self) -> usize {
        self.judged().count().saturating_sub(1)
    }

    /// How far completions contradict this number of cores at any speed: squared, in units of the variance. (The speed
    /// follows from the blocks, which have a shorter memory.)
    pub(super) fn contradiction(&self, c: f64, dispersion: Option<Dispersion>) -> f64 {
        let busy: Vec<(f64, f64)> = self.judged().map(|group| group.busy(c)).collect();
        let seconds: f64 = self.judged().map(|group| group.seconds).sum();
        let both =
            self.judged().zip(&busy).map(|(g, (first, second))| g.seconds * (first + second));
        let mean = both.sum::<f64>() / (2.0 * seconds);
        let part = Self::part(
            self.judged()
                .zip(&busy)
                .map(|(group, (first, second))| (group.seconds, first - mean, second - mean)),
        );
        let completions: f64 = self.judged().map(|group| group.completions).sum();
        let v = completions / (mean * seconds).max(1e-9);
        // Two unknowns: the speed, and how much work is done on requests in service.
        let (ahead, error) = dispersion.map_or((0.0, 0.0), Dispersion::ahead);
        let (mut hh, mut hx, mut xx) = (0.0, 0.0, 0.0);
        let (mut hd, mut dd, mut dx) = (0.0, 1.0 / (error * error).max(1e-9), 0.0);
        for (group, (first, second)) in self.judged().zip(&busy) {
            let h = group.seconds * (mean + part * (first + second - 2.0 * mean));
            let doubt = v * group.seconds * WAY * (first - second);
            let d = group.pairs * (first - second);
            let (x, variance) = (group.completions - ahead * d, group.variance() + doubt * doubt);
            hh += h * h / variance;
            hx += h * x / variance;
            xx += x * x / variance;
            hd += h * d / variance;
            dd += d * d / variance;
            dx += d * x / variance;
        }
        if hh <= 0.0 {
            return 0.0;
        }
        let explained = (hx * hx * dd - 2.0 * hx * dx * hd + dx * dx * hh) / (hh * dd - hd * hd);
        (xx - explained).max(0.0)
    }

    /// Whether a number of cores with this contradiction explains the pairs: at most `times` their degrees of freedom,
    /// plus `more`.
    pub(super) fn is_explained(&self, contradiction: f64, (times, more): (f64, f64)) -> bool {
        contradiction <= times * self.freedom() as f64 + more
    }

    /// A deviation from the mean at the first poll that is r times as great at the second decays exponentially in
    /// between: its mean as a part of the sum of both; a half where it stays constant.
    fn part(deviations: impl Iterator<Item = (f64, f64, f64)>) -> f64 {
        let add = |(both, first): (f64, f64), (seconds, a, b): (f64, f64, f64)| {
            (both + seconds * a * b, first + seconds * a * a)
        };
        let (both, first) = deviations.fold((0.0, 0.0), add);
        let r = if first > 0.0 { both / first } else { 1.0 };
        if r > STAYS {
            return 0.5;
        }
        let r = r.max(LEAST_KEPT);
        (1.0 - r) / -r.ln() / (1.0 + r)
    }
}

/// The least number in flight of its group.
fn step(in_flight: u32) -> u32 {
    let n = bucket(in_flight);
    if n < EXACT {
        return n;
    }
    let width = 1 << (n.ilog2() - 2);
    n / width * width
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: (f64, f64) = (2.0, 4.0);

    #[test]
    fn groups_are_single_numbers_and_then_quarters_of_an_octave() {
        assert_eq!([0, 1, 15].map(step), [0, 1, 15]);
        assert_eq!([16, 19, 20, 31, 32, 39, 40].map(step), [16, 16, 20, 28, 32, 32, 40]);
    }

    /// Three cores with 10 requests per second each: 2 in flight complete 2 in 0.1 s, 6 complete 3.
    fn seen(more: f64) -> Lagged {
        let mut lagged = Lagged::default();
        for k in 0..50 {
            let chance = f64::from(k % 2) - 0.5;
            lagged.note(2, [2, 2], 2.0 + chance, 0.1);
            lagged.note(4, [3, 5], 3.0 + more + chance, 0.1);
            lagged.note(6, [5, 7], 3.0 + chance, 0.1);
        }
        lagged
    }

    #[test]
    fn pairs_at_several_loads_show_the_cores() {
        let lagged = seen(0.0);
        assert_eq!(lagged.freedom(), 2);
        assert!(lagged.is_explained(lagged.contradiction(3.0, None), LIMIT));
        assert!(lagged.contradiction(3.0, None) < 1e-9);
        assert!(lagged.contradiction(2.0, None) > 25.0);
        assert!(lagged.contradiction(4.0, None) > 25.0);
        let mut twice = lagged.clone();
        twice.join(&lagged);
        twice.discount(0.5);
        assert!(
            (twice.contradiction(4.0, None) / lagged.contradiction(4.0, None) - 1.0).abs() < 0.1
        );
    }

    #[test]
    fn work_done_on_requests_in_service_is_subtracted_once_the_dispersion_is_known() {
        // Three cores and regular service: half a request more completes for each core fewer at the second poll.
        let mut lagged = Lagged::default();
        for k in 0..400 {
            let chance = f64::from(k % 2) - 0.5;
            lagged.note(1, [1, 2], 1.0 + chance, 0.1);
            lagged.note(2, [2, 2], 2.0 + chance, 0.1);
            lagged.note(6, [6, 2], 3.0 + chance, 0.1);
        }
        let regular = Dispersion { ratio: 0.0, error: 0.01, is_known: true };
        let unknown = Dispersion { is_known: false, ..regular };
        let [of_three, as_exponential] =
            [regular, unknown].map(|d| lagged.contradiction(3.0, Some(d)));
        assert!(of_three < 0.5 * as_exponential, "{of_three} {as_exponential}");
        assert_eq!(as_exponential, lagged.contradiction(3.0, None));
    }

    #[test]
    fn pairs_that_no_number_of_cores_explains_are_recognised() {
        let lagged = seen(2.0);
        let all = [1.0, 2.0, 3.0, 4.0, 8.0].map(|c| lagged.contradiction(c, None));
        let least = all.into_iter().fold(f64::INFINITY, f64::min);
        assert!(!lagged.is_explained(least, LIMIT));
    }

    #[test]
    fn one_group_shows_nothing() {
        let mut lagged = Lagged::default();
        (0..50).for_each(|_| lagged.note(3, [3, 4], 30.0, 0.1));
        assert_eq!((lagged.freedom(), lagged.contradiction(1.0, None)), (0, 0.0));
        lagged.clear();
        assert_eq!(lagged, Lagged::default());
    }
}
