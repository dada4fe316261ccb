//! The servers of one lane: processes in control groups of their own.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, LaneError, Member, check_answer};
use rustix::process::Signal;

use crate::addresses::address;
use crate::cgroup::{CgroupError, Cgroups, Group, Limits, Quota};
use crate::server::Mode;
use crate::{Installed, Pool, RealError};

/// Under a small quota a program takes long to start.
const START_WITHIN: Duration = Duration::from_secs(120);
/// How often to look whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long an answer may take that costs next to nothing.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// One server.
struct Server {
    name: String,
    address: SocketAddr,
    cores: f64,
    // In the order in which they are to end: a group must be empty to go.
    neighbour: Option<(Member, Group)>,
    processes: Vec<Member>,
    /// The address at which the lab's own server takes commands.
    input: Option<ChildStdin>,
    group: Group,
    _parent: Group,
}

/// The servers of one lane, in the order of the pool.
pub struct Servers {
    lane: String,
    servers: Vec<Server>,
    pool: Pool,
    installed: Installed,
}

impl Servers {
    /// Starts them, and returns when all answer. `lane` names their groups and files; `number` tells
    /// their addresses from those of other lanes.
    ///
    /// # Errors
    /// When a group cannot be made, or a server does not start.
    pub fn start(
        family: &Family,
        cgroups: &Cgroups,
        pool: &Pool,
        lane: &str,
        number: u8,
    ) -> Result<Self, RealError> {
        let installed = pool.make.find()?;
        let mut servers = Vec::new();
        for (i, size) in (1..).zip(&pool.sizes) {
            let parent = cgroups.group(&format!("{lane}/{}", size.name), &pool.limits(size))?;
            let inner = Limits { quota: None, cpus: pool.cpus.clone() };
            let group = cgroups.group(&format!("{lane}/{}/server", size.name), &inner)?;
            servers.push(Server {
                name: size.name.clone(),
                address: address(number, i)?,
                cores: size.cores,
                neighbour: None,
                processes: Vec::new(),
                input: None,
                group,
                _parent: parent,
            });
        }
        let mut all = Servers { lane: lane.to_owned(), servers, pool: pool.clone(), installed };
        for i in 0..all.servers.len() {
            all.spawn(family, i)?;
        }
        for i in 0..all.servers.len() {
            all.wait_until_ready(i)?;
        }
        Ok(all)
    }

    /// Names and addresses.
    pub fn addresses(&self) -> Vec<(String, SocketAddr)> {
        self.servers.iter().map(|server| (server.name.clone(), server.address)).collect()
    }

    /// CPU time that each has used so far, its neighbour not included.
    ///
    /// # Errors
    /// When the kernel keeps no account.
    pub fn cpu_used(&self) -> Result<Vec<Duration>, RealError> {
        let used = |server: &Server| {
            server.group.cpu_used().ok_or(RealError::from(CgroupError::NoAccount))
        };
        self.servers.iter().map(used).collect()
    }

    /// The directory of each one's control group, where its quota is.
    pub fn groups(&self) -> Vec<PathBuf> {
        self.servers.iter().map(|server| server.group.dir().to_owned()).collect()
    }

    /// Starts the processes of one that has none.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn spawn(&mut self, family: &Family, i: usize) -> Result<(), RealError> {
        let server = &mut self.servers[i];
        let name = format!("{}-{}", self.lane, server.name);
        let programs =
            self.installed.programs(&self.pool, server.address, &family.dir().join(&name));
        for program in programs.map_err(LaneError::system("write a server's files"))? {
            let mut command = server.group.command(&program.path);
            command.args(program.arguments);
            command.stdin(match self.installed {
                Installed::Own(_) => Stdio::piped(),
                _ => Stdio::null(),
            });
            let mut process = spawn(family, &name, &mut command)?;
            server.input = process.take_input();
            server.processes.push(process);
        }
        Ok(())
    }

    fn wait_until_ready(&mut self, i: usize) -> Result<(), RealError> {
        let server = &mut self.servers[i];
        let end = Instant::now() + START_WITHIN;
        loop {
            if let Some(ended) = server.processes.iter_mut().find_map(Member::ended) {
                return Err(ended.into());
            }
            match check_answer(server.address, &server.name, "/health", ANSWER_WITHIN) {
                Ok(()) => return Ok(()),
                Err(source) if Instant::now() > end => {
                    let (name, address) = (server.name.clone(), server.address);
                    return Err(RealError::Mute { name, address, source });
                }
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Whether every process still lives, but for those that were killed on purpose.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&mut self) -> Result<(), LaneError> {
        let mut processes = self.servers.iter_mut().flat_map(|server| &mut server.processes);
        processes.find_map(Member::ended).map_or(Ok(()), Err)
    }

    /// Lets a neighbour burn this part of the server's quota, inside the same quota.
    ///
    /// # Errors
    /// When its group cannot be made or it does not start.
    pub fn add_neighbour(
        &mut self,
        family: &Family,
        cgroups: &Cgroups,
        i: usize,
        part: f64,
    ) -> Result<(), RealError> {
        let server = &mut self.servers[i];
        let quota = Quota { cores: server.cores * part, period: self.pool.period };
        let limits = Limits { quota: Some(quota), cpus: self.pool.cpus.clone() };
        let group = cgroups.group(&format!("{}/{}/neighbour", self.lane, server.name), &limits)?;
        let mut command = group.command(Path::new("sh"));
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        let name = format!("{}-{}-neighbour", self.lane, server.name);
        server.neighbour = Some((spawn(family, &name, &mut command)?, group));
        Ok(())
    }

    /// Lets it leave.
    pub fn remove_neighbour(&mut self, i: usize) {
        self.servers[i].neighbour = None;
    }

    /// Stops a server's processes where they are (SIGSTOP).
    pub fn stop(&self, i: usize) {
        self.servers[i].group.signal(Signal::STOP);
    }

    /// Lets them go on (SIGCONT).
    pub fn go_on(&self, i: usize) {
        self.servers[i].group.signal(Signal::CONT);
    }

    /// Kills a server: its port refuses from now on.
    pub fn kill(&mut self, i: usize) {
        let server = &mut self.servers[i];
        server.group.kill();
        server.processes.clear();
        server.input = None;
    }

    /// Changes how one of the lab's own servers behaves, however much it has to do.
    ///
    /// # Errors
    /// When it has ended, or is not the lab's own.
    pub fn set_mode(&mut self, i: usize, mode: Mode) -> Result<(), LaneError> {
        let server = &mut self.servers[i];
        let written = match &mut server.input {
            Some(input) => writeln!(input, "{}", mode.name()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(LaneError::system(format!("tell {} how to behave", server.name)))
    }
}

fn spawn(family: &Family, name: &str, command: &mut Command) -> Result<Member, LaneError> {
    family.spawn(name, command).map_err(LaneError::system(format!("start {name}")))
}
