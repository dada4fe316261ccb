//! The paper's way (KnapsackLB §4.5): latencies against the curves, with a bare threshold. When most of
//! the pool is off in one direction the traffic has changed; when one backend is off, its capacity
//! has. On noise it fires all day: the mean of 20 exponential samples is off by more than 20 % more
//! often than every third time. For comparison, and where no rates are known.

/// The paper's threshold: ±20 %.
pub const PAPER_THRESHOLD: f64 = 0.2;
/// The part of the pool that makes a change one of traffic: "all or most".
const MOST: f64 = 0.5;

/// A latency, and what the curve says of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// What was measured, in any unit.
    pub latency: f64,
    /// What the curve expects, in the same.
    pub expected: f64,
}

/// What the latencies of a pool say.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// Every latency is where its curve has it.
    Nothing,
    /// Most are off in one direction: traffic has grown (true) or fallen.
    Traffic {
        /// There is more of it.
        grown: bool,
    },
    /// These, by position, are off on their own.
    Backends(Vec<usize>),
}

/// Judges a pool by its latencies; `threshold` is relative. Positions without a latency count as quiet.
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
    // One backend alone is its own majority: that says nothing of traffic.
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
    fn most_together_is_traffic_and_one_alone_is_its_own() {
        let judge = |ratios: &[f64]| compare(&pool(ratios), PAPER_THRESHOLD);
        assert_eq!(judge(&[1.1, 0.9, 1.0, 1.19]), Judgement::Nothing);
        assert_eq!(judge(&[1.3, 1.25, 1.4, 1.0]), Judgement::Traffic { grown: true });
        assert_eq!(judge(&[0.7, 0.6, 0.5, 0.9]), Judgement::Traffic { grown: false });
        assert_eq!(judge(&[1.0, 1.5, 1.0, 1.0]), Judgement::Backends(vec![1]));
        assert_eq!(judge(&[1.5, 0.6, 1.0, 1.0]), Judgement::Backends(vec![0, 1]));
        assert_eq!(judge(&[1.5]), Judgement::Backends(vec![0]));
    }

    #[test]
    fn who_was_not_measured_is_quiet() {
        let mut some = pool(&[1.0, 1.5]);
        some.push(None);
        some.push(Some(Moved { latency: 3.0, expected: 0.0 }));
        assert_eq!(compare(&some, PAPER_THRESHOLD), Judgement::Backends(vec![1]));
        assert_eq!(compare(&[], PAPER_THRESHOLD), Judgement::Nothing);
    }
}
