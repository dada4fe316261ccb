//! Automatic weighted round robin: turns that follow the servers' load.
//!
//! ```text
//! N_i = round(10 · L_avg / ((1 - α) · L_i + α · L_avg)),  clamped to 2 … 30,  α = 0.5
//! ```
//!
//! Source: Cheetah (NSDI '20), §4.1. A server at the average load gets 10 turns of a round; an idle one at
//! most 20, so that a server that just joined is not overrun; one with three times the average 5. A server
//! whose load is not known is taken to have the average of those whose is. Cost: O(servers). It corrects
//! what an even spread left behind: weights are made of the last loads alone, so that servers of different
//! strength end with different loads, only less so.

/// Turns of a server at the average load.
const BALANCED: f64 = 10.0;
/// The fewest and the most turns.
const LEAST: f64 = 2.0;
const MOST: f64 = 30.0;
/// How much the average tempers a server's own load.
pub const ALPHA: f64 = 0.5;

/// What a server's share is to be multiplied by: `L_avg / ((1 - α) · L_i + α · L_avg)`; 1 where no server has
/// load.
pub fn correction(load: f64, average: f64, alpha: f64) -> f64 {
    let tempered = (1.0 - alpha) * load + alpha * average;
    if tempered > 0.0 { average / tempered } else { 1.0 }
}

/// The turns for these loads, in any unit; `None` for a load that is not known.
pub fn weights(loads: &[Option<f64>]) -> Vec<u16> {
    let known = loads.iter().flatten();
    let average = known.clone().sum::<f64>() / known.count().max(1) as f64;
    let turns = |load: &Option<f64>| {
        let turns = BALANCED * correction(load.unwrap_or(average), average, ALPHA);
        turns.round().clamp(LEAST, MOST) as u16
    };
    loads.iter().map(turns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(loads: &[f64]) -> Vec<u16> {
        weights(&loads.iter().copied().map(Some).collect::<Vec<_>>())
    }

    #[test]
    fn the_busier_get_less_within_the_bounds() {
        assert_eq!(of(&[5.0, 5.0, 5.0]), [10, 10, 10]);
        assert_eq!(of(&[0.0, 0.0]), [10, 10]);
        // Mean 100: an empty server gets 10 / 0.5, one of twice the mean 10 / 1.5.
        assert_eq!(of(&[0.0, 100.0, 200.0]), [20, 10, 7]);
        let mut crowd = [0.0; 100];
        crowd[0] = 10_000.0;
        assert_eq!(of(&crowd)[0], 2, "the least");
        assert!(weights(&[]).is_empty());
    }

    #[test]
    fn a_backend_without_a_report_gets_the_average_and_does_not_change_it() {
        assert_eq!(weights(&[Some(0.0), None, Some(200.0)]), [20, 10, 7]);
        assert_eq!(weights(&[None, None]), [10, 10]);
        assert_eq!(weights(&[None, Some(0.7)]), [10, 10]);
    }

    #[test]
    fn a_correction_without_temper_is_proportional() {
        assert_eq!(correction(2.0, 1.0, 0.0), 0.5);
        assert_eq!(correction(2.0, 1.0, 1.0), 1.0, "the average alone");
        assert_eq!(correction(0.0, 0.0, 0.5), 1.0);
    }
}
