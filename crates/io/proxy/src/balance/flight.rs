//! Guards: a request counts as in flight, and as live, for exactly as long as they are held.

use std::rc::Rc;
use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{Ending, Finish};

use super::Balancer;

/// A request on its way to a backend and back. Dropped without more, its client has given it up.
pub(crate) struct Flight {
    balancer: Rc<Balancer>,
    backend: usize,
    started: Nanos,
    ending: Ending,
    chip: Option<bool>,
    /// Whether there is room at the backend where it ends: not where that had not let it in.
    leaves_room: bool,
    /// No core was free there, as far as was known.
    is_to_wait: bool,
    /// It was not sent, for no socket was left here.
    has_no_socket: bool,
    /// How long its answer took, where it does not end with it.
    latency: Option<Duration>,
}

impl Flight {
    pub(super) fn new(
        balancer: Rc<Balancer>,
        backend: usize,
        is_to_wait: bool,
        started: Nanos,
    ) -> Self {
        Flight {
            balancer,
            backend,
            started,
            ending: Ending::Abandoned,
            chip: None,
            // One whose client leaves was most likely in a core, or on its way there.
            leaves_room: true,
            is_to_wait,
            has_no_socket: false,
            latency: None,
        }
    }

    /// Where it goes.
    pub(crate) fn backend(&self) -> usize {
        self.backend
    }

    /// Whether it goes there to wait, for its balancer knows of nothing better.
    pub(crate) fn is_to_wait(&self) -> bool {
        self.is_to_wait
    }

    /// The chip that the response brought.
    pub(crate) fn bring(&mut self, chip: Option<bool>) {
        self.chip = chip;
    }

    /// It has been answered now, though it goes on: what comes is no response time.
    pub(crate) fn answered(&mut self) {
        self.latency = Some(self.balancer.clock.now().since(self.started));
    }

    /// The backend had let it in, and answered: it ends so, now.
    pub(crate) fn end(mut self, ending: Ending) {
        self.ending = ending;
    }

    /// The backend has refused it, or did not answer: it ends so, now.
    pub(crate) fn end_unanswered(mut self, ending: Ending) {
        (self.ending, self.leaves_room) = (ending, false);
    }

    /// It was not sent, for no socket was left here: that says nothing of the backend.
    pub(crate) fn end_without_socket(mut self) {
        self.has_no_socket = true;
        self.end_unanswered(Ending::Abandoned);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let Flight { ending, chip, started, latency, .. } = *self;
        let finish = |now: Nanos| {
            let latency = latency.unwrap_or_else(|| now.since(started));
            Finish { chip, ..Finish::new(latency, ending) }
        };
        self.balancer.finished(self.backend, (self.leaves_room, self.has_no_socket), finish);
    }
}

/// A request of a client, from its arrival to the end of its response, however often it is sent.
pub(crate) struct Live {
    balancer: Rc<Balancer>,
    failures: u32,
    is_retried: bool,
}

impl Live {
    pub(super) fn new(balancer: Rc<Balancer>) -> Self {
        Live { balancer, failures: 0, is_retried: false }
    }

    /// Whether it may be sent again after it has failed once more.
    pub(crate) fn may_retry_failure(&mut self) -> bool {
        self.failures += 1;
        let is_granted = self.balancer.failed(self.failures);
        self.is_retried |= is_granted;
        is_granted
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.balancer.ended(self.is_retried);
    }
}
