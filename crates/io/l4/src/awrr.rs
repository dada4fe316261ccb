//! Weights that follow load: Cheetah's AWRR (§5).
//!
//! ```text
//! N_i = round(10 · L_avg / ((1-α) · L_i + α · L_avg)),  clamped to 2 … 30,  α = 0.5
//! ```
//!
//! A server at the average load gets 10 places of the list; an idle one at most 20, so that a server
//! that just joined is not overrun; one with three times the average 5. Cost: O(servers) a second. It
//! corrects what an even spread left behind; servers of different strength are told apart only as fast
//! as their load differs.

/// Places of a server at the average load.
const BALANCE: f64 = 10.0;
/// How much the average tempers a server's own load.
const ALPHA: f64 = 0.5;

/// The weights for these loads, in any unit.
pub fn weights(loads: &[f64]) -> Vec<u16> {
    let average = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
    let weight = |load: &f64| {
        let tempered = (1.0 - ALPHA) * load + ALPHA * average;
        // Nobody has load: all are alike.
        let places = if tempered > 0.0 { BALANCE * average / tempered } else { BALANCE };
        places.round().clamp(2.0, 30.0) as u16
    };
    loads.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::weights;

    #[test]
    fn the_busier_get_less_within_the_bounds() {
        assert_eq!(weights(&[5.0, 5.0, 5.0]), [10, 10, 10]);
        assert_eq!(weights(&[0.0, 0.0]), [10, 10]);
        assert_eq!(weights(&[0.0, 10.0]), [20, 7]);
        assert_eq!(weights(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 100.0])[9], 2);
        assert!(weights(&[]).is_empty());
    }
}
