use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::{BackendId, FailureKind};
use plimsoll_probe::{LivenessCheck, LivenessEvent, LivenessSpec, Probe, ProbePlan, Target};
use tokio::time::timeout;

use crate::scheduler::{Rig, target};
use crate::server::{OK, PATIENCE, Server, spec, until, unused_address};

const B: BackendId = BackendId(3);

fn http() -> LivenessCheck {
    LivenessCheck::Http(Arc::new(Probe::new(spec()).expect("a valid spec")))
}

const EVERY: Duration = Duration::from_millis(20);

/// Three checks a round.
fn watch(check: LivenessCheck, timeout: Duration) -> LivenessSpec {
    LivenessSpec::new(check, 3, timeout).expect("a valid watch")
}

/// A rig that watches one backend, every 20 ms.
fn watching(addr: std::net::SocketAddr, liveness: LivenessSpec) -> Rig {
    let mut rig = Rig::new();
    let target = Target { liveness: Some(liveness), ..target(addr, spec()) };
    rig.scheduler.set(B, target).unwrap();
    rig.scheduler.set_watch(B, Some(EVERY), false);
    rig
}

async fn next(rig: &mut Rig) -> LivenessEvent {
    let event = timeout(PATIENCE, rig.liveness.recv()).await;
    event.expect("a round in time").expect("the scheduler lives")
}

#[tokio::test]
async fn a_live_backend_succeeds_in_every_round_on_connections_of_their_own() {
    let server = Server::answering(OK).await;
    let mut rig = watching(server.addr, watch(http(), PATIENCE));
    let mut before = None;
    for _ in 0..10 {
        let event = next(&mut rig).await;
        assert_eq!((event.backend, event.successes, event.failures), (B, 3, 0));
        assert_eq!((event.first_failure, &*event.detail), (None, ""));
        assert!(event.started <= event.at && before < Some(event.started));
        before = Some(event.started);
    }
    let watching = server.accepted();
    assert!(watching >= 3, "checks of one round are sent at once");
    rig.scheduler.set_plan(B, ProbePlan::new(Duration::from_millis(10), 1, 0.0).unwrap());
    rig.next_probe().await;
    assert!(server.accepted() > watching, "measuring has a connection of its own");
}

#[tokio::test]
async fn a_backend_that_dies_is_refused_in_the_next_rounds() {
    for check in [http(), LivenessCheck::Connect] {
        let server = Server::answering(OK).await;
        let mut rig = watching(server.addr, watch(check, PATIENCE));
        assert_eq!(next(&mut rig).await.successes, 3);
        drop(server);
        let mut event = next(&mut rig).await;
        while event.successes > 0 {
            event = next(&mut rig).await;
        }
        assert_eq!(event.failures, 3);
        let kinds = [Some(FailureKind::Refused), Some(FailureKind::Reset)];
        assert!(kinds.contains(&event.first_failure), "{event:?}");
        while event.first_failure != Some(FailureKind::Refused) {
            event = next(&mut rig).await;
        }
        assert!(event.detail.contains("cannot connect"), "{}", event.detail);
    }
}

#[tokio::test]
async fn rounds_begin_while_others_hang_and_end_by_their_own_timeout() {
    let hanging = Server::hanging_after("").await;
    let mut rig = watching(hanging.addr, watch(http(), Duration::from_millis(400)));
    until("rounds overlap", || hanging.open() >= 9).await;
    let first = next(&mut rig).await;
    assert_eq!((first.successes, first.failures), (0, 3));
    assert_eq!(first.first_failure, Some(FailureKind::Timeout));
    assert!(first.at.since(first.started) >= Duration::from_millis(400));
    let second = next(&mut rig).await;
    assert!(second.started < first.at, "the second round did not wait for the first");
    // 400 / 20 rounds and one more, of three checks each.
    assert!(hanging.open() <= 63, "{} connections", hanging.open());
    assert!(rig.scheduler.remove(B));
    until("the rounds under way are dropped", || hanging.open() == 0).await;
}

#[tokio::test]
async fn a_backend_that_comes_back_is_seen() {
    let addr = unused_address().await;
    let mut rig = watching(addr, watch(LivenessCheck::Connect, PATIENCE));
    let event = next(&mut rig).await;
    assert_eq!((event.successes, event.first_failure), (0, Some(FailureKind::Refused)));
    let listener = tokio::net::TcpListener::bind(addr).await.expect("the port is still free");
    let mut event = next(&mut rig).await;
    while event.successes < 3 {
        event = next(&mut rig).await;
    }
    drop(listener);
}

#[tokio::test]
async fn the_watch_does_not_wait_for_measuring_probes() {
    let mut rig = Rig::new();
    let hanging = Server::hanging_after("").await;
    let liveness = Some(watch(LivenessCheck::Connect, PATIENCE));
    rig.scheduler.set(B, Target { liveness, ..target(hanging.addr, spec()) }).unwrap();
    rig.scheduler.set_watch(B, Some(EVERY), false);
    rig.scheduler.set_plan(B, ProbePlan::new(Duration::from_millis(1), 5, 0.0).unwrap());
    until("measuring is stuck", || rig.scheduler.skipped() > 0).await;
    for _ in 0..5 {
        assert_eq!(next(&mut rig).await.successes, 3);
    }
}

#[tokio::test]
async fn checks_come_as_they_are_asked_for() {
    let server = Server::answering(OK).await;
    let mut rig = Rig::new();
    let liveness = Some(watch(LivenessCheck::Connect, PATIENCE));
    let address = server.addr.into();
    let target = Target { address, probe: None, liveness, max_in_flight: 1 };
    rig.scheduler.set(B, target).unwrap();
    let silence = Duration::from_millis(300);
    assert!(timeout(silence, rig.liveness.recv()).await.is_err(), "nobody has asked");
    let hour = Some(Duration::from_secs(3_600));
    assert!(rig.scheduler.set_watch(B, hour, true));
    assert_eq!(next(&mut rig).await.successes, 3);
    assert!(timeout(silence, rig.liveness.recv()).await.is_err(), "the next is an hour away");
    rig.scheduler.set_watch(B, Some(EVERY), false);
    for _ in 0..5 {
        next(&mut rig).await;
    }
    rig.scheduler.set_watch(B, None, false);
    while timeout(silence, rig.liveness.recv()).await.is_ok() {}
    let accepted = server.accepted();
    tokio::time::sleep(silence).await;
    assert_eq!(server.accepted(), accepted, "no more are wanted");
    assert!(!rig.scheduler.set_watch(BackendId(77), hour, true), "there is no such backend");
}

#[tokio::test]
async fn a_check_ends_in_order_and_never_in_a_reset() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for greeting in ["", "220 a server that speaks first\r\n"] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let rig = watching(listener.local_addr().unwrap(), watch(LivenessCheck::Connect, PATIENCE));
        for _ in 0..6 {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(greeting.as_bytes()).await.unwrap();
            let mut read = Vec::new();
            let end = timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("an end");
            assert_eq!(end.expect("an end, and no reset"), 0);
        }
        drop(rig);
    }
}
