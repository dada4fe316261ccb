//! Where a rising function passes 0: by chords, and by halves where chords do not help.

/// A bracket is halved where chords have not made it half as wide in so many steps.
const PATIENCE: u32 = 3;
/// A bracket this narrow, relatively, is a point.
const POINT: f64 = 1e-15;

/// A bracket of the root of a rising function, and what the function was at its ends.
///
/// Chords with the Illinois rule: an end that stays a second time counts half, so that both ends move. (Dowell and
/// Jarratt, BIT 11, 1971.)
pub(crate) struct RisingRoot {
    low: f64,
    high: f64,
    /// Values at the ends, once known.
    at_low: Option<f64>,
    at_high: Option<f64>,
    /// The last value was above 0.
    was_above: Option<bool>,
    /// The width when it was last halved, and the steps since.
    width: f64,
    steps: u32,
}

impl RisingRoot {
    pub fn within(low: f64, high: f64) -> Self {
        RisingRoot {
            low,
            high,
            at_low: None,
            at_high: None,
            was_above: None,
            width: high - low,
            steps: 0,
        }
    }

    /// Both ends.
    pub fn bracket(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// The function has this value, not 0, at this place of the bracket: where to look next. `None` where nothing is
    /// left between the ends.
    pub fn next(&mut self, at: f64, value: f64) -> Option<f64> {
        let is_above = value > 0.0;
        let again = self.was_above.replace(is_above) == Some(is_above);
        let kept = if again { 0.5 } else { 1.0 };
        if is_above {
            (self.high, self.at_high) = (at, Some(value));
            self.at_low = self.at_low.map(|low| kept * low);
        } else {
            (self.low, self.at_low) = (at, Some(value));
            self.at_high = self.at_high.map(|high| kept * high);
        }
        let width = self.high - self.low;
        if self.at_high.is_none() && width > 0.0 {
            return Some(self.high); // The root may be there, and chords need both ends.
        }
        if width <= POINT * self.high.abs() {
            return None;
        }
        self.steps += 1;
        if width <= 0.5 * self.width {
            (self.width, self.steps) = (width, 0);
        }
        let chord = match (self.at_low, self.at_high) {
            (Some(low), Some(high)) if self.steps < PATIENCE => {
                self.low + width * (low / (low - high))
            }
            _ => f64::NAN,
        };
        let inside = |place: f64| place > self.low && place < self.high;
        if inside(chord) {
            return Some(chord);
        }
        let middle = 0.5 * (self.low + self.high);
        inside(middle).then_some(middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps_to_root(f: impl Fn(f64) -> f64, from: f64, to: f64) -> (f64, u32) {
        let mut root = RisingRoot::within(from, to);
        let mut at = from;
        for step in 1..400 {
            let value = f(at);
            match root.next(at, value).filter(|_| value.abs() > 1e-12) {
                Some(next) => at = next,
                None => return (at, step),
            }
        }
        panic!("no end: {:?}", root.bracket());
    }

    #[test]
    fn smooth_roots_take_few_steps_and_jumps_three_for_a_halving() {
        let (at, steps) = steps_to_root(|x| x.powi(3) - 2.0, 0.0, 4.0);
        assert!((at - 2f64.cbrt()).abs() < 1e-12 && steps <= 16, "{at} in {steps}");
        let jump = |x: f64| if x < 0.7 { -1.0 } else { 1e6 };
        let (at, steps) = steps_to_root(jump, 0.0, 1.0);
        assert!((at - 0.7).abs() < 1e-14 && steps <= 150, "{at} in {steps}");
    }

    #[test]
    fn a_root_at_an_end_is_found() {
        let (at, _) = steps_to_root(|x| x - 1.0, 0.0, 1.0);
        assert!((at - 1.0).abs() < 1e-11);
        let (at, steps) = steps_to_root(|x| x + 1.0, 0.0, 1.0);
        assert_eq!(at, 0.0, "{steps}");
    }
}
