//! The paper's test (KnapsackLB §4.5): latencies against the curves, with a bare threshold. When most of the pool
//! deviates in one direction the traffic has changed; when one backend deviates, its capacity has. It fires on noise
//! all the time: the mean of 20 exponential samples is off by more than 20 % more than every third time. For
//! comparison, and where no rates are known.

/// The paper's threshold: ±20 %.
pub const PAPER_THRESHOLD: f64 = 0.2;
/// The part of the pool from which on a change is one of traffic: "all or most".
const MOST: f64 = 0.5;

/// A latency with the curve's prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// The measured latency, in any unit.
    pub latency: f64,
    /// The latency predicted by the curve, in the same unit.
    pub expected: f64,
}

/// What the latencies of a pool show.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// Every latency is as its curve predicts.
    Nothing,
    /// Most deviate in one direction: traffic has grown (true) or fallen.
    Traffic {
        /// It has grown.
        grown: bool,
    },
    /// These, by position, have changed on their own.
    Backends(Vec<usize>),
}

/// Judges a pool by its latencies; `threshold` is relative. Positions without a latency count as unchanged.
pub fn compare(pool: &[Option<Moved>], threshold: f64) -> Judgement {
    let off = |m: &Option<Moved>| {
        let m = m.as_ref().filter(|m| m.expected > 0.0)?;
        let ratio = m.latency / m.expected - 1.0;
        (ratio.abs() > threshold).then_some(ratio > 0.0)
    };
    let signs: Vec<Option<bool>> = pool.iter().map(off).collect();
    let measured = pool.iter().flatten().count();
    let above = signs.iter().filter(|s| **s == Some(true)).count();
    let below = signs.iter().filter(|s| **s == Some(false)).count();
    // With one backend alone a majority says nothing about traffic.
    let most = |count: usize| count >= 2 && count as f64 > MOST * measured as f64;
    if most(above) || most(below) {
        return Judgement::Traffic { grown: above > below };
    }
    if above + below == 0 {
        return Judgement::Nothing;
    }
    let moved = signs.iter().enumerate().filter(|(_, s)| s.is_some()).map(|(i, _)| i);
    Judgement::Backends(moved.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(ratios: &[f64]) -> Vec<Option<Moved>> {
        ratios.iter().map(|r| Some(Moved { latency: 40.0 * r, expected: 40.0 })).collect()
    }

    #[test]
    fn most_backends_together_are_traffic_and_one_alone_has_changed() {
        let judge = |ratios: &[f64]| compare(&pool(ratios), PAPER_THRESHOLD);
        assert_eq!(judge(&[1.1, 0.9, 1.0, 1.19]), Judgement::Nothing);
        assert_eq!(judge(&[1.3, 1.25, 1.4, 1.0]), Judgement::Traffic { grown: true });
        assert_eq!(judge(&[0.7, 0.6, 0.5, 0.9]), Judgement::Traffic { grown: false });
        assert_eq!(judge(&[1.0, 1.5, 1.0, 1.0]), Judgement::Backends(vec![1]));
        assert_eq!(judge(&[1.5, 0.6, 1.0, 1.0]), Judgement::Backends(vec![0, 1]));
        assert_eq!(judge(&[1.5]), Judgement::Backends(vec![0]));
    }

    #[test]
    fn backend_without_a_measurement_counts_as_unchanged() {
        let mut some = pool(&[1.0, 1.5]);
        some.push(None);
        some.push(Some(Moved { latency: 3.0, expected: 0.0 }));
        assert_eq!(compare(&some, PAPER_THRESHOLD), Judgement::Backends(vec![1]));
        assert_eq!(compare(&[], PAPER_THRESHOLD), Judgement::Nothing);
    }
}
