//! What the backends of a pool have in common, for they do the same work: the middle one speaks for all.

use plimsoll_learn::Dispersion;

/// The middle one of many errs by so much more than their mean: √(π/2).
const MIDDLE_ERROR: f64 = 1.25;

/// What they have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Typical {
    /// How irregular load is for the middle one; 1 (all exponential) while nobody knows.
    pub variability: f64,
    /// How service scatters, once somebody knows.
    pub dispersion: Option<Dispersion>,
    /// Some are held to quotas of CPU, which the others then are as well: they are deployed alike.
    pub quotas: bool,
}

impl Default for Typical {
    fn default() -> Self {
        Typical { variability: 1.0, dispersion: None, quotas: false }
    }
}

/// By how irregular load is for each who knows.
pub(crate) fn variability(known: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = known.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(Typical::default().variability)
}

/// By how service scatters for each who knows, and whether its cores are told: by those if there are several, or else by all.
/// None while fewer than two know: who is alone would get back what it believes.
pub(crate) fn dispersion(known: impl Iterator<Item = (bool, Dispersion)>) -> Option<Dispersion> {
    let mut all: Vec<(bool, Dispersion)> = known.collect();
    if all.iter().filter(|(is_told, _)| *is_told).count() > 1 {
        all.retain(|(is_told, _)| *is_told);
    }
    if all.len() < 2 {
        return None;
    }
    all.sort_by(|(_, left), (_, right)| left.ratio.total_cmp(&right.ratio));
    let ((_, low), (_, high)) = (all[(all.len() - 1) / 2], all[all.len() / 2]);
    let error = MIDDLE_ERROR * 0.5 * (low.error + high.error) / (all.len() as f64).sqrt();
    Some(Dispersion { ratio: 0.5 * (low.ratio + high.ratio), error, is_known: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of those who know: whether cores are told, and the ratio.
    fn ratio_of(known: &[(bool, f64)]) -> Option<f64> {
        let known = known
            .iter()
            .map(|&(is_told, ratio)| (is_told, Dispersion { ratio, error: 0.2, is_known: true }));
        dispersion(known).map(|middle| middle.ratio)
    }

    #[test]
    fn the_middle_speaks_for_all_and_nobody_for_himself() {
        assert_eq!(ratio_of(&[]), None);
        assert_eq!(ratio_of(&[(true, 4.0)]), None);
        assert_eq!(ratio_of(&[(true, 4.0), (false, 2.0)]), Some(3.0));
        assert_eq!(ratio_of(&[(true, 4.0), (false, 20.0), (false, 1.0)]), Some(4.0));
    }

    #[test]
    fn with_too_few_cores_it_shows_too_little_so_that_told_ones_go_before() {
        assert_eq!(ratio_of(&[(true, 4.0), (true, 5.0), (false, 1.0), (false, 1.1)]), Some(4.5));
    }

    #[test]
    fn of_many_the_middle_errs_less_than_one() {
        let one = Dispersion { ratio: 1.0, error: 0.2, is_known: true };
        let of = |n: usize| dispersion(std::iter::repeat_n((true, one), n)).map(|d| d.error);
        assert!(of(9).is_some_and(|error| (error - 0.2 * MIDDLE_ERROR / 3.0).abs() < 1e-12));
        assert!(of(9) < of(2));
    }

    #[test]
    fn while_nobody_knows_all_is_exponential() {
        assert_eq!(variability(std::iter::empty()), 1.0);
        assert_eq!(variability([0.4, 3.0, 0.6].into_iter()), 0.6);
    }
}
