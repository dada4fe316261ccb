//! How busy the servers are, as their agents tell (`GET /v1/load`), for services with `load: cpu`.
//!
//! Every server is asked once a second, each by a task of its own, so that one that hangs delays no other. What
//! a server reported holds for [`LIFETIME`]; from then on the average is taken for it (`plimsoll_feedback::awrr`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_l4::{CpuLoad, Load, Policy, Told, Vip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

/// How often a server is asked: an agent's window.
const EVERY: Duration = Duration::from_secs(1);
/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_millis(800);
/// How long an answer holds.
const LIFETIME: Duration = Duration::from_secs(5);
/// No answer is longer, bytes.
const LONGEST: u64 = 4096;

/// All that are asked.
#[derive(Default)]
pub struct Loads {
    asking: BTreeMap<SocketAddr, Asking>,
}

struct Asking {
    heard: Arc<Mutex<Heard>>,
    task: JoinHandle<()>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What one server has reported so far.
#[derive(Debug, Default)]
struct Heard {
    last: Option<(CpuLoad, Instant)>,
    /// Whether it was asked at all.
    asked: bool,
    failing: bool,
    /// Not yet reported.
    failures: u64,
}

impl Loads {
    /// Asks the servers of these services from now on, each at this port, and no others.
    pub fn aim(&mut self, vips: &[Vip], port: Option<u16>) {
        let places: Vec<SocketAddr> = vips.iter().flat_map(|vip| places(vip, port)).collect();
        self.asking.retain(|place, _| places.contains(place));
        for place in places {
            self.asking.entry(place).or_insert_with(|| {
                let heard = Arc::new(Mutex::new(Heard::default()));
                Asking { task: tokio::spawn(keep_asking(place, heard.clone())), heard }
            });
        }
    }

    /// What the servers of a service reported, of those that were asked already.
    pub fn told(&self, vip: &Vip, port: Option<u16>) -> Vec<(String, Told)> {
        let now = Instant::now();
        let of = |(backend, place): (&plimsoll_l4::Backend, SocketAddr)| {
            let mut heard = self.asking.get(&place)?.heard.lock().unwrap_or_else(poisoned);
            Some((backend.name.clone(), heard.tell(now)?))
        };
        vip.backends.iter().zip(places(vip, port)).filter_map(of).collect()
    }
}

fn poisoned<T>(error: PoisonError<T>) -> T {
    error.into_inner()
}

/// Where to ask the servers of a service, in their order; nowhere unless it follows their CPUs.
fn places(vip: &Vip, port: Option<u16>) -> Vec<SocketAddr> {
    let follows = vip.policy == Policy::Awrr(Load::Cpu);
    let address = |address: IpAddr| port.filter(|_| follows).map(|p| SocketAddr::new(address, p));
    vip.backends.iter().filter_map(|backend| address(backend.address)).collect()
}

impl Heard {
    /// Takes an answer; says when failing begins or ends.
    fn take(&mut self, now: Instant, answer: Result<CpuLoad, String>, from: SocketAddr) {
        self.asked = true;
        let failing = answer.is_err();
        match answer {
            // An agent that goes on telling of the same window has none newer: that one grows old.
            Ok(load) if self.last.is_some_and(|(last, _)| last.unix_ms == load.unix_ms) => {}
            Ok(load) => self.last = Some((load, now)),
            Err(why) => {
                self.failures += 1;
                if !self.failing {
                    warn!(
                        "http://{from}/v1/load: {why}; from {} s on the average is taken for it",
                        LIFETIME.as_secs()
                    );
                }
            }
        }
        if self.failing && !failing {
            info!("http://{from}/v1/load: tells its load again");
        }
        self.failing = failing;
    }

