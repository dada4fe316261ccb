//! What all threads have counted, summed up for reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::balance::{BackendState, Roll};
use crate::config;
use crate::shared::{Core, Shared, SharedEgress, SharedIngress, SharedPool};
use crate::status::{
    BackendStatus, ClientStatus, EgressStatus, IngressStatus, LogStatus, PoolStatus, QueueStatus,
    RequestStatus, Status,
};
use crate::tally::{BackendTally, EntryTally, PoolTally};

/// The whole proxy.
pub(crate) fn status(core: &Core) -> Status {
    let shared = core.now();
    Status {
        threads: core.threads,
        most_connections: core.room.most as u64,
        uptime_s: core.started.elapsed().as_secs_f64(),
        access_log: shared.log.as_ref().map(|log| {
            let (written, dropped) = log.counts();
            LogStatus { written, dropped }
        }),
        ingress: shared.config.ingress.iter().zip(&shared.ingress).map(ingress).collect(),
        egress: shared
            .config
            .egress
            .iter()
            .zip(&shared.egress)
            .map(|(entry, of)| egress(&shared, entry, of))
            .collect(),
    }
}

fn egress(shared: &Shared, entry: &config::Egress, of: &SharedEgress) -> EgressStatus {
    EgressStatus {
        name: entry.name.clone(),
        listen: of.listeners.address,
        clients: clients(&of.open, of.clients.iter()),
        pools: shared
            .config
            .pools
            .iter()
            .zip(&of.pools)
            .filter_map(|(pool, of)| Some(pool_status(pool, of.as_ref()?)))
            .collect(),
    }
}

fn clients<'a>(
    open: &AtomicUsize,
    tallies: impl Iterator<Item = &'a Arc<EntryTally>>,
) -> ClientStatus {
    ClientStatus::sum(open.load(Ordering::Relaxed), tallies.map(|tally| &**tally))
}

fn pool_status(pool: &config::Pool, shared: &SharedPool) -> PoolStatus {
    let (roll, _) = shared.members.read();
    let tallies = shared.tallies();
    let sum = |of: fn(&PoolTally) -> u64| tallies.iter().map(|tally| of(tally)).sum();
    PoolStatus {
        name: pool.name.clone(),
        policy: pool.policy.name().to_owned(),
        retried: sum(|tally| tally.retried.get()),
        not_retried: sum(|tally| tally.not_retried.get()),
        without_backend: sum(|tally| tally.without_backend.get()),
        ineligible: sum(|tally| tally.ineligible.get()),
        queue: pool.queue.map(|_| QueueStatus {
            now: sum(|tally| tally.queue.now.get()),
            total: sum(|tally| tally.queue.total.get()),
            refused: sum(|tally| tally.queue.refused.get()),
            client_left: sum(|tally| tally.queue.client_left.get()),
        }),
        trouble: shared.members.trouble(),
        backends: backends(&roll, &tallies),
    }
}

/// Members, and those that have left while requests to them are under way.
pub(crate) fn backends(roll: &Roll, tallies: &[Arc<PoolTally>]) -> Vec<BackendStatus> {
    let weights = roll.weights();
    let backend = |index: usize| {
        let member = &roll.members[index];
        let requests = RequestStatus::sum(of_backend(tallies, index));
        let state = member.state();
        (state != BackendState::Left || requests.in_flight > 0).then(|| BackendStatus {
            name: member.backend.name.clone(),
            address: member.backend.address,
            weight: weights[index],
            state,
            requests,
        })
    };
    (0..roll.members.len()).filter_map(backend).collect()
}

/// What threads have counted of one backend; one that has not taken up the backend yet has counted nothing.
pub(crate) fn of_backend(
    tallies: &[Arc<PoolTally>],
    index: usize,
) -> impl Iterator<Item = &BackendTally> {
    tallies.iter().filter_map(move |tally| tally.backends.get(index).map(|tally| &**tally))
}

fn ingress((entry, shared): (&config::Ingress, &SharedIngress)) -> IngressStatus {
    let counts = &shared.counts;
    let limit = counts.limit.get();
    let upstream: &BackendTally = &counts.upstream;
    IngressStatus {
        name: entry.name.clone(),
        listen: shared.listeners.address,
        upstream: entry.upstream,
        clients: clients(&shared.open, std::iter::once(&shared.clients)),
        capacity: (limit != 0).then(|| f64::from_bits(limit)),
        admitted: counts.admitted.get(),
        full: counts.full.get(),
        queue: counts.queue.get(),
        deadline: counts.deadline.get(),
        chips_sent: counts.chips.get(),
        sent_without_chip: counts.responses_without_chip.get(),
        application: RequestStatus::sum(std::iter::once(upstream)),
    }
}
