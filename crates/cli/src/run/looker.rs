//! What balancers have, asked again and again: the servers of services that say `backends: auto`, and, where no file
//! was given, the services themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_api::Hub;
use plimsoll_config::Address;
use plimsoll_sink::{FoundPool, Sink, SinkError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::config::shared::{Shared, shared};
use crate::config::{Api, Backend, Config, Service, Store};

/// How often a balancer is asked what it has …
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// … and no more often than at so long for each server: to list one costs HAProxy some 6 µs.
const LOOK_EACH: Duration = Duration::from_millis(1);
/// What has left is seen to have after so many looks, however slow one of them was.
const LOOKS: u32 = 3;
/// Pools in a message.
const NAMED: usize = 20;

/// Between two looks at so many servers.
fn rest(servers: u32) -> Duration {
    LOOK_EVERY.max(LOOK_EACH.saturating_mul(servers))
}

/// The time within which a server of so many that has left its balancer is seen to have.
pub fn shown_by(servers: usize) -> Duration {
    LOOKS * rest(u32::try_from(servers).unwrap_or(u32::MAX))
}

/// What the daemon is configured to steer.
#[derive(Clone, Debug)]
pub enum Base {
    /// What the file says.
    File(Config),
    /// Whatever this balancer has.
    Balancer(Everything),
}

/// All pools of a balancer that can be helped.
#[derive(Clone, Debug)]
pub struct Everything {
    /// The balancer.
    pub sink: Sink,
    /// Only these pools; all where it is empty.
    pub only: Vec<String>,
    /// As in a file.
    pub store: Store,
    /// As in a file.
    pub api: Api,
}

impl Everything {
    fn wants(&self, pool: &FoundPool) -> bool {
        self.only.is_empty() || self.only.contains(&pool.name)
    }

    fn config(&self, services: Vec<Service>) -> Config {
        Config { services, store: self.store.clone(), api: self.api.clone() }
    }
}

impl Base {
    /// Whether a balancer must be asked.
    fn asks(&self) -> bool {
        match self {
            Base::File(config) => config.services.iter().any(|service| service.auto),
            Base::Balancer(_) => true,
        }
    }
}

/// The base, and why it is looked at.
#[derive(Clone, Debug)]
struct Wanted {
    number: u64,
    base: Base,
    why: String,
}

/// A configuration in which every service has its servers.
#[derive(Debug)]
pub struct Found {
    number: u64,
    /// What was the occasion.
    pub why: String,
    /// What to run.
    pub config: Config,
    /// Whether it was offered before, and refused.
    pub is_again: bool,
    /// Is told whether it runs now: what was refused for a while, as with a full disk, is offered again.
    pub taken: oneshot::Sender<bool>,
}

/// Looks, in a task of its own: a balancer that hangs delays no signal.
pub struct Looker {
    wanted: watch::Sender<Wanted>,
    found: mpsc::Receiver<Found>,
    task: JoinHandle<()>,
}

impl Drop for Looker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Looker {
    /// Looks once, and goes on looking. A balancer that cannot be reached is waited for.
    ///
    /// # Errors
    /// In words, when a balancer that was named in the place of a file refuses, or has nothing that can be helped.
    pub async fn start(base: Base, hub: Hub) -> Result<(Self, Config), String> {
        let mut explorer = Explorer::new(hub);
        let config = explorer.first(&base).await?;
        let wanted = Wanted { number: 0, base, why: String::new() };
        let (wanted, receiver) = watch::channel(wanted);
        let (sender, found) = mpsc::channel(1);
        let task = tokio::spawn(look(explorer, config.clone(), receiver, sender));
        Ok((Looker { wanted, found, task }, config))
    }

    /// Looks again now, at another base where one is given.
    pub fn look(&self, base: Option<Config>, why: &str) {
        self.wanted.send_modify(|wanted| {
            wanted.number += 1;
            wanted.why = why.to_owned();
            if let Some(config) = base {
                wanted.base = Base::File(config);
            }
        });
    }

    /// What was found next.
    pub async fn next(&mut self) -> Found {
        loop {
            match self.found.recv().await {
                // It was found for a base that holds no longer.
                Some(found) if found.number != self.wanted.borrow().number => {}
                Some(found) => return found,
                None => {
                    tracing::error!(
                        "the task that looks at balancers and takes up changes has ended: restart Plimsoll, and please \
                         report this"
                    );
                    std::future::pending().await
                }
            }
        }
    }
}

async fn look(
    mut explorer: Explorer,
    mut last: Config,
    mut wanted: watch::Receiver<Wanted>,
    found: mpsc::Sender<Found>,
) {
    let mut refused = None;
    loop {
        let rest = match wanted.borrow().base.asks() {
            true => rest(explorer.servers),
            false => Duration::MAX,
        };
        let is_new = match timeout(rest, wanted.changed()).await {
            Ok(Ok(())) => true,
            Ok(Err(_)) => return,
            Err(_) => false,
        };
        let Wanted { number, base, why } = wanted.borrow_and_update().clone();
        let config = match explorer.expand(&base).await {
            Ok(config) => config,
            Err(error) => {
                explorer.wait_for_balancer(&error);
                sleep(LOOK_EVERY).await;
                continue;
            }
        };
        explorer.said.remove("");
        if !is_new && last == config {
            continue;
        }
        let is_again = !is_new && refused.as_ref() == Some(&config);
        let why = if is_new { why } else { "the balancer has other servers".to_owned() };
        let (taken, is_taken) = oneshot::channel();
        let offer = Found { number, why, config: config.clone(), is_again, taken };
        if found.send(offer).await.is_err() {
            return;
        }
        match is_taken.await {
            Ok(true) => (last, refused) = (config, None),
            // Nobody asked it: there is another base by now.
            Err(_) => {}
            Ok(false) => refused = Some(config),
        }
    }
}

/// What was found so far.
#[derive(Debug)]
pub struct Explorer {
    /// Is told what is waited for.
    hub: Hub,
    /// By service.
    known: BTreeMap<String, Vec<Backend>>,
    /// Pools that have been helped: they stay until the balancer has them no more.
    helped: BTreeSet<String>,
    /// What was last said of each pool.
    said: BTreeMap<String, String>,
    /// What was last said of services whose first balancer did not tell which servers there are.
    stood_in: BTreeMap<String, String>,
    /// Which services share servers.
    shared: Vec<Shared>,
    /// How many servers there are.
    servers: u32,
}

/// What each balancer that was asked has, or why it does not tell.
type Looks = BTreeMap<String, Result<Vec<FoundPool>, SinkError>>;

/// Asks the first balancer of every service that wants to know its servers, and the next one where that does not tell.
async fn ask(config: &Config) -> Looks {
    let mut found = Looks::new();
    loop {
        let unsettled = config
            .services
            .iter()
            .filter(|service| service.auto && first_that_answers(service, &found).is_none());
        let next = |service: &Service| {
            service.sink.value.iter().find(|sink| !found.contains_key(&sink.place())).cloned()
        };
        let next: BTreeMap<String, Sink> =
            unsettled.filter_map(next).map(|sink| (sink.place(), sink)).collect();
        if next.is_empty() {
            return found;
        }
        let mut looks = JoinSet::new();
        for (place, sink) in next {
            looks.spawn(async move { (place, sink.look().await) });
        }
        found.extend(looks.join_all().await);
    }
}

/// The first balancer of a service that has reported its pool, with the pool.
fn first_that_answers<'a>(
    service: &'a Service,
    found: &'a Looks,
) -> Option<(&'a Sink, &'a FoundPool)> {
    service.sink.value.iter().find_map(|sink| {
        let pools = found.get(&sink.place())?.as_ref().ok()?;
        Some((sink, pools.iter().find(|pool| pool.name == sink.pool())?))
    })
}

