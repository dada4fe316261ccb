//! The daemon's socket (`l4.socket`): a controller reads a service's counters here and sets its weights.
//! What is said is in `plimsoll_sink::wire`. Questions are answered one after the other by whoever holds the
//! kernel's tables, so that a plan and a reload never mix.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_l4::{BackendState, Balancer, L4Error, Policy, Reading, ServerReading, SetBy, Socket};
use plimsoll_model::{MethodKind, ServerStatus};
use plimsoll_sink::wire::{Answer, MAX_LINE, Question, Refusal, Report, Server};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tracing::{info, warn};

/// Connections at a time; more wait to be taken.
const CONNECTIONS: usize = 32;
/// Questions that wait to be answered.
const WAITING: usize = 64;

/// A question, and where its answer goes.
pub type Asked = (Question, oneshot::Sender<Answer>);

/// A place for questions.
pub fn inbox() -> (mpsc::Sender<Asked>, mpsc::Receiver<Asked>) {
    mpsc::channel(WAITING)
}

/// Listens until it is dropped.
pub struct Listener {
    socket: Socket,
    inode: u64,
    task: JoinHandle<()>,
}

/// A socket that nobody finds yet: whoever listened before goes on.
pub struct Bound {
    socket: Socket,
    new: Passing,
    listener: UnixListener,
}

/// A file that is gone when this is, or has another name by then.
struct Passing(PathBuf);

impl Drop for Passing {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Bound {
    /// Binds it, under a name of its own.
    ///
    /// # Errors
    /// In words, when it cannot.
    pub fn new(socket: &Socket) -> Result<Self, String> {
        let mut new = socket.path.clone().into_os_string();
        // Of its own: others may start at the same time.
        new.push(format!(".{}", std::process::id()));
        let new = Passing(PathBuf::from(new));
        let bind = || -> io::Result<UnixListener> {
            if let Some(dir) = socket.path.parent() {
                fs::create_dir_all(dir)?;
            }
            if socket.path.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            let _ = fs::remove_file(&new.0);
            let listener = UnixListener::bind(&new.0)?;
            fs::set_permissions(&new.0, fs::Permissions::from_mode(socket.mode))?;
            Ok(listener)
        };
        let listener = bind().map_err(|error| no_socket(socket, &error))?;
        Ok(Bound { socket: socket.clone(), new, listener })
    }

    /// Listens, in the place of whoever did before; a socket that a killed daemon has left goes by the same step.
    ///
    /// # Errors
    /// In words, when it cannot.
    pub fn listen(self, asked: mpsc::Sender<Asked>) -> Result<Listener, String> {
        let Bound { socket, new, listener } = self;
        let renamed = fs::metadata(&new.0)
            .and_then(|file| fs::rename(&new.0, &socket.path).map(|()| file.ino()));
        let inode = renamed.map_err(|error| no_socket(&socket, &error))?;
        let task = tokio::spawn(accept(listener, asked));
        Ok(Listener { socket, inode, task })
    }
}

fn no_socket(socket: &Socket, error: &io::Error) -> String {
    format!("l4.socket.path: cannot listen on {}: {error}", socket.path.display())
}

impl Listener {
    /// Where it listens.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
        // Not that of a daemon that has taken over.
        if fs::metadata(&self.socket.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = fs::remove_file(&self.socket.path);
        }
    }
}

async fn accept(listener: UnixListener, asked: mpsc::Sender<Asked>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    // Ends them all when this ends.
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let asked = asked.clone();
                connections.spawn(async move {
                    // One that is cut is the controller's to notice.
                    let _ = serve(stream, asked).await;
                    drop(permit);
                });
            }
            Err(error) => {
                warn!("l4.socket: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, asked: mpsc::Sender<Asked>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut stream).take(MAX_LINE as u64).read_until(b'\n', &mut line).await?;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        let answer = match serde_json::from_slice(&line) {
            Ok(question) => {
                let (reply, answer) = oneshot::channel();
                if asked.send((question, reply)).await.is_err() {
                    return Ok(());
                }
                let Ok(answer) = answer.await else { return Ok(()) };
                answer
            }
            Err(error) => refused(Refusal::NotUnderstood, &error, Vec::new()),
        };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        stream.write_all(&text).await?;
    }
}

