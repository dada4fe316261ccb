//! What every balancer that is steered must do, whatever it is: run for HAProxy here, and for the layer-4
//! balancer beside its daemon.
#![allow(dead_code, reason = "every test file uses another part")]

use plimsoll_model::{BackendId, Nanos, Plan, PlanEntry};
use plimsoll_sink::{ReportSource, SinkError, SinkErrorKind, WeightSink};

/// A balancer whose service has servers s1, s2 and s3 with weights 10, 20 and 30.
pub trait Bed {
    type Sink: WeightSink + ReportSource;
    /// A sink that steers these.
    fn sink(&self, servers: &[&str]) -> Self::Sink;
    /// The weight that a server has, not asked through a sink.
    fn weight(&self, server: &str) -> u32;
    /// Sets the weight of s2 behind the sink's back.
    fn meddle(&self, weight: u32);
}

/// A plan that gives these weights to identities 1, 2, 3, …
pub fn plan(weights: &[u32]) -> Plan {
    let entry = |(backend, &weight)| PlanEntry { backend, share: 0.0, weight };
    let entries = (1..).map(BackendId).zip(weights).map(entry).collect();
    Plan { epoch: 7, at: Nanos::ZERO, reason: "test".to_owned(), entries }
}

fn weights(applied: &[(BackendId, u32)]) -> Vec<u32> {
    applied.iter().map(|(_, weight)| *weight).collect()
}

pub async fn holds(bed: &impl Bed) {
    let all = ["s1", "s2", "s3"];
    let mut sink = bed.sink(&all);
    let report = sink.read().await.expect("read");
    assert_eq!(report.servers.iter().map(|s| s.weight).collect::<Vec<_>>(), [10, 20, 30]);
    assert_eq!(sink.read().await.expect("read").generation, report.generation);

    // A part of the servers may be planned, and only what differs is sent.
    let applied = sink.apply(&plan(&[1])).await.expect("applied");
    assert_eq!((applied.epoch, applied.commands), (7, 1));
    assert_eq!(weights(&applied.weights), [1, 20, 30]);
    let applied = sink.apply(&plan(&[256, 20, 0])).await.expect("applied");
    assert_eq!((applied.commands, weights(&applied.weights)), (2, vec![256, 20, 0]));
    assert_eq!((bed.weight("s1"), bed.weight("s3")), (256, 0));
    let again = sink.apply(&plan(&[256, 20, 0])).await.expect("applied");
    assert_eq!((again.commands, weights(&again.weights)), (0, vec![256, 20, 0]));

    bed.meddle(99);
    assert_eq!(sink.read().await.expect("read").servers[1].weight, 99);
    let applied = sink.apply(&plan(&[256, 20, 0])).await.expect("applied");
    assert_eq!((applied.commands, bed.weight("s2")), (1, 20));

    refuses(bed, &mut sink).await;
    let mut part = bed.sink(&all[..2]);
    assert_eq!(part.read().await.expect("read").servers.len(), 2);
    assert_eq!(part.apply(&plan(&[5, 20])).await.expect("applied").weights.len(), 2);
    assert_eq!([1, 2, 3].map(|n| bed.weight(&format!("s{n}"))), [5, 20, 0], "s3 keeps its own");
}

/// What is wrong is refused before anything is sent.
async fn refuses(bed: &impl Bed, sink: &mut (impl WeightSink + ReportSource)) {
    let mut twice = plan(&[5, 6]);
    twice.entries[1].backend = BackendId(1);
    for (bad, said) in [
        (plan(&[5, 257, 5]), "weight 257 of \"s2\" is out of"),
        (plan(&[5, 5, 5, 5]), "b4 is not among"),
        (plan(&[0, 0, 0]), "every server"),
        (twice, "\"s1\" has two weights"),
    ] {
        let error = sink.apply(&bad).await.expect_err("refused");
        assert_eq!(error.kind(), SinkErrorKind::InvalidPlan, "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert!(!error.retryable());
    }
    let mut stranger = bed.sink(&["s1", "sX"]);
    for error in [
        stranger.read().await.expect_err("unknown"),
        stranger.apply(&plan(&[1, 2])).await.expect_err("unknown"),
    ] {
        assert!(matches!(error, SinkError::UnknownServers { .. }), "{error}");
        assert!(error.to_string().contains("has no server sX; it has s1, s2, s3"), "{error}");
    }
    assert_eq!([1, 2, 3].map(|n| bed.weight(&format!("s{n}"))), [256, 20, 0], "nothing was sent");
}
