//! What the tests of sockets share.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use plimsoll_testbed::load::{LoadSpec, Target};
use plimsoll_testbed::{BackendSpec, Service, Testbed, TestbedSpec};

/// No test waits longer for a socket, or for something to be so.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(ms(5));
    }
}

/// A testbed with an admin API and one backend `s1` of deterministic service.
pub fn one(service: Duration, edit: impl FnOnce(&mut BackendSpec)) -> Testbed {
    let mut backend = BackendSpec::new("s1", Service::deterministic(service));
    edit(&mut backend);
    let admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    Testbed::start(TestbedSpec { admin, backends: vec![backend] }).unwrap()
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request that asks for the connection's end, and reads to it.
pub fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> String {
    let mut stream = connect(address);
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A load on `/work` of an address.
pub fn load_on(address: SocketAddr, rate_rps: f64, duration: Duration) -> LoadSpec {
    let target = Target::resolve(&format!("http://{address}/work")).unwrap();
    LoadSpec::poisson(target, rate_rps, duration)
}