/// Does what is asked.
pub fn answer(balancer: &mut Balancer, question: Question) -> Answer {
    let (vip, done) = match question {
        Question::Read { vip } => (vip, Ok(0)),
        Question::Apply { vip, epoch, who, weights } => {
            let weights: Vec<(String, u16)> = weights.into_iter().collect();
            let done = balancer.set_weights(&vip, &weights, &who, epoch);
            if let Ok(changed) = done {
                info!(service = vip, epoch, changed, "weights set by {who}");
            }
            (vip, done)
        }
        Question::Release { vip } => {
            let done = balancer.release(&vip).map(|()| 0);
            (vip, done)
        }
    };
    let read = |changed| {
        let reading = balancer.reading(&vip)?;
        Ok(report(reading, changed, |name| address(balancer.config(), &vip, name)))
    };
    match done.and_then(read) {
        Ok(report) => Answer::Done(report),
        Err(error) => {
            let reason = reason(&error);
            let exist = match reason {
                Refusal::UnknownVip => {
                    balancer.config().vips.iter().map(|vip| vip.name.clone()).collect()
                }
                _ => Vec::new(),
            };
            if reason == Refusal::Failed {
                warn!(service = vip, "{error}");
            }
            refused(reason, &error, exist)
        }
    }
}

fn reason(error: &L4Error) -> Refusal {
    match error {
        L4Error::Unknown { what: "service", .. } => Refusal::UnknownVip,
        L4Error::Unknown { .. } => Refusal::UnknownServer,
        L4Error::NoLiveWeights { .. } => Refusal::NoLiveWeights,
        L4Error::AllZero { .. } => Refusal::InvalidPlan,
        _ => Refusal::Failed,
    }
}

fn refused(reason: Refusal, why: &impl std::fmt::Display, exist: Vec<String>) -> Answer {
    Answer::Refused { reason, message: why.to_string(), exist }
}

/// Where a server is: the port is the service's.
fn address(config: &plimsoll_l4::L4Config, vip: &str, server: &str) -> Option<SocketAddr> {
    let vip = config.vips.iter().find(|one| one.name == vip)?;
    let server = vip.backends.iter().find(|one| one.name == server)?;
    Some(SocketAddr::new(server.address, vip.address.port()))
}

fn report(
    reading: Reading,
    changed: usize,
    address: impl Fn(&str) -> Option<SocketAddr>,
) -> Report {
    Report {
        policy: reading.policy.name().to_owned(),
        kind: kind(reading.policy),
        generation: reading.generation,
        steered: reading.set_by == SetBy::Controller,
        epoch: reading.epoch,
        changed: u32::try_from(changed).unwrap_or(u32::MAX),
        servers: reading
            .servers
            .into_iter()
            .map(|one| Server { address: address(&one.name), ..server(one) })
            .collect(),
    }
}

/// `least_connections` compares connections a unit of weight; all others that take weights share by them,
/// `power_of_two` among those it draws.
fn kind(policy: Policy) -> MethodKind {
    match policy {
        Policy::LeastConnections => MethodKind::InFlight,
        policy if policy.takes_weights() => MethodKind::Split,
        _ => MethodKind::NoLiveWeights,
    }
}

fn server(one: ServerReading) -> Server {
    let status = match one.state {
        BackendState::Down => ServerStatus::Maintenance,
        BackendState::Draining => ServerStatus::Drain,
        BackendState::Up if !one.found => ServerStatus::Down,
        BackendState::Up => ServerStatus::Up,
    };
    let counts = (one.open_connections, one.new_connections);
    Server {
        packets_in: one.packets_in,
        bytes_in: one.bytes_in,
        packets_out: one.packets_out,
        bytes_out: one.bytes_out,
        ..Server::new(&one.name, one.weight, status, counts)
    }
}
