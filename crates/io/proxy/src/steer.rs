//! What is done to a running proxy from outside: a backend is drained, a controller sets weights and reads counts
//! (`sink: { proxy: … }`).

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_model::{MethodKind, ServerStatus};
use plimsoll_policy::PolicyKind;
use plimsoll_sink::wire::{Answer, Question, Refusal, Report, Server};
use tracing::info;

use crate::balance::{BackendState, Member, Members, Roll};
use crate::config;
use crate::report::of_backend;
use crate::shared::{Core, Shared};
use crate::status::RequestStatus;
use crate::tally::PoolTally;

/// See [`crate::Handle::drain`].
pub(crate) fn drain(
    core: &Core,
    backend: &str,
    pool: Option<&str>,
    undo: bool,
) -> Result<(), String> {
    let shared = core.now();
    let pools = shared.config.pools.iter().zip(&shared.members);
    let found = pools.filter(|(of, members)| {
        pool.is_none_or(|pool| pool == of.name) && members.read().0.find(backend).is_some()
    });
    let members = match found.collect::<Vec<_>>()[..] {
        [(_, members)] => members,
        [] => return Err(format!("no backend is called {backend:?}")),
        _ => {
            return Err(format!("several pools have a backend {backend:?}: say which is meant"));
        }
    };
    members.change(|roll| {
        let index = roll.find(backend).ok_or("it has just left its pool")?;
        roll.members[index].is_drained = !undo;
        if roll.weights().iter().all(|weight| *weight == 0) {
            return Err(format!("{backend:?} is the last backend of its pool"));
        }
        Ok(())
    })?;
    core.wake_all();
    Ok(())
}

/// What a policy's weights mean to a controller: shares of the traffic, or a scale of what is in flight. To others they
/// only say which backends may serve, or how often one is looked at.
fn kind(policy: PolicyKind) -> MethodKind {
    match policy {
        PolicyKind::Random
        | PolicyKind::RoundRobin
        | PolicyKind::StaticRoundRobin
        | PolicyKind::HashRing
        | PolicyKind::HashMaglev => MethodKind::Split,
        PolicyKind::LeastConnections
        | PolicyKind::LeastconnHaproxy
        | PolicyKind::PowerOfN
        | PolicyKind::PeakEwma
        | PolicyKind::LeastTime
        | PolicyKind::Bloc => MethodKind::InFlight,
        PolicyKind::RoundrobinHaproxy
        | PolicyKind::First
        | PolicyKind::HashMap
        | PolicyKind::CpuRandom
        | PolicyKind::PowerOfNLatency
        | PolicyKind::ExpectedDelay
        | PolicyKind::Prequal => MethodKind::NoLiveWeights,
    }
}

/// The name that controllers know a policy by.
fn method(policy: PolicyKind) -> &'static str {
    match policy {
        PolicyKind::RoundRobin => "roundrobin",
        PolicyKind::LeastConnections | PolicyKind::LeastconnHaproxy => "leastconn",
        other => other.name(),
    }
}

/// Does what a controller asks.
pub(crate) fn answer(core: &Core, question: Question) -> Answer {
    let shared = core.now();
    let (name, asked) = match question {
        Question::Read { vip } => (vip, None),
        Question::Apply { vip, epoch, who, weights } => (vip, Some(Some((epoch, who, weights)))),
        Question::Release { vip } => (vip, Some(None)),
    };
    let Some((pool, members)) = shared.pool(&name) else {
        let exist = shared.config.pools.iter().map(|pool| pool.name.clone()).collect();
        let message = format!("there is no pool {name:?}");
        return Answer::Refused { reason: Refusal::UnknownVip, message, exist };
    };
    let changed = match asked {
        None => Ok(0),
        Some(None) => Ok(release(members)),
        Some(Some((epoch, who, weights))) => apply(pool, members, epoch, &weights)
            .inspect(|changed| info!(pool = name, epoch, changed, "weights set by {who}")),
    };
    match changed {
        Ok(changed) => {
            if changed > 0 {
                core.wake_all();
            }
            Answer::Done(report(core, &shared, pool, members, changed))
        }
        Err((reason, message)) => Answer::Refused { reason, message, exist: Vec::new() },
    }
}

