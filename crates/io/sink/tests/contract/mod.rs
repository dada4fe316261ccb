//! What every balancer that is steered must do, whatever it is: run against a real HAProxy, a real NGINX, and beside
//! the daemon of the layer-4 balancer.
#![allow(dead_code, reason = "every test file uses another part")]

use std::time::Duration;

use plimsoll_model::{BackendId, Nanos, Plan, PlanEntry, PlanKind, ServerStatus};
use plimsoll_sink::{ReportSource, SinkError, SinkErrorKind, WeightSink};

/// A balancer whose service has servers s1, s2 and s3 with weights 10, 20 and 30.
pub trait Bed {
    type Sink: WeightSink + ReportSource;
    /// Whether it holds a plan through its own restart: the same generation then; else the configured weights are
    /// back, in a new one.
    const KEEPS_WEIGHTS: bool;
    /// A sink that steers these.
    fn sink(&self, servers: &[&str]) -> Self::Sink;
    /// What a server is called in the balancer, and so in its sink's messages.
    fn named(&self, server: &str) -> String {
        server.to_owned()
    }
    /// The weight that a server has, not asked through a sink.
    fn weight(&self, server: &str) -> u32;
    /// Sets the weight of s2 behind the sink's back.
    fn meddle(&self, weight: u32);
    /// Ends the balancer.
    fn stop(&mut self);
    /// Starts it again, with the same configuration.
    fn start_again(&mut self);
    /// Takes a server out of it while it runs, as its administrator would.
    fn take_away(&mut self, server: &str);
}

/// A plan that gives these weights to identities 1, 2, 3, …
pub fn plan(weights: &[u32]) -> Plan {
    let entry = |(backend, &weight)| PlanEntry { backend, share: 0.0, weight };
    let entries = (1..).map(BackendId).zip(weights).map(entry).collect();
    Plan { epoch: 7, at: Nanos::ZERO, kind: PlanKind::Packed, reason: "test".to_owned(), entries }
}

fn weights(applied: &[(BackendId, u32)]) -> Vec<u32> {
    applied.iter().map(|(_, weight)| *weight).collect()
}

pub const ALL: [&str; 3] = ["s1", "s2", "s3"];

fn held(bed: &impl Bed) -> [u32; 3] {
    ALL.map(|name| bed.weight(name))
}

pub async fn holds(bed: &mut impl Bed) {
    let mut sink = bed.sink(&ALL);
    reads_back(bed, &mut sink).await;
    keeps_its_interval(bed, &mut sink).await;
    sees_foreign_changes(bed, &mut sink).await;
    refuses_before_it_sends(bed, &mut sink).await;
    steers_a_part(bed).await;
    survives_its_end(bed).await;
}

