//! Numbers of cores that are considered: 1, 2, 3, then four per octave up to 65,536. Finer steps than a
//! fifth are distinguished by no estimate of a minute, and what is between is the allowance's to mend.

/// How many there are.
pub(crate) const CANDIDATES: usize = 60;

/// Misfits that differ by less differ by rounding.
pub(crate) const EQUAL: f64 = 1e-6;
/// No candidate is contradicted more than this.
pub(crate) const MOST: f64 = 20.0;

/// The number at this position.
pub(crate) fn cores(position: usize) -> f64 {
    match position {
        0..4 => (position + 1) as f64,
        _ => {
            let (octave, quarter) = ((position - 3) / 4, (position - 3) % 4);
            f64::from(1u32 << octave) * (4 + quarter) as f64
        }
    }
}

/// The position of the greatest that is at most `n`, which is at least 1.
pub(crate) fn position(n: u32) -> usize {
    let octave = n.ilog2();
    let at = match octave {
        0 => 0,
        1 => n as usize - 1,
        _ => 3 + 4 * (octave as usize - 2) + ((n >> (octave - 2)) as usize - 4),
    };
    at.min(CANDIDATES - 1)
}

/// By how much each candidate is contradicted: squares in units of their variance, summed over time.
#[derive(Clone, Debug)]
pub(crate) struct Misfits {
    misfits: [f64; CANDIDATES],
}

impl Misfits {
    pub(crate) const NONE: Misfits = Misfits { misfits: [0.0; CANDIDATES] };

    /// Adds what was newly found, of what was there before `kept`. No single finding adds more than
    /// `most` to the difference of two candidates, for one that a change of the backend falls into proves
    /// nothing, and all together no more than [`MOST`], so that a backend that has changed is believed
    /// after a few.
    pub(crate) fn add(&mut self, found: &[f64; CANDIDATES], kept: f64, most: f64) {
        let least = found.iter().copied().fold(f64::INFINITY, f64::min);
        for (misfit, found) in self.misfits.iter_mut().zip(found) {
            *misfit = kept * *misfit + (found - least).min(most);
        }
        let least = self.misfits.iter().copied().fold(f64::INFINITY, f64::min);
        self.misfits.iter_mut().for_each(|misfit| *misfit = (*misfit - least).min(MOST));
    }

    /// The misfit of the candidate at this position, over the least one.
    pub(crate) fn at(&self, position: usize) -> f64 {
        self.misfits[position]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_and_their_positions_agree() {
        for n in 1..200_000 {
            let k = position(n);
            assert!(cores(k) <= f64::from(n), "{n}");
            assert!(k + 1 == CANDIDATES || cores(k + 1) > f64::from(n), "{n}");
        }
        assert_eq!((cores(3), cores(4), cores(7), cores(8)), (4.0, 5.0, 8.0, 10.0));
        assert_eq!(cores(CANDIDATES - 1), 65_536.0);
    }

    #[test]
    fn a_finding_is_bounded_and_fades() {
        let mut misfits = Misfits::NONE;
        let mut found = [0.0; CANDIDATES];
        found[0] = 1e9;
        misfits.add(&found, 0.5, 10.0);
        assert_eq!((misfits.at(0), misfits.at(1)), (10.0, 0.0));
        misfits.add(&[7.0; CANDIDATES], 0.5, 10.0);
        assert_eq!((misfits.at(0), misfits.at(1)), (5.0, 0.0));
        (0..5).for_each(|_| misfits.add(&found, 1.0, 10.0));
        assert_eq!((misfits.at(0), misfits.at(1)), (MOST, 0.0));
    }
}
