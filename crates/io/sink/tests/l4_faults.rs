//! The layer-4 sink before a daemon that hangs, hangs up and talks nonsense. What it does before a real one
//! is tested beside that (`crates/cli/tests/l4_steer`).

mod contract;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::plan;
use plimsoll_model::{BackendId, MethodKind, ServerStatus};
use plimsoll_sink::wire::{Answer, Question, Refusal, Report, Server};
use plimsoll_sink::{L4SinkConfig, OwnSink, ReportSource, SinkError, SinkErrorKind, WeightSink};

/// What becomes of a question that is no reading.
#[derive(Clone, Debug)]
enum Fault {
    /// Hang up before obeying.
    Cut,
    /// Obey, and hang up before answering.
    ObeyAndCut,
    /// Say nothing for longer than any test waits.
    Hang,
    /// Obey, and say nothing for as long.
    ObeyAndHang,
    /// Answer this.
    Say(String),
    /// Hang up now and on every question to come.
    Die,
}

struct State {
    report: Report,
    faults: VecDeque<Fault>,
    applied: u32,
    dead: bool,
}

struct Fake {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

impl Fake {
    fn start(faults: &[Fault]) -> Fake {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-l4-sink-{}-{number}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("listens");
        let server = |name, weight| Server::new(name, weight, ServerStatus::Up, (3, 40));
        let report = Report {
            policy: "weighted_round_robin".to_owned(),
            kind: MethodKind::Split,
            generation: 5,
            steered: false,
            epoch: 0,
            changed: 0,
            servers: vec![server("s1", 10), server("s2", 20)],
        };
        let faults = faults.iter().cloned().collect();
        let state = Arc::new(Mutex::new(State { report, faults, applied: 0, dead: false }));
        let theirs = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&theirs);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Fake { path, state }
    }

    fn sink(&self) -> OwnSink {
        self.sink_within(Duration::from_secs(10))
    }

    /// One that waits no longer for an answer.
    fn sink_within(&self, timeout: Duration) -> OwnSink {
        let config = L4SinkConfig { timeout, ..L4SinkConfig::new(self.path.clone(), "web") };
        let servers = vec![(BackendId(1), "s1".to_owned()), (BackendId(2), "s2".to_owned())];
        config.sink(servers).expect("good names")
    }

