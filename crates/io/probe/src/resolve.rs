use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_config::Address;
use plimsoll_model::FailureKind;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::failure::Failure;

/// How long a name's addresses are used before they are looked up again. Their own time to live is
/// not given by the system's resolver; HAProxy's `hold valid` is 10 s as well.
const FRESH: Duration = Duration::from_secs(10);

/// How long a failed look-up is remembered, lest 30 checks a second turn into 30 look-ups.
const NEGATIVE: Duration = Duration::from_secs(1);

/// The longest that a probe waits for a name, within its own time-out.
const PATIENCE: Duration = Duration::from_secs(1);

/// Finds the addresses of one backend.
///
/// One look-up is under way at most: the system's resolver blocks a thread for as long as it likes,
/// and probes that come meanwhile wait for the same one. Addresses once found are used while newer
/// ones are looked up, and for as long as none can be: an outage of DNS must not look like the death
/// of every backend.
#[derive(Debug)]
pub(crate) struct Resolver {
    address: Address,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: Option<Arc<[SocketAddr]>>,
    /// When to look up again.
    due: Option<Instant>,
    failed: Option<String>,
    lookup: Option<JoinHandle<io::Result<Vec<SocketAddr>>>>,
}

impl Resolver {
    pub fn new(address: Address) -> Self {
        Resolver { address, state: Mutex::default() }
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The backend's addresses, at least one, in the resolver's order.
    pub async fn resolve(&self) -> Result<Arc<[SocketAddr]>, Failure> {
        if let Some(addr) = self.address.socket_addr() {
            return Ok(Arc::from([addr]));
        }
        match timeout(PATIENCE, self.resolve_name()).await {
            Ok(result) => result,
            Err(_) => Err(self.unresolved("the resolver does not answer")),
        }
    }

    async fn resolve_name(&self) -> Result<Arc<[SocketAddr]>, Failure> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        if state.lookup.is_none() && state.due.is_none_or(|due| due <= now) {
            let (host, port) = (self.address.host.bare(), self.address.port);
            state.lookup = Some(tokio::spawn(async move {
                tokio::net::lookup_host((host, port)).await.map(Iterator::collect)
            }));
        }
        // Waits only when there is nothing to go on with; the handle stays for the next probe when
        // this one gives up.
        let wait = state.known.is_none();
        if let Some(lookup) = state.lookup.as_mut().filter(|lookup| wait || lookup.is_finished()) {
            let found = lookup.await;
            state.lookup = None;
            state.settle(found.unwrap_or_else(|join| Err(io::Error::other(join))));
        }
        match (&state.known, &state.failed) {
            (Some(known), _) => Ok(known.clone()),
            (None, Some(reason)) => Err(self.unresolved(reason)),
            (None, None) => Err(self.unresolved("no answer yet")),
        }
    }

    fn unresolved(&self, reason: &str) -> Failure {
        let detail = format!("cannot resolve {}: {reason}", self.address.host.bare());
        Failure::new(FailureKind::Refused, detail)
    }
}

impl State {
    fn settle(&mut self, found: io::Result<Vec<SocketAddr>>) {
        let now = Instant::now();
        match found {
            Ok(addrs) if !addrs.is_empty() => {
                self.known = Some(addrs.into());
                self.failed = None;
                self.due = Some(now + FRESH);
            }
            Ok(_) => self.fail("it has no address".to_owned(), now),
            Err(error) => self.fail(error.to_string(), now),
        }
    }

    fn fail(&mut self, reason: String, now: Instant) {
        self.failed = Some(reason);
        self.due = Some(now + NEGATIVE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver(address: &str) -> Resolver {
        Resolver::new(address.parse().expect("an address"))
    }

    #[tokio::test]
    async fn an_ip_address_needs_no_resolver() {
        let found = resolver("127.0.0.1:80").resolve().await.expect("an address");
        assert_eq!(&*found, ["127.0.0.1:80".parse().unwrap()]);
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_and_remembered() {
        let resolver = resolver("localhost:80");
        let first = resolver.resolve().await.expect("localhost has an address");
        assert!(first.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 80));
        let again = resolver.resolve().await.expect("still known");
        assert!(Arc::ptr_eq(&first, &again));
    }

    #[tokio::test]
    async fn what_cannot_be_resolved_is_refused() {
        let failure = resolver("no-such-host.invalid:80").resolve().await.expect_err("RFC 6761");
        assert_eq!(failure.kind, FailureKind::Refused);
        assert!(failure.detail.contains("cannot resolve no-such-host.invalid"), "{failure:?}");
    }

    #[test]
    fn an_outage_of_the_resolver_leaves_what_was_known() {
        let mut state = State::default();
        state.settle(Ok(vec!["127.0.0.1:80".parse().unwrap()]));
        state.settle(Err(io::Error::other("SERVFAIL")));
        assert_eq!(state.known.as_deref().map(<[SocketAddr]>::len), Some(1));
        assert!(state.due.is_some_and(|due| due <= Instant::now() + NEGATIVE));
    }
}
