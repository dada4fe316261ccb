//! The handler of an entry, which a reload replaces: connections stay, their next request is the new one's; a request that
//! has begun ends as it began. What is done beside handling is done here: the access log.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, Response};

use crate::access::Access;
use crate::body::Body;
use crate::config::{Limits, Timeouts};
use crate::linger::Lingering;
use crate::quick::{Quick, Scratch};
use crate::serve::{Client, Handler, Open};
use crate::tally::EntryTally;
use crate::wire::Wire;

/// Whoever handles an entry's requests on one thread now.
pub(crate) struct Slot<H> {
    now: RefCell<Rc<H>>,
    tally: Arc<EntryTally>,
    scratch: Scratch,
    access: RefCell<Option<Access>>,
    /// What began a request without hyper that hyper is to go on with.
    begun: RefCell<Vec<(Weak<Open>, Rc<H>)>>,
}

impl<H: Handler> Slot<H> {
    pub(crate) fn new(first: Rc<H>, tally: Arc<EntryTally>) -> Rc<Self> {
        let (now, scratch) = (RefCell::new(first), Scratch::default());
        Rc::new(Slot { now, tally, scratch, access: RefCell::default(), begun: RefCell::default() })
    }

    pub(crate) fn now(&self) -> Rc<H> {
        self.now.borrow().clone()
    }

    pub(crate) fn set(&self, next: Rc<H>) {
        *self.now.borrow_mut() = next;
    }

    /// Logs requests from now on, or none.
    pub(crate) fn log(&self, access: Option<Access>) {
        *self.access.borrow_mut() = access;
    }

    /// What is to handle this client's request: what has begun it, or what does now.
    fn of(&self, client: &Client) -> Rc<H> {
        if client.open.resume.borrow().is_none() {
            return self.now();
        }
        let mut begun = self.begun.borrow_mut();
        let found = begun.iter().position(|(open, _)| open.as_ptr() == Rc::as_ptr(&client.open));
        found.map_or_else(|| self.now(), |index| begun.swap_remove(index).1)
    }
}

impl<H: Handler> Handler for Slot<H> {
    async fn handle(self: Rc<Self>, client: Client, request: Request<Incoming>) -> Response<Body> {
        let handler = self.of(&client);
        let open = client.open.clone();
        let is_unlogged = client.open.is_unlogged.take();
        if let Some(access) = self.access.borrow().as_ref().filter(|_| !is_unlogged) {
            access.begin(&client, &request);
        }
        let response = handler.handle(client, request).await;
        open.record.answered(response.status());
        response
    }

    fn scratch(&self) -> Option<&Scratch> {
        self.now.borrow().scratch().is_some().then_some(&self.scratch)
    }

    async fn quick(&self, client: &Client, stream: &mut Lingering<Wire>, request: &[u8]) -> Quick {
        // What is logged is read by hyper.
        let is_next = self.access.borrow().as_ref().is_some_and(Access::is_next);
        client.open.is_unlogged.set(!is_next);
        if is_next {
            return Quick::Else;
        }
        let now = self.now();
        if now.scratch().is_none() {
            // A reload has made all of them hyper's since this one was awaited.
            return Quick::Else;
        }
        let passed = now.quick(client, stream, request).await;
        if passed == Quick::Else && client.open.resume.borrow().is_some() {
            let mut begun = self.begun.borrow_mut();
            begun.retain(|(open, _)| open.strong_count() > 0);
            begun.push((Rc::downgrade(&client.open), now));
        }
        passed
    }

    fn expects_announcement(&self, client: &Client) -> bool {
        self.now.borrow().expects_announcement(client)
    }

    fn captures(&self) -> bool {
        self.now.borrow().captures()
    }

    fn limits(&self) -> Limits {
        self.now.borrow().limits()
    }

    fn timeouts(&self) -> Timeouts {
        self.now.borrow().timeouts()
    }

    fn tally(&self) -> &EntryTally {
        &self.tally
    }
}
