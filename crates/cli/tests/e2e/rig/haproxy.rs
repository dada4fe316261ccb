//! A real HAProxy as a child process.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{free_address, signal, until};

pub struct Haproxy {
    dir: PathBuf,
    child: Option<Child>,
    /// Where clients connect.
    pub address: SocketAddr,
}

impl Haproxy {
    pub fn start(dir: &Path, balance: &str, servers: &[(String, SocketAddr)]) -> Self {
        let address = free_address();
        let mut text = format!(
            "global\n  maxconn 500\n  stats socket {0}/admin.sock level admin\n  stats socket \
             {0}/operator.sock level operator\ndefaults\n  mode http\n  timeout connect 1s\n  timeout \
             client 20s\n  timeout server 20s\n  retries 3\n  option redispatch 1\n  retry-on \
             all-retryable-errors\nfrontend front\n  bind {address}\n  default_backend shop\nbackend \
             shop\n  balance {balance}\n",
            dir.display()
        );
        for (name, address) in servers {
            writeln!(text, "  server {name} {address} weight 100").expect("a string grows");
        }
        std::fs::write(dir.join("haproxy.cfg"), text).expect("written");
        let mut haproxy = Haproxy { dir: dir.to_owned(), child: None, address };
        haproxy.start_again();
        haproxy
    }

    pub fn socket(&self, level: &str) -> PathBuf {
        self.dir.join(format!("{level}.sock"))
    }

    /// Starts what [`Haproxy::stop`] ended, with the same configuration.
    pub fn start_again(&mut self) {
        let log = std::fs::File::create(self.dir.join("haproxy.log")).expect("a log");
        let child = Command::new(program())
            .arg("-db")
            .arg("-f")
            .arg(self.dir.join("haproxy.cfg"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("start HAProxy"));
        until("HAProxy to answer", || self.try_ask("show info").is_some());
    }

    /// Starts again with more proxies.
    pub fn extend(&mut self, more: &str) {
        let path = self.dir.join("haproxy.cfg");
        let text = std::fs::read_to_string(&path).expect("its configuration") + more;
        std::fs::write(path, text).expect("written");
        self.stop();
        self.start_again();
    }

    /// Starts again with this in the place of that, wherever it stands in the configuration.
    pub fn rename(&mut self, that: &str, this: &str) {
        let path = self.dir.join("haproxy.cfg");
        let text = std::fs::read_to_string(&path).expect("its configuration");
        std::fs::write(path, text.replace(that, this)).expect("written");
        self.stop();
        self.start_again();
    }

    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("kill HAProxy");
            child.wait().expect("wait for HAProxy");
        }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("HAProxy runs").id();
        signal(pid, name);
    }

    /// Runs one command on a connection of its own, as an administrator would.
    pub fn ask(&self, command: &str) -> String {
        self.try_ask(command).expect("HAProxy answers")
    }

    fn try_ask(&self, command: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.socket("admin")).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(format!("{command}\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// Requests that a server is working on.
    pub fn in_flight(&self, server: &str) -> u32 {
        let table = self.ask("show stat");
        let mut rows = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let row = rows.find(|row| row.starts_with(&["shop", server]));
        let current = row.and_then(|row| row.get(4)?.parse().ok());
        current.unwrap_or_else(|| panic!("no sessions of {server} in {table}"))
    }

    /// The weight it holds for a server.
    pub fn weight(&self, server: &str) -> u32 {
        let answer = self.ask(&format!("get weight shop/{server}"));
        let weight = answer.split_whitespace().next().and_then(|word| word.parse().ok());
        weight.unwrap_or_else(|| panic!("no weight of {server} in {answer:?}"))
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        self.stop();
    }
}

/// These tests are about what HAProxy does: without it they fail, and say so.
fn program() -> PathBuf {
    let places = [std::env::var("HAPROXY").unwrap_or_default(), "/usr/sbin/haproxy".to_owned()];
    let found = places.iter().map(PathBuf::from).find(|path| path.is_file());
    found.expect("these tests need HAProxy: `apt-get install haproxy`, or name it in $HAPROXY")
}