    fn applied(&self) -> u32 {
        self.state.lock().expect("no panic").applied
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Ends when it hangs up.
fn serve(stream: UnixStream, state: &Mutex<State>) {
    let mut writer = stream.try_clone().expect("a second handle");
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let question: Question = serde_json::from_str(&line).expect("a question");
        let mut hang = false;
        let answer = {
            let mut state = state.lock().expect("no panic");
            let fault = match &question {
                Question::Read { .. } => None,
                _ => state.faults.pop_front(),
            };
            match fault {
                Some(Fault::Cut) => return,
                Some(Fault::Die) => {
                    state.dead = true;
                    None
                }
                Some(Fault::Say(text)) => Some(text),
                Some(Fault::Hang) => {
                    hang = true;
                    None
                }
                Some(Fault::ObeyAndCut) => {
                    obey(&mut state, question);
                    return;
                }
                Some(Fault::ObeyAndHang) => {
                    obey(&mut state, question);
                    hang = true;
                    None
                }
                None => Some(obey(&mut state, question)),
            }
        };
        if state.lock().expect("no panic").dead {
            return;
        }
        if hang {
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let text = answer.unwrap_or_default();
        // The client may have given up.
        let _ = writer.write_all(text.as_bytes()).and_then(|()| writer.write_all(b"\n"));
    }
}

fn obey(state: &mut State, question: Question) -> String {
    if let Question::Apply { epoch, weights, .. } = question {
        state.applied += 1;
        state.report.changed = 0;
        for server in &mut state.report.servers {
            let Some(weight) = weights.get(&server.name) else { continue };
            state.report.changed += u32::from(server.weight != *weight);
            server.weight = *weight;
        }
        (state.report.steered, state.report.epoch) = (true, epoch);
    }
    serde_json::to_string(&Answer::Done(state.report.clone())).expect("JSON")
}

#[tokio::test]
async fn what_a_daemon_tells_becomes_a_report() {
    let fake = Fake::start(&[]);
    let report = fake.sink().read().await.expect("read");
    assert_eq!((report.method.kind, report.generation), (MethodKind::Split, 5));
    let second = report.servers[1];
    assert_eq!((second.in_flight, second.started_total, second.queued), (3, 40, 0));
}

#[tokio::test]
async fn a_connection_that_is_cut_is_tried_once_more() {
    for (fault, changed) in [(Fault::Cut, 2), (Fault::ObeyAndCut, 0)] {
        let fake = Fake::start(&[fault]);
        let applied = fake.sink().apply(&plan(&[1, 2])).await.expect("applied");
        assert_eq!(applied.weights, [(BackendId(1), 1), (BackendId(2), 2)]);
        assert_eq!(applied.commands, changed, "the second time");
    }
}

#[tokio::test]
async fn a_lost_answer_is_looked_up() {
    // Time for all that does not hang, on a machine that does other things.
    let limit = Duration::from_secs(2);
    let fake = Fake::start(&[Fault::ObeyAndHang]);
    let applied = fake.sink_within(limit).apply(&plan(&[1, 2])).await.expect("it was applied");
    assert_eq!(applied.weights, [(BackendId(1), 1), (BackendId(2), 2)]);
    assert_eq!(fake.applied(), 1);

    let fake = Fake::start(&[Fault::Hang]);
    let error = fake.sink_within(limit).apply(&plan(&[1, 2])).await.expect_err("it was not");
    assert!(error.retryable() && error.to_string().contains("no weight was changed"), "{error}");
    assert!(matches!(error, SinkError::Interrupted { .. }), "{error:?}");
    assert_eq!(fake.applied(), 0);
}

#[tokio::test]
async fn a_daemon_that_is_gone_leaves_its_weights_unknown() {
    let fake = Fake::start(&[Fault::Die]);
    let error = fake.sink().apply(&plan(&[1, 20])).await.expect_err("gone");
    let SinkError::Interrupted { unrestored, .. } = error else { panic!("{error}") };
    assert_eq!(unrestored, [("s1".to_owned(), 10)], "s2 was to keep its weight");
}

#[tokio::test]
async fn refusals_and_nonsense_say_what_they_are_and_the_next_call_starts_anew() {
    let refused = |reason| {
        let (message, exist) = ("because".to_owned(), Vec::new());
        Fault::Say(
            serde_json::to_string(&Answer::Refused { reason, message, exist }).expect("JSON"),
        )
    };
    let cases = [
        (refused(Refusal::Failed), SinkErrorKind::Rejected, true),
        (refused(Refusal::InvalidPlan), SinkErrorKind::InvalidPlan, false),
        (refused(Refusal::NoLiveWeights), SinkErrorKind::NoLiveWeights, false),
        (refused(Refusal::NotUnderstood), SinkErrorKind::Protocol, false),
        (refused(Refusal::UnknownVip), SinkErrorKind::UnknownBackend, false),
    ];
    for (fault, kind, retryable) in cases {
        let fake = Fake::start(&[fault]);
        let mut sink = fake.sink();
        let error = sink.apply(&plan(&[1, 2])).await.expect_err("refused");
        assert_eq!((error.kind(), error.retryable()), (kind, retryable), "{error}");
        assert_eq!(fake.applied(), 0);
        assert_eq!(sink.apply(&plan(&[1, 2])).await.expect("applied").commands, 2);
    }
    for nonsense in ["", "{}", "HTTP/1.1 200 OK", &"x".repeat(9 << 20)] {
        let fake = Fake::start(&[Fault::Say(nonsense.to_owned())]);
        let mut sink = fake.sink();
        let error = sink.apply(&plan(&[1, 2])).await.expect_err("nonsense");
        assert!(matches!(error, SinkError::Interrupted { .. }), "{error}");
        let whose = "is this the l4.socket.path of `plimsoll l4 run`?";
        assert!(error.to_string().contains(whose), "{error}");
        assert_eq!(sink.apply(&plan(&[1, 2])).await.expect("applied").commands, 2);
    }
}

#[tokio::test]
async fn an_absent_daemon_is_a_clear_error_and_a_dropped_call_harms_nothing() {
    let fake = Fake::start(&[Fault::Hang]);
    let mut sink = fake.sink();
    let long = plan(&[1, 2]);
    assert!(tokio::time::timeout(Duration::from_millis(50), sink.apply(&long)).await.is_err());
    assert_eq!(sink.read().await.expect("read").servers[0].weight, 10);
    let path = fake.path.clone();
    drop(fake);
    let config = L4SinkConfig::new(path, "web");
    let mut sink = config.sink(Vec::new()).expect("good names");
    let error = sink.read().await.expect_err("nobody");
    assert_eq!((error.kind(), error.retryable()), (SinkErrorKind::Unreachable, true));
    assert!(error.to_string().contains("no such socket: does `plimsoll l4 run` run"), "{error}");
    for bad in ["", "a\nb", &"x".repeat(64)] {
        assert!(config.sink(vec![(BackendId(1), bad.to_owned())]).is_err(), "{bad}");
        let config = L4SinkConfig { vip: bad.to_owned(), ..config.clone() };
        assert!(config.sink(Vec::new()).is_err(), "{bad}");
    }
}