    /// What is known, with the failures since the last time.
    fn tell(&mut self, now: Instant) -> Option<Told> {
        let fresh = |at: Instant| now.duration_since(at) < LIFETIME;
        let cpu = self.last.filter(|(_, at)| fresh(*at)).map(|(load, _)| load.cpu);
        let unix_ms = self.last.map_or(0, |(load, _)| load.unix_ms);
        let failures = std::mem::take(&mut self.failures);
        self.asked.then_some(Told { cpu, unix_ms, failures })
    }
}

async fn keep_asking(place: SocketAddr, heard: Arc<Mutex<Heard>>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = match timeout(PATIENCE, ask(place)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} ms", PATIENCE.as_millis())),
        };
        heard.lock().unwrap_or_else(poisoned).take(Instant::now(), answer, place);
    }
}

/// By hand: hundreds of servers are asked once a second, and the client that is linked would take a thread for each.
async fn ask(place: SocketAddr) -> Result<CpuLoad, String> {
    let mut stream = TcpStream::connect(place).await.map_err(|error| error.to_string())?;
    let request = format!("GET /v1/load HTTP/1.0\r\nHost: {place}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut text = String::new();
    // HTTP/1.0: the answer ends with the connection.
    let mut bounded = stream.take(LONGEST);
    bounded.read_to_string(&mut text).await.map_err(|error| error.to_string())?;
    parse(&text)
}

fn parse(text: &str) -> Result<CpuLoad, String> {
    let (head, body) = text.split_once("\r\n\r\n").ok_or("expected an HTTP answer")?;
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    match (words.next(), words.next()) {
        (Some(version), Some("200")) if version.starts_with("HTTP/1.") => {}
        (_, status) => {
            return Err(format!("expected status 200, found {}", status.unwrap_or("none")));
        }
    }
    let load: CpuLoad = serde_json::from_str(body).map_err(|error| error.to_string())?;
    if (0.0..=1.0).contains(&load.cpu) {
        Ok(load)
    } else {
        Err(format!("expected cpu from 0 to 1, found {}", load.cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = r#"{"cpu":0.25,"cpus":2,"window_ms":1000,"unix_ms":9}"#;

    fn load(unix_ms: u64) -> CpuLoad {
        CpuLoad { cpu: 0.25, cpus: 2, window_ms: 1000, unix_ms }
    }

    #[test]
    fn an_answer_is_read_and_anything_else_says_what_it_is() {
        assert_eq!(parse(&format!("HTTP/1.0 200 OK\r\na: b\r\n\r\n{BODY}")), Ok(load(9)));
        for (text, why) in [
            ("", "expected an HTTP answer"),
            ("HTTP/1.0 503 Service Unavailable\r\n\r\n", "found 503"),
            ("SSH-2.0 200\r\n\r\n", "expected status 200"),
            ("HTTP/1.0 200 OK\r\n\r\n{}", "missing field"),
            (&format!("HTTP/1.0 200 OK\r\n\r\n{}", BODY.replace("0.25", "25")), "from 0 to 1"),
        ] {
            let error = parse(text).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_reported_load_expires_and_failures_are_counted_once() {
        let from = SocketAddr::from(([10, 0, 2, 2], 7402));
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut heard = Heard::default();
        assert_eq!(heard.tell(at(0)), None, "not asked yet");
        heard.take(at(0), Ok(load(9)), from);
        heard.take(at(1), Err("refused".to_owned()), from);
        heard.take(at(2), Err("refused".to_owned()), from);
        let told = heard.tell(at(2)).expect("asked");
        assert_eq!((told.cpu, told.failures), (Some(0.25), 2));
        // The same window again is nothing new.
        heard.take(at(4), Ok(load(9)), from);
        assert_eq!(heard.tell(at(4)).map(|told| (told.cpu, told.failures)), Some((Some(0.25), 0)));
        assert_eq!(heard.tell(at(5)).expect("asked").cpu, None, "too old");
        heard.take(at(6), Ok(load(10)), from);
        assert_eq!(heard.tell(at(6)).expect("asked").cpu, Some(0.25));
    }
}
