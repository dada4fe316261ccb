//! What changes a pool by itself: its file, its name in DNS, its health checks. One thread for all pools, which serves no
//! requests.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_config::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};
use tracing::{info, warn};

use crate::balance::Members;
use crate::config::{self, Backend, Health, ProxyProtocol, Source};
use crate::shared::Core;
use crate::upstream::is_ours;

/// The longest look-up of a name.
const LOOKUP: Duration = Duration::from_secs(5);
/// A status line is in the first bytes: `HTTP/1.1 200`.
const STATUS_LINE: usize = 12;

/// Watches until the proxy is to end; a reload starts it anew, and what is known to be down stays so.
pub(crate) async fn run(core: Arc<Core>, mut stopping: watch::Receiver<Option<Duration>>) {
    loop {
        let version = core.version();
        let shared = core.now();
        // Ends them all when it is dropped.
        let mut tasks = JoinSet::new();
        for (pool, members) in shared.config.pools.iter().zip(&shared.members) {
            let what =
                Watched { pool: pool.name.clone(), members: members.clone(), core: core.clone() };
            match pool.source.clone() {
                Source::List => {
                    what.members.set_trouble(None);
                }
                Source::File { path, interval } => {
                    tasks.spawn_local(what.clone().file(path, interval));
                }
                Source::Dns { address, interval } => {
                    tasks.spawn_local(what.clone().dns(address, interval));
                }
            }
            match pool.health.clone() {
                Some(health) => {
                    tasks.spawn_local(what.health(health, pool.proxy_protocol));
                }
                None => what.all_up(),
            }
        }
        let changed = async {
            while core.version() == version {
                core.reloaded.notified().await;
            }
        };
        tokio::select! {
            _ = stopping.wait_for(Option::is_some) => return,
            () = changed => {}
        }
    }
}

/// A pool that is watched.
#[derive(Clone)]
struct Watched {
    pool: String,
    members: Arc<Members>,
    core: Arc<Core>,
}

impl Watched {
    /// Backends as they are now; those of before stay where they are not known.
    fn take(&self, found: Result<Vec<Backend>, String>) {
        match found {
            Ok(backends) => {
                if self.members.set_trouble(None) {
                    info!(pool = self.pool, "its backends are known again");
                }
                if self.members.become_these(&backends) {
                    info!(pool = self.pool, backends = backends.len(), "its backends have changed");
                    self.core.wake_all();
                }
            }
            Err(why) => {
                if self.members.set_trouble(Some(&why)) {
                    warn!(pool = self.pool, "its backends stay as they are: {why}");
                }
            }
        }
    }

    async fn file(self, path: std::path::PathBuf, every: Duration) {
        let mut last = None;
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Compared whole: two writes within a tick of the file system's clock are distinguished.
            let written = std::fs::read(&path).ok();
            if written.is_some() && written == last {
                continue;
            }
            last = written;
            self.take(read(&path));
        }
    }

    async fn dns(self, address: Address, every: Duration) {
        let name = address.to_string();
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.take(look_up(&name).await);
        }
    }

    async fn health(self, health: Health, announces: Option<ProxyProtocol>) {
        let mut known: HashMap<SocketAddr, InARow> = HashMap::new();
        let mut ticks = interval(health.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // One that hangs keeps nobody else from being asked.
        let mut checks = JoinSet::new();
        let mut under_way = HashSet::new();
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    let (roll, _) = self.members.read();
                    let addresses: Vec<SocketAddr> =
                        roll.present().map(|(_, member)| member.backend.address).collect();
                    known.retain(|address, _| addresses.contains(address));
                    for (i, address) in addresses.iter().copied().enumerate() {
                        if !under_way.insert(address) {
                            continue;
                        }
                        // Spread, so that a pool of many is not asked all at once.
                        let pause = health.interval.mul_f64(0.9 * i as f64 / addresses.len() as f64);
                        let health = health.clone();
                        checks.spawn_local(async move {
                            sleep(pause).await;
                            (address, is_well(address, &health, announces).await)
                        });
                    }
                }
                Some(Ok((address, found))) = checks.join_next() => {
                    under_way.remove(&address);
                    let Some(is_well) = found else { continue };
                    let row = known.entry(address).or_default();
                    if let Some(is_down) = row.saw(is_well, &health) {
                        self.put(address, is_down);
                    }
                }
            }
        }
    }

    /// What checks have found of a backend.
    fn put(&self, address: SocketAddr, is_down: bool) {
        let changed: Result<String, ()> = self.members.change(|roll| {
            let found = roll.members.iter_mut().find(|member| {
                member.is_member() && member.backend.address == address && member.is_down != is_down
            });
            let member = found.ok_or(())?;
            member.is_down = is_down;
            Ok(member.backend.name.clone())
        });
        if let Ok(backend) = changed {
            match is_down {
                true => warn!(pool = self.pool, backend, "its health check fails: it is down"),
                false => info!(pool = self.pool, backend, "its health check succeeds: it is up"),
            }
            self.core.wake_all();
        }
    }

    /// The checks have ended.
    fn all_up(&self) {
        let changed = self.members.change(|roll| {
            let down = roll.members.iter_mut().filter(|member| member.is_down);
            match down.map(|member| member.is_down = false).count() {
                0 => Err(()),
                _ => Ok(()),
            }
        });
        if changed.is_ok() {
            self.core.wake_all();
        }
    }
}

