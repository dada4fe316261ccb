//! Which connections are idle, and since when: where room runs out, the one that has been idle for longest
//! gives way.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tokio::sync::oneshot;

/// All connections that are idle; cloning it is cheap and shares them.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Mutex<Idle>>);

#[derive(Debug, Default)]
struct Idle {
    next: u64,
    /// Numbers grow with time: the first has been idle for longest.
    since: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Idle {
    fn put(&mut self, end: oneshot::Sender<()>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.since.insert(number, end);
        number
    }
}

impl Connections {
    /// A new connection, idle from now on, and what tells that it is to end.
    pub fn add(&self) -> (Connection, oneshot::Receiver<()>) {
        let (end, ended) = oneshot::channel();
        let number = self.lock().put(end);
        let place = Place { all: self.clone(), number: Mutex::new(Some(number)) };
        (Connection(Arc::new(place)), ended)
    }

    /// Has the one end that has been idle for longest, if any is.
    pub fn end_oldest(&self) {
        if let Some((_, end)) = self.lock().since.pop_first() {
            // It may have ended by itself just now.
            let _ = end.send(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection.
#[derive(Debug)]
pub struct Connection(Arc<Place>);

#[derive(Debug)]
struct Place {
    all: Connections,
    /// Its number among the idle ones; none while it is busy.
    number: Mutex<Option<u64>>,
}

impl Place {
    fn number(&self) -> MutexGuard<'_, Option<u64>> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let number = self.number().take();
        if let Some(number) = number {
            self.all.lock().since.remove(&number);
        }
    }
}

impl Connection {
    /// A request has come: the connection is not idle until what this gives is dropped.
    pub fn busy(&self) -> Busy {
        let number = self.0.number().take();
        let end = number.and_then(|number| self.0.all.lock().since.remove(&number));
        Busy { place: self.0.clone(), end }
    }
}

/// A request under way.
#[derive(Debug)]
pub struct Busy {
    place: Arc<Place>,
    /// None for a connection that was asked to end when the request came.
    end: Option<oneshot::Sender<()>>,
}

impl Busy {
    /// The same answer; the request is under way until all of it was taken.
    pub fn until_sent(self, body: Body) -> Body {
        Body::new(Sending { body, _busy: self })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let number = self.place.all.lock().put(end);
            *self.place.number() = Some(number);
        }
    }
}

struct Sending {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_gives_way_and_the_busy_never_does() {
        let all = Connections::default();
        let (first, mut first_ends) = all.add();
        let (_second, mut second_ends) = all.add();
        let (_third, mut third_ends) = all.add();
        let busy = first.busy();
        all.end_oldest();
        assert!(first_ends.try_recv().is_err() && second_ends.try_recv().is_ok());
        // Idle again, since later than the third.
        drop(busy);
        all.end_oldest();
        assert!(first_ends.try_recv().is_err() && third_ends.try_recv().is_ok());
        all.end_oldest();
        assert!(first_ends.try_recv().is_ok());
        all.end_oldest();
    }

    #[test]
    fn a_connection_that_has_ended_takes_no_place() {
        let all = Connections::default();
        drop(all.add());
        let (one, ends) = all.add();
        drop((one.busy(), one, ends));
        assert!(all.lock().since.is_empty());
    }
}
