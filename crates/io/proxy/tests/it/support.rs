//! A proxy in this process, backends of plain sockets that say what they really received, a client that sends bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_config::Document;
use plimsoll_proxy::{Proxy, ProxyConfig, RequestStatus};

/// Nothing here takes so long; it only keeps a test that is broken from hanging.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A proxy with this section; all its entries listen on ports that the system chooses.
pub fn start(section: &str) -> Running {
    let mut config = read(section);
    config.ingress.iter_mut().for_each(|entry| entry.listen.set_port(0));
    config.egress.iter_mut().for_each(|entry| entry.listen.set_port(0));
    Running { proxy: Proxy::start(&config).expect("a proxy") }
}

/// This section in place of the one in force; entries by name are where they are.
pub fn reload(proxy: &Running, section: &str) -> Result<(), String> {
    let mut config: ProxyConfig = read(section);
    config.ingress.iter_mut().for_each(|entry| entry.listen.set_port(0));
    config.egress.iter_mut().for_each(|entry| entry.listen.set_port(0));
    proxy.proxy.handle().reload(&config).map_err(|error| error.to_string())
}

/// This section.
pub fn read(section: &str) -> ProxyConfig {
    let text = format!("proxy:\n{section}");
    let document = Document::parse("test", &text).expect("YAML");
    document
        .read(|c| c.fields(&["proxy"])?.required("proxy", "a section", ProxyConfig::read))
        .unwrap_or_else(|errors| panic!("{errors:?}\n{text}"))
}

pub struct Running {
    pub proxy: Proxy,
}

impl Running {
    pub fn address(&self, entry: &str) -> SocketAddr {
        let addresses = self.proxy.addresses();
        addresses.iter().find(|(name, _)| name == entry).expect("an entry").1
    }

    pub fn client(&self, entry: &str) -> Client {
        Client::new(self.address(entry))
    }

    /// What was sent to the backends of the first pool of the first egress entry.
    pub fn backends(&self) -> Vec<RequestStatus> {
        let status = self.proxy.status();
        status.egress[0].pools[0].backends.iter().map(|b| b.requests.clone()).collect()
    }

    pub fn in_flight(&self) -> u64 {
        let status = self.proxy.status();
        let egress = status.egress.iter().flat_map(|e| &e.pools).flat_map(|p| &p.backends);
        let ingress = status.ingress.iter().map(|i| i.application.in_flight);
        egress.map(|b| b.requests.in_flight).chain(ingress).sum()
    }
}

/// An address that refuses connections, while this socket is held: nobody else gets its port, such as the proxy itself, which
/// would be its own backend.
pub fn dead() -> (tokio::net::TcpSocket, SocketAddr) {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let address = socket.local_addr().expect("an address");
    (socket, address)
}