/// Checks of one backend with the same result, one after the other.
#[derive(Default)]
struct InARow {
    succeeded: u32,
    failed: u32,
}

impl InARow {
    /// Whether a backend is to be taken for down, or up, after this check; nothing where it stays as it is.
    fn saw(&mut self, is_well: bool, health: &Health) -> Option<bool> {
        let (row, other, least) = match is_well {
            true => (&mut self.succeeded, &mut self.failed, health.rise),
            false => (&mut self.failed, &mut self.succeeded, health.fall),
        };
        *other = 0;
        *row = row.saturating_add(1);
        (*row >= least).then_some(!is_well)
    }
}

fn read(path: &Path) -> Result<Vec<Backend>, String> {
    config::load_backends(path).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        errors.join("; ")
    })
}

/// All addresses of a name, each a backend that is called so, in an order that look-ups do not change.
async fn look_up(name: &str) -> Result<Vec<Backend>, String> {
    let found = match timeout(LOOKUP, tokio::net::lookup_host(name)).await {
        Ok(found) => found.map_err(|error| format!("{name} cannot be looked up: {error}"))?,
        Err(_) => return Err(format!("{name} cannot be looked up within {LOOKUP:?}")),
    };
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() {
        return Err(format!("{name} has no address"));
    }
    let backend =
        |address: &SocketAddr| Backend { name: address.to_string(), address: *address, weight: 1 };
    Ok(addresses.iter().map(backend).collect())
}

/// Asks a backend, on a connection of its own; no answer where no socket is left here for one.
async fn is_well(
    address: SocketAddr,
    health: &Health,
    announces: Option<ProxyProtocol>,
) -> Option<bool> {
    let until = Instant::now() + health.timeout;
    let mut stream = match timeout_at(until, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) if is_ours(&error) => return None,
        Ok(Err(_)) | Err(_) => return Some(false),
    };
    let asked = async {
        // A backend that expects the announcement takes nothing else for a beginning.
        let own = announces.map_or(&[][..], ProxyProtocol::own);
        let Some(path) = &health.path else {
            stream.write_all(own).await.ok()?;
            return Some(());
        };
        let host = health.host.clone().unwrap_or_else(|| address.to_string());
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: plimsoll\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(&[own, request.as_bytes()].concat()).await.ok()?;
        let mut line = [0; STATUS_LINE];
        stream.read_exact(&mut line).await.ok()?;
        let status = line.strip_prefix(b"HTTP/1.")?.get(2..)?;
        let is_good = matches!(status, [b'2' | b'3', tens, ones]
            if tens.is_ascii_digit() && ones.is_ascii_digit());
        is_good.then_some(())
    };
    Some(matches!(timeout_at(until, asked).await, Ok(Some(()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_several_in_a_row() {
        let health = Health {
            path: None,
            host: None,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
        };
        let mut row = InARow::default();
        let seen: Vec<Option<bool>> =
            [false, false, true, false, false, false, true, false, true, true]
                .map(|is_well| row.saw(is_well, &health))
                .to_vec();
        let mut expected = [None; 10];
        (expected[5], expected[9]) = (Some(true), Some(false));
        assert_eq!(seen, expected);
    }
}
