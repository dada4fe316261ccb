//! HAProxy's leastconn, with the key it really uses.
//!
//! `key = inflight ? (inflight + 1)·4096 / eweight : 0`, `eweight = 16·weight`; the server of the least
//! key is picked, ties first in first out (`src/lb_fwlc.c`, HAProxy 2.6). An idle server therefore
//! always comes first whatever its weight, and the division is one of integers: great weights make
//! coarse keys. Weight 0 takes a server out. A pick costs O(log n) in HAProxy and O(n) here, which is
//! faster for the pools of tens that are searched.

use crate::des::Pick;

/// HAProxy's leastconn over one pool.
pub struct HaproxyLeastconn {
    weight: Vec<u32>,
    key: Vec<u32>,
    /// When the server was last put into the tree: less is earlier.
    order: Vec<u64>,
    inserted: u64,
}

const UNUSED: u32 = u32::MAX;
/// The key of 16 million in flight at a weight of 1, and of more.
const GREATEST: u32 = UNUSED - 1;

impl HaproxyLeastconn {
    /// A pool with these weights (0…256), all idle, in the order of the configuration.
    pub fn new(weights: &[u32]) -> Self {
        let key = weights.iter().map(|&w| if w == 0 { UNUSED } else { 0 }).collect();
        let n = weights.len() as u64;
        HaproxyLeastconn { weight: weights.to_vec(), key, order: (0..n).collect(), inserted: n }
    }

    fn reposition(&mut self, i: usize, in_flight: u32) {
        let w = self.weight[i];
        if w == 0 {
            return;
        }
        let key = match u64::from(in_flight) {
            0 => 0,
            n => ((n + 1) * 4096 / (16 * u64::from(w))).min(u64::from(GREATEST)) as u32,
        };
        // HAProxy leaves a server where it is when its key does not change.
        if key != self.key[i] {
            self.key[i] = key;
            self.order[i] = self.inserted;
            self.inserted += 1;
        }
    }

    /// Gives a server another weight, as `set server … weight` does.
    pub fn set_weight(&mut self, i: usize, weight: u32, in_flight: u32) {
        self.weight[i] = weight;
        self.key[i] = UNUSED;
        self.reposition(i, in_flight);
    }

    /// The server for the next request, among those allowed.
    pub fn pick_where(&self, allowed: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best = None;
        let (mut key, mut order) = (UNUSED, 0);
        for (i, (&k, &o)) in self.key.iter().zip(&self.order).enumerate() {
            if (k < key || (k == key && k != UNUSED && o < order)) && allowed(i) {
                (best, key, order) = (Some(i), k, o);
            }
        }
        best
    }
}

impl Pick for HaproxyLeastconn {
    fn pick(&mut self) -> Option<usize> {
        self.pick_where(|_| true)
    }

    fn changed(&mut self, i: usize, in_flight: u32) {
        self.reposition(i, in_flight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_server_comes_first_whatever_its_weight() {
        let mut lc = HaproxyLeastconn::new(&[256, 1]);
        assert_eq!(lc.pick(), Some(0));
        lc.changed(0, 1);
        assert_eq!(lc.pick(), Some(1));
        lc.changed(1, 1);
        assert_eq!(lc.pick(), Some(0));
    }

    #[test]
    fn ties_are_first_in_first_out_and_zero_is_out() {
        let mut lc = HaproxyLeastconn::new(&[1, 0, 1]);
        assert_eq!(lc.pick(), Some(0));
        lc.changed(0, 1);
        assert_eq!(lc.pick(), Some(2));
        lc.changed(2, 1);
        assert_eq!(lc.pick(), Some(0));
        lc.changed(0, 0);
        lc.changed(2, 0);
        assert_eq!(lc.pick(), Some(0), "0 went back into the tree before 2");
        assert_eq!(HaproxyLeastconn::new(&[0, 0]).pick(), None);
    }

    #[test]
    fn great_weights_make_coarse_keys() {
        let mut lc = HaproxyLeastconn::new(&[256, 200]);
        lc.changed(0, 1);
        lc.changed(1, 1);
        // 2·256/256 = 2 and 2·256/200 = 2 (2.56 cut): a tie that the weights do not show.
        assert_eq!(lc.pick(), Some(0));
        lc.set_weight(0, 32, 1);
        lc.set_weight(1, 25, 1);
        assert_eq!((lc.key[0], lc.key[1]), (16, 20));
    }

    #[test]
    fn no_number_in_flight_is_too_great() {
        let mut lc = HaproxyLeastconn::new(&[1, 1]);
        for (many, fewer) in [(1_048_576, 1), (u32::MAX, 1_048_576)] {
            lc.changed(1, fewer);
            lc.changed(0, many);
            assert_eq!(lc.pick(), Some(1), "{many} and {fewer}");
            assert_ne!(lc.key[0], UNUSED, "it is not out");
        }
    }
}
