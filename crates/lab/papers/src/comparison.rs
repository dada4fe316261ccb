//! The paper's statements beside our numbers.
//!
//! An experiment says what the paper states, what was found here, how near counts as the same and how its
//! parameters were chosen. The verdict is computed from that by [`Comparison::judge`], for full runs alone:
//! its field is private, so no experiment can write one.

use std::fmt;

use plimsoll_lanes::{half_width, mean};
use serde::{Deserialize, Serialize};

use crate::Provenance;
use crate::outcome::Cell;
use crate::summary::{figures, shown};

/// How near ours must be to the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tolerance {
    /// Within this part of the paper's number: 0.1 is ±10 %.
    Part(f64),
    /// Within so much of it, in its unit.
    Absolute(f64),
    /// At most so many times it, and at least as small a part of it: for times on other machines.
    Factor(f64),
}

impl Tolerance {
    /// Whether ours is as near as that to the paper's.
    pub fn holds(self, paper: f64, ours: f64) -> bool {
        match self {
            Tolerance::Part(part) => (ours - paper).abs() <= part * paper.abs(),
            Tolerance::Absolute(most) => (ours - paper).abs() <= most,
            Tolerance::Factor(most) => ours / paper <= most && paper / ours <= most,
        }
    }

    /// How far from the paper's number it reaches on either side.
    fn reach(self, paper: f64) -> f64 {
        match self {
            Tolerance::Part(part) => part * paper.abs(),
            Tolerance::Absolute(most) => most,
            Tolerance::Factor(most) => (most - 1.0) * paper.abs(),
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tolerance::Part(part) => write!(f, "± {} %", figures(100.0 * part)),
            Tolerance::Absolute(0.0) => f.write_str("exactly"),
            Tolerance::Absolute(most) => write!(f, "± {}", figures(*most)),
            Tolerance::Factor(most) => write!(f, "within {} times", figures(*most)),
        }
    }
}

/// A limit that the paper states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// "At least", "more than".
    AtLeast(f64),
    /// "At most", "within", "under".
    AtMost(f64),
}

impl Bound {
    fn holds(self, ours: f64) -> bool {
        match self {
            Bound::AtLeast(least) => ours >= least,
            Bound::AtMost(most) => ours <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtLeast(least) => write!(f, "at least {}", figures(*least)),
            Bound::AtMost(most) => write!(f, "at most {}", figures(*most)),
        }
    }
}

/// What decides whether ours agrees.
#[derive(Clone, Debug, PartialEq)]
enum Check {
    /// Near this number.
    Near(f64, Tolerance, f64),
    /// Between these numbers, both of which have the tolerance.
    Between(f64, f64, Tolerance, f64),
    /// Within this limit.
    Within(Bound, f64),
    /// These numbers ascend.
    Ascends(Vec<f64>),
    /// Paper's word and ours are the same.
    Same(bool),
    /// The paper has nothing that could be compared, or the two are different things.
    Nothing,
}

impl Check {
    fn holds(&self) -> bool {
        match *self {
            Check::Near(paper, tolerance, ours) => tolerance.holds(paper, ours),
            Check::Between(least, most, tolerance, ours) => {
                let (low, high) = (tolerance.reach(least), tolerance.reach(most));
                (least - low..=most + high).contains(&ours)
            }
            Check::Within(bound, ours) => bound.holds(ours),
            Check::Ascends(ref ours) => {
                ours.len() > 1 && ours.windows(2).all(|pair| pair[0] <= pair[1])
            }
            Check::Same(same) => same,
            Check::Nothing => false,
        }
    }

    fn tolerance(&self) -> String {
        match self {
            Check::Near(_, tolerance, _) | Check::Between(_, _, tolerance, _) => {
                tolerance.to_string()
            }
            Check::Within(bound, _) => bound.to_string(),
            Check::Ascends(_) => "in this order".to_owned(),
            Check::Same(_) => "the same".to_owned(),
            Check::Nothing => String::new(),
        }
    }
}

/// Which numbers are the better ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// As for times.
    Less,
    /// As for gains.
    More,
}

/// The paper's own method, run here beside ours: what ours must be better than to be called so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// What it is.
    pub name: String,
    /// Its number in the paper.
    pub paper: f64,
    /// Its number here, under the same conditions as ours.
    pub here: f64,
    /// How near these two must be for it to be the same baseline.
    pub same: Tolerance,
    /// Which numbers are the better ones.
    pub better: Better,
}

/// How the parameters were chosen which the number depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Parameters {
    /// The paper gives them, or they were chosen without regard to its number.
    #[default]
    Given,
    /// This one was chosen so that the paper's number comes out.
    Fitted(String),
}

