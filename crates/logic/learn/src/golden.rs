//! Golden-section search.

/// The smaller part of a section cut in the golden ratio.
const SECTION: f64 = 0.381_966_011_250_105;

/// Where `f` is least between `low` and `high`, to `0.618^steps` of their distance, if it has a single minimum there.
pub(crate) fn minimise(f: impl Fn(f64) -> f64, low: f64, high: f64, steps: u32) -> f64 {
    let (mut low, mut high) = (low, high);
    let (mut left, mut right) = (low + SECTION * (high - low), high - SECTION * (high - low));
    let (mut at_left, mut at_right) = (f(left), f(right));
    for _ in 0..steps {
        if at_left <= at_right {
            (high, right, at_right) = (right, left, at_left);
            left = low + SECTION * (high - low);
            at_left = f(left);
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = high - SECTION * (high - low);
            at_right = f(right);
        }
    }
    if at_left <= at_right { left } else { right }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_is_found_inside_and_at_the_ends() {
        for (valley, expected) in [(0.3, 0.3), (-5.0, 0.0), (7.0, 1.0)] {
            let found = minimise(|x| (x - valley) * (x - valley), 0.0, 1.0, 40);
            assert!((found - expected).abs() < 1e-6, "{valley}: {found}");
        }
    }
}
