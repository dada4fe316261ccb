//! A runtime API that misbehaves on demand, as a real HAProxy cannot be made to.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_sink::{HaproxyConfig, HaproxySink, SocketAddress};

use super::{PATIENCE, named};

/// What to do instead of obeying a `set server` command.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Obey.
    Obey,
    /// Answer this, and change nothing.
    Refuse(&'static str),
    /// Hang up before obeying.
    Cut,
    /// Obey, and hang up before answering.
    ObeyAndCut,
    /// Say nothing for longer than any test waits.
    Hang,
    /// Answer without end.
    Flood,
}

#[derive(Default)]
pub struct State {
    pub weights: Vec<(String, u32)>,
    /// Taken one per `set server`; obeys when there is none.
    pub faults: VecDeque<Fault>,
    /// Every `set server` line received.
    pub received: Vec<String>,
    pub connections: u32,
    /// Answers to whole commands, instead of the usual ones.
    pub instead: Vec<(&'static str, &'static str)>,
    /// Refuses to serve new connections.
    pub closed: bool,
}

pub struct Fake {
    path: PathBuf,
    pub state: Arc<Mutex<State>>,
}

impl Fake {
    pub fn start(weights: &[(&str, u32)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-fake-{}-{number}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).expect("a socket");
        let weights = weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
        let state = Arc::new(Mutex::new(State { weights, ..State::default() }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                if !state.lock().expect("state").closed {
                    std::thread::spawn(move || serve(stream, &state));
                }
            }
        });
        Fake { path, state }
    }

    pub fn sink(&self, servers: &[&str]) -> HaproxySink {
        self.sink_within(PATIENCE, servers)
    }

    /// One that waits no longer for an answer.
    pub fn sink_within(&self, timeout: Duration, servers: &[&str]) -> HaproxySink {
        let socket = SocketAddress::Unix(self.path.clone());
        let config = HaproxyConfig { timeout, ..HaproxyConfig::new(socket, "shop") };
        HaproxySink::new(config, named(servers)).expect("good names")
    }

    pub fn weights(&self) -> Vec<u32> {
        let state = self.state.lock().expect("state");
        state.weights.iter().map(|(_, weight)| *weight).collect()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(stream: UnixStream, state: &Mutex<State>) {
    state.lock().expect("state").connections += 1;
    let mut writer = stream.try_clone().expect("a second handle");
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let Some(answer) = answer(&line, state, &mut writer) else { return };
        if writer.write_all(format!("{answer}\n> ").as_bytes()).is_err() {
            return;
        }
    }
}

/// The answer to one line; none to hang up.
fn answer(line: &str, state: &Mutex<State>, writer: &mut UnixStream) -> Option<String> {
    let mut state = state.lock().expect("state");
    if let Some((_, text)) = state.instead.iter().find(|(command, _)| line.starts_with(command)) {
        return Some((*text).to_owned());
    }
    let rows = |row: &dyn Fn(&str, u32) -> String| {
        state.weights.iter().fold(String::new(), |mut all, (name, weight)| {
            let _ = writeln!(all, "{}", row(name, *weight));
            all
        })
    };
    if line == "show info" {
        return Some("Name: HAProxy\nPid: 42\nStopping: 0\nStart_time_sec: 1000\n".to_owned());
    }
    if line == "show cli level" {
        return Some("admin\n".to_owned());
    }
    if line.starts_with("show servers state") {
        let header = "1\n# be_id srv_name srv_op_state srv_admin_state srv_uweight srv_iweight \
                      srv_check_state srv_agent_state\n";
        return Some(format!(
            "{header}{}",
            rows(&|name, weight| format!("3 {name} 2 0 {weight} 10 0 0"))
        ));
    }
    if line.starts_with("show stat") {
        let header = "# pxname,iid,svname,qcur,scur,slim,stot,econ,eresp,wretr,wredis,status,weight,\
                      type,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,hrsp_other,\
                      check_status,addr,algo,bck,\n";
        let servers = rows(&|name, weight| {
            format!("shop,3,{name},0,0,,0,0,0,0,0,no check,{weight},2,0,0,0,0,0,0,,,,,")
        });
        return Some(format!(
            "{header}{servers}shop,3,BACKEND,0,0,,0,0,0,0,0,UP,9,1,0,0,0,0,0,0,,,leastconn,,\n"
        ));
    }
    let Some(order) = line.strip_prefix("set server shop/") else {
        return Some(String::new());
    };
    state.received.push(order.to_owned());
    let (server, weight) = order.split_once(" weight ").expect("a weight");
    let weight = weight.parse().expect("a number");
    let fault = state.faults.pop_front().unwrap_or(Fault::Obey);
    match fault {
        Fault::Refuse(text) => return Some(format!("{text}\n")),
        Fault::Cut => return None,
        Fault::Hang => {
            drop(state);
            std::thread::sleep(3 * PATIENCE);
            return None;
        }
        Fault::Flood => {
            drop(state);
            let noise = [b'x'; 1 << 16];
            while writer.write_all(&noise).is_ok() {}
            return None;
        }
        Fault::Obey | Fault::ObeyAndCut => {}
    }
    if let Some(entry) = state.weights.iter_mut().find(|(name, _)| name == server) {
        entry.1 = weight;
    }
    matches!(fault, Fault::Obey).then(String::new)
}
