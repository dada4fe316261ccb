//! One thread of the proxy: its part of every entry, and how it takes up another configuration.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tracing::warn;

use crate::access::Access;
use crate::balance::Balancer;
use crate::egress::Egress;
use crate::ingress::Ingress;
use crate::listen::Listeners;
use crate::pool::Pool;
use crate::serve::{Handler, Opened, Stop, listen};
use crate::shared::{Core, Shared, SharedEgress, SharedPool};
use crate::slot::Slot;

/// How often each thread takes what others passed on, and closes connections that have been idle for too long. While
/// it serves it does the former at every request.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);

/// A thread's part of the proxy.
pub(crate) struct Seat {
    thread: usize,
    core: Arc<Core>,
    /// Of the configuration that it has taken up.
    version: Option<u64>,
    shared: Arc<Shared>,
    ingress: Vec<Door<Ingress>>,
    egress: Vec<Counter>,
    /// Doors that are closed, while connections that came in by them are open.
    leaving: Vec<Leaving>,
}

/// An entry that is open.
struct Door<H> {
    listeners: Arc<Listeners>,
    slot: Rc<Slot<H>>,
    stop: Rc<Stop>,
    task: JoinHandle<()>,
}

/// An egress entry and its pools, by index; those that none of its routes names have none.
struct Counter {
    door: Door<Egress>,
    pools: Pools,
}

type Pools = Vec<Option<(Arc<SharedPool>, Rc<Pool>)>>;

struct Leaving {
    stop: Rc<Stop>,
    task: JoinHandle<()>,
}

impl<H: Handler> Door<H> {
    fn open(
        listeners: &Arc<Listeners>,
        index: usize,
        slot: Rc<Slot<H>>,
        open: Opened,
    ) -> Option<Self> {
        let listener = listeners.take(index)?;
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                warn!(address = %listeners.address, "a thread cannot listen: {error}");
                return None;
            }
        };
        let stop = Rc::new(Stop::default());
        let task = tokio::task::spawn_local(listen(listener, slot.clone(), open, stop.clone()));
        Some(Door { listeners: listeners.clone(), slot, stop, task })
    }

    fn close(self) -> Leaving {
        self.stop.stop();
        Leaving { stop: self.stop, task: self.task }
    }
}

impl Leaving {
    async fn ended(self) {
        // One that panicked accepts no more, either.
        let _ = self.task.await;
        self.stop.all_closed().await;
    }
}

impl Seat {
    pub(crate) fn new(thread: usize, core: Arc<Core>) -> Self {
        let shared = core.now();
        let (ingress, egress, leaving) = (Vec::new(), Vec::new(), Vec::new());
        Seat { thread, core, version: None, shared, ingress, egress, leaving }
    }