/// A server that leaves gets no more, and the others are steered on; one that never was there is an error.
pub async fn goes_on_without_a_server(bed: &mut impl Bed) {
    let mut sink = bed.sink(&ALL);
    sink.read().await.expect("read");
    bed.take_away("s2");
    let report = loop {
        // A reload may take its time.
        let report = sink.read().await.expect("the others are there");
        if report.servers[1].status == ServerStatus::Maintenance {
            break report;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let gone: Vec<bool> =
        report.servers.iter().map(|s| s.status == ServerStatus::Maintenance).collect();
    assert_eq!(gone, [false, true, false]);
    tokio::time::sleep(sink.limits().min_interval).await;
    let applied = sink.apply(&plan(&[4, 5, 6])).await.expect("the others are steered");
    assert_eq!(weights(&applied.weights), [4, 6]);
    assert_eq!([bed.weight("s1"), bed.weight("s3")], [4, 6]);
    let error = bed.sink(&ALL).read().await.expect_err("it was never there for this one");
    assert_eq!(error.kind(), SinkErrorKind::UnknownServers, "{error}");
}

/// The whole range can be programmed, only what differs is sent, and what is said to be held is held.
async fn reads_back(bed: &impl Bed, sink: &mut (impl WeightSink + ReportSource)) {
    let limits = sink.limits();
    let (least, most) = (*limits.range.start(), *limits.range.end());
    assert!(least == 0 && most >= 100, "shares of a percent must be possible: {limits:?}");
    let report = sink.read().await.expect("read");
    assert_eq!(report.servers.iter().map(|s| s.weight).collect::<Vec<_>>(), [10, 20, 30]);
    assert_eq!(sink.read().await.expect("read").generation, report.generation);
    let applied = sink.apply(&plan(&[1])).await.expect("a part of the servers may be planned");
    assert_eq!((applied.epoch, applied.commands), (7, 1));
    assert_eq!(weights(&applied.weights), [1, 20, 30]);
    let applied = sink.apply(&plan(&[most, 20, 0])).await.expect("applied");
    assert_eq!((applied.commands, weights(&applied.weights)), (2, vec![most, 20, 0]));
    assert_eq!(held(bed), [most, 20, 0]);
    let again = sink.apply(&plan(&[most, 20, 0])).await.expect("applied");
    assert_eq!((again.commands, weights(&again.weights)), (0, vec![most, 20, 0]));
    let read = sink.read().await.expect("read");
    assert_eq!(read.servers.iter().map(|s| s.weight).collect::<Vec<_>>(), [most, 20, 0]);
    assert_eq!(read.generation, report.generation, "weights are no new life");
}

/// At its own least interval every plan is carried out. One that comes sooner is, too, or is refused whole.
async fn keeps_its_interval(bed: &impl Bed, sink: &mut impl WeightSink) {
    let limits = sink.limits();
    assert!(!limits.min_interval.is_zero(), "a caller that runs wild is held back");
    let most = *limits.range.end();
    for weight in 1..=3 {
        tokio::time::sleep(limits.min_interval).await;
        let in_time = [weight, 20, 0];
        sink.apply(&plan(&in_time)).await.expect("as often as it says");
        assert_eq!(held(bed), in_time);
        let sooner = [most, 20, 0];
        let expected = match sink.apply(&plan(&sooner)).await {
            Ok(_) => sooner,
            Err(error) => {
                assert!(error.to_string().contains("the next may be in"), "{error}");
                in_time
            }
        };
        assert_eq!(held(bed), expected);
    }
    tokio::time::sleep(limits.min_interval).await;
    sink.apply(&plan(&[most, 20, 0])).await.expect("as often as it says");
}

async fn sees_foreign_changes(bed: &impl Bed, sink: &mut (impl WeightSink + ReportSource)) {
    let most = *sink.limits().range.end();
    bed.meddle(99);
    assert_eq!(sink.read().await.expect("read").servers[1].weight, 99);
    let applied = sink.apply(&plan(&[most, 20, 0])).await.expect("applied");
    assert_eq!((applied.commands, bed.weight("s2")), (1, 20));
}

/// What is wrong is refused whole, before anything is sent.
async fn refuses_before_it_sends(bed: &impl Bed, sink: &mut (impl WeightSink + ReportSource)) {
    let most = *sink.limits().range.end();
    let mut twice = plan(&[5, 6]);
    twice.entries[1].backend = BackendId(1);
    let beyond = most + 1;
    for (bad, said) in [
        (plan(&[5, beyond, 5]), format!("weight {beyond} of {:?} is out of", bed.named("s2"))),
        (plan(&[5, 5, 5, 5]), "b4 is not among".to_owned()),
        (plan(&[0, 0, 0]), "every server".to_owned()),
        (twice, format!("{:?} has two weights", bed.named("s1"))),
    ] {
        let error = sink.apply(&bad).await.expect_err("refused");
        assert_eq!(error.kind(), SinkErrorKind::InvalidPlan, "{error}");
        assert!(error.to_string().contains(&said), "{error}");
        assert!(!error.retryable());
    }
    let mut stranger = bed.sink(&["s1", "sX"]);
    for error in [
        stranger.read().await.expect_err("unknown"),
        stranger.apply(&plan(&[1, 2])).await.expect_err("unknown"),
    ] {
        assert!(matches!(error, SinkError::UnknownServers { .. }), "{error}");
        let all = ALL.map(|name| bed.named(name)).join(", ");
        assert!(error.to_string().contains(&format!("has no server sX; it has {all}")), "{error}");
        assert!(!error.retryable());
    }
    for bad in ["", "a b", "a\nb", "s1; quit"] {
        let servers = vec![(BackendId(1), bad.to_owned())];
        // What a balancer's own configuration would take is not bad for it.
        if let Err(error) = sink.set_servers(servers) {
            assert_eq!(error.kind(), SinkErrorKind::InvalidName, "{error}");
        } else {
            assert_eq!(
                sink.read().await.expect_err("nobody has it").kind(),
                SinkErrorKind::UnknownServers
            );
        }
    }
    let again = vec![(BackendId(1), bed.named("s1")), (BackendId(2), bed.named("s1"))];
    assert_eq!(sink.set_servers(again).expect_err("twice").kind(), SinkErrorKind::InvalidName);
    let named = ALL.iter().map(|name| bed.named(name));
    sink.set_servers((1..).map(BackendId).zip(named).collect()).expect("good names");
    assert_eq!(held(bed), [most, 20, 0], "nothing was sent");
}

async fn steers_a_part(bed: &impl Bed) {
    let mut part = bed.sink(&ALL[..2]);
    assert_eq!(part.read().await.expect("read").servers.len(), 2);
    assert_eq!(part.apply(&plan(&[5, 20])).await.expect("applied").weights.len(), 2);
    assert_eq!(held(bed), [5, 20, 0], "s3 keeps its own");
}

/// While it is gone every call says so, and that waiting may help; after its restart the same sink goes on, and tells
/// a life that has forgotten the weights from one that has not.
async fn survives_its_end<B: Bed>(bed: &mut B) {
    let mut sink = bed.sink(&ALL);
    sink.apply(&plan(&[11, 22, 33])).await.expect("applied");
    let before = sink.read().await.expect("read");
    bed.stop();
    for _ in 0..2 {
        let error = sink.read().await.expect_err("nobody there");
        assert_eq!(
            (error.kind(), error.retryable()),
            (SinkErrorKind::Unreachable, true),
            "{error}"
        );
        let error = sink.apply(&plan(&[1, 2, 3])).await.expect_err("nobody there");
        assert!(error.retryable(), "{error}");
    }
    bed.start_again();
    let after = sink.read().await.expect("read");
    let weights: Vec<u32> = after.servers.iter().map(|s| s.weight).collect();
    if B::KEEPS_WEIGHTS {
        assert_eq!((weights, after.generation), (vec![11, 22, 33], before.generation));
    } else {
        assert_eq!(weights, [10, 20, 30], "those of its configuration");
        assert_ne!(after.generation, before.generation);
    }
    let applied = sink.apply(&plan(&[11, 22, 33])).await.expect("applied");
    assert_eq!(held(bed), [11, 22, 33]);
    assert_eq!(applied.weights.len(), 3);
}
