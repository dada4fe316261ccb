use super::super::learned::learn;
use super::show::cut;
use super::simulated::one;
use super::{Clients, Coming, Ran, Setting, Size, Weights, method, weights};
use crate::outcome::Table;
use crate::plot::{Axis, Lines, Plot};
use crate::{Context, Failure, Provenance};

/// What one method cuts off the latency that others make backends have, over a property of the setting;
/// simulated, with the setting's closed clients where it has such, else with open ones.
pub struct Sweep {
    /// The name of table and plot.
    pub file: &'static str,
    /// What they show.
    pub title: &'static str,
    /// The column of the property, and its unit.
    pub column: (&'static str, &'static str),
    /// The property on the plot's axis.
    pub axis: &'static str,
    /// The one that cuts.
    pub to: &'static str,
    /// From which backends, and how much in the paper, percent.
    pub from: [(&'static str, f64); 2],
    /// Of which type of backends; of whichever gains most when not given.
    pub kind: Option<usize>,
    /// How many times longer than usual a round of the paper's exploration is.
    pub rounds: f64,
}

impl Sweep {
    /// Runs it over these values; progress goes from `part.0` to `part.1`.
    pub fn run(
        &self,
        context: &Context,
        values: &[f64],
        setting: impl Fn(f64) -> Setting,
        part: (f64, f64),
    ) -> Result<(Table, Plot), Failure> {
        let [one, two] = self.from.map(|(name, _)| {
            let name = name.replace(' ', "_");
            format!("against_{name}_percent")
        });
        let columns = [self.column, (one.as_str(), "%"), (two.as_str(), "%")];
        let mut table = Table::new(self.file, self.title, &columns);
        let mut lines = self.from.map(|(name, _)| (name, Vec::new()));
        for (i, &value) in values.iter().enumerate() {
            let done = part.0 + (part.1 - part.0) * i as f64 / values.len() as f64;
            context.progress(done, &format!("simulated: {} {value}", self.column.0))?;
            let cuts = self.cuts(&setting(value), Size::of(context))?;
            table.row(Provenance::Simulated, [value, cuts[0], cuts[1]].map(Into::into));
            lines.iter_mut().zip(cuts).for_each(|((_, line), cut)| line.push((value, cut)));
        }
        let ends = [values[0], values[values.len() - 1]];
        let ours = lines.map(|(name, points)| {
            Lines::new(&format!("against {name}"), Provenance::Simulated, points)
        });
        let theirs = self.from.map(|(name, percent)| {
            let points = ends.map(|value| (value, percent)).to_vec();
            Lines::new(&format!("paper, against {name}"), Provenance::Reported, points)
        });
        let (x, y) = (Axis::linear(self.axis), Axis::linear("cut (%)"));
        let all = ours.into_iter().chain(theirs).collect();
        Ok((table, Plot::lines(self.file, self.title, x, y, all)))
    }

    /// Against both, percent.
    pub fn cuts(&self, setting: &Setting, size: Size) -> Result<[f64; 2], Failure> {
        let arena = setting.arena(size.requests);
        let clients = match setting.clients {
            Coming::Both => Clients::Open,
            Coming::Closed(clients) => Clients::Closed(clients),
        };
        let to = method(self.to);
        let learned = match to.weights {
            Weights::BestSplit => None,
            _ => Some(learn(&arena, self.rounds * weights::round_of(setting, size.round_s))?),
        };
        let of = |name: &str| -> Result<Ran, Failure> {
            let method = method(name);
            let weights = weights::of(setting, &arena, method.weights, learned.as_ref())?;
            let ran = one(setting, &arena, method, &weights, clients)?;
            Ok(match self.kind {
                Some(kind) => Ran { kinds: vec![ran.kinds[kind]], ..ran },
                None => ran,
            })
        };
        let kinds = self.kind.map_or(&setting.kinds[..], |kind| &setting.kinds[kind..=kind]);
        let to = of(self.to)?;
        let [one, two] = self.from.map(|(name, _)| of(name));
        Ok([cut(kinds, &one?, &to).percent, cut(kinds, &two?, &to).percent])
    }
}
