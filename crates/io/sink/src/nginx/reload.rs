//! NGINX without Lua, as a fallback: weights are written into a file of its configuration, and NGINX is reloaded.
//!
//! A reload closes idle connections of clients at a moment that they do not expect (2 % of the requests on connections
//! that had been idle failed in our trial, none on new ones), and doubles the workers for as long as the old ones have
//! requests: so it is done seldom. NGINX tells nothing of its requests here; a [`crate::Source`] must.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use plimsoll_config::Cursor;
use plimsoll_model::{
    Applied, BalancerReport, Method, MethodKind, Nanos, Plan, ServerReport, ServerStatus,
    SinkLimits, Traffic,
};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::WEIGHTS;
use super::upstream_file::{self, Line};
use crate::found::{FoundPool, FoundServer, LeftAlone};
use crate::servers::{Roster, planned};
use crate::steer::{self, Poll, Servers, SinkConfig, SinkHandle, Steered, Steering, absolute};
use crate::{ReportSource, SinkError, WeightSink};

/// Default and bounds of `min_interval`.
const INTERVAL: Duration = Duration::from_secs(60);
const INTERVALS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
/// The file is looked at so often.
const POLL: Duration = Duration::from_millis(100);
/// A file that NGINX refuses is offered to it again after this.
const OFFER_AGAIN: Duration = Duration::from_secs(10);
/// A reload that is under way is looked at so often.
const LOOK: Duration = Duration::from_millis(5);
/// NGINX's complaint is cut here.
const MOST_SAID: usize = 400;

/// Where the weights are written, and how NGINX is made to read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NginxReloadConfig {
    /// The file with the servers of the upstream, which `upstream NAME { include FILE; }` reads.
    pub file: PathBuf,
    /// NGINX's `pid` file.
    pub pid: PathBuf,
    /// The program and its arguments, without `-t` and `-s reload`.
    pub command: Vec<String>,
    /// The least time between two reloads.
    pub min_interval: Duration,
    /// Bound on a test of the configuration, and on telling NGINX to reload.
    pub timeout: Duration,
}

impl NginxReloadConfig {
    /// With the default of everything else.
    pub fn new(file: PathBuf) -> Self {
        NginxReloadConfig {
            file,
            pid: PathBuf::from("/run/nginx.pid"),
            command: vec!["nginx".to_owned()],
            min_interval: INTERVAL,
            timeout: Duration::from_secs(10),
        }
    }
}

impl SinkConfig for NginxReloadConfig {
    const KEY: &'static str = "nginx_reload";
    const FORM: &'static str = "{ file: … }";
    const POOL: (&'static str, &'static str) = ("a file of NGINX", "file");
    const REPORTS_LOSSES: bool = true;
    const REPORTS_REQUESTS: bool = false;