impl Explorer {
    fn new(hub: Hub) -> Self {
        let (known, helped) = (BTreeMap::new(), BTreeSet::new());
        let (said, stood_in) = (BTreeMap::new(), BTreeMap::new());
        Explorer { hub, known, helped, said, stood_in, shared: Vec::new(), servers: 0 }
    }

    fn wait_for_balancer(&mut self, error: &SinkError) {
        let what = format!("waiting for the balancer: {error}");
        self.say("", &what, true);
        self.hub.wait_for(Some(what));
    }

    /// The first look, as [`Looker::start`].
    async fn first(&mut self, base: &Base) -> Result<Config, String> {
        let Base::Balancer(all) = base else {
            return self.expand(base).await.map_err(|error| error.to_string());
        };
        let pools = match all.sink.look().await {
            Ok(pools) => pools,
            Err(error) if error.retryable() => {
                self.wait_for_balancer(&error);
                return Ok(all.config(Vec::new()));
            }
            Err(error) => return Err(error.to_string()),
        };
        let place = all.sink.place();
        all_exist(&all.only, &pools, &place)?;
        let chosen = || pools.iter().filter(|pool| all.wants(pool));
        if !chosen().any(|pool| pool.out_of_reach().is_none() || pool.waits_for_names()) {
            let reason = |pool: &FoundPool| {
                format!("; {}: {}", pool.name, pool.out_of_reach().unwrap_or_default())
            };
            let reasons: String = chosen().take(NAMED).map(reason).collect();
            return Err(format!("{place}: none of its pools can be helped{reasons}"));
        }
        Ok(self.everything(all, &pools))
    }

