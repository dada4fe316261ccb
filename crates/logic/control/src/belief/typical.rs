//! Estimates common to the backends of a pool, which do the same work: the median of the pool.

use plimsoll_learn::Dispersion;

use crate::backend::Backend;
use crate::belief::knowledge::Knowledge;
use crate::tuning::belief::typical::MIDDLE_ERROR;

/// The common estimates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Typical {
    /// Median variability of the load; 1 (all exponential) while none is known.
    pub variability: f64,
    /// Dispersion of the service times, once known.
    pub dispersion: Option<Dispersion>,
    /// Some backends have CPU quotas; the others then have them as well, because they are deployed alike.
    pub quotas: bool,
}

impl Default for Typical {
    fn default() -> Self {
        Typical { variability: 1.0, dispersion: None, quotas: false }
    }
}

impl Typical {
    /// What is typical of these backends.
    pub fn of(backends: &[Backend]) -> Typical {
        let known = || backends.iter().map(|b| &b.knowledge);
        Typical {
            variability: variability(known().filter_map(Knowledge::own_variability)),
            dispersion: dispersion(
                known().filter_map(|k| Some((!k.is_lower_bound(), k.own_dispersion()?))),
            ),
            quotas: known().any(Knowledge::is_held),
        }
    }
}

/// The median of the known variabilities.
fn variability(known: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = known.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(Typical::default().variability)
}

/// The median of the known dispersions, each with whether the backend's cores are known: over those with known cores if
/// there are several, or else over all. `None` while fewer than two are known: a single backend would get back its own
/// estimate.
fn dispersion(known: impl Iterator<Item = (bool, Dispersion)>) -> Option<Dispersion> {
    let mut all: Vec<(bool, Dispersion)> = known.collect();
    if all.iter().filter(|(cores_known, _)| *cores_known).count() > 1 {
        all.retain(|(cores_known, _)| *cores_known);
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

    /// Whether cores are known, and the ratio, of each.
    fn ratio_of(known: &[(bool, f64)]) -> Option<f64> {
        let known = known.iter().map(|&(cores_known, ratio)| {
            (cores_known, Dispersion { ratio, error: 0.2, is_known: true })
        });
        dispersion(known).map(|middle| middle.ratio)
    }

    #[test]
    fn the_median_counts_for_all_and_a_single_estimate_for_none() {
        assert_eq!(ratio_of(&[]), None);
        assert_eq!(ratio_of(&[(true, 4.0)]), None);
        assert_eq!(ratio_of(&[(true, 4.0), (false, 2.0)]), Some(3.0));
        assert_eq!(ratio_of(&[(true, 4.0), (false, 20.0), (false, 1.0)]), Some(4.0));
    }

    #[test]
    fn dispersions_with_known_cores_take_precedence() {
        assert_eq!(ratio_of(&[(true, 4.0), (true, 5.0), (false, 1.0), (false, 1.1)]), Some(4.5));
    }

    #[test]
    fn the_median_of_many_has_a_smaller_error_than_one() {
        let one = Dispersion { ratio: 1.0, error: 0.2, is_known: true };
        let of = |n: usize| dispersion(std::iter::repeat_n((true, one), n)).map(|d| d.error);
        assert!(of(9).is_some_and(|error| (error - 0.2 * MIDDLE_ERROR / 3.0).abs() < 1e-12));
        assert!(of(9) < of(2));
    }

    #[test]
    fn without_estimates_the_variability_is_exponential() {
        assert_eq!(variability(std::iter::empty()), 1.0);
        assert_eq!(variability([0.4, 3.0, 0.6].into_iter()), 0.6);
    }
}
