//! A real HAProxy in front of one lane.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::family::Member;
use crate::section::server_timeout;
use crate::{Family, LaneError, program};

/// It has read its configuration long before.
const START_WITHIN: Duration = Duration::from_secs(5);
/// The name of its backend section.
pub const SECTION: &str = "pool";

/// Tells clients which server answered.
const MARK: &str = "    http-response set-header x-backend %s\n";

/// A server as it stands in HAProxy's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its weight at the start.
    pub weight: u32,
}

/// A running HAProxy; killed when dropped.
pub struct Haproxy {
    member: Member,
    address: SocketAddr,
    socket: PathBuf,
}

impl Haproxy {
    /// Starts one for these servers, and returns when its admin socket answers.
    ///
    /// # Errors
    /// When it is not installed, or ends at once.
    pub fn start(
        family: &Family,
        name: &str,
        balance: &str,
        servers: &[Server],
        patience: Duration,
    ) -> Result<Self, LaneError> {
        Haproxy::start_with(family, name, |socket| {
            configuration(socket, balance, servers, patience)
        })
    }

    /// One that gives each request to any of these, drawn at random, and changes nothing in the answers.
    ///
    /// # Errors
    /// When it is not installed, or ends at once.
    pub fn start_splitter(
        family: &Family,
        name: &str,
        servers: &[Server],
        patience: Duration,
    ) -> Result<Self, LaneError> {
        Haproxy::start_with(family, name, |socket| {
            configuration(socket, "random(1)", servers, patience).replace(MARK, "")
        })
    }

    /// The same with a configuration of the caller's, which is given the path of the admin socket. It is to
    /// `bind fd@0` for its clients.
    ///
    /// # Errors
    /// When it is not installed, or ends at once.
    pub fn start_with(
        family: &Family,
        name: &str,
        configuration: impl FnOnce(&Path) -> String,
    ) -> Result<Self, LaneError> {
        let socket = family.dir().join(format!("{name}.sock"));
        let file = family.dir().join(format!("{name}.cfg"));
        let text = configuration(&socket);
        std::fs::write(&file, text).map_err(LaneError::system("write HAProxy's configuration"))?;
        // Handed over as descriptor 0: nobody can take the port between our choice and its bind.
        let listener = TcpListener::bind(("127.0.0.1", 0));
        let listener = listener.map_err(LaneError::system("listen on the loopback"))?;
        let address = listener.local_addr().map_err(LaneError::system("listen"))?;
        let mut command = Command::new(find()?);
        command.arg("-db").arg("-f").arg(&file).stdin(Stdio::from(OwnedFd::from(listener)));
        let member = family.spawn(name, &mut command);
        let mut member = member.map_err(LaneError::system("start haproxy"))?;
        member.wait_until(START_WITHIN, || UnixStream::connect(&socket).map(drop))?;
        Ok(Haproxy { member, address, socket })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its admin socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// That it has ended, if it has.
    pub fn ended(&mut self) -> Option<LaneError> {
        self.member.ended()
    }
}

/// What the installed HAProxy says of its version; nothing when there is none.
pub fn haproxy_version() -> Option<String> {
    let said = Command::new(find().ok()?).arg("-v").stdin(Stdio::null()).output().ok()?;
    String::from_utf8(said.stdout).ok()?.lines().next().map(str::to_owned)
}

/// The program, in PATH or where it usually is.
fn find() -> Result<PathBuf, LaneError> {
    find_in(program::places())
}

fn find_in(places: impl Iterator<Item = PathBuf>) -> Result<PathBuf, LaneError> {
    program::find("haproxy", places).ok_or(LaneError::NoHaproxy)
}

/// What a careful administrator would write before any section, with one thread, since two cores have many lanes to
/// serve. Servers get a little longer than clients are willing to wait, so that what nobody waits for any more does not
/// pile up.
pub fn preamble(socket: &Path, patience: Duration) -> String {
    let server_timeout = server_timeout(patience).as_millis();
    format!(
        "global
    stats socket {} mode 600 level admin
    maxconn 20000
    nbthread 1
    no strict-limits
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server {server_timeout}ms
    timeout queue {server_timeout}ms
    timeout http-keep-alive 60s
    option http-keep-alive
    option redispatch 1
    retries 3
    http-reuse always
",
        socket.display()
    )
}

/// The lines of these servers in a section.
pub fn server_lines(servers: &[Server]) -> String {
    let line = |Server { name, address, weight }: &Server| {
        format!("    server {name} {address} weight {weight}\n")
    };
    servers.iter().map(line).collect()
}

fn configuration(socket: &Path, balance: &str, servers: &[Server], patience: Duration) -> String {
    format!(
        "{}frontend clients
    bind fd@0
    default_backend {SECTION}
backend {SECTION}
    balance {balance}
{MARK}{}",
        preamble(socket, patience),
        server_lines(servers)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_haproxy_the_error_says_how_to_install_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("haproxy"), "no program").unwrap();
        let error = find_in([dir.path().to_owned()].into_iter()).unwrap_err();
        assert!(error.to_string().contains("apt-get install haproxy"));
    }

    #[test]
    fn every_server_is_named_with_its_weight() {
        let server =
            Server { name: "s1".into(), address: "127.0.0.1:81".parse().unwrap(), weight: 7 };
        let text =
            configuration(Path::new("/x/a.sock"), "leastconn", &[server], Duration::from_secs(10));
        assert!(text.contains("stats socket /x/a.sock mode 600 level admin\n"));
        assert!(text.contains("    balance leastconn\n"));
        assert!(text.contains("    timeout server 12000ms\n"));
        assert!(text.ends_with("    server s1 127.0.0.1:81 weight 7\n"));
    }
}
