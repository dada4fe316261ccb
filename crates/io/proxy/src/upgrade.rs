//! Connections that go on with another protocol (WebSocket): after a backend's 101, bytes pass both ways until both
//! sides have closed. The request stays in flight, and the client's connection counts, for as long.

use hyper::body::Incoming;
use hyper::header;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tracing::debug;

use crate::body::Body;
use crate::guard::Guard;
use crate::headers;
use crate::serve::Client;
use crate::upstream::Lease;

/// The client's side, if the request asks for another protocol.
pub(crate) fn asked(request: &mut Request<Incoming>) -> Option<OnUpgrade> {
    headers::upgrade(request.headers()).map(|_| hyper::upgrade::on(request))
}

/// Passes on a backend's 101, and then everything.
pub(crate) fn tunnel(
    mut response: Response<Incoming>,
    of_client: OnUpgrade,
    mut guard: Guard,
    lease: Lease,
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
    let held = (lease, client.open.clone());
    tokio::task::spawn_local(async move {
        if let Ok((one, other)) = tokio::try_join!(of_client, of_backend) {
            let (mut one, mut other) = (TokioIo::new(one), TokioIo::new(other));
            if let Err(error) = tokio::io::copy_bidirectional(&mut one, &mut other).await {
                debug!(%error, "a tunnel broke");
            }
        }
        guard.complete();
        drop(held);
    });
    Response::from_parts(head, Body::empty())
}
