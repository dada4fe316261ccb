//! `plimsoll l4 run`: keeps the kernel's tables as the configuration says. The kernel balances by
//! itself: while the daemon is down, or is replaced by a newer one, no packet and no count is lost.

use std::future::pending;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use plimsoll_l4::{Balancer, Keys, L4Error, Pending, Section};
use tokio::sync::mpsc;
use tracing::{debug, error, info, warn};

use super::config;
use super::follow::{Keep, Signals, follow_until_stopped};
use super::loads::Loads;
use super::metrics::Metrics;
use super::routes::Routes;
use super::steer::{Asked, Bound, Listener, answer, inbox};
use crate::daemons::{DaemonArgs, refused};
use crate::run::record::unix_ms;

/// Balance the services of a configuration
#[derive(clap::Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Runs until SIGTERM or SIGINT, or until a newer daemon has taken over, and leaves the kernel balancing;
/// `plimsoll l4 detach` ends that. Exits 1 when it cannot start, 2 when the configuration is wrong.
pub fn run(args: &RunArgs) -> ExitCode {
    let file = &args.daemon.config;
    match config::load_section(file) {
        Ok(section) => args.daemon.run(keep(file, section)),
        Err(errors) => refused(&errors),
    }
}

async fn keep(file: &Path, section: Section) -> Result<(), String> {
    let signals = Signals::new()?;
    let config = &section.balancer;
    // A start that is refused leaves the daemon before in charge.
    let metrics = Metrics::start(section.metrics, config.pin_dir.clone())?;
    let bound = section.socket.as_ref().map(Bound::new).transpose()?;
    let (balancer, pending) = Balancer::start(config).map_err(|error| error.to_string())?;
    info!(vips = config.vips.len(), pinned = %config.pin_dir.display(), "balancing");
    let (ask, questions) = inbox();
    let mut keeper = Keeper {
        balancer,
        said: Pending::default(),
        ask,
        questions,
        listener: None,
        metrics,
        loads: Loads::default(),
        load_port: None,
        routes: None,
        keys_said: String::new(),
        is_over: false,
    };
    keeper.say(pending);
    keeper.routes = Routes::watch();
    // It is in charge now: without a socket, too.
    match bound.map(|bound| bound.listen(keeper.ask.clone())).transpose() {
        Ok(listener) => keeper.listener = listener,
        Err(problem) => error!("{problem}"),
    }
    keeper.follow_loads(&section);
    follow_until_stopped(file, &mut keeper, signals).await;
    info!("leaving; the kernel goes on balancing");
    Ok(())
}

struct Keeper {
    balancer: Balancer,
    said: Pending,
    /// For whoever listens to controllers.
    ask: mpsc::Sender<Asked>,
    questions: mpsc::Receiver<Asked>,
    listener: Option<Listener>,
    metrics: Metrics,
    loads: Loads,
    /// Where servers tell their load.
    load_port: Option<u16>,
    /// Reports changes at once; without, they are seen when the machine is looked at.
    routes: Option<Routes>,
    /// What was wrong with the key file when it was last looked at.
    keys_said: String,
    /// Whether a newer daemon is in charge.
    is_over: bool,
}