fn release(members: &Members) -> u32 {
    let done: Result<u32, ()> = members.change(|roll| {
        roll.epoch = None;
        let steered = roll.members.iter_mut().filter_map(|member| member.steered.take());
        Ok(steered.count() as u32)
    });
    done.unwrap_or(0)
}

/// All of a plan, or nothing.
fn apply(
    pool: &config::Pool,
    members: &Members,
    epoch: u64,
    weights: &BTreeMap<String, u16>,
) -> Result<u32, (Refusal, String)> {
    if kind(pool.policy) == MethodKind::NoLiveWeights {
        let (name, policy) = (&pool.name, pool.policy);
        let message = format!("pool {name:?} goes by {policy}, on which weights set no shares");
        return Err((Refusal::NoLiveWeights, message));
    }
    members.change(|roll| {
        let mut changed = 0;
        for (name, weight) in weights {
            let Some(index) = roll.find(name) else {
                let message = format!("pool {:?} has no backend {name:?}", pool.name);
                return Err((Refusal::UnknownServer, message));
            };
            let member = &mut roll.members[index];
            changed += u32::from(member.set_weight() != u32::from(*weight));
            member.steered = Some(u32::from(*weight));
        }
        if roll.weights().iter().all(|weight| *weight == 0) {
            let message =
                format!("every server of {:?} that is not drained would be at weight 0", pool.name);
            return Err((Refusal::InvalidPlan, message));
        }
        roll.epoch = Some(epoch);
        Ok(changed)
    })
}

fn report(
    core: &Core,
    shared: &Shared,
    pool: &config::Pool,
    members: &Arc<Members>,
    changed: u32,
) -> Report {
    let (roll, _) = members.read();
    // A pool of several entries is steered as one.
    let entries = shared.egress.iter().flat_map(|entry| entry.pools.iter().flatten());
    let of_pool = entries.filter(|of| Arc::ptr_eq(&of.members, members));
    let tallies: Vec<Arc<PoolTally>> = of_pool.flat_map(|of| of.tallies()).collect();
    Report {
        policy: method(pool.policy).to_owned(),
        kind: kind(pool.policy),
        generation: core.generation,
        steered: roll.epoch.is_some(),
        epoch: roll.epoch.unwrap_or(0),
        changed,
        servers: servers(&roll, &tallies),
    }
}

fn servers(roll: &Roll, tallies: &[Arc<PoolTally>]) -> Vec<Server> {
    roll.present().map(|(index, member)| server(member, index, tallies)).collect()
}

fn server(member: &Member, index: usize, tallies: &[Arc<PoolTally>]) -> Server {
    let requests = RequestStatus::sum(of_backend(tallies, index));
    let status = match member.state() {
        BackendState::Up => ServerStatus::Up,
        BackendState::Down => ServerStatus::Down,
        BackendState::Drained => ServerStatus::Drain,
        BackendState::Left => ServerStatus::Maintenance,
    };
    let badly: u64 = of_backend(tallies, index).map(|tally| tally.answered_badly.get()).sum();
    let answered = requests.succeeded + requests.rejected + requests.too_late + badly;
    Server {
        address: Some(member.backend.address),
        errors: Some(requests.failed),
        answered: Some(answered),
        latency_us: Some((requests.latency_sum_s * 1e6).round() as u64),
        measured: Some(requests.succeeded),
        ..Server::new(
            &member.backend.name,
            u16::try_from(member.set_weight()).unwrap_or(u16::MAX),
            status,
            (requests.in_flight, requests.sent),
        )
    }
}