    /// Serves until it is asked to end, and then for the time it is given.
    pub(crate) async fn serve(mut self, mut stopping: watch::Receiver<Option<Duration>>) {
        let wake = self.core.wake[self.thread].clone();
        let mut ticks = tokio::time::interval(UPKEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.upkeep();
        let drain = loop {
            tokio::select! {
                drain = stopping.wait_for(Option::is_some) => {
                    break drain.ok().and_then(|drain| *drain).unwrap_or_default();
                }
                _ = ticks.tick() => {}
                () = wake.notified() => {}
            }
            self.upkeep();
        };
        let ingress = self.ingress.into_iter().map(Door::close);
        let egress = self.egress.into_iter().map(|counter| counter.door.close());
        let doors: Vec<Leaving> = ingress.chain(egress).chain(self.leaving).collect();
        let all_ended = async {
            for door in doors {
                door.ended().await;
            }
        };
        if tokio::time::timeout(drain, all_ended).await.is_err() && !drain.is_zero() {
            warn!("some requests were not finished within {drain:?}");
        }
    }

    fn upkeep(&mut self) {
        let version = self.core.version();
        if self.version != Some(version) {
            self.version = Some(version);
            self.shared = self.core.now();
            self.take_up();
        }
        for door in &self.ingress {
            door.slot.now().upkeep();
        }
        for index in 0..self.egress.len() {
            self.renew(index);
            self.egress[index].door.slot.now().upkeep();
        }
        self.leaving.retain(|leaving| !leaving.task.is_finished() || !leaving.stop.is_empty());
    }

    fn opened(&self, of_entry: &Arc<AtomicUsize>) -> Opened {
        Opened { of_entry: of_entry.clone(), room: self.core.room.clone() }
    }

    /// Takes up the configuration: opens, keeps and closes entries.
    fn take_up(&mut self) {
        let shared = self.shared.clone();
        let old = std::mem::take(&mut self.ingress);
        let mut old: Vec<Option<Door<Ingress>>> = old.into_iter().map(Some).collect();
        for (entry, of) in shared.config.ingress.iter().zip(&shared.ingress) {
            if of.thread != self.thread {
                continue;
            }
            let before = taken(&mut old, |door| Arc::ptr_eq(&door.listeners, &of.listeners));
            let before_now = before.as_ref().map(|door| door.slot.now());
            let (clients, counts) = (of.clients.clone(), of.counts.clone());
            let next = Ingress::new(
                entry,
                self.core.clock,
                clients.clone(),
                counts,
                before_now.as_deref(),
            );
            let door = match (next, before) {
                (Ok(next), Some(door)) => {
                    door.slot.set(next);
                    Some(door)
                }
                (Ok(next), None) => {
                    Door::open(&of.listeners, 0, Slot::new(next, clients), self.opened(&of.open))
                }
                (Err(error), before) => {
                    warn!(entry = entry.name, "{error}");
                    before
                }
            };
            if let Some(door) = &door {
                door.slot.log(shared.log.as_ref().map(|log| Access::new(log, &entry.name)));
            }
            self.ingress.extend(door);
        }
        self.leaving.extend(old.into_iter().flatten().map(Door::close));
        self.take_up_egress(&shared);
    }

    fn take_up_egress(&mut self, shared: &Shared) {
        let old = std::mem::take(&mut self.egress);
        let mut old: Vec<Option<Counter>> = old.into_iter().map(Some).collect();
        for (index, of) in shared.egress.iter().enumerate() {
            let before =
                taken(&mut old, |counter| Arc::ptr_eq(&counter.door.listeners, &of.listeners));
            let old_pools = before.as_ref().map_or(&[][..], |counter| &counter.pools);
            let pools = self.pools(shared, index, old_pools);
            let next = self.egress(shared, index, &pools);
            let door = match before {
                Some(counter) => {
                    counter.door.slot.set(next);
                    Some(counter.door)
                }
                None => {
                    let slot = Slot::new(next, of.clients[self.thread].clone());
                    Door::open(&of.listeners, self.thread, slot, self.opened(&of.open))
                }
            };
            if let Some(door) = &door {
                let name = &shared.config.egress[index].name;
                door.slot.log(shared.log.as_ref().map(|log| Access::new(log, name)));
            }
            self.egress.extend(door.map(|door| Counter { door, pools }));
        }
        self.leaving.extend(old.into_iter().flatten().map(|counter| counter.door.close()));
    }

    /// The pools of an entry: those that learn on keep what they have, and connections stay open where they lead to the
    /// same backend.
    fn pools(
        &self,
        shared: &Shared,
        index: usize,
        old: &[Option<(Arc<SharedPool>, Rc<Pool>)>],
    ) -> Pools {
        let entry = &shared.config.egress[index];
        let SharedEgress { pools, .. } = &shared.egress[index];
        let one = |(pool, of): (usize, &Option<Arc<SharedPool>>)| {
            let of = of.as_ref()?;
            let config = &shared.config.pools[pool];
            let before = old.iter().flatten().find(|(before, _)| Arc::ptr_eq(before, of));
            let tally = of.renew_tally(self.thread, &of.members.read().0);
            let balancer = match before {
                Some((_, before)) => before.balancer.succeeded(config, tally),
                None => {
                    let logs = (of.logs.clone(), self.thread);
                    let shared = (of.members.clone(), of.waiting.clone());
                    let made = Balancer::new(config, logs, self.core.clock, tally, shared);
                    made.map_err(|error| warn!(pool = config.name, "{error}")).ok()?
                }
            };
            let here = shared.egress[index].listeners.address;
            let announces = config.proxy_protocol.map(|version| (version, here));
            let next = Pool::new(config, balancer, (entry.timeouts, entry.limits), announces);
            let next = Rc::new(next);
            if let Some((_, before)) = before {
                next.take_over(before);
            }
            Some((of.clone(), next))
        };
        pools.iter().enumerate().map(one).collect()
    }

    fn egress(&self, shared: &Shared, index: usize, pools: &Pools) -> Rc<Egress> {
        let entry = &shared.config.egress[index];
        let pools = pools.iter().map(|pool| pool.as_ref().map(|(_, pool)| pool.clone())).collect();
        Egress::new(entry, pools, shared.egress[index].clients[self.thread].clone())
    }

    /// Takes up backends that have come to an entry's pools.
    fn renew(&mut self, index: usize) {
        let is_outdated =
            self.egress[index].pools.iter().flatten().any(|(_, pool)| pool.balancer.is_outdated());
        if !is_outdated {
            return;
        }
        let shared = self.shared.clone();
        let Some(place) = shared
            .egress
            .iter()
            .position(|of| Arc::ptr_eq(&of.listeners, &self.egress[index].door.listeners))
        else {
            return;
        };
        let pools = self.pools(&shared, place, &self.egress[index].pools);
        let next = self.egress(&shared, place, &pools);
        self.egress[index].door.slot.set(next);
        self.egress[index].pools = pools;
    }
}

/// Takes out the one that is meant.
fn taken<T>(all: &mut [Option<T>], is_meant: impl Fn(&T) -> bool) -> Option<T> {
    all.iter_mut().find(|one| one.as_ref().is_some_and(&is_meant))?.take()
}
