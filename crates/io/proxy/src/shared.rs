//! What all threads have together: the configuration in force, what is counted, and the logs by which they balance as
//! one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::access::Log;
use crate::balance::{Logs, Members, Roll};
use crate::clock::Clock;
use crate::config::{self, ProxyConfig};
use crate::listen::{ListenError, Listeners};
use crate::room::Room;
use crate::run::ProxyError;
use crate::tally::{EntryTally, IngressTally, PoolTally};
use crate::waiting::Waiting;

/// The proxy, but for its threads: what outlives any configuration.
pub(crate) struct Core {
    pub(crate) threads: usize,
    pub(crate) clock: Clock,
    /// Wakes each thread for its upkeep.
    pub(crate) wake: Vec<Arc<Notify>>,
    pub(crate) started: Instant,
    pub(crate) room: Arc<Room>,
    /// Another number in each life of a proxy: its counters begin at 0.
    pub(crate) generation: u64,
    /// Counts configurations: a thread that has seen this one has seen the last.
    version: AtomicU64,
    now: Mutex<Arc<Shared>>,
    /// Wakes those that watch for another configuration.
    pub(crate) reloaded: Notify,
    /// Held while a configuration becomes another.
    pub(crate) reloading: Mutex<()>,
}

/// One configuration in force.
pub(crate) struct Shared {
    pub(crate) config: ProxyConfig,
    pub(crate) ingress: Vec<SharedIngress>,
    pub(crate) egress: Vec<SharedEgress>,
    /// By pool.
    pub(crate) members: Vec<Arc<Members>>,
    pub(crate) log: Option<Arc<Log>>,
}

pub(crate) struct SharedIngress {
    pub(crate) listeners: Arc<Listeners>,
    /// The one that serves it.
    pub(crate) thread: usize,
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) clients: Arc<EntryTally>,
    pub(crate) counts: Arc<IngressTally>,
}

pub(crate) struct SharedEgress {
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) open: Arc<AtomicUsize>,
    /// By thread.
    pub(crate) clients: Vec<Arc<EntryTally>>,
    /// By pool; those that no route names have none.
    pub(crate) pools: Vec<Option<Arc<SharedPool>>>,
}

/// A pool, as one entry sees it: the same for as long as its policy learns on.
pub(crate) struct SharedPool {
    pub(crate) config: config::Pool,
    pub(crate) members: Arc<Members>,
    pub(crate) logs: Arc<Logs>,
    /// Requests that wait for room, where they may.
    pub(crate) waiting: Option<Arc<Waiting>>,
    /// By thread; each replaces its own when backends have come.
    tallies: Vec<Mutex<Arc<PoolTally>>>,
}

impl SharedPool {
    fn new(core: &Core, config: &config::Pool, members: &Arc<Members>, old: Option<&Self>) -> Self {
        let roll = members.read().0;
        let tally = |thread| {
            let before = old.map(|old| old.tally(thread)).unwrap_or_default();
            Mutex::new(Arc::new(before.of(&roll)))
        };
        SharedPool {
            config: config.clone(),
            members: members.clone(),
            logs: Logs::new(core.wake.clone()),
            // Its options were checked before.
            waiting: config.queue.and_then(|queue| Waiting::new(&queue, core.clock).ok()),
            tallies: (0..core.threads).map(tally).collect(),
        }
    }

    /// Whether this one may go on under another configuration with what it has learned.
    fn goes_on_as(&self, config: &config::Pool) -> bool {
        let policy = |pool: &config::Pool| config::Pool {
            backends: Vec::new(),
            source: config::Source::List,
            health: None,
            cookie: None,
            ..pool.clone()
        };
        policy(&self.config) == policy(config)
    }

    pub(crate) fn tally(&self, thread: usize) -> Arc<PoolTally> {
        self.tallies[thread].lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a thread counts from now on, with room for all members.
    pub(crate) fn renew_tally(&self, thread: usize, roll: &Roll) -> Arc<PoolTally> {
        let mut tally = self.tallies[thread].lock().unwrap_or_else(PoisonError::into_inner);
        *tally = Arc::new(tally.of(roll));
        tally.clone()
    }

    /// Of all threads.
    pub(crate) fn tallies(&self) -> Vec<Arc<PoolTally>> {
        (0..self.tallies.len()).map(|thread| self.tally(thread)).collect()
    }
}

impl Core {
    /// With this configuration.
    ///
    /// # Errors
    /// When an address cannot be listened on, or the log not be opened.
    pub(crate) fn start(config: &ProxyConfig, threads: usize) -> Result<Arc<Self>, ProxyError> {
        let nothing = ProxyConfig {
            ingress: Vec::new(),
            egress: Vec::new(),
            pools: Vec::new(),
            ..config.clone()
        };
        let nothing =
            Shared { config: nothing, ingress: vec![], egress: vec![], members: vec![], log: None };
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let core = Core {
            threads,
            clock: Clock::start(),
            wake: (0..threads).map(|_| Arc::default()).collect(),
            started: Instant::now(),
            room: Arc::new(Room::new(config)),
            generation: since_1970.map_or(0, |since| since.as_nanos() as u64),
            version: AtomicU64::new(0),
            now: Mutex::new(Arc::new(nothing)),
            reloaded: Notify::new(),
            reloading: Mutex::new(()),
        };
        let first = core.next(config)?;
        core.put(first);
        Ok(Arc::new(core))
    }

