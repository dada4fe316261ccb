//! One axis in the eyes of plotters: linear, logarithmic or of words, with marks at round numbers.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::plot::Axis;
use crate::summary::figures_short;

/// About how many marks a linear axis has.
const MARKS: f64 = 6.0;
/// Room above the data, as a part of their span.
const HEADROOM: f64 = 0.06;

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Equal steps.
    Linear { from: f64, to: f64 },
    /// Equal ratios.
    Log { from: f64, to: f64 },
    /// Word i lies between i and i + 1.
    Words(Vec<String>),
}

impl Scale {
    /// One that holds these values; from zero if asked for and none is negative.
    pub fn holding(
        values: impl Iterator<Item = f64>,
        axis: &Axis,
        from_zero: bool,
    ) -> Result<Self, String> {
        let shown = values.filter(|v| v.is_finite() && (!axis.log || *v > 0.0));
        let (least, most) = match axis.range {
            Some(range) => range,
            None => {
                shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)))
            }
        };
        if least > most {
            return Err(format!("there is nothing to show on the axis {:?}", axis.label));
        }
        if axis.log {
            return Ok(Scale::log(least, most, axis.range.is_some()));
        }
        if axis.range.is_some() && least < most {
            return Ok(Scale::Linear { from: least, to: most });
        }
        let from = if from_zero && least >= 0.0 { 0.0 } else { least };
        let span = if most > from { most - from } else { from.abs().max(1.0) };
        let room = if from_zero { HEADROOM * span } else { 0.0 };
        let from = if from < 0.0 { from - room } else { from };
        Ok(Scale::Linear { from, to: from.max(most.max(from + span)) + room })
    }

    /// From a round number below to a round number above.
    fn log(least: f64, most: f64, exact: bool) -> Self {
        if exact && least > 0.0 && least < most {
            return Scale::Log { from: least, to: most };
        }
        let (mut from, mut to) =
            (10f64.powf(least.log10().floor()), 10f64.powf(most.log10().ceil()));
        if to / from <= 10.0 {
            (from, to) = (least / 1.5, most * 1.5);
        }
        Scale::Log { from, to }
    }

    /// One of words.
    pub fn words(words: &[String]) -> Self {
        Scale::Words(words.to_vec())
    }

    /// Whether it is one of words.
    pub fn is_words(&self) -> bool {
        matches!(self, Scale::Words(_))
    }

    /// Where bars stand.
    pub fn foot(&self) -> f64 {
        match self {
            Scale::Linear { from, .. } => from.max(0.0),
            Scale::Log { from, .. } => *from,
            Scale::Words(_) => 0.0,
        }
    }

    /// How many marks it has.
    pub fn marks(&self) -> usize {
        self.places().len()
    }

    fn part(&self, value: f64) -> f64 {
        match self {
            Scale::Linear { from, to } => (value - from) / (to - from),
            Scale::Log { from, to } => {
                (value.max(f64::MIN_POSITIVE) / from).ln() / (to / from).ln()
            }
            Scale::Words(words) => value / words.len().max(1) as f64,
        }
    }

    fn places(&self) -> Vec<f64> {
        match self {
            Scale::Linear { from, to } => linear_marks(*from, *to),
            Scale::Log { from, to } => log_marks(*from, *to),
            Scale::Words(words) => (0..words.len()).map(|i| i as f64 + 0.5).collect(),
        }
    }
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn linear_marks(from: f64, to: f64) -> Vec<f64> {
    let rough = (to - from) / MARKS;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * power >= rough).unwrap_or(10.0) * power;
    let (first, last) = ((from / step).ceil() as i64, (to / step + 1e-9).floor() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

/// Powers of ten, with 2 and 5 between them where there is room.
fn log_marks(from: f64, to: f64) -> Vec<f64> {
    let decades = (to / from).log10();
    let within: &[f64] = if decades <= 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let skip = if decades > 9.0 { 2 } else { 1 };
    let powers = (from.log10().floor() as i32..=to.log10().ceil() as i32).filter(|p| p % skip == 0);
    let all = powers.flat_map(|p| within.iter().map(move |m| m * 10f64.powi(p)));
    all.filter(|v| (from * 0.999_999..=to * 1.000_001).contains(v)).collect()
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let span = f64::from(limit.1 - limit.0);
        limit.0 + (span * self.part(*value).clamp(-0.5, 1.5)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.places() }
    }

    fn range(&self) -> Range<f64> {
        match self {
            Scale::Linear { from, to } | Scale::Log { from, to } => *from..*to,
            Scale::Words(words) => 0.0..words.len() as f64,
        }
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        match self {
            Scale::Words(words) => words.get(*value as usize).cloned().unwrap_or_default(),
            _ => figures_short(*value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_numbers_within_the_axis() {
        assert_eq!(linear_marks(0.0, 10.6), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(log_marks(1.0, 100.0), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        let many = log_marks(1e-5, 1e3);
        assert_eq!((many.len(), many.last().copied()), (9, Some(1e3)));
    }

    #[test]
    fn an_axis_holds_its_data() {
        let linear = Scale::holding([2.0, 8.0].into_iter(), &Axis::linear("y"), true).unwrap();
        assert_eq!(linear.part(0.0), 0.0);
        assert!(linear.part(8.0) < 1.0);
        let log = Scale::holding([0.02, 0.0, 300.0].into_iter(), &Axis::log("y"), true).unwrap();
        assert_eq!(log, Scale::Log { from: 0.01, to: 1000.0 });
        assert!((log.part(0.1) - 0.2).abs() < 1e-12);
        let given = Axis::linear("y").from_to(10.0, 20.0);
        let given = Scale::holding([0.0].into_iter(), &given, true).unwrap();
        assert_eq!(given, Scale::Linear { from: 10.0, to: 20.0 });
        assert!(Scale::holding([0.0].into_iter(), &Axis::log("y"), true).is_err());
    }
}