impl Keep for Keeper {
    fn reload(&mut self, file: &Path) {
        let section = match config::load_section(file) {
            Ok(section) => section,
            Err(errors) => {
                for problem in errors {
                    error!("{problem}");
                }
                error!("the configuration in force stays");
                return;
            }
        };
        match self.balancer.apply(&section.balancer) {
            Ok(pending) => {
                info!(vips = section.balancer.vips.len(), "configuration reloaded");
                self.say(pending);
                self.follow_loads(&section);
                self.metrics.aim(section.metrics);
                if let Err(problem) = self.listen(&section) {
                    error!("{problem}");
                }
            }
            Err(problem) => error!("{problem}; the configuration in force stays"),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    async fn asked(&mut self) {
        let changed = async {
            match &mut self.routes {
                Some(routes) => routes.changed().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = changed => self.follow_network(),
            // This end holds a sender as well: there is always another question to wait for.
            Some((question, reply)) = self.questions.recv() => {
                // The client may be gone by now.
                let _ = reply.send(answer(&mut self.balancer, question));
            }
        }
    }

    fn look(&mut self) {
        for vip in &self.balancer.config().vips.clone() {
            let told = self.loads.told(vip, self.load_port);
            self.balancer.note_loads(&vip.name, &told);
        }
        match self.balancer.refresh() {
            Ok(pending) => self.say(pending),
            Err(problem @ L4Error::Replaced(_)) => {
                warn!("{problem}");
                self.is_over = true;
                return;
            }
            Err(problem) => warn!("{problem}"),
        }
        if let Err(problem) = self.keys() {
            warn!("{problem}");
        }
        self.metrics.look();
    }
}

impl Keeper {
    /// Where servers are and where replies go follows links, neighbours and routes at once.
    fn follow_network(&mut self) {
        let began = Instant::now();
        match self.balancer.follow_network() {
            Ok(pending) => self.say(pending),
            // Whoever has taken over is noticed at the next look.
            Err(problem) => debug!("{problem}"),
        }
        if let Some(routes) = &mut self.routes {
            routes.rest(began.elapsed());
        }
    }

    /// Listens to controllers where the configuration says.
    fn listen(&mut self, section: &Section) -> Result<(), String> {
        if self.listener.as_ref().map(Listener::socket) == section.socket.as_ref() {
            return Ok(());
        }
        self.listener = match &section.socket {
            Some(socket) => Some(Bound::new(socket)?.listen(self.ask.clone())?),
            None => None,
        };
        Ok(())
    }

    fn follow_loads(&mut self, section: &Section) {
        self.load_port = section.agent.listen.map(|listen| listen.port());
        self.loads.aim(&section.balancer.vips, self.load_port);
    }

    /// Takes up keys that another balancer or an operator wrote, and makes the next salt as soon as the one before may
    /// be written over.
    fn keys(&mut self) -> Result<(), L4Error> {
        let cookie = self.balancer.config().cookie.clone();
        let now = unix_ms(SystemTime::now());
        // A file that is being replaced is not there for a moment; new keys would break all connections.
        let missing = || format!("{}: not there", cookie.key_file.display());
        let found = Keys::load(&cookie.key_file).map_err(|problem| problem.to_string());
        let mut keys = match found.and_then(|keys| keys.ok_or_else(missing)) {
            Ok(keys) => keys,
            Err(problem) => {
                if problem != self.keys_said {
                    warn!("{problem}; the keys in force stay");
                }
                self.keys_said = problem;
                return Ok(());
            }
        };
        self.keys_said.clear();
        // Of keys that are in force alone is known whether their other salt may be written over. Long before it takes
        // over, whatever the time of the change before: others may get the file late.
        if let Some(every) = cookie.rotate
            && keys == *self.balancer.keys()
            && self.balancer.may_rotate()?
        {
            let every = every.as_millis() as u64;
            let at = (keys.since_unix_ms + every).max(now + every / 2);
            keys = keys.rotated(at)?;
            keys.save(&cookie.key_file)?;
            info!(epoch = keys.epoch.bit(), in_s = (at - now) / 1000, "new salt, to take over");
        }
        if keys != *self.balancer.keys() {
            self.balancer.set_keys(keys)?;
            info!("keys read");
        }
        Ok(())
    }

    /// Says what is pending when it changes.
    fn say(&mut self, pending: Pending) {
        if pending != self.said {
            for what in &pending.0 {
                if !self.said.0.contains(what) {
                    warn!("{what}");
                }
            }
            if pending.0.is_empty() {
                info!("nothing is pending any more");
            }
            self.said = pending;
        }
    }
}
