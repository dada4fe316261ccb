//! Connections that go on with another protocol (WebSocket): after a backend's 101, bytes pass both ways until both
//! sides have closed. The request stays in flight, and the client's connection counts, for as long.

use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tracing::debug;

use crate::alarm::Alarm;
use crate::body::Body;
use crate::guard::Guard;
use crate::headers;
use crate::linger::{Blocked, Writes};
use crate::serve::Client;
use crate::upstream::Lease;

/// The client's side, if the request asks for another protocol.
pub(crate) fn asked(request: &mut Request<Incoming>, client: &Client) -> Option<OnUpgrade> {
    headers::upgrade(request.headers())?;
    client.open.expects_upgrade.set(true);
    Some(hyper::upgrade::on(request))
}

/// Passes on a backend's 101, and then everything.
pub(crate) fn tunnel(
    mut response: Response<Incoming>,
    of_client: OnUpgrade,
    mut guard: Guard,
    mut lease: Lease,
    client: &Client,
) -> Response<Body> {
    let of_backend = hyper::upgrade::on(&mut response);
    let (mut head, _) = response.into_parts();
    let protocol = head.headers.get(header::UPGRADE).cloned();
    headers::remove_ours(&mut head.headers);
    headers::remove_hop_by_hop(&mut head.headers);
    if let Some(protocol) = protocol {
        headers::ask_for_upgrade(&mut head.headers, protocol);
    }
    guard.answered();
    let (open, idle) = (client.open.clone(), client.idle);
    tokio::task::spawn_local(async move {
        let both = async { tokio::join!(of_client, of_backend, lease.end()) };
        if let (Ok(one), Ok(other), ()) = both.await {
            let (mut one, mut other) = (TokioIo::new(one), TokioIo::new(other));
            let copied = tokio::io::copy_bidirectional(&mut one, &mut other);
            if let Err(error) = while_read(&open.writes, idle, copied).await {
                debug!(%error, "a tunnel broke");
            }
        }
        guard.complete();
        drop(open);
    });
    Response::from_parts(head, Body::empty())
}

/// The tunnel, unless the client does not read what it is sent for so long.
async fn while_read<T>(
    writes: &Writes,
    idle: Duration,
    tunnel: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let (alarm, mut blocked) = (Alarm::default(), Blocked::default());
    let mut tunnel = pin!(tunnel);
    alarm
        .wake(|cx| match tunnel.as_mut().poll(cx) {
            Poll::Pending if blocked.is_for(idle, writes, &alarm) => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            polled => polled,
        })
        .await
}
