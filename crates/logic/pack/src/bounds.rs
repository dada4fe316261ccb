//! What the cheapest units of weight cost, as units come and go.

/// Weight on offer, by its price: covers any need from the cheapest up in `O(log RUNGS)`, and takes
/// weight in or out at the same cost. Prices are rounded down to rungs of a logarithmic ladder (a Fenwick
/// tree over them), so that its answers are lower bounds.
#[derive(Debug)]
pub(crate) struct PriceLadder {
    /// The price that stands in the middle of the ladder.
    middle: f64,
    weights: Vec<i64>,
    costs: Vec<f64>,
}

/// Rungs above the lowest one; a power of two. Two neighbours differ by 0.7 %.
const RUNGS: usize = 1 << 12;
/// Prices further than this factor from the middle go to the ladder's ends.
const SPAN: f64 = 1e6;

impl PriceLadder {
    pub fn new(middle: f64) -> Self {
        PriceLadder { middle, weights: vec![0; RUNGS + 1], costs: vec![0.0; RUNGS + 1] }
    }

    fn rung(&self, price: f64) -> usize {
        let relative = price / self.middle;
        if relative <= 1.0 / SPAN {
            return 0;
        }
        let height = (relative.ln() / SPAN.ln() + 1.0) / 2.0;
        1 + ((height * (RUNGS - 2) as f64) as usize).min(RUNGS - 2)
    }

    /// The least price on a rung.
    fn price(&self, rung: usize) -> f64 {
        if rung == 0 {
            return 0.0;
        }
        let height = (rung - 1) as f64 / (RUNGS - 2) as f64;
        self.middle * ((height * 2.0 - 1.0) * SPAN.ln()).exp()
    }

    /// Puts `weight` for `cost` on offer; with both negated, takes it back.
    pub fn change(&mut self, price: f64, weight: i64, cost: f64) {
        let mut at = self.rung(price) + 1;
        while at <= RUNGS {
            self.weights[at] += weight;
            self.costs[at] += cost;
            at += at & at.wrapping_neg();
        }
    }

    /// At the least this is what `need` of the weight on offer costs.
    pub fn cover(&self, mut need: i64) -> f64 {
        if need <= 0 {
            return 0.0;
        }
        let (mut at, mut stride, mut cost) = (0, RUNGS, 0.0);
        while stride > 0 {
            if at + stride <= RUNGS && self.weights[at + stride] < need {
                at += stride;
                need -= self.weights[at];
                cost += self.costs[at];
            }
            stride /= 2;
        }
        cost + self.price(at) * need as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_from_the_cheapest_up_and_never_overstates() {
        let mut ladder = PriceLadder::new(1.0);
        for (price, weight) in [(2.0, 10), (0.5, 4), (8.0, 100), (0.0, 3)] {
            ladder.change(price, weight, price * weight as f64);
        }
        let exact = |need: i64| {
            let (mut left, mut cost) = (need, 0.0);
            for (price, weight) in [(0.0, 3), (0.5, 4), (2.0, 10), (8.0, 100)] {
                let taken = left.clamp(0, weight);
                cost += taken as f64 * price;
                left -= taken;
            }
            cost
        };
        for need in 0..=117 {
            let (bound, exact) = (ladder.cover(need), exact(need));
            assert!(bound <= exact + 1e-12 && bound >= exact * 0.993, "{need}: {bound} {exact}");
        }
        ladder.change(0.5, -4, -2.0);
        assert!((ladder.cover(5) - 4.0).abs() < 0.03, "the cheap weight was taken back");
    }
}