    /// Gives every service its servers.
    ///
    /// # Errors
    /// When the balancer that stands in the place of a file does not answer. One of a file that does not is no error: its
    /// services keep the servers that they had, and say themselves what is wrong.
    pub async fn expand(&mut self, base: &Base) -> Result<Config, SinkError> {
        match base {
            Base::File(config) => {
                let config = self.fill(config.clone()).await;
                self.say_shared(shared(&config.services));
                Ok(config)
            }
            Base::Balancer(all) => {
                let pools = all.sink.look().await?;
                Ok(self.everything(all, &pools))
            }
        }
    }

    /// Says which services share servers, when it is news.
    fn say_shared(&mut self, all: Vec<Shared>) {
        for news in all.iter().filter(|one| !self.shared.contains(one)) {
            tracing::warn!("{news}");
        }
        self.shared = all;
    }

    async fn fill(&mut self, mut config: Config) -> Config {
        let found = ask(&config).await;
        self.servers = count(found.values().flatten().flatten());
        for service in config.services.iter_mut().filter(|service| service.auto) {
            if let Some((sink, pool)) = first_that_answers(service, &found) {
                self.known.insert(service.name.clone(), backends(pool));
                match pool.out_of_reach() {
                    Some(why) => self.say(&service.name, &format!("cannot be helped: {why}"), true),
                    None => self.say(&service.name, &pool.summary(), false),
                }
                self.log_which_balancer_answered(service, sink, &found);
            }
            service.backends = self.known.get(&service.name).cloned().unwrap_or_default();
        }
        config
    }

    /// Logs when another balancer than the first reports which servers there are, and when it is the first again.
    fn log_which_balancer_answered(&mut self, service: &Service, sink: &Sink, found: &Looks) {
        let (first, name) = (service.sink.value.first(), &service.name);
        if sink == first {
            if self.stood_in.remove(name).is_some() {
                tracing::info!(pool = %name, "its servers are those of the first balancer again");
            }
            return;
        }
        let why = match found.get(&first.place()) {
            Some(Err(error)) => error.to_string(),
            _ => format!("{}: it has no {:?}", first.place(), first.pool()),
        };
        let what = format!(
            "its servers could not be had from the first balancer, and are those of {}, {:?} ({why})",
            sink.place(),
            sink.pool()
        );
        if self.stood_in.get(name) != Some(&what) {
            tracing::warn!(pool = %name, "{what}");
            self.stood_in.insert(name.clone(), what);
        }
    }

