//! Batches that fail halfway, and a runtime API that hangs, lies and hangs up.

mod common;

use std::time::Duration;

use common::fake::{Fake, Fault};
use common::plan;
use plimsoll_sink::{HaproxySink, ReportSource, SinkError, SinkErrorKind, WeightSink};

const SERVERS: [&str; 4] = ["s1", "s2", "s3", "s4"];

fn shop() -> (Fake, HaproxySink) {
    let fake = Fake::start(&[("s1", 10), ("s2", 20), ("s3", 30), ("s4", 40)]);
    let sink = fake.sink(&SERVERS);
    (fake, sink)
}

fn faults(fake: &Fake, faults: &[Fault]) {
    fake.state.lock().unwrap().faults = faults.iter().cloned().collect();
}

fn pairs(expected: &[(&str, u32)]) -> Vec<(String, u32)> {
    expected.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect()
}

#[tokio::test]
async fn what_grows_is_sent_before_what_shrinks() {
    let (fake, mut sink) = shop();
    sink.apply(&plan(&[0, 21, 0, 41])).await.unwrap();
    let received = fake.state.lock().unwrap().received.clone();
    assert_eq!(received, ["s2 weight 21", "s4 weight 41", "s1 weight 0", "s3 weight 0"]);
}

#[tokio::test]
async fn a_batch_refused_halfway_is_undone() {
    let (fake, mut sink) = shop();
    faults(&fake, &[Fault::Obey, Fault::Refuse("No such server.")]);
    let error = sink.apply(&plan(&[11, 22, 33, 40])).await.unwrap_err();
    let SinkError::Rejected { server, weight, answer, mut restored, unrestored, .. } = error else {
        panic!("{error}")
    };
    restored.sort();
    assert_eq!((server.as_str(), weight, answer.as_str()), ("s2", 22, "No such server."));
    assert_eq!(restored, pairs(&[("s1", 10), ("s3", 30)]));
    assert!(unrestored.is_empty());
    assert_eq!(fake.weights(), [10, 20, 30, 40]);
}

#[tokio::test]
async fn what_cannot_be_put_back_is_named() {
    let (fake, mut sink) = shop();
    let refuse = Fault::Refuse("Nope.");
    // The undo lowers s1 and s3 again: s1 is refused.
    faults(&fake, &[Fault::Obey, refuse.clone(), Fault::Obey, refuse]);
    let error = sink.apply(&plan(&[11, 22, 33, 40])).await.unwrap_err();
    let text = error.to_string();
    let SinkError::Rejected { restored, unrestored, .. } = error else { panic!("{error}") };
    assert_eq!(restored, pairs(&[("s3", 30)]));
    assert_eq!(unrestored, pairs(&[("s1", 10)]));
    assert!(text.contains("could not be put back: s1=10"), "{text}");
    assert_eq!(fake.weights(), [11, 20, 30, 40]);
}

#[tokio::test]
async fn a_connection_cut_in_mid_batch_is_tried_once_more() {
    let (fake, mut sink) = shop();
    faults(&fake, &[Fault::Obey, Fault::ObeyAndCut]);
    let applied = sink.apply(&plan(&[11, 22, 33, 44])).await.unwrap();
    assert_eq!(applied.weights.iter().map(|(_, w)| *w).collect::<Vec<_>>(), [11, 22, 33, 44]);
    assert_eq!(fake.weights(), [11, 22, 33, 44]);
    assert_eq!(fake.state.lock().unwrap().connections, 2);
}

#[tokio::test]
async fn a_retry_that_is_refused_undoes_the_first_attempt_too() {
    let (fake, mut sink) = shop();
    faults(&fake, &[Fault::ObeyAndCut, Fault::Obey, Fault::Refuse("Nope.")]);
    let error = sink.apply(&plan(&[11, 22, 33, 40])).await.unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Rejected);
    assert_eq!(fake.weights(), [10, 20, 30, 40]);
}

#[tokio::test]
async fn a_plan_whose_connection_is_cut_twice_is_undone_and_reported() {
    let (fake, mut sink) = shop();
    faults(&fake, &[Fault::Obey, Fault::Cut, Fault::Obey, Fault::Cut]);
    let error = sink.apply(&plan(&[11, 22, 33, 40])).await.unwrap_err();
    assert!(error.retryable());
    let SinkError::Interrupted { source, mut restored, unrestored, .. } = error else {
        panic!("{error}")
    };
    restored.sort();
    assert_eq!(source.kind(), SinkErrorKind::Unreachable);
    assert_eq!(restored, pairs(&[("s1", 10), ("s2", 20)]));
    assert!(unrestored.is_empty());
    assert_eq!(fake.weights(), [10, 20, 30, 40]);
}

