//! What a picture shows, apart from how it is drawn.

use serde::{Deserialize, Deserializer, Serialize};

use crate::Provenance;

/// One picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// The name of its file, without `.svg`.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Below it. Of bars, only the label is used.
    pub x: Axis,
    /// On its left.
    pub y: Axis,
    /// What it holds.
    pub kind: PlotKind,
}

/// One axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What it measures, with its unit: "latency (ms)".
    pub label: String,
    /// Whether equal ratios take equal room.
    pub log: bool,
    /// From where to where; whatever holds the data when not given.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// Equal steps, from zero where the data are not negative.
    pub fn linear(label: &str) -> Self {
        Axis { label: label.to_owned(), log: false, range: None }
    }

    /// Equal ratios. Values that are not positive are left out.
    pub fn log(label: &str) -> Self {
        Axis { label: label.to_owned(), log: true, range: None }
    }

    /// The same from here to there.
    pub fn from_to(self, from: f64, to: f64) -> Self {
        Axis { range: Some((from, to)), ..self }
    }
}

/// Lines or bars.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlotKind {
    /// Points over a number.
    Lines(Vec<Lines>),
    /// Bars over words.
    Bars {
        /// The words, from left to right.
        categories: Vec<String>,
        /// A bar of each series stands over each word.
        series: Vec<Bars>,
    },
}

/// How points are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// Joined, each marked.
    #[default]
    LineAndPoints,
    /// Joined.
    Line,
    /// Marked.
    Points,
    /// Joined by steps: each value holds until the next.
    Steps,
}

/// The points of a line: (x, y).
pub type Points = Vec<(f64, f64)>;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lines {
    /// Its name in the legend.
    pub label: String,
    /// Where it comes from; what is reported is drawn dashed.
    pub provenance: Provenance,
    /// How it is drawn.
    pub mark: Mark,
    /// The line whose colour it shares, by its place; its own when not given.
    pub like: Option<usize>,
    /// Its points, from left to right; one that was not measured is not drawn.
    #[serde(deserialize_with = "points")]
    pub points: Points,
    /// The standard error of each, none drawn where it is 0; empty where there are no repetitions.
    #[serde(default, deserialize_with = "numbers")]
    pub errors: Vec<f64>,
}

/// What is no number in JSON, as one that was not measured, is `null` there.
fn points<'de, D: Deserializer<'de>>(from: D) -> Result<Points, D::Error> {
    let read = Vec::<(Option<f64>, Option<f64>)>::deserialize(from)?;
    Ok(read.into_iter().map(|(x, y)| (x.unwrap_or(f64::NAN), y.unwrap_or(f64::NAN))).collect())
}

fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    let read = Vec::<Option<f64>>::deserialize(from)?;
    Ok(read.into_iter().map(|one| one.unwrap_or(f64::NAN)).collect())
}

impl Lines {
    /// A line with its points marked.
    pub fn new(label: &str, provenance: Provenance, points: Points) -> Self {
        let (label, mark) = (label.to_owned(), Mark::default());
        Lines { label, provenance, mark, like: None, points, errors: Vec::new() }
    }

    /// The same, drawn like this.
    pub fn drawn(self, mark: Mark) -> Self {
        Lines { mark, ..self }
    }

    /// The same with the standard error of each point.
    pub fn errors(self, errors: Vec<f64>) -> Self {
        Lines { errors, ..self }
    }

    /// The same in the colour of the line at this place, as the paper's beside ours.
    pub fn like(self, place: usize) -> Self {
        Lines { like: Some(place), ..self }
    }
}

/// One series of bars.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// Its name in the legend.
    pub label: String,
    /// Where it comes from; what is reported is drawn hollow.
    pub provenance: Provenance,
    /// One value per category; none where there is no bar.
    pub values: Vec<Option<f64>>,
    /// The series whose colour it shares, by its place; its own when not given.
    pub like: Option<usize>,
    /// The standard error of each value; empty where there are no repetitions.
    #[serde(default)]
    pub errors: Vec<Option<f64>>,
}

impl Bars {
    /// A bar over each category.
    pub fn new(label: &str, provenance: Provenance, values: Vec<Option<f64>>) -> Self {
        let (label, errors) = (label.to_owned(), Vec::new());
        Bars { label, provenance, values, like: None, errors }
    }

    /// The same with the standard error of each value.
    pub fn errors(self, errors: Vec<Option<f64>>) -> Self {
        Bars { errors, ..self }
    }

    /// The same in the colour of the series at this place, as the paper's beside ours.
    pub fn like(self, place: usize) -> Self {
        Bars { like: Some(place), ..self }
    }
}

impl Plot {
    /// Lines over a number.
    pub fn lines(name: &str, title: &str, x: Axis, y: Axis, lines: Vec<Lines>) -> Self {
        let kind = PlotKind::Lines(lines);
        Plot { name: name.to_owned(), title: title.to_owned(), x, y, kind }
    }

    /// Bars over words.
    pub fn bars(
        name: &str,
        title: &str,
        x: &str,
        y: Axis,
        categories: Vec<String>,
        series: Vec<Bars>,
    ) -> Self {
        let kind = PlotKind::Bars { categories, series };
        Plot { name: name.to_owned(), title: title.to_owned(), x: Axis::linear(x), y, kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_point_that_was_not_measured_is_read_again() {
        let points = vec![(1.0, 2.0), (2.0, f64::NAN)];
        let line = Lines::new("a", Provenance::Measured, points).errors(vec![0.5, f64::NAN]);
        let text = serde_json::to_string(&line).unwrap();
        let read: Lines = serde_json::from_str(&text).unwrap();
        assert_eq!((read.points[0], read.errors[0]), ((1.0, 2.0), 0.5));
        assert!(read.points[1].0 == 2.0 && read.points[1].1.is_nan() && read.errors[1].is_nan());
    }
}
