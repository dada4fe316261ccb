//! A socket in front of HAProxy's own that meddles with the commands which set weights.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::Rig;

/// What becomes of a command that sets a weight.
#[derive(Clone, Debug, PartialEq)]
pub enum Meddle {
    /// It is passed on.
    Nothing,
    /// The connection is cut.
    Cut,
    /// HAProxy gets this word in the place of `set`, and says at length that it does not know it.
    Replace(&'static str),
}

/// The socket; it listens until the test ends.
pub struct Relay {
    pub path: PathBuf,
    meddle: Arc<Mutex<Meddle>>,
}

impl Relay {
    /// A socket in the rig's directory that passes everything on to HAProxy but for this.
    pub fn start(rig: &Rig, meddle: Meddle) -> Self {
        let (path, target) = (rig.path("relay.sock"), rig.haproxy.socket("admin"));
        let listener = UnixListener::bind(&path).expect("a socket");
        let meddle = Arc::new(Mutex::new(meddle));
        let shared = meddle.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, target, meddle) =
                    (client.expect("a client"), target.clone(), shared.clone());
                std::thread::spawn(move || {
                    // A connection that is cut, by whichever side, has ended.
                    let _ = pass(&client, &target, &meddle);
                    let _ = client.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        Relay { path, meddle }
    }

    /// Does this from now on.
    pub fn set(&self, meddle: Meddle) {
        *self.meddle.lock().unwrap_or_else(PoisonError::into_inner) = meddle;
    }
}

fn pass(client: &UnixStream, target: &PathBuf, meddle: &Mutex<Meddle>) -> std::io::Result<()> {
    let mut haproxy = UnixStream::connect(target)?;
    let (mut answers, mut back) = (haproxy.try_clone()?, client.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(std::net::Shutdown::Both);
    });
    for line in BufReader::new(client).lines() {
        let line = line?;
        let set = line.strip_prefix("set server");
        let meddle = meddle.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let line = match (set, meddle) {
            (Some(_), Meddle::Cut) => break,
            (Some(rest), Meddle::Replace(word)) => format!("{word} server{rest}"),
            _ => line,
        };
        haproxy.write_all(format!("{line}\n").as_bytes())?;
    }
    haproxy.shutdown(std::net::Shutdown::Both)
}
