//! What all threads have together: what is counted, and the logs by which they balance as one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

use crate::balance::{Logs, Weights};
use crate::clock::Clock;
use crate::config::{self, ProxyConfig};
use crate::status::{
    BackendStatus, ClientStatus, EgressStatus, IngressStatus, PoolStatus, RequestStatus, Status,
};
use crate::tally::{BackendTally, EntryTally, IngressTally, PoolTally};

/// The proxy, but for its threads.
pub(crate) struct Shared {
    pub(crate) config: ProxyConfig,
    pub(crate) threads: usize,
    pub(crate) clock: Clock,
    /// Wakes each thread for its upkeep.
    pub(crate) wake: Vec<Arc<Notify>>,
    pub(crate) ingress: Vec<SharedIngress>,
    pub(crate) egress: Vec<SharedEgress>,
    started: Instant,
}

pub(crate) struct SharedIngress {
    /// Where it really listens.
    pub(crate) listen: SocketAddr,
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) clients: Arc<EntryTally>,
    pub(crate) counts: Arc<IngressTally>,
}

pub(crate) struct SharedEgress {
    /// Where it really listens.
    pub(crate) listen: SocketAddr,
    pub(crate) open: Arc<AtomicUsize>,
    /// By thread.
    pub(crate) clients: Vec<Arc<EntryTally>>,
    /// By pool; those that no route names have none.
    pub(crate) pools: Vec<Option<SharedPool>>,
}

pub(crate) struct SharedPool {
    pub(crate) logs: Arc<Logs>,
    pub(crate) weights: Arc<Weights>,
    /// By thread.
    pub(crate) tallies: Vec<Arc<PoolTally>>,
}

impl Shared {
    /// For so many threads; the addresses are those really listened on, of all ingress entries, then of all egress
    /// entries.
    pub(crate) fn new(config: ProxyConfig, threads: usize, addresses: &[SocketAddr]) -> Self {
        let wake: Vec<Arc<Notify>> = (0..threads).map(|_| Arc::default()).collect();
        let (of_ingress, of_egress) = addresses.split_at(config.ingress.len());
        let ingress = |&listen: &SocketAddr| SharedIngress {
            listen,
            open: Arc::default(),
            clients: Arc::default(),
            counts: Arc::default(),
        };
        let pool = |pool: &config::Pool| SharedPool {
            logs: Logs::new(wake.clone()),
            weights: Arc::new(Weights::new(&pool.weights())),
            tallies: (0..threads).map(|_| Arc::new(PoolTally::new(pool.backends.len()))).collect(),
        };
        let egress = |(&listen, entry): (&SocketAddr, &config::Egress)| SharedEgress {
            listen,
            open: Arc::default(),
            clients: (0..threads).map(|_| Arc::default()).collect(),
            pools: (0..config.pools.len())
                .map(|index| {
                    let is_named = entry.routes.iter().any(|route| route.pool == index);
                    is_named.then(|| pool(&config.pools[index]))
                })
                .collect(),
        };
        let ingress = of_ingress.iter().map(ingress).collect();
        let egress = of_egress.iter().zip(&config.egress).map(egress).collect();
        let (clock, started) = (Clock::start(), Instant::now());
        Shared { threads, clock, ingress, egress, started, wake, config }
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            threads: self.threads,
            uptime_s: self.started.elapsed().as_secs_f64(),
            ingress: self.config.ingress.iter().zip(&self.ingress).map(ingress_status).collect(),
            egress: self
                .config
                .egress
                .iter()
                .zip(&self.egress)
                .map(|(entry, shared)| self.egress_status(entry, shared))
                .collect(),
        }
    }

    /// See [`crate::Handle::drain`].
    pub(crate) fn drain(
        &self,
        backend: &str,
        pool: Option<&str>,
        undo: bool,
    ) -> Result<(), String> {
        let found = self.config.pools.iter().enumerate().filter_map(|(index, of)| {
            let is_meant = pool.is_none_or(|pool| pool == of.name);
            let place = of.backends.iter().position(|found| found.name == backend)?;
            is_meant.then_some((index, place))
        });
        let (pool, place) = match found.collect::<Vec<_>>()[..] {
            [found] => found,
            [] => return Err(format!("no backend is called {backend:?}")),
            _ => {
                return Err(format!(
                    "several pools have a backend {backend:?}: say which is meant"
                ));
            }
        };
        let weight = if undo { self.config.pools[pool].backends[place].weight } else { 0 };
        let entries = || self.egress.iter().filter_map(|entry| entry.pools[pool].as_ref());
        for of in entries().filter(|_| !undo) {
            let others = of.weights.all();
            if others.iter().enumerate().all(|(other, weight)| other == place || *weight == 0) {
                return Err(format!("{backend:?} is the last backend of its pool"));
            }
        }
        entries().for_each(|of| of.weights.set(place, weight));
        self.wake.iter().for_each(|wake| wake.notify_one());
        Ok(())
    }

    fn egress_status(&self, entry: &config::Egress, shared: &SharedEgress) -> EgressStatus {
        let pools = self.config.pools.iter().zip(&shared.pools);
        EgressStatus {
            name: entry.name.clone(),
            listen: shared.listen,
            clients: clients(&shared.open, shared.clients.iter()),
            pools: pools
                .filter_map(|(pool, shared)| Some(pool_status(pool, shared.as_ref()?)))
                .collect(),
        }
    }
}

fn clients<'a>(
    open: &AtomicUsize,
    tallies: impl Iterator<Item = &'a Arc<EntryTally>>,
) -> ClientStatus {
    ClientStatus::sum(open.load(Ordering::Relaxed), tallies.map(|tally| &**tally))
}

fn pool_status(pool: &config::Pool, shared: &SharedPool) -> PoolStatus {
    let sum = |of: fn(&PoolTally) -> u64| shared.tallies.iter().map(|tally| of(tally)).sum();
    let backend = |(index, backend): (usize, &config::Backend)| BackendStatus {
        name: backend.name.clone(),
        address: backend.address,
        weight: shared.weights.get(index),
        requests: RequestStatus::sum(shared.tallies.iter().map(|tally| &tally.backends[index])),
    };
    PoolStatus {
        name: pool.name.clone(),
        policy: pool.policy.name().to_owned(),
        retried: sum(|tally| tally.retried.get()),
        not_retried: sum(|tally| tally.not_retried.get()),
        without_backend: sum(|tally| tally.without_backend.get()),
        backends: pool.backends.iter().enumerate().map(backend).collect(),
    }
}

fn ingress_status((entry, shared): (&config::Ingress, &SharedIngress)) -> IngressStatus {
    let counts = &shared.counts;
    let limit = counts.limit.get();
    let upstream: &BackendTally = &counts.upstream;
    IngressStatus {
        name: entry.name.clone(),
        listen: shared.listen,
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
