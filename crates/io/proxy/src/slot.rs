//! The handler of an entry, which a reload replaces: connections stay, their next request is the new one's; a request that
//! has begun ends as it began.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, Response};

use crate::body::Body;
use crate::config::{Limits, Timeouts};
use crate::serve::{Client, Handler};
use crate::tally::EntryTally;

/// Whoever handles an entry's requests on one thread now.
pub(crate) struct Slot<H> {
    now: RefCell<Rc<H>>,
    tally: Arc<EntryTally>,
}

impl<H> Slot<H> {
    pub(crate) fn new(first: Rc<H>, tally: Arc<EntryTally>) -> Rc<Self> {
        Rc::new(Slot { now: RefCell::new(first), tally })
    }

    pub(crate) fn now(&self) -> Rc<H> {
        self.now.borrow().clone()
    }

    pub(crate) fn set(&self, next: Rc<H>) {
        *self.now.borrow_mut() = next;
    }
}

impl<H: Handler> Handler for Slot<H> {
    async fn handle(self: Rc<Self>, client: Client, request: Request<Incoming>) -> Response<Body> {
        let now = self.now();
        now.handle(client, request).await
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