    fn read(cursor: &Cursor<'_>) -> Option<Self> {
        let fields = cursor.fields(&["file", "pid", "command", "min_interval", "timeout"])?;
        let path = |c: &Cursor<'_>| {
            c.text_if("the absolute path of a file", |path| {
                path.starts_with('/') && !path.ends_with('/')
            })
            .map(PathBuf::from)
        };
        let file = fields.required("file", "the file that the upstream includes", path);
        let default = NginxReloadConfig::new(PathBuf::new());
        let pid = fields.or("pid", default.pid, path);
        let command = fields.or("command", default.command, |c| {
            let words: Option<Vec<String>> = c
                .items("a list: the program, and its arguments")?
                .iter()
                .map(|word| word.text("a word").map(str::to_owned))
                .collect();
            let words = words?;
            if words.is_empty() { c.expected("a program") } else { Some(words) }
        });
        let min_interval = fields.or("min_interval", INTERVAL, |c| c.duration(INTERVALS));
        let timeout = fields.or("timeout", default.timeout, steer::timeout);
        let file = file?;
        Some(NginxReloadConfig {
            file,
            pid: pid?,
            command: command?,
            min_interval: min_interval?,
            timeout: timeout?,
        })
    }

    fn limits(&self) -> SinkLimits {
        SinkLimits { range: WEIGHTS, min_interval: self.min_interval, picks_per_weight: 0 }
    }

    fn check(&self, servers: &Servers) -> Result<(), SinkError> {
        Roster::new(servers.clone(), check_name).map(drop)
    }

    fn place(&self) -> String {
        format!("NGINX file {}", self.file.display())
    }

    fn spelled_out(&self) -> Self {
        NginxReloadConfig { file: steer::spelled_out(&self.file), ..self.clone() }
    }

    fn pool(&self) -> &str {
        self.file.to_str().unwrap_or_default()
    }

    fn with_pool(&self, _name: &str) -> Self {
        self.clone()
    }

    fn written(&self) -> Vec<(&'static str, String)> {
        vec![("file", absolute(&self.file))]
    }

    async fn look(&self) -> Result<Vec<FoundPool>, SinkError> {
        let (text, lines) = read(&self.file)?;
        let server = |line: Line| FoundServer {
            place: match &line {
                Line { is_backup: true, .. } => Err(LeftAlone::Backup),
                line if line.name.starts_with("unix:") => Err(LeftAlone::UnixSocket),
                line => line.name.parse().map_err(|_| LeftAlone::NoAddress),
            },
            name: line.name,
        };
        Ok(vec![FoundPool {
            name: self.pool().to_owned(),
            method: method(&text),
            servers: lines.into_iter().map(server).collect(),
            conflict: None,
            unknown: None,
        }])
    }

    fn start(&self, steering: &Steering, steered: Steered) -> Result<SinkHandle, SinkError> {
        let observe = steered.observe;
        let sink =
            NginxReloadSink::new(self.clone(), steered.servers)?.with_origin(steering.origin);
        let sink = if observe { sink.that_only_looks() } else { sink };
        Ok(steer::start_dedicated(sink, Poll::Every(POLL)))
    }
}

/// Steers one upstream of an NGINX by reloads.
pub struct NginxReloadSink {
    config: NginxReloadConfig,
    roster: Roster,
    origin: Instant,
    reloaded: Option<Instant>,
    /// Why NGINX would not read a file that waits to be read, and when it was offered.
    refused: Option<(Instant, String)>,
    only_looks: bool,
}

impl NginxReloadSink {
    /// A sink that steers `servers`: their names are their addresses as the file has them.
    ///
    /// # Errors
    /// [`SinkError::InvalidName`] for names that could not stand in the file, or that come twice.
    pub fn new(config: NginxReloadConfig, servers: Servers) -> Result<Self, SinkError> {
        Ok(NginxReloadSink {
            config,
            roster: Roster::new(servers, check_name)?,
            origin: Instant::now(),
            reloaded: None,
            refused: None,
            only_looks: false,
        })
    }

    /// Counts [`BalancerReport::at`] from this instant.
    #[must_use]
    pub fn with_origin(mut self, origin: Instant) -> Self {
        self.origin = origin;
        self
    }

    /// Reads and changes nothing: a file that NGINX has not read is an error then.
    #[must_use]
    pub fn that_only_looks(self) -> Self {
        NginxReloadSink { only_looks: true, ..self }
    }

    /// The file and its servers, while NGINX runs.
    fn held(&self) -> Result<(String, Vec<Line>), SinkError> {
        self.process()?;
        let (text, lines) = read(&self.config.file)?;
        let is_there = |_: usize, name: &str| lines.iter().any(|line| line.name == name);
        match self.roster.require(is_there) {
            Ok(()) => Ok((text, lines)),
            Err(missing) => {
                let exist = lines.into_iter().map(|line| line.name).collect();
                let backend = self.config.pool().to_owned();
                Err(SinkError::UnknownServers { backend, missing, exist })
            }
        }
    }

    fn process(&self) -> Result<u32, SinkError> {
        let path = &self.config.pid;
        let gone = |reason: String, source| SinkError::Unreachable {
            socket: format!("NGINX (pid file {})", path.display()),
            reason,
            source,
        };
        let text = std::fs::read_to_string(path)
            .map_err(|error| gone(format!("does NGINX run? {error}"), Some(error)))?;
        let pid = text
            .trim()
            .parse::<u32>()
            .ok()
            .filter(|pid| Path::new(&format!("/proc/{pid}")).exists());
        pid.ok_or_else(|| gone("the process that it names does not run".to_owned(), None))
    }

