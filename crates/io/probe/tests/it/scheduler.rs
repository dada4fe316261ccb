use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_model::{BackendId, FailureKind, Outcome};
use plimsoll_probe::{
    Clock, LivenessEvent, Probe, ProbeEvent, ProbePlan, ProbeSpec, Scheduler, Target,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::server::{OK, PATIENCE, Server, spec, until, unused_address};

const B: BackendId = BackendId(7);

/// A scheduler and its receivers.
pub struct Rig {
    pub scheduler: Scheduler,
    pub probes: mpsc::Receiver<ProbeEvent>,
    pub liveness: mpsc::Receiver<LivenessEvent>,
}

impl Rig {
    pub fn new() -> Self {
        let (probes_in, probes) = mpsc::channel(16);
        let (liveness_in, liveness) = mpsc::channel(16);
        let clock = Clock::new(Instant::now());
        let scheduler = Scheduler::new(Handle::current(), clock, 1, probes_in, liveness_in);
        Rig { scheduler, probes, liveness }
    }

    pub async fn next_probe(&mut self) -> ProbeEvent {
        let event = timeout(PATIENCE, self.probes.recv()).await;
        event.expect("a probe in time").expect("the scheduler lives")
    }

    /// Demands that events stop coming.
    async fn falls_silent(&mut self) {
        let silence = Duration::from_millis(300);
        let end = Instant::now() + PATIENCE;
        while timeout(silence, self.probes.recv()).await.is_ok() {
            assert!(Instant::now() < end, "events keep coming");
        }
    }
}

pub fn target(addr: SocketAddr, spec: ProbeSpec) -> Target {
    let probe = Some(Arc::new(Probe::new(spec).expect("a valid spec")));
    let max_in_flight = Target::DEFAULT_MAX_IN_FLIGHT;
    Target { address: addr.into(), probe, liveness: None, max_in_flight }
}

fn fast() -> ProbePlan {
    ProbePlan::new(Duration::from_millis(100), 10, 0.5).expect("a valid plan")
}

#[tokio::test]
async fn a_backend_is_probed_as_planned_and_no_more() {
    let server = Server::answering(OK).await;
    let mut rig = Rig::new();
    rig.scheduler.set(B, target(server.addr, spec())).unwrap();
    rig.falls_silent().await;
    assert_eq!(server.accepted(), 0, "nothing is sent without a plan");
    assert!(rig.scheduler.set_plan(B, fast()));
    let mut before = plimsoll_model::Nanos::ZERO;
    for _ in 0..20 {
        let event = rig.next_probe().await;
        assert_eq!((event.backend, event.result.outcome), (B, Outcome::Success));
        assert_eq!(event.result.status, Some(200));
        assert!(event.at >= before, "events are in order of their ends");
        before = event.at;
    }
    assert!(rig.scheduler.set_plan(B, ProbePlan::PAUSED));
    rig.falls_silent().await;
    assert!(rig.scheduler.set_plan(B, fast()));
    rig.next_probe().await;
    assert!(!rig.scheduler.set_plan(BackendId(8), fast()));
    assert_eq!(rig.scheduler.local_faults(), 0);
}

#[tokio::test]
async fn a_backend_removed_is_left_alone() {
    let server = Server::answering(OK).await;
    let hanging = Server::hanging_after("").await;
    let mut rig = Rig::new();
    for (backend, addr) in [(B, server.addr), (BackendId(8), hanging.addr)] {
        rig.scheduler.set(backend, target(addr, spec())).unwrap();
        rig.scheduler.set_plan(backend, fast());
    }
    rig.next_probe().await;
    until("a probe hangs", || hanging.open() > 0).await;
    assert_eq!(rig.scheduler.backends().collect::<Vec<_>>(), [B, BackendId(8)]);
    assert!(rig.scheduler.remove(B) && rig.scheduler.remove(BackendId(8)));
    assert!(!rig.scheduler.remove(B));
    until("all connections are closed", || server.open() + hanging.open() == 0).await;
    rig.falls_silent().await;
}

#[tokio::test]
async fn a_backend_changed_keeps_its_plan() {
    let (first, second) = (Server::answering(OK).await, Server::answering(OK).await);
    let mut rig = Rig::new();
    // One at a time: those that overlap have connections of their own.
    let at_first = Target { max_in_flight: 1, ..target(first.addr, spec()) };
    rig.scheduler.set(B, at_first.clone()).unwrap();
    rig.scheduler.set_plan(B, fast());
    rig.next_probe().await;
    rig.scheduler.set(B, at_first.clone()).unwrap();
    rig.next_probe().await;
    assert_eq!(first.accepted(), 1, "the same target again changes nothing");
    rig.scheduler.set(B, Target { address: second.addr.into(), ..at_first.clone() }).unwrap();
    until("the old connection is closed", || first.open() == 0).await;
    until("the new address is probed", || second.accepted() > 0).await;
}

#[tokio::test]
async fn no_more_than_allowed_are_under_way() {
    let hanging = Server::hanging_after("").await;
    let mut rig = Rig::new();
    let limited = Target { max_in_flight: 3, ..target(hanging.addr, spec()) };
    rig.scheduler.set(B, limited).unwrap();
    rig.scheduler.set_plan(B, fast());
    until("probes are skipped", || rig.scheduler.skipped() >= 5).await;
    assert_eq!((hanging.accepted(), hanging.open()), (3, 3));
}

#[tokio::test]
async fn a_receiver_that_lags_holds_probes_back() {
    let server = Server::answering(OK).await;
    let mut rig = Rig::new();
    rig.scheduler.set(B, target(server.addr, spec())).unwrap();
    rig.scheduler.set_plan(B, fast());
    until("probes are skipped", || rig.scheduler.skipped() > 0).await;
    for _ in 0..40 {
        rig.next_probe().await;
    }
}

#[tokio::test]
async fn dropping_the_receiver_of_probes_ends_the_work() {
    let server = Server::answering(OK).await;
    let mut rig = Rig::new();
    rig.scheduler.set(B, target(server.addr, spec())).unwrap();
    rig.scheduler.set_plan(B, fast());
    rig.next_probe().await;
    rig.probes.close();
    drop(rig.probes);
    until("the connections are closed", || server.open() == 0).await;
}

#[tokio::test]
async fn failures_are_events_too() {
    let mut rig = Rig::new();
    rig.scheduler.set(B, target(unused_address().await, spec())).unwrap();
    rig.scheduler.set_plan(B, fast());
    let event = rig.next_probe().await;
    assert_eq!(event.result.outcome, Outcome::Failure(FailureKind::Refused));
}