    /// A service for each pool that can be helped.
    fn everything(&mut self, all: &Everything, pools: &[FoundPool]) -> Config {
        let place = all.sink.place();
        self.servers = count(pools.iter());
        for name in all.only.iter().filter(|name| !pools.iter().any(|pool| pool.name == **name)) {
            self.say(name, "the balancer has no such pool any longer", true);
        }
        let mut taken = BTreeSet::new();
        let (mut services, mut waits) = (Vec::new(), Vec::new());
        for pool in pools.iter().filter(|pool| all.wants(pool)) {
            let why = pool.out_of_reach();
            match &why {
                Some(why) if pool.waits_for_names() => {
                    waits.push(pool.name.as_str());
                    self.say(&pool.name, &format!("waits until it can be helped: {why}"), true);
                }
                Some(why) => self.say(&pool.name, &format!("cannot be helped: {why}"), true),
                None => self.say(&pool.name, &format!("can be helped: {}", pool.summary()), false),
            }
            if why.is_none() {
                self.helped.insert(pool.name.clone());
            }
            if self.helped.contains(&pool.name) {
                let name = service_name(&pool.name, &mut taken);
                let mut service = Service::auto(name, all.sink.with_pool(&pool.name), &place);
                service.backends = backends(pool);
                services.push(service);
            }
        }
        let why = match waits.is_empty() {
            true => format!("{place}: none of its pools can be helped"),
            false => format!("waiting for the names of servers of {}", names(waits.into_iter())),
        };
        self.hub.wait_for(Some(why).filter(|_| services.is_empty()));
        self.helped.retain(|name| pools.iter().any(|pool| pool.name == *name));
        self.say_shared(shared(&services));
        all.config(services)
    }

    /// Says it when it is news.
    fn say(&mut self, about: &str, what: &str, is_bad: bool) {
        if self.said.get(about).is_some_and(|said| said == what) {
            return;
        }
        self.said.insert(about.to_owned(), what.to_owned());
        match (about, is_bad) {
            ("", _) => tracing::warn!("{what}"),
            (pool, true) => tracing::warn!(pool, "{what}"),
            (pool, false) => tracing::info!(pool, "{what}"),
        }
    }
}

fn count<'a>(pools: impl Iterator<Item = &'a FoundPool>) -> u32 {
    u32::try_from(pools.map(|pool| pool.servers.len()).sum::<usize>()).unwrap_or(u32::MAX)
}

/// Whether a balancer has all the pools that were asked for; else which it has.
pub fn all_exist(only: &[String], pools: &[FoundPool], place: &str) -> Result<(), String> {
    let is_unknown = |name: &&String| !pools.iter().any(|pool| pool.name == **name);
    let unknown: Vec<String> =
        only.iter().filter(is_unknown).map(|name| format!("{name:?}")).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let exist = names(pools.iter().map(|pool| pool.name.as_str()));
    Err(format!("{place}: it has no {}; it has {exist}", unknown.join(", ")))
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = all.collect();
    let shown = all.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        _ if all.is_empty() => "none".to_owned(),
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The servers of a pool that can be steered.
pub fn backends(pool: &FoundPool) -> Vec<Backend> {
    let backend =
        |(name, at): (&str, _)| Backend { name: name.to_owned(), address: Address::from(at) };
    pool.steerable().map(backend).collect()
}

/// The longest name that is taken as it is.
const LONGEST: usize = 120;

/// A pool's name as a service may have it: it is part of addresses of the API, and balancers allow more characters. One
/// that had to be changed ends in a hash of what it was, so that it is the same whichever other pools there are: what
/// was learned is kept under it.
pub fn service_name(pool: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let mut name: String = pool.chars().take(LONGEST).map(plain).collect();
    if name != pool {
        // All of its characters are single bytes.
        name.truncate(LONGEST - 9);
        name = format!("{name}-{:08x}", hash(pool));
    }
    let (base, mut number) = (name.clone(), 1);
    while !taken.insert(name.clone()) {
        number += 1;
        name = format!("{base}-{number}");
    }
    name
}

/// FNV-1a of 32 bits: the same in every version.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_services_are_plain_and_none_comes_twice() {
        let mut taken = BTreeSet::new();
        let mut of = |pool: &str| service_name(pool, &mut taken);
        assert_eq!(of("shop"), "shop");
        assert_eq!(of("a_80"), "a_80");
        assert_eq!(hash("foobar"), 0xbf9c_f968, "FNV-1a as published");
        let changed = of("a:80");
        assert_eq!(changed, format!("a_80-{:08x}", hash("a:80")));
        assert_eq!(changed, service_name("a:80", &mut BTreeSet::new()), "whoever else is there");
        assert_ne!(changed, of("a/80"));
        assert_eq!(of(&"x".repeat(300)).len(), 120);
    }
}
