use std::collections::BTreeMap;

use plimsoll_model::GREATEST_WEIGHT;
use plimsoll_sim::{Arena, World, integer_weights, static_shares};

use super::super::learned::{Cost, Learned, learn};
use super::{SERVICE_US, Setting, Size, Weights};
use crate::{Context, Failure};

/// Weights by where they come from.
#[derive(Clone, Debug, Default)]
pub struct Known {
    by_source: BTreeMap<Weights, Vec<u32>>,
    /// Measurements per backend that the paper's exploration took.
    pub steps: f64,
}

impl Known {
    /// Those of this source.
    pub fn of(&self, source: Weights) -> Result<&[u32], Failure> {
        let found = self.by_source.get(&source).map(Vec::as_slice);
        found.ok_or_else(|| Failure::Other(format!("no weights of {source:?}")))
    }
}

/// All that need no controller: given, by the paper's ILPs over what its exploration learns, and the best
/// split.
pub fn given_and_packed(setting: &Setting, arena: &Arena, round_s: f64) -> Result<Known, Failure> {
    let learned = learn(arena, round_of(setting, round_s))?;
    let mut by_source = BTreeMap::new();
    for source in [
        Weights::Equal,
        Weights::Administrator,
        Weights::IlpLatency,
        Weights::IlpConnections,
        Weights::IlpCpu,
        Weights::BestSplit,
    ] {
        by_source.insert(source, of(setting, arena, source, Some(&learned))?);
    }
    Ok(Known { by_source, steps: learned.steps })
}

/// The length of a round, seconds: longer requests need longer ones, or a backend of one core has served too
/// few in it for a mean (the paper's is of 200 probes).
pub fn round_of(setting: &Setting, round_s: f64) -> f64 {
    round_s * (setting.service_us / SERVICE_US).max(1.0)
}

/// Those of one source, where what it takes to learn was learned.
pub fn of(
    setting: &Setting,
    arena: &Arena,
    source: Weights,
    learned: Option<&Learned>,
) -> Result<Vec<u32>, Failure> {
    let cost = match source {
        Weights::Equal => return Ok(vec![1; setting.pool.len()]),
        Weights::Administrator => return Ok(setting.administrator.clone()),
        Weights::BestSplit => return Ok(integer_weights(&static_shares(arena)?, GREATEST_WEIGHT)),
        Weights::IlpLatency => Cost::Latency,
        Weights::IlpConnections => Cost::Connections,
        Weights::IlpCpu => Cost::Cpu,
        Weights::PlimsollRoundrobin | Weights::PlimsollLeastconn => {
            return Err(Failure::Other("Plimsoll's weights come from its controller".to_owned()));
        }
    };
    let Some(learned) = learned else {
        return Err(Failure::Other(format!("{source:?} has to be learned")));
    };
    Ok(integer_weights(&learned.shares(cost)?, GREATEST_WEIGHT))
}

impl Known {
    /// Adds those that the controller comes to from nothing, under open clients. Progress goes from
    /// `part.0` to `part.1`.
    pub fn add_plimsoll(
        &mut self,
        context: &Context,
        setting: &Setting,
        size: Size,
        part: (f64, f64),
    ) -> Result<(), Failure> {
        let methods = [
            (Weights::PlimsollRoundrobin, plimsoll_sim::Method::RoundRobin),
            (Weights::PlimsollLeastconn, plimsoll_sim::Method::LeastConn),
        ];
        for (i, (source, method)) in methods.into_iter().enumerate() {
            let mut world = World::new(setting.world(method));
            let spec = world.service_spec();
            world.attach(spec, None);
            world.forget_answers();
            let steps = (size.learn_s / 2.0).ceil() as u32;
            for step in 0..steps {
                world.run_for(size.learn_s / f64::from(steps));
                let passed = (i as f64 + f64::from(step + 1) / f64::from(steps)) / 2.0;
                let what = format!("simulated: Plimsoll learns under {method:?}");
                context.progress(part.0 + (part.1 - part.0) * passed, &what)?;
            }
            self.by_source.insert(source, world.weights());
        }
        Ok(())
    }
}
