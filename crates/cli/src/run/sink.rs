//! The balancer that a service has, whichever kind it is.

use std::time::Instant;

use plimsoll_model::{BackendId, SinkLimits};
use plimsoll_sink::{
    HaproxyConfig, L4Sink, L4SinkConfig, SinkError, SteeredBackend, WeightSink, haproxy_limits,
};

use super::balancers::Balancers;
use super::haproxy_task::Subscriber;
use super::l4_task;
use super::sink_task::SinkHandle;
use super::translate::SinkSetup;

/// Where a balancer is.
#[derive(Clone, Debug)]
pub enum Place {
    /// An HAProxy.
    Haproxy(HaproxyConfig),
    /// Plimsoll's own layer-4 balancer.
    L4(L4SinkConfig),
}

/// What a balancer bears that has these servers.
///
/// # Errors
/// For names that the balancer could not have, or that come twice.
pub fn limits(
    place: &Place,
    servers: Vec<(BackendId, String)>,
) -> Result<SinkLimits, Box<SinkError>> {
    Ok(match place {
        Place::Haproxy(config) => {
            SteeredBackend::new(&config.backend, servers)?;
            haproxy_limits()
        }
        Place::L4(config) => L4Sink::new(config.clone(), servers)?.limits(),
    })
}

/// Begins to read the balancer of a service, and to carry out its plans. `observe` says that none will
/// come, so that nothing stands in their way. Readings count from `origin`.
///
/// # Errors
/// As [`limits`].
pub fn steer(
    balancers: &Balancers,
    service: &str,
    setup: &SinkSetup,
    observe: bool,
    origin: Instant,
) -> Result<SinkHandle, Box<SinkError>> {
    let servers = setup.servers.clone();
    Ok(match &setup.place {
        Place::Haproxy(config) => {
            let backend = SteeredBackend::new(&config.backend, servers)?;
            let (handle, end) = SinkHandle::new();
            let HaproxyConfig { socket, timeout, .. } = config.clone();
            let names = (service.to_owned(), socket);
            let subscriber = Subscriber::new(names, backend, timeout, setup.poll, observe, end);
            balancers.subscribe(subscriber, origin);
            handle
        }
        Place::L4(config) => {
            let sink = L4Sink::new(config.clone(), servers)?.with_origin(origin);
            l4_task::start(sink, setup.poll)
        }
    })
}