/// How ours stands to the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within the tolerance.
    Agrees,
    /// Within the tolerance, because a parameter was chosen so.
    Fitted,
    /// Better, beyond the tolerance, than the paper's number and than the paper's method here, which has its
    /// number here as well.
    Better,
    /// Beyond the tolerance; the sentence says why.
    Differs,
    /// Within a target of Plimsoll's own, of which the paper says nothing.
    Reached,
    /// Beyond such a target; the sentence says why.
    Missed,
    /// Two different things, or nothing in the paper; the sentence says why.
    NotComparable,
    /// A quick run, whose numbers are worth nothing.
    QuickRun,
}

impl Verdict {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Fitted => "fitted",
            Verdict::Better => "better",
            Verdict::Differs => "differs",
            Verdict::Reached => "target reached",
            Verdict::Missed => "target missed",
            Verdict::NotComparable => "not comparable",
            Verdict::QuickRun => "quick run",
        }
    }
}

/// One statement of the paper beside what was found here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What was compared.
    pub what: String,
    /// What the paper says.
    pub paper: Cell,
    /// What we found.
    pub ours: Cell,
    /// The unit of both; empty when they have none.
    pub unit: String,
    /// Where ours comes from.
    pub provenance: Provenance,
    /// How near counts as the same, in words.
    pub tolerance: String,
    /// What ours may be better than.
    pub baseline: Option<Baseline>,
    /// How the parameters were chosen.
    pub parameters: Parameters,
    /// Whether the limit is a target of Plimsoll's own, not the paper's.
    #[serde(default)]
    pub is_target: bool,
    /// Until it is judged.
    #[serde(skip)]
    check: Option<Check>,
    verdict: Verdict,
    why: String,
}

impl Comparison {
    fn new(
        from: Provenance,
        what: impl Into<String>,
        (paper, ours): (Cell, Cell),
        unit: &str,
        check: Check,
    ) -> Self {
        Comparison {
            what: what.into(),
            paper,
            ours,
            unit: unit.to_owned(),
            provenance: from,
            tolerance: check.tolerance(),
            baseline: None,
            parameters: Parameters::Given,
            is_target: false,
            check: Some(check),
            verdict: Verdict::QuickRun,
            why: String::new(),
        }
    }

    /// A number of the paper beside ours.
    pub fn number(
        from: Provenance,
        what: impl Into<String>,
        (paper, tolerance): (f64, Tolerance),
        ours: f64,
        unit: &str,
    ) -> Self {
        let check = Check::Near(paper, tolerance, ours);
        Comparison::new(from, what, (paper.into(), ours.into()), unit, check)
    }

    /// A range of the paper, whose ends have the tolerance.
    pub fn range(
        from: Provenance,
        what: impl Into<String>,
        (least, most, tolerance): (f64, f64, Tolerance),
        ours: f64,
        unit: &str,
    ) -> Self {
        let paper = format!("{} to {}", figures(least), figures(most));
        let check = Check::Between(least, most, tolerance, ours);
        Comparison::new(from, what, (paper.into(), ours.into()), unit, check)
    }

    /// A limit that the paper states in these words.
    pub fn bound(
        from: Provenance,
        what: impl Into<String>,
        (paper, bound): (&str, Bound),
        ours: f64,
        unit: &str,
    ) -> Self {
        let check = Check::Within(bound, ours);
        Comparison::new(from, what, (paper.into(), ours.into()), unit, check)
    }

    /// An order that the paper states in these words: ours, each with its name, ascend.
    pub fn order<'a>(
        from: Provenance,
        what: impl Into<String>,
        paper: &str,
        ours: impl IntoIterator<Item = (&'a str, f64)>,
        unit: &str,
    ) -> Self {
        let (names, values): (Vec<&str>, Vec<f64>) = ours.into_iter().unzip();
        let shown = names.iter().zip(&values).map(|(name, v)| format!("{name} {}", figures(*v)));
        let ours = shown.collect::<Vec<_>>().join(", ");
        let check = Check::Ascends(values);
        Comparison::new(from, what, (paper.into(), ours.into()), unit, check)
    }

    /// A word that both have or do not have.
    pub fn word(from: Provenance, what: impl Into<String>, paper: &str, ours: &str) -> Self {
        let check = Check::Same(paper == ours);
        Comparison::new(from, what, (paper.into(), ours.into()), "", check)
    }

    /// What the paper says nothing of that could be compared.
    pub fn silent(
        from: Provenance,
        what: impl Into<String>,
        paper: impl Into<Cell>,
        ours: impl Into<Cell>,
        unit: &str,
    ) -> Self {
        Comparison::new(from, what, (paper.into(), ours.into()), unit, Check::Nothing)
    }

    /// Why ours is what it is, for whoever reads that it does not agree.
    pub fn why(self, why: impl Into<String>) -> Self {
        Comparison { why: why.into(), ..self }
    }

    /// The same, whose paper's number came out because this parameter was chosen so.
    pub fn fitted(self, parameter: impl Into<String>) -> Self {
        Comparison { parameters: Parameters::Fitted(parameter.into()), ..self }
    }

