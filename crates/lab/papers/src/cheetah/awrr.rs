//! Automatic weighted round robin: round robin whose weights follow the servers' load.
//!
//! ```text
//! N_i = round(10 · L_avg / ((1 - α) · L_i + α · L_avg)),   α = 0.5, within 2 and 30
//! ```
//!
//! Source: the Cheetah paper, §4.1. The load here is that of §2.1, open connections. O(servers).

const BALANCED: f64 = 10.0;
const ALPHA: f64 = 0.5;
const LEAST: f64 = 2.0;
const MOST: f64 = 30.0;

/// The turns of servers with so many open connections.
pub fn weights(open: &[u32]) -> Vec<u32> {
    let mean = open.iter().map(|&n| f64::from(n)).sum::<f64>() / open.len().max(1) as f64;
    let turns = |&load: &u32| {
        let smoothed = (1.0 - ALPHA) * f64::from(load) + ALPHA * mean;
        if smoothed == 0.0 {
            return BALANCED as u32;
        }
        (BALANCED * mean / smoothed).round().clamp(LEAST, MOST) as u32
    };
    open.iter().map(turns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_more_gets_fewer_turns() {
        assert_eq!(weights(&[0, 0]), [10, 10]);
        assert_eq!(weights(&[50, 50, 50]), [10, 10, 10]);
        // Mean 100: an empty server gets 10 / 0.5, one of twice the mean 10 / 1.5.
        assert_eq!(weights(&[0, 100, 200]), [20, 10, 7]);
        let mut crowd = [0; 100];
        crowd[0] = 10_000;
        assert_eq!(weights(&crowd)[0], 2, "the least");
    }
}