    /// Tries what a plan needs: that the file can be replaced, and that NGINX takes its configuration. Changes nothing.
    ///
    /// # Errors
    /// [`SinkError::Failed`] with what stands in the way.
    pub async fn rehearse(&self) -> Result<(), SinkError> {
        let file = self.config.file.canonicalize().unwrap_or_else(|_| self.config.file.clone());
        let directory = file.parent().unwrap_or(Path::new("/"));
        rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).map_err(|errno| {
            let (directory, why) = (directory.display(), std::io::Error::from(errno));
            self.failed(format!("a new file must be written into {directory}: {why}"))
        })?;
        self.run(&["-t", "-q"]).await.map_err(|why| self.failed(why))
    }

    async fn run(&self, more: &[&str]) -> Result<(), String> {
        let (program, arguments) = self.config.command.split_first().ok_or("no command")?;
        let mut command = Command::new(program);
        command.args(arguments).args(more).stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(self.config.timeout, command.output());
        let output = output.await.map_err(|_| format!("`{program}` did not end in time"))?;
        let output = output.map_err(|error| format!("cannot run `{program}`: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said: String =
            String::from_utf8_lossy(&output.stderr).trim().chars().take(MOST_SAID).collect();
        Err(format!("`{program} {}` failed: {said}", more.join(" ")))
    }

    async fn apply_plan(&mut self, plan: &Plan) -> Result<Applied, SinkError> {
        let wanted = planned(plan, self.roster.servers(), &WEIGHTS, "the file's")?;
        let (text, lines) = self.held()?;
        let weight = |name: &str| wanted.iter().find(|(n, _)| n == name).map(|(_, w)| *w);
        let after = |line: &Line| weight(&line.name).unwrap_or(line.weight);
        if lines.iter().filter(|line| !line.is_backup && !line.is_down).all(|line| after(line) == 0)
        {
            let reason = format!("every server of {} at weight 0", self.config.file.display());
            return Err(SinkError::InvalidPlan { epoch: plan.epoch, reason });
        }
        let changed = lines.iter().filter(|line| after(line) != line.weight).count() as u32;
        if changed > 0 || upstream_file::is_unread(&text) {
            let reload = self.reload(&text, &upstream_file::with_weights(&text, &weight)).await;
            reload.map_err(|reason| self.failed(reason))?;
        }
        let weights = self.roster.servers().iter().filter_map(|(id, name)| {
            Some((*id, after(lines.iter().find(|line| line.name == *name)?)))
        });
        Ok(Applied { epoch: plan.epoch, weights: weights.collect(), commands: changed })
    }

    fn failed(&self, reason: String) -> SinkError {
        SinkError::Failed { vip: self.config.pool().to_owned(), reason }
    }

    /// Writes the file and has NGINX read it; puts the old one back when NGINX will not.
    ///
    /// Until NGINX runs with it the file says so in a line of its own, and a process that ends meanwhile leaves that line
    /// to the next one, which has NGINX read the file before it believes it.
    async fn reload(&mut self, old: &str, new: &str) -> Result<(), String> {
        if let Some(at) = self.reloaded.filter(|at| at.elapsed() < self.config.min_interval) {
            let left = self.config.min_interval - at.elapsed();
            return Err(format!("the last reload was a moment ago: the next may be in {left:.0?}"));
        }
        let file = self.config.file.clone();
        let write = |text: &str| {
            replace(&file, text)
                .map_err(|error| format!("cannot write {}: {error}", file.display()))
        };
        write(&upstream_file::unread(new))?;
        let before = self.reloaded;
        if let Err(why) = self.have_it_read().await {
            // Whether NGINX still takes what it got the signal for is not known: it has to read the old one, too.
            let back = match self.reloaded == before {
                true => write(old),
                false => write(&upstream_file::unread(old)),
            };
            return Err(match back {
                Ok(()) => format!("{why}; the file is as it was"),
                Err(error) => format!("{why}; {error}: it has weights that NGINX has not read"),
            });
        }
        write(&upstream_file::as_read(new))
    }

    /// Has NGINX test its configuration and take it; ends when it runs with it. (What a test does not find, such as an
    /// address that another program has, leaves the old workers at work.)
    async fn have_it_read(&mut self) -> Result<(), String> {
        self.run(&["-t", "-q"]).await?;
        let master = self.process().map_err(|error| error.to_string())?;
        let before = children(master);
        self.run(&["-s", "reload"]).await?;
        self.reloaded = Some(Instant::now());
        let until = Instant::now() + self.config.timeout;
        while !before.is_empty() && children(master).is_subset(&before) {
            if Instant::now() > until {
                return Err(format!(
                    "NGINX got the signal to reload, and has no new workers after {:?}: see its error log",
                    self.config.timeout
                ));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Has NGINX read a file that it has not, as far as the file says.
    async fn catch_up(&mut self, text: &str) -> Result<(), SinkError> {
        if !upstream_file::is_unread(text) {
            self.refused = None;
            return Ok(());
        }
        if self.only_looks {
            let file = self.config.file.display();
            return Err(self.failed(format!(
                "{file} has weights that NGINX has not read: `plimsoll run` has it read them, or reload NGINX and take \
                 the first line out of the file"
            )));
        }
        let standing = self.refused.take().filter(|(at, _)| at.elapsed() < OFFER_AGAIN);
        let (at, why) = match standing {
            Some(standing) => standing,
            None => match self.reload(text, text).await {
                Ok(()) => return Ok(()),
                Err(why) => (Instant::now(), why),
            },
        };
        self.refused = Some((at, why.clone()));
        Err(self.failed(format!("it has weights that NGINX has not read: {why}")))
    }
}

impl WeightSink for NginxReloadSink {
    fn limits(&self) -> SinkLimits {
        self.config.limits()
    }

    fn set_servers(&mut self, servers: Servers) -> Result<(), SinkError> {
        self.roster.set(servers)
    }

    async fn apply(&mut self, plan: &Plan) -> Result<Applied, SinkError> {
        self.apply_plan(plan).await
    }
}

impl ReportSource for NginxReloadSink {
    async fn read(&mut self) -> Result<BalancerReport, SinkError> {
        let (text, lines) = self.held()?;
        self.catch_up(&text).await?;
        let servers = self.roster.report(|_, id, name| {
            let line = lines.iter().find(|line| line.name == name)?;
            let status = if line.is_down { ServerStatus::Maintenance } else { ServerStatus::Up };
            Some(ServerReport::new(id, line.weight, status))
        });
        let at = Nanos::ZERO + self.origin.elapsed();
        // The file outlives NGINX: weights are never forgotten. Of requests it tells nothing.
        Ok(BalancerReport {
            at,
            method: method(&text),
            generation: 1,
            traffic: Traffic::Unknown,
            servers,
        })
    }
}

fn method(text: &str) -> Method {
    let name = upstream_file::method(text);
    let kind = if name == "leastconn" { MethodKind::InFlight } else { MethodKind::Split };
    Method { name: name.to_owned(), kind }
}

fn read(file: &Path) -> Result<(String, Vec<Line>), SinkError> {
    let place = format!("NGINX file {}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| SinkError::Unreachable {
        socket: place.clone(),
        reason: format!("cannot be read: {error}"),
        source: Some(error),
    })?;
    let lines = upstream_file::servers(&text)
        .map_err(|reason| SinkError::Protocol { socket: place, reason })?;
    Ok((text, lines))
}

/// The processes that another has started; none where the kernel does not tell.
fn children(of: u32) -> BTreeSet<u32> {
    let text = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// As a whole or not at all, also when the power fails, with the permissions and the owner that it had; a link stays one.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let file = file.canonicalize()?;
    let mut new = file.as_os_str().to_owned();
    new.push(".plimsoll");
    let mut written = File::create(&new)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    let before = std::fs::metadata(&file)?;
    std::fs::set_permissions(&new, before.permissions())?;
    // Another owner's file may be replaced in a directory of one's own, and becomes one's own then.
    let _ = std::os::unix::fs::chown(&new, Some(before.uid()), Some(before.gid()));
    std::fs::rename(&new, &file)?;
    File::open(file.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// What can stand behind `server` as one word.
fn check_name(what: &'static str, name: &str) -> Result<(), SinkError> {
    let odd = |c: &char| c.is_whitespace() || c.is_control() || ";{}\"'\\$#".contains(*c);
    let reason = match name.chars().find(odd) {
        None if !name.is_empty() => return Ok(()),
        None => "it is empty".to_owned(),
        Some(c) => format!("{c:?} is not allowed"),
    };
    Err(SinkError::InvalidName { name: name.to_owned(), what, reason })
}
