//! What clients saw.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::micros_histogram;

/// How a connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Break {
    /// It never opened: refused, unreachable, or no answer in time.
    NotOpened,
    /// Reset by the other side.
    Reset,
    /// Closed by the other side before its answer was whole.
    Closed,
    /// Nothing came for too long.
    Timeout,
    /// Another server answered.
    ChangedServer,
    /// The answer was not a proper one.
    BadAnswer,
}

/// One that broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenConnection {
    /// Since the clients began.
    pub at: Duration,
    /// How long it had been open.
    pub age: Duration,
    /// How.
    pub how: Break,
    /// Whether it was a long download.
    pub download: bool,
    /// The server that answered first; none if it broke before.
    pub server: Option<String>,
}

/// One second of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Connections that opened.
    pub opened: u64,
    /// Connections that broke.
    pub broken: u64,
    /// Connections of short requests that their clients ended.
    pub ended: u64,
    /// Short requests that were answered.
    pub requests: u64,
    /// Of downloads.
    pub bytes: u64,
}

/// The numbers of a load.
#[derive(Clone, Debug)]
pub struct ClientReport {
    /// Connections that opened.
    pub opened: u64,
    /// Of these, those open at this moment.
    pub open: u64,
    /// Short requests that were answered.
    pub requests: u64,
    /// Downloads that came to their end.
    pub downloads: u64,
    /// Of downloads, those under way included.
    pub download_bytes: u64,
    /// Connections by the server that answered first.
    pub by_server: BTreeMap<String, u64>,
    /// Every connection that broke, in order.
    pub broken: Vec<BrokenConnection>,
    /// Every second since they began, those included in which nothing happened.
    pub seconds: Vec<Second>,
    /// From a short request to the end of its answer, microseconds.
    pub latency_us: Histogram<u64>,
    /// From SYN to an open connection, microseconds.
    pub connect_us: Histogram<u64>,
}

impl Default for ClientReport {
    fn default() -> Self {
        ClientReport {
            opened: 0,
            open: 0,
            requests: 0,
            downloads: 0,
            download_bytes: 0,
            by_server: BTreeMap::new(),
            broken: Vec::new(),
            seconds: Vec::new(),
            latency_us: micros_histogram(),
            connect_us: micros_histogram(),
        }
    }
}

impl ClientReport {
    /// Connections that broke, by how.
    pub fn by_break(&self) -> BTreeMap<Break, u64> {
        let mut counts = BTreeMap::new();
        for one in &self.broken {
            *counts.entry(one.how).or_default() += 1;
        }
        counts
    }

    /// The part of connections that broke, 0…1; those that never opened are of them.
    pub fn broken_share(&self) -> f64 {
        let never = self.broken.iter().filter(|one| one.how == Break::NotOpened).count() as u64;
        self.broken.len() as f64 / (self.opened + never).max(1) as f64
    }

    /// The second that this moment is in.
    pub(super) fn second(&mut self, at: Duration) -> &mut Second {
        let index = at.as_secs() as usize;
        if self.seconds.len() <= index {
            self.seconds.resize(index + 1, Second::default());
        }
        &mut self.seconds[index]
    }
}

/// Microseconds, within a histogram's bounds.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