#[tokio::test]
async fn a_batch_that_hangs_is_undone_in_time() {
    let (fake, _) = shop();
    // Time for all that does not hang, on a machine that does other things.
    let mut sink = fake.sink_within(Duration::from_secs(2), &SERVERS);
    faults(&fake, &[Fault::Obey, Fault::Hang]);
    let error = sink.apply(&plan(&[11, 22, 30, 40])).await.unwrap_err();
    let SinkError::Interrupted { source, restored, .. } = error else { panic!("{error}") };
    assert_eq!(source.kind(), SinkErrorKind::Timeout);
    assert_eq!(restored, pairs(&[("s1", 10)]));
    assert_eq!(fake.weights(), [10, 20, 30, 40]);
}

#[tokio::test]
async fn a_haproxy_that_is_gone_in_mid_batch_leaves_its_weights_unknown() {
    let (fake, mut sink) = shop();
    sink.read().await.unwrap();
    faults(&fake, &[Fault::Cut]);
    fake.state.lock().unwrap().closed = true;
    let error = sink.apply(&plan(&[11, 20, 30, 40])).await.unwrap_err();
    let SinkError::Interrupted { unrestored, .. } = error else { panic!("{error}") };
    assert_eq!(unrestored, pairs(&[("s1", 10)]));
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let (fake, mut sink) = shop();
    faults(&fake, &[Fault::Flood]);
    let error = sink.apply(&plan(&[11, 20, 30, 40])).await.unwrap_err();
    let SinkError::Interrupted { source, .. } = error else { panic!("{error}") };
    // Sixteen megabytes or the time-out, whichever comes first.
    assert!(matches!(source.kind(), SinkErrorKind::Protocol | SinkErrorKind::Timeout), "{source}");
    assert_eq!(sink.read().await.unwrap().servers.len(), 4, "the next call starts anew");
}

#[tokio::test]
async fn a_method_that_turns_out_static_is_remembered() {
    let (fake, mut sink) = shop();
    let text = "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.";
    fake.state.lock().unwrap().faults.push_back(Fault::Refuse(text));
    for _ in 0..2 {
        let error = sink.apply(&plan(&[11, 20, 30, 40])).await.unwrap_err();
        assert_eq!(error.kind(), SinkErrorKind::NoLiveWeights);
    }
    assert_eq!(fake.state.lock().unwrap().received.len(), 1, "asked only once");
    assert_eq!(fake.weights(), [10, 20, 30, 40]);
}

#[tokio::test]
async fn a_level_that_haproxy_does_not_tell_shows_by_its_refusal() {
    let (fake, mut sink) = shop();
    fake.state.lock().unwrap().instead.push(("show cli level", "Unknown command."));
    faults(&fake, &[Fault::Refuse("Permission denied")]);
    let error = sink.apply(&plan(&[11, 20, 30, 40])).await.unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Permission);
    assert!(error.to_string().contains("needs level admin"), "{error}");
}

#[tokio::test]
async fn answers_that_make_no_sense_are_errors_and_the_next_call_starts_anew() {
    for (command, answer, said) in [
        ("show info", "HTTP/1.1 400 Bad request", "`show info` answered \"HTTP/1.1 400"),
        ("show info", "Pid: x", "not a number"),
        ("show stat", "No such proxy.", "No such proxy."),
        ("show stat", "# pxname,svname", "column \"iid\" is missing"),
        ("show servers state", "2\n", "`show servers state` answered"),
        ("show servers state", "", "`show servers state` answered"),
    ] {
        let (fake, mut sink) = shop();
        fake.state.lock().unwrap().instead.push((command, answer));
        let error = sink.read().await.unwrap_err();
        assert_eq!(error.kind(), SinkErrorKind::Protocol, "{command}: {error}");
        assert!(error.to_string().contains(said), "{command}: {error}");
        fake.state.lock().unwrap().instead.clear();
        assert_eq!(sink.read().await.unwrap().servers.len(), 4);
    }
}

#[tokio::test]
async fn a_stopping_process_without_a_successor_is_reported() {
    let (fake, mut sink) = shop();
    sink.read().await.unwrap();
    let stopping = ("show info", "Pid: 42\nStopping: 1\nStart_time_sec: 1000");
    fake.state.lock().unwrap().instead.push(stopping);
    let error = sink.apply(&plan(&[11, 20, 30, 40])).await.unwrap_err();
    assert!(error.retryable() && error.to_string().contains("HAProxy is stopping"), "{error}");
    assert!(fake.state.lock().unwrap().received.is_empty());
}
