//! Transparent capture, in a network namespace of its own: what a process sends to a service's address comes to the proxy,
//! until the rules are removed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const PATIENCE: Duration = Duration::from_secs(60);
/// The proxy's user, whose connections are not captured; `nobody` on Debian.
const USER: u32 = 65_534;

/// A namespace that goes when this does.
struct Space(String);

impl Space {
    /// None, with the reason said, where this machine cannot.
    fn new() -> Option<Self> {
        let name = format!("plimsoll-capture-{}", std::process::id());
        let ran = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output();
            output.is_ok_and(|output| output.status.success())
        };
        if !ran("ip", &["netns", "add", &name]) {
            eprintln!("skipped: network namespaces need root and iproute2");
            return None;
        }
        let space = Space(name);
        let inside =
            |arguments: &[&str]| ran("ip", &[&["netns", "exec", &space.0], arguments].concat());
        let is_ready = inside(&["ip", "link", "set", "lo", "up"])
            && inside(&["ip", "address", "add", "10.77.0.1/32", "dev", "lo"])
            && inside(&[
                "nft",
                "add table inet plimsoll_probe; add chain inet plimsoll_probe c { type nat hook output priority -100; }",
            ])
            && inside(&["nft", "delete", "table", "inet", "plimsoll_probe"]);
        if !is_ready {
            eprintln!("skipped: nftables with NAT is not to be had here");
            return None;
        }
        Some(space)
    }

    /// This thread, and what it starts, is in it from now on.
    fn enter(&self) {
        let file = File::open(Path::new("/run/netns").join(&self.0)).expect("the namespace");
        use std::os::fd::AsFd;
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), kind).expect("entered");
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers every request with this.
fn serve(listener: TcpListener, text: &'static str) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let (mut line, mut is_last) = (String::new(), false);
                while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
                    if line == "\r\n" {
                        let length = text.len();
                        let answer =
                            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{text}");
                        let is_sent = reader.get_mut().write_all(answer.as_bytes()).is_ok();
                        if is_last || !is_sent {
                            return;
                        }
                    }
                    is_last |= line == "connection: close\r\n";
                    line.clear();
                }
            });
        }
    });
}

fn get(address: &str, host: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return String::new() };
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text.split("\r\n\r\n").nth(1).unwrap_or("").to_owned()
}

fn plimsoll(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(arguments).output().expect("run plimsoll")
}

#[test]
fn what_is_sent_to_a_service_comes_to_the_proxy() {
    let Some(space) = Space::new() else { return };
    space.enter();
    serve(TcpListener::bind("10.77.0.1:80").expect("a port"), "where it was going");
    let backend = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = backend.local_addr().expect("an address");
    serve(backend, "balanced");
    let directory = tempfile::tempdir().expect("a directory");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).expect("readable");
    let config = directory.path().join("p.yaml");
    let text = format!(
        "proxy:
  threads: 1
  egress:
    - name: out
      listen: \"127.0.0.1:15001\"
      capture: {{ networks: [10.77.0.0/16], ports: [80, 8080], except_user: {USER} }}
      routes: [ {{ host: shop.example, pool: shop }} ]
  pools: [ {{ name: shop, policy: random, backends: [ {{ name: b1, address: \"{address}\" }} ] }} ]
"
    );
    std::fs::write(&config, text).expect("written");
    let file = config.to_str().expect("a path");
    let printed = plimsoll(&["proxy", "capture", "print", "--config", file]);
    let rules = String::from_utf8_lossy(&printed.stdout).into_owned();
    let rule =
        "meta skuid != 65534 ip daddr 10.77.0.0/16 tcp dport { 80, 8080 } redirect to :15001";
    assert!(rules.contains(rule), "{rules}");
    assert_eq!(
        get("10.77.0.1:80", "shop.example"),
        "where it was going",
        "nothing is captured yet"
    );

    // A copy that the other user may run, wherever this one was built.
    let program = directory.path().join("plimsoll");
    std::fs::copy(env!("CARGO_BIN_EXE_plimsoll"), &program).expect("copied");
    let mut command = Command::new(program);
    command.args(["proxy", "run", "--config", file]).stdin(Stdio::null()).uid(USER).gid(USER);
    let _daemon = Daemon(command.spawn().expect("start plimsoll"));
    let began = Instant::now();
    while get("127.0.0.1:15001", "shop.example") != "balanced" {
        assert!(began.elapsed() < PATIENCE, "it never served");
        thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..2 {
        let installed = plimsoll(&["proxy", "capture", "install", "--config", file]);
        let why = String::from_utf8_lossy(&installed.stderr).into_owned();
        assert!(installed.status.success(), "{why}");
        assert_eq!(get("10.77.0.1:80", "shop.example"), "balanced", "captured, and routed");
        assert_eq!(
            get("10.77.0.1:80", "other.example"),
            "where it was going",
            "no route is for it"
        );
    }
    // One that has connected to the entry itself was going nowhere else.
    assert_eq!(get("127.0.0.1:15001", "other.example"), "no route for this host and path\n");
    for _ in 0..2 {
        assert!(plimsoll(&["proxy", "capture", "remove"]).status.success());
        assert_eq!(get("10.77.0.1:80", "shop.example"), "where it was going");
    }
    let tables = Command::new("nft").args(["list", "tables"]).output().expect("nft");
    assert!(!String::from_utf8_lossy(&tables.stdout).contains("plimsoll"));
}
