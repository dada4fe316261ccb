//! The lab's own server, as a process.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Long beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(arguments: &[&str]) -> Server {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut server = Server::spawn(arguments);
            // Another connection may have taken the port meanwhile; then it ends at once.
            while server.child.try_wait().unwrap().is_none() {
                let reached = TcpStream::connect(server.address);
                // A port on which nobody listens may be connected to itself.
                if reached.is_ok_and(|s| s.local_addr().ok() != s.peer_addr().ok()) {
                    return server;
                }
                assert!(Instant::now() < end, "the server does not listen");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    fn spawn(arguments: &[&str]) -> Server {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-real-server"));
        command.args(["--listen", &address.to_string()]).args(arguments).stdin(Stdio::piped());
        Server { child: command.spawn().unwrap(), address }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(stream)
    }

    /// Changes how it behaves, and waits until it does: until this is so.
    fn tell(&mut self, mode: &str, mut is_so: impl FnMut(&mut Client) -> bool) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{mode}").unwrap();
        let end = Instant::now() + PATIENCE;
        while !is_so(&mut self.connect()) {
            assert!(Instant::now() < end, "it does not behave as {mode}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// CPU time of all its threads.
    fn cpu_time(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of = |task: io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
            Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
        };
        tasks.map(of).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client(TcpStream);

impl Client {
    fn send(&mut self, target: &str) {
        let request = format!("GET {target} HTTP/1.1\r\nHost: lab\r\n\r\n");
        self.0.write_all(request.as_bytes()).unwrap();
    }

    /// The status of the next answer, which is read to its end.
    fn receive(&mut self) -> io::Result<u16> {
        let mut text = String::new();
        let mut byte = [0];
        while !text.ends_with("\r\n\r\n") {
            self.0.read_exact(&mut byte)?;
            text.push(byte[0] as char);
        }
        let length = text.split("Content-Length: ").nth(1).unwrap();
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        self.0.read_exact(&mut vec![0; length])?;
        Ok(text[9..12].parse().unwrap())
    }

    fn get(&mut self, target: &str) -> u16 {
        self.send(target);
        self.receive().unwrap()
    }
}

#[test]
fn a_connection_serves_many_requests_and_each_burns_what_it_asks_for() {
    for model in ["threads", "event-loop"] {
        let server = Server::start(&["--model", model, "--work", "1ms", "--health-work", "20ms"]);
        let mut client = server.connect();
        let before = server.cpu_time();
        for _ in 0..10 {
            assert_eq!(client.get("/work?work_us=30000"), 200);
        }
        let burnt = server.cpu_time() - before;
        // Ten times 30 ms, and little else: CPU time, however long it took.
        let bounds = Duration::from_millis(300)..Duration::from_millis(600);
        assert!(bounds.contains(&burnt), "{model}: {burnt:?}");
        let before = server.cpu_time();
        (0..10).for_each(|_| assert_eq!(client.get("/health"), 200));
        let burnt = server.cpu_time() - before;
        assert!(burnt >= Duration::from_millis(200), "{model}: {burnt:?}");
        assert_eq!(client.get("/work"), 200);
        assert_eq!(client.get("/nothing"), 404);
        assert_eq!(client.get("/work?work_us=much"), 400);
    }
}

#[test]
fn health_waits_behind_work() {
    for arguments in [["--model", "event-loop"], ["--threads", "1"]] {
        let server = Server::start(&arguments);
        let (mut worker, mut checker) = (server.connect(), server.connect());
        // Both are known to the server, so that the work is read first.
        assert_eq!((worker.get("/health"), checker.get("/health")), (200, 200));
        let before = server.cpu_time();
        worker.send("/work?work_us=1500000");
        while server.cpu_time() < before + Duration::from_millis(50) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(checker.get("/health"), 200);
        // By then the work is done: all its CPU time has been burnt, as exactly as the kernel counts.
        let burnt = server.cpu_time() - before;
        assert!(burnt > Duration::from_millis(1_450), "{arguments:?}: {burnt:?}");
        assert_eq!(worker.receive().unwrap(), 200);
    }
}

#[test]
fn modes_fail_in_their_own_way() {
    const WORK: &str = "/work?work_us=10";
    for model in ["threads", "event-loop"] {
        let mut server = Server::start(&["--mode", "fail-health", "--model", model]);
        let mut client = server.connect();
        assert_eq!((client.get("/health"), client.get(WORK)), (503, 200));
        server.tell("fail-work", |client| client.get(WORK) == 500);
        assert_eq!((client.get("/health"), client.get(WORK)), (200, 500));
        let mut hung = None;
        server.tell("hang-work", |client| {
            client.send(WORK);
            let mut client = Client(client.0.try_clone().unwrap());
            client.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let silence = client.receive().err();
            hung = silence.map(|silence| (client, silence));
            hung.is_some()
        });
        let (mut hung, silence) = hung.unwrap();
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(client.get("/health"), 200);
        server.tell("normal", |client| {
            client.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            client.send(WORK);
            client.receive().is_ok_and(|status| status == 200)
        });
        assert_eq!((client.get("/health"), client.get(WORK)), (200, 200));
        // What hung once is not answered when the others are.
        assert_eq!(hung.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