    /// The same where the limit is a target of Plimsoll's own: ours does not agree with a paper that has no such number.
    pub fn target(self) -> Self {
        Comparison { is_target: true, ..self }
    }

    /// The same beside the paper's method as it did here; where it was not run, nothing can be better.
    pub fn beside(self, baseline: Option<Baseline>) -> Self {
        let baseline = baseline.filter(|base| base.paper.is_finite() && base.here.is_finite());
        Comparison { baseline, ..self }
    }

    /// The same where the two turn out to be different things.
    pub fn incomparable(self, why: impl Into<String>) -> Self {
        let (check, tolerance) = (Some(Check::Nothing), String::new());
        Comparison { check, tolerance, why: why.into(), ..self }
    }

    /// The same with what each repetition says, their 95 % interval, as ratios, or as they are where one of them is 0, and
    /// no verdict where they do not decide it: the interval contains the limit, or lies on its other side than ours.
    pub(crate) fn decided_by(self, repetitions: &[&Comparison]) -> Self {
        let value = |one: &&Comparison| match one.check {
            Some(Check::Within(_, value)) => value,
            _ => f64::NAN,
        };
        let values: Vec<f64> = repetitions.iter().map(value).collect();
        let is_whole = values.iter().all(|value| value.is_finite());
        let interval = interval(&values).filter(|_| is_whole);
        let alone: Vec<String> = repetitions.iter().map(|one| shown(&one.ours)).collect();
        let mut said = vec![format!("by repetition {}", alone.join(", "))];
        said.extend(
            interval
                .map(|(low, high)| format!("95 % interval {} to {}", figures(low), figures(high))),
        );
        let one = Comparison { what: format!("{} ({})", self.what, said.join("; ")), ..self };
        let Some(Check::Within(bound, ours)) = one.check else { return one };
        let (Bound::AtLeast(limit) | Bound::AtMost(limit)) = bound;
        let why = match interval {
            None if is_whole => return one,
            None => "not every repetition has it",
            Some((low, high)) if low < limit && limit < high => {
                "the 95 % interval of the repetitions contains the limit"
            }
            Some((low, _)) if bound.holds(ours) == bound.holds(low) => return one,
            Some(_) => "the means are on one side of the limit, the repetitions on the other",
        };
        one.incomparable(format!("Undecided: {why}."))
    }

    /// Gives the verdict, which a quick run does not get.
    pub(crate) fn judge(&mut self, quick: bool) {
        let Some(check) = self.check.take() else { return };
        self.verdict = match &self.parameters {
            _ if check == Check::Nothing => Verdict::NotComparable,
            _ if quick => Verdict::QuickRun,
            _ if self.is_target && check.holds() => Verdict::Reached,
            _ if self.is_target => Verdict::Missed,
            Parameters::Given if check.holds() => Verdict::Agrees,
            Parameters::Fitted(_) if check.holds() => Verdict::Fitted,
            Parameters::Given if self.is_better(&check) => Verdict::Better,
            _ => Verdict::Differs,
        };
    }

    /// Whether ours beats the paper's number, and the paper's method as it did here, beyond the tolerance,
    /// where that method has the paper's number here as well.
    fn is_better(&self, check: &Check) -> bool {
        let (&Check::Near(paper, tolerance, ours), Some(base)) = (check, &self.baseline) else {
            return false;
        };
        let beats = |other: f64| {
            let right_side = match base.better {
                Better::Less => ours < other,
                Better::More => ours > other,
            };
            right_side && !tolerance.holds(other, ours)
        };
        base.same.holds(base.paper, base.here) && beats(paper) && beats(base.here)
    }

    /// How ours stands to the paper's.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Why, for people: nothing where it agrees; the fitted parameter and the baseline where there are such.
    pub fn reason(&self) -> String {
        if matches!(self.verdict, Verdict::Agrees | Verdict::Reached) {
            return String::new();
        }
        let fitted = match &self.parameters {
            Parameters::Fitted(parameter) if self.verdict != Verdict::NotComparable => {
                format!("Chosen to give the paper's number: {parameter}.")
            }
            _ => String::new(),
        };
        let baseline = self.baseline.as_ref().map_or_else(String::new, |base| {
            let (paper, here) = (figures(base.paper), figures(base.here));
            format!("{}: {paper} in the paper, {here} here.", base.name)
        });
        let parts = [fitted, baseline, self.why.clone()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// The 95 % interval of these, as ratios, or as they are where one of them is 0; none of fewer than two.
fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let are_ratios = values.iter().all(|value| *value > 0.0);
    let to = |value: &f64| if are_ratios { value.ln() } else { *value };
    let back = |value: f64| if are_ratios { value.exp() } else { value };
    let values: Vec<f64> = values.iter().map(to).collect();
    let (mean, half) = mean(&values).zip(half_width(&values))?;
    Some((back(mean - half), back(mean + half)))
}

#[cfg(test)]
mod tests;
