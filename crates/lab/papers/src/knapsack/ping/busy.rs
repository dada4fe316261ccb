//! A web server that really works: every request burns CPU, one at a time, exponentially long.
//!
//! A thread per connection; the one core that they share is a lock. What counts as a request's work is
//! CPU time, so that other work on the machine makes it slower, not shorter.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_queueing::ServiceTime;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::knapsack::timing::thread_cpu;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nX-Backend: busy\r\nContent-Length: 0\r\n\r\n";
/// The longest head of a request, bytes.
const LONGEST: usize = 4096;

struct Core {
    /// Held while a request is worked on: the one core.
    rng: Mutex<Xoshiro256PlusPlus>,
    /// Nanoseconds; outside the lock, for which those who only look would have to queue.
    worked: AtomicU64,
}

/// A running one; it accepts no connections any more when dropped.
pub struct BusyServer {
    address: SocketAddr,
    core: Arc<Core>,
    stopped: Arc<AtomicBool>,
}

impl BusyServer {
    /// Starts one on the loopback whose requests take this much CPU in the mean.
    ///
    /// # Errors
    /// When the system refuses a socket or a thread.
    pub fn start(mean: Duration, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let core = Arc::new(Core { rng: Mutex::new(rng), worked: AtomicU64::new(0) });
        let stopped = Arc::new(AtomicBool::new(false));
        let server = BusyServer { address, core: Arc::clone(&core), stopped: Arc::clone(&stopped) };
        std::thread::Builder::new().name("busy".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let core = Arc::clone(&core);
                // A client that breaks off gets no error.
                std::thread::spawn(move || serve(stream, &core, mean));
            }
        })?;
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// CPU time that its requests took so far.
    pub fn worked(&self) -> Duration {
        Duration::from_nanos(self.core.worked.load(Ordering::Relaxed))
    }
}

impl Drop for BusyServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts; if it cannot be woken it has ended.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, core: &Core, mean: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    loop {
        let length = stream.read(&mut part)?;
        if length == 0 || head.len() > LONGEST {
            return Ok(());
        }
        head.extend_from_slice(&part[..length]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            work(core, mean);
            stream.write_all(ANSWER)?;
        }
    }
}

fn work(core: &Core, mean: Duration) {
    let mut rng = core.rng.lock().unwrap_or_else(PoisonError::into_inner);
    let length = mean.mul_f64(ServiceTime::Exponential.draw(&mut *rng));
    let begin = thread_cpu();
    while thread_cpu() - begin < length {
        std::hint::spin_loop();
    }
    let worked = u64::try_from((thread_cpu() - begin).as_nanos()).unwrap_or(u64::MAX);
    core.worked.fetch_add(worked, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_of_a_connection_is_worked_on_and_answered() {
        let server = BusyServer::start(Duration::from_micros(200), 3).unwrap();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        for _ in 0..20 {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut answer = vec![0; ANSWER.len()];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, ANSWER);
        }
        // Twenty exponential draws: their sum is Erlang, within a quarter and four times its mean.
        let worked = server.worked().as_secs_f64() / 20.0 / 2e-4;
        assert!((0.25..4.0).contains(&worked), "{worked}");
    }
}
