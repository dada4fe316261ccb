//! Request bodies on their way to a backend. What has been sent is kept up to a limit, so that a request that was
//! refused can be sent again.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::time::Instant;

use crate::serve::Open;

/// A client's body, and what of it has been read.
pub(crate) struct Source {
    state: RefCell<State>,
    limit: usize,
    /// Its length, where the client said it.
    length: Option<u64>,
    /// When the client last sent some.
    last: Cell<Instant>,
    is_ended: Cell<bool>,
    /// The client's connection.
    open: Rc<Open>,
    /// Whether the client broke off, or sent what is no body.
    is_broken: Cell<bool>,
}

struct State {
    incoming: Incoming,
    kept: Vec<Bytes>,
    bytes: usize,
    /// Whether `kept` is all that was read.
    is_whole: bool,
}

impl Source {
    fn new(incoming: Incoming, limit: usize, open: Rc<Open>) -> Rc<Self> {
        let length = incoming.size_hint().exact();
        let state = State { incoming, kept: Vec::new(), bytes: 0, is_whole: true };
        Rc::new(Source {
            state: RefCell::new(state),
            limit,
            length,
            last: Cell::new(Instant::now()),
            is_ended: Cell::new(false),
            open,
            is_broken: Cell::new(false),
        })
    }

    /// Whether it can be sent once more from its beginning.
    pub(crate) fn can_repeat(&self) -> bool {
        self.state.borrow().is_whole
    }

    /// Whether the client has sent all of it.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.get()
    }

    /// Whether the client lets it wait.
    pub(crate) fn is_awaited(&self) -> bool {
        self.open.awaits_body.get()
    }

    /// Whether the client broke off, or sent what is no body.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    /// When the client last sent some of it.
    pub(crate) fn last(&self) -> Instant {
        self.last.get()
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut state = self.state.borrow_mut();
        let polled = Pin::new(&mut state.incoming).poll_frame(cx);
        self.open.awaits_body.set(polled.is_pending());
        let frame = ready!(polled);
        self.last.set(Instant::now());
        match &frame {
            None => self.is_ended.set(true),
            Some(Err(_)) => {
                state.is_whole = false;
                self.is_broken.set(true);
            }
            Some(Ok(frame)) => {
                match frame.data_ref() {
                    Some(data) if state.is_whole && state.bytes + data.len() <= self.limit => {
                        state.bytes += data.len();
                        state.kept.push(data.clone());
                    }
                    // Too much, or trailers.
                    _ => {
                        state.is_whole = false;
                        state.kept = Vec::new();
                    }
                }
                if state.incoming.is_end_stream() {
                    self.is_ended.set(true);
                }
            }
        }
        Poll::Ready(frame)
    }
}

/// A request's body as one backend gets it.
pub(crate) enum Outgoing {
    Empty,
    Stream {
        source: Rc<Source>,
        /// Of what was kept, the next to be sent.
        next: usize,
    },
}

impl Outgoing {
    /// The body of a request that has just come.
    pub(crate) fn new(incoming: Incoming, limit: usize, open: &Rc<Open>) -> Self {
        if incoming.is_end_stream() {
            return Outgoing::Empty;
        }
        Outgoing::Stream { source: Source::new(incoming, limit, open.clone()), next: 0 }
    }

    /// Where it comes from, if there is any.
    pub(crate) fn source(&self) -> Option<Rc<Source>> {
        match self {
            Outgoing::Empty => None,
            Outgoing::Stream { source, .. } => Some(source.clone()),
        }
    }

    /// The same from its beginning; only where it can be repeated.
    pub(crate) fn again(source: Option<&Rc<Source>>) -> Self {
        match source {
            None => Outgoing::Empty,
            Some(source) => Outgoing::Stream { source: source.clone(), next: 0 },
        }
    }
}

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Outgoing::Stream { source, next } = &mut *self else { return Poll::Ready(None) };
        let kept = source.state.borrow().kept.get(*next).cloned();
        if let Some(kept) = kept {
            *next += 1;
            return Poll::Ready(Some(Ok(Frame::data(kept))));
        }
        if source.is_ended.get() {
            return Poll::Ready(None);
        }
        let frame = ready!(source.poll(cx));
        *next = source.state.borrow().kept.len();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Outgoing::Empty => true,
            Outgoing::Stream { source, next } => {
                source.is_ended.get() && *next >= source.state.borrow().kept.len()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Outgoing::Empty => SizeHint::with_exact(0),
            // Asked for before anything is sent.
            Outgoing::Stream { source, .. } => {
                source.length.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}
