//! A node's voice without the node (feature `bench`): it answers a forwarder's questions with whatever it is given.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use crate::config::EdgeConfig;
use crate::control::{Answer, Ask, Key, MOST_BYTES, PlaceReport, agreement, draw};
use crate::error::EdgeError;

/// What is said of a node's first service on its first core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lie {
    /// The node's clock, nanoseconds.
    pub clock_ns: u64,
    /// Time that it was busy since it started.
    pub busy_ns: u64,
    /// Packets since then.
    pub packets: u64,
    /// What a packet cost in calibration.
    pub calibrated_ns: f64,
}

/// An attacker who has the key and a node's address.
#[derive(Debug)]
pub struct Liar {
    key: Key,
    socket: UdpSocket,
    boot: u64,
    agreement: String,
    place: (u32, usize),
}

impl Liar {
    /// In a node's namespace, in its place.
    ///
    /// # Errors
    /// Without the key or the address, or when there is no such node.
    pub fn start(config: &EdgeConfig, name: &str) -> Result<Liar, EdgeError> {
        let index = config.nodes.iter().position(|node| node.name == name);
        let index =
            index.ok_or_else(|| EdgeError::Config(format!("no node is called {name:?}")))?;
        let node = &config.nodes[index];
        let socket = UdpSocket::bind((node.address, config.control_port))
            .map_err(EdgeError::system("listen"))?;
        socket
            .set_read_timeout(Some(Duration::from_secs(1)))
            .map_err(EdgeError::system("set a socket"))?;
        Ok(Liar {
            key: Key::load(&config.key)?,
            socket,
            boot: draw(),
            agreement: agreement(config, index),
            place: (node.cpus[0], node.services[0]),
        })
    }

    /// Waits for the next question and answers it so.
    ///
    /// # Errors
    /// When none comes within a second.
    pub fn answer(&self, lie: Lie) -> Result<(), EdgeError> {
        let (ask, from) = self.asked()?;
        let (cpu, service) = self.place;
        let Lie { clock_ns, busy_ns, packets, calibrated_ns } = lie;
        let answer = Answer {
            forwarder: ask.forwarder,
            sequence: ask.sequence,
            node: self.boot,
            agreement: self.agreement.clone(),
            clock_ns,
            places: vec![PlaceReport { cpu, service, busy_ns, packets, calibrated_ns }],
            reasons: Vec::new(),
        };
        let sealed = self.key.seal(&answer);
        self.socket.send_to(&sealed, from).map(drop).map_err(EdgeError::system("answer"))
    }

    fn asked(&self) -> Result<(Ask, SocketAddr), EdgeError> {
        let mut buffer = vec![0; MOST_BYTES];
        loop {
            let heard = self.socket.recv_from(&mut buffer);
            let (bytes, from) = heard.map_err(EdgeError::system("hear a question"))?;
            if let Some(ask) = self.key.open::<Ask>(&buffer[..bytes]) {
                return Ok((ask, from));
            }
        }
    }
}
