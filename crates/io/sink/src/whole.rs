//! Balancers that set all weights of a plan or none: how they are programmed, and what is known when an answer is lost.

use std::future::Future;
use std::ops::RangeInclusive;

use plimsoll_model::{Applied, Plan};

use crate::SinkError;
use crate::servers::{Roster, planned};

/// Why there is no answer to a plan.
pub(crate) enum Unanswered {
    /// It was not sent, or was refused.
    Unsent(SinkError),
    /// It was sent, and the answer was lost.
    Lost(SinkError),
}

/// One service of such a balancer.
pub(crate) trait Whole {
    /// What the service is like at one instant.
    type State: Send + Sync;
    const WEIGHTS: RangeInclusive<u32>;
    /// Whose weights these are, for messages.
    const WHOSE: &'static str;

    fn service(&self) -> &str;
    fn roster(&self) -> &Roster;
    /// A server's weight.
    fn held(state: &Self::State, server: &str) -> Option<u32>;
    /// The plan whose weights are in force; none where they are those of the configuration.
    fn in_force(state: &Self::State) -> Option<u64>;
    fn ask(&mut self) -> impl Future<Output = Result<Self::State, SinkError>> + Send;
    /// Sends weights; the state with them, and how many have changed.
    fn send(
        &mut self,
        epoch: u64,
        weights: &[(String, u32)],
    ) -> impl Future<Output = Result<(Self::State, u32), Unanswered>> + Send;
}

/// Programs a plan where what is held differs from it.
pub(crate) async fn program<B: Whole>(balancer: &mut B, plan: &Plan) -> Result<Applied, SinkError> {
    let mut wanted = planned(plan, balancer.roster().servers(), &B::WEIGHTS, B::WHOSE)?;
    let before = balancer.ask().await?;
    // The weight of one that has left is no longer wanted.
    wanted.retain(|(name, _)| B::held(&before, name).is_some());
    // Weights that happen to be as configured are ours only once they were set.
    if B::in_force(&before).is_some() && holds::<B>(&before, &wanted) {
        return Ok(applied(balancer, plan.epoch, &before, 0));
    }
    match balancer.send(plan.epoch, &wanted).await {
        Ok((now, changed)) => Ok(applied(balancer, plan.epoch, &now, changed)),
        Err(Unanswered::Unsent(error)) => Err(error),
        Err(Unanswered::Lost(error)) => {
            let now = balancer.ask().await;
            if let Ok(now) = &now
                && B::in_force(now) == Some(plan.epoch)
                && holds::<B>(now, &wanted)
            {
                return Ok(applied(balancer, plan.epoch, now, 0));
            }
            Err(interrupted(balancer, error, now.is_err().then_some(&before), &wanted))
        }
    }
}

fn holds<B: Whole>(state: &B::State, wanted: &[(String, u32)]) -> bool {
    wanted.iter().all(|(name, weight)| B::held(state, name) == Some(*weight))
}

/// All of the plan was set or nothing, so that there is nothing to put back; where that is unknown, what was held
/// before may be held no more.
fn interrupted<B: Whole>(
    balancer: &B,
    error: SinkError,
    before: Option<&B::State>,
    wanted: &[(String, u32)],
) -> SinkError {
    let mut unrestored = Vec::new();
    for (name, weight) in wanted {
        let was = before.and_then(|before| B::held(before, name)).filter(|was| was != weight);
        unrestored.extend(was.map(|was| (name.clone(), was)));
    }
    let (backend, source) = (balancer.service().to_owned(), Box::new(error));
    SinkError::Interrupted { backend, source, restored: Vec::new(), unrestored }
}

fn applied<B: Whole>(balancer: &B, epoch: u64, state: &B::State, commands: u32) -> Applied {
    let servers = balancer.roster().servers().iter();
    let weights = servers.filter_map(|(id, name)| Some((*id, B::held(state, name)?)));
    Applied { epoch, weights: weights.collect(), commands }
}

/// The state, if it has all servers that are steered, or had them before; `exist` lists those that it has.
pub(crate) fn complete<B: Whole>(
    balancer: &B,
    state: B::State,
    exist: impl FnOnce(B::State) -> Vec<String>,
) -> Result<B::State, SinkError> {
    match balancer.roster().require(|_, name| B::held(&state, name).is_some()) {
        Ok(()) => Ok(state),
        Err(missing) => {
            let backend = balancer.service().to_owned();
            Err(SinkError::UnknownServers { backend, missing, exist: exist(state) })
        }
    }
}