    /// The configuration in force.
    pub(crate) fn now(&self) -> Arc<Shared> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Which configuration is.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn wake_all(&self) {
        self.wake.iter().for_each(|wake| wake.notify_one());
    }

    /// Puts a configuration in force, and its backends.
    pub(crate) fn put(&self, next: Shared) {
        for (pool, members) in next.config.pools.iter().zip(&next.members) {
            // What a name stands for is not known yet: the members of before serve until it is.
            if !matches!(pool.source, config::Source::Dns { .. }) {
                members.become_these(&pool.backends);
            }
        }
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        self.version.fetch_add(1, Ordering::Release);
        self.reloaded.notify_one();
        self.wake_all();
    }

    /// Another configuration, with all that stays of the present one: entries by name and address, pools by name.
    /// Listens where nothing listened before; nothing is in force yet.
    ///
    /// # Errors
    /// When an address cannot be listened on, or the log not be opened.
    pub(crate) fn next(&self, config: &ProxyConfig) -> Result<Shared, ProxyError> {
        let old = self.now();
        let old_pool = |name: &str| old.config.pools.iter().position(|pool| pool.name == name);
        let members: Vec<Arc<Members>> = config
            .pools
            .iter()
            .map(|pool| match old_pool(&pool.name) {
                Some(index) => old.members[index].clone(),
                None => Arc::new(Members::new(&pool.backends)),
            })
            .collect();
        let ingress = config.ingress.iter().enumerate();
        let ingress = ingress
            .map(|(index, entry)| self.next_ingress(&old, index, entry))
            .collect::<Result<_, _>>()?;
        let egress = config.egress.iter().map(|entry| {
            let before = old.egress_named(&entry.name, entry.listen);
            let pool = |(index, pool): (usize, &config::Pool)| {
                let before = before.and_then(|before| before.pools[old_pool(&pool.name)?].as_ref());
                let is_named = entry.routes.iter().any(|route| route.pool == index);
                is_named.then(|| match before {
                    Some(before) if before.goes_on_as(pool) => before.clone(),
                    _ => {
                        let before = before.map(|before| &**before);
                        Arc::new(SharedPool::new(self, pool, &members[index], before))
                    }
                })
            };
            let pools = config.pools.iter().enumerate().map(pool).collect();
            Ok(match before {
                Some(before) => SharedEgress {
                    listeners: before.listeners.clone(),
                    open: before.open.clone(),
                    clients: before.clients.clone(),
                    pools,
                },
                None => SharedEgress {
                    listeners: Listeners::bind(&entry.name, entry.listen, self.threads)?,
                    open: Arc::default(),
                    clients: (0..self.threads).map(|_| Arc::default()).collect(),
                    pools,
                },
            })
        });
        let egress = egress.collect::<Result<_, ListenError>>()?;
        let log = match (&config.access_log, &old.log) {
            (Some(wanted), Some(log)) if log.is(wanted) => {
                log.reopen();
                Some(log.clone())
            }
            (Some(wanted), _) => Some(
                Log::open(wanted)
                    .map_err(|error| ProxyError::Log { file: wanted.file.clone(), error })?,
            ),
            (None, _) => None,
        };
        Ok(Shared { config: config.clone(), ingress, egress, members, log })
    }

    fn next_ingress(
        &self,
        old: &Shared,
        index: usize,
        entry: &config::Ingress,
    ) -> Result<SharedIngress, ListenError> {
        let before = old
            .config
            .ingress
            .iter()
            .position(|before| before.name == entry.name && before.listen == entry.listen);
        Ok(match before.map(|before| &old.ingress[before]) {
            Some(before) => SharedIngress {
                listeners: before.listeners.clone(),
                thread: before.thread,
                open: before.open.clone(),
                clients: before.clients.clone(),
                counts: before.counts.clone(),
            },
            // An ingress has one owner of its admission: one thread.
            None => SharedIngress {
                listeners: Listeners::bind(&entry.name, entry.listen, 1)?,
                thread: index % self.threads,
                open: Arc::default(),
                clients: Arc::default(),
                counts: Arc::default(),
            },
        })
    }
}

impl Shared {
    fn egress_named(&self, name: &str, listen: SocketAddr) -> Option<&SharedEgress> {
        let entries = &self.config.egress;
        let index = entries.iter().position(|e| e.name == name && e.listen == listen)?;
        Some(&self.egress[index])
    }

    /// Where entries really listen, by name: of all ingress entries, then of all egress entries.
    pub(crate) fn addresses(&self) -> Vec<(String, SocketAddr)> {
        let ingress = self.config.ingress.iter().map(|entry| &entry.name);
        let ingress = ingress.zip(self.ingress.iter().map(|of| of.listeners.address));
        let egress = self.config.egress.iter().map(|entry| &entry.name);
        let egress = egress.zip(self.egress.iter().map(|of| of.listeners.address));
        ingress.chain(egress).map(|(name, address)| (name.clone(), address)).collect()
    }

    /// The pool of this name.
    pub(crate) fn pool(&self, name: &str) -> Option<(&config::Pool, &Arc<Members>)> {
        let index = self.config.pools.iter().position(|pool| pool.name == name)?;
        Some((&self.config.pools[index], &self.members[index]))
    }
}
