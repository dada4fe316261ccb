//! What steers a lane's packets: the real daemon, or a program that goes by hash alone, on the interfaces
//! and by the tables of a balancer of this process.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_l4::{Balancer, L4Config, L4Error};
use plimsoll_l4bench::Load;
use plimsoll_testbed::net::{Namespaces, Site};
use rustix::process::{Pid, Signal, kill_process};

use super::churn::{Place, SERVERS};
use super::config::{self, configuration};
use super::{DemoError, Method};

/// How long it may take until all servers are found on the network.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often to look.
const BLINK: Duration = Duration::from_millis(20);
/// The program that goes by hash alone, whatever the list (`crates/lab/l4bench/bpf/rival.h`).
const BY_HASH: &str = "by_hash";
/// How much of the daemon's log is repeated when it fails, bytes.
const TAIL: usize = 600;

/// Whoever steers.
pub struct Steering {
    file: PathBuf,
    log: PathBuf,
    method: Method,
    kind: Kind,
}

enum Kind {
    Daemon { program: PathBuf, child: Option<Child> },
    Hash(Box<(Balancer, Load)>),
}

impl Steering {
    /// Starts it, and waits until it knows its way to every server.
    ///
    /// # Errors
    /// When it does not start, or does not find a server.
    pub fn start(
        site: &Site,
        method: Method,
        places: &[Place; SERVERS],
        program: &Path,
    ) -> Result<Self, DemoError> {
        let dir = site.net.dir();
        let (file, log) = (dir.join("l4.yaml"), dir.join("l4.log"));
        let config = configuration(site, method, places);
        let kind = match method {
            Method::Plimsoll => {
                write_config(&file, &config)?;
                let child = spawn(&site.net, program, &file, &log)?;
                Kind::Daemon { program: program.to_owned(), child: Some(child) }
            }
            Method::Maglev | Method::Hash => Kind::Hash(Box::new(by_hash(&site.net, &config)?)),
        };
        let mut steering = Steering { file, log, method, kind };
        steering.wait(&site.net)?;
        Ok(steering)
    }

    /// Until every server of the configuration has been found; the daemon is asked by what it pinned.
    fn wait(&mut self, net: &Namespaces) -> Result<(), DemoError> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.check()?;
            let lost = "00:00:00:00:00:00";
            let ready = plimsoll_l4::status(&net.pins()).is_ok_and(|status| {
                let all = status.vips.first().map(|vip| &vip.backends);
                all.is_some_and(|all| !all.is_empty() && all.iter().all(|one| one.mac != lost))
            });
            if ready {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(DemoError::Daemon(format!("a server is not found{}", self.said())));
            }
            std::thread::sleep(BLINK);
        }
    }

    /// Programs these servers.
    ///
    /// # Errors
    /// When the file or the kernel's tables cannot be written.
    pub fn apply(&mut self, site: &Site, places: &[Place; SERVERS]) -> Result<(), DemoError> {
        let config = configuration(site, self.method, places);
        match &mut self.kind {
            Kind::Daemon { child, .. } => {
                write_config(&self.file, &config)?;
                // One that is killed reads the file when it starts again.
                let Some(child) = child else { return Ok(()) };
                kill_process(Pid::from_child(child), Signal::HUP)
                    .map_err(|errno| DemoError::system("signal the daemon")(errno.into()))
            }
            Kind::Hash(both) => {
                let balancer = &mut both.0;
                site.net.inside("lb", || settle(balancer, |one| one.apply(&config)))?
            }
        }
    }

    /// Kills the daemon, if this is one; the kernel goes on balancing.
    pub fn kill(&mut self) {
        if let Kind::Daemon { child, .. } = &mut self.kind
            && let Some(mut child) = child.take()
        {
            // It may have ended by itself; either way it is gone afterwards.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the daemon again, if this is one.
    ///
    /// # Errors
    /// When the system refuses a process.
    pub fn restart(&mut self, net: &Namespaces) -> Result<(), DemoError> {
        if let Kind::Daemon { program, child } = &mut self.kind {
            *child = Some(spawn(net, program, &self.file, &self.log)?);
        }
        Ok(())
    }

    /// That the daemon has not ended by itself.
    ///
    /// # Errors
    /// When it has: its last words.
    pub fn check(&mut self) -> Result<(), DemoError> {
        if let Kind::Daemon { child: Some(child), .. } = &mut self.kind
            && let Ok(Some(status)) = child.try_wait()
        {
            let said = self.said();
            return Err(DemoError::Daemon(format!("`plimsoll l4 run` ended ({status}){said}")));
        }
        Ok(())
    }

    fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL)..]).into_owned();
        let text = text.trim();
        if text.is_empty() { String::new() } else { format!(":\n{text}") }
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `plimsoll l4 run` in the balancer's namespace.
fn spawn(net: &Namespaces, program: &Path, file: &Path, log: &Path) -> Result<Child, DemoError> {
    let log = File::options().create(true).append(true).open(log);
    let log = log.map_err(DemoError::system("start `plimsoll l4 run`"))?;
    let mut command = Command::new(program);
    command.args(["l4", "run", "--config"]).arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // Not in the group that a terminal's Ctrl-C ends: connections are to be closed first.
    Ok(net.spawn("lb", command.process_group(0))?)
}

/// A balancer whose program gives way to one that goes by hash alone.
fn by_hash(net: &Namespaces, config: &L4Config) -> Result<(Balancer, Load), DemoError> {
    net.inside("lb", || {
        let (mut balancer, _) = Balancer::start(config)?;
        settle(&mut balancer, Balancer::refresh)?;
        let mut load = Load::on(&balancer)?;
        load.take_over(&balancer, BY_HASH)?;
        Ok((balancer, load))
    })?
}

/// Does something to a balancer, and waits until no server is missing.
fn settle(
    balancer: &mut Balancer,
    first: impl FnOnce(&mut Balancer) -> Result<plimsoll_l4::Pending, L4Error>,
) -> Result<(), DemoError> {
    let until = Instant::now() + PATIENCE;
    let mut pending = first(balancer)?;
    while let Some(what) = pending.0.first() {
        if Instant::now() > until {
            return Err(DemoError::Daemon(what.clone()));
        }
        std::thread::sleep(BLINK);
        pending = balancer.refresh()?;
    }
    Ok(())
}

/// In one step: the daemon also looks at the file by itself.
fn write_config(file: &Path, config: &L4Config) -> Result<(), DemoError> {
    let new = file.with_extension("new");
    let written = fs::write(&new, config::file(config)).and_then(|()| fs::rename(&new, file));
    written.map_err(DemoError::system("write the balancer's configuration"))
}