/// Waits until it is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The section of an egress entry `out` before these backends.
pub fn egress(threads: usize, entry: &str, pool: &str, backends: &[SocketAddr]) -> String {
    let backend =
        |(i, address): (usize, &SocketAddr)| format!("{{ name: b{i}, address: \"{address}\" }}");
    let backends: Vec<String> = backends.iter().enumerate().map(backend).collect();
    format!(
        "  threads: {threads}
  egress: [ {{ name: out, listen: \"127.0.0.1:1\"{entry} }} ]
  pools: [ {{ name: pool, {pool}, backends: [ {} ] }} ]
",
        backends.join(", ")
    )
}

/// A request as a backend received it.
#[derive(Clone, Debug)]
pub struct Received {
    /// Request line and headers, with their line ends as they came.
    pub head: String,
    /// The body as it came, with the sizes of its chunks.
    pub body: Vec<u8>,
    /// Which of the backend's connections it came by, from 0.
    pub connection: usize,
    /// Which on this connection, from 0.
    pub number: usize,
}

impl Received {
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or("")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let line = head.lines().skip(1).find(|line| {
        line.split_once(':').is_some_and(|(found, _)| found.eq_ignore_ascii_case(name))
    })?;
    Some(line.split_once(':')?.1.trim())
}

pub struct Backend {
    pub address: SocketAddr,
    pub received: Arc<Mutex<Vec<Received>>>,
    pub connections: Arc<AtomicUsize>,
}

impl Backend {
    /// Answers with what `respond` writes; the connection stays open where it says so.
    pub fn new(
        respond: impl Fn(&Received, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (received, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::default());
        let backend = Backend { address, received, connections };
        let (received, connections) = (backend.received.clone(), backend.connections.clone());
        let respond = Arc::new(respond);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let connection = connections.fetch_add(1, Ordering::SeqCst);
                let (received, respond) = (received.clone(), respond.clone());
                thread::spawn(move || {
                    for number in 0.. {
                        let Some((head, body)) = read_message(&mut stream, Kind::Request) else {
                            return;
                        };
                        let request = Received { head, body, connection, number };
                        received.lock().expect("a list").push(request.clone());
                        if !respond(&request, &mut stream) {
                            return;
                        }
                    }
                });
            }
        });
        backend
    }

    /// Answers 200 with this body.
    pub fn ok(body: &'static str) -> Self {
        Backend::new(move |_, stream| {
            write(stream, &response("200 OK", "", body));
            true
        })
    }

    /// Answers 200 when `gate` says so.
    pub fn gated(gate: &Gate) -> Self {
        let gate = gate.clone();
        Backend::new(move |_, stream| {
            gate.pass();
            write(stream, &response("200 OK", "", "late"));
            true
        })
    }

    pub fn count(&self) -> usize {
        self.received.lock().expect("a list").len()
    }

    pub fn last(&self) -> Received {
        self.received.lock().expect("a list").last().cloned().expect("a request")
    }
}

/// Holds whoever comes until it is opened.
#[derive(Clone, Default)]
pub struct Gate {
    state: Arc<(Mutex<bool>, std::sync::Condvar)>,
}

impl Gate {
    pub fn pass(&self) {
        let (is_open, opened) = &*self.state;
        let is_open = is_open.lock().expect("a gate");
        drop(opened.wait_timeout_while(is_open, PATIENCE, |is_open| !*is_open));
    }

    pub fn is_open(&self) -> bool {
        *self.state.0.lock().expect("a gate")
    }

    pub fn close(&self) {
        *self.state.0.lock().expect("a gate") = false;
    }

    pub fn open(&self) {
        *self.state.0.lock().expect("a gate") = true;
        self.state.1.notify_all();
    }
}

pub fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

pub fn write(stream: &mut TcpStream, text: &str) {
    // The other side may have left; tests look at what it received.
    let _ = stream.write_all(text.as_bytes());
}

pub struct Client {
    pub stream: TcpStream,
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Client { stream }
    }

    pub fn send(&mut self, text: &str) -> &mut Self {
        write(&mut self.stream, text);
        self
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n")).answer()
    }

    pub fn post(&mut self, path: &str, body: &str) -> Answer {
        let length = body.len();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nhost: shop\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
        self.answer()
    }

    /// The next response; none where the connection ends before it is complete.
    pub fn try_answer(&mut self, kind: Kind) -> Option<Answer> {
        let (head, body) = read_message(&mut self.stream, kind)?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, head, body: String::from_utf8_lossy(&body).into_owned() })
    }

    pub fn answer(&mut self) -> Answer {
        self.try_answer(Kind::Response).expect("a response")
    }

    /// Whether the proxy closes the connection without another byte.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Response,
    /// Of which only the head comes.
    ResponseToHead,
}

/// One message, byte by byte so that nothing of the next is read: none where the stream ends before it is complete.
pub fn read_message(stream: &mut TcpStream, kind: Kind) -> Option<(String, Vec<u8>)> {
    let head = read_until(stream, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&head).into_owned();
    let status = head.split(' ').nth(1).unwrap_or("").to_owned();
    let has_none = kind == Kind::ResponseToHead
        || kind == Kind::Response
            && (status.starts_with('1') || status == "204" || status == "304");
    if has_none {
        return Some((head, Vec::new()));
    }
    if header(&head, "transfer-encoding").is_some() {
        let mut body = Vec::new();
        loop {
            let line = read_until(stream, b"\r\n")?;
            let size = String::from_utf8_lossy(&line).trim().to_owned();
            let size = usize::from_str_radix(size.split(';').next()?, 16).ok()?;
            body.extend_from_slice(&line);
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).ok()?;
            body.extend_from_slice(&chunk);
            if size == 0 {
                return Some((head, body));
            }
        }
    }
    let length = header(&head, "content-length").and_then(|length| length.parse().ok());
    let mut body = Vec::new();
    match (length, kind) {
        (Some(length), _) => {
            body.resize(length, 0);
            stream.read_exact(&mut body).ok()?;
        }
        (None, Kind::Request) => {}
        (None, _) => {
            stream.read_to_end(&mut body).ok()?;
        }
    }
    Some((head, body))
}

fn read_until(stream: &mut TcpStream, end: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(end) {
        match stream.read(&mut byte) {
            Ok(1) => bytes.push(byte[0]),
            _ => return None,
        }
    }
    Some(bytes)
}
