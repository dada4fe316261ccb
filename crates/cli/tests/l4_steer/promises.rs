//! What every sink promises, of the layer-4 one.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use plimsoll_model::{BackendId, MethodKind};
use plimsoll_sink::{L4SinkConfig, OwnSink, ReportSource, SinkErrorKind, WeightSink};
use plimsoll_testbed::net::SiteSpec;

use crate::contract::{Bed, goes_on_without_a_server, holds, plan};
use crate::place::{Place, Process, each};

/// The daemon, while it runs.
struct Balancer<'a>(&'a Place, Option<Process>);

impl Balancer<'_> {
    fn of(&self, vip: &str, servers: &[&str]) -> OwnSink {
        let timeout = Duration::from_secs(5);
        let config = L4SinkConfig { timeout, ..L4SinkConfig::new(self.0.socket(), vip) };
        let names = servers.iter().map(|name| (*name).to_owned());
        config.sink((1..).map(BackendId).zip(names).collect()).expect("good names")
    }

    /// What the daemon says to a line.
    fn say(&self, line: &str) -> String {
        let mut stream = UnixStream::connect(self.0.socket()).expect("connects");
        stream.write_all(format!("{line}\n").as_bytes()).expect("sent");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).expect("answered");
        answer
    }
}

impl Bed for Balancer<'_> {
    type Sink = OwnSink;
    const KEEPS_WEIGHTS: bool = true;

    fn sink(&self, servers: &[&str]) -> OwnSink {
        self.of("web", servers)
    }

    fn weight(&self, server: &str) -> u32 {
        let status = self.0.status();
        let backends = status["backends"].as_array().expect("a list");
        let found = backends.iter().find(|one| one["name"] == server).expect("there");
        found["weight"].as_u64().and_then(|weight| u32::try_from(weight).ok()).expect("a weight")
    }

    fn meddle(&self, weight: u32) {
        let plan = format!(
            "{{\"vip\":\"web\",\"epoch\":1,\"who\":\"me\",\"weights\":{{\"s2\":{weight}}}}}"
        );
        let answer = self.say(&format!("{{\"apply\":{plan}}}"));
        assert!(answer.contains("\"changed\":1"), "{answer}");
    }

    fn stop(&mut self) {
        self.1 = None;
    }

    fn start_again(&mut self) {
        self.1 = Some(self.0.balance());
    }

    fn take_away(&mut self, server: &str) {
        let file = std::fs::read_to_string(self.0.path("l4.yaml")).expect("readable");
        let (before, rest) = file.split_once(&format!("{{ name: {server},")).expect("there");
        let (_, after) = rest.split_once('}').expect("an end");
        let after = after.trim_start_matches([',', ' ']);
        self.0.write("l4.yaml", &format!("{before}{after}"));
    }
}

#[tokio::test]
async fn the_layer_4_balancer_keeps_what_every_sink_promises() {
    let Some(place) = Place::new(&SiteSpec::new(3)) else { return };
    let weights = |i: usize| format!(", weight: {}", 10 * (i + 1));
    let file = place.l4("weighted_round_robin", weights, "");
    place.write("l4.yaml", &file);
    let mut bed = Balancer(&place, Some(place.balance()));
    holds(&mut bed).await;

    goes_on_without_a_server(&mut bed).await;
    place.write("l4.yaml", &file);
    let mut sink = bed.sink(&["s1", "s2", "s3"]);
    while sink.read().await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let error = bed.of("wex", &["s1"]).read().await.expect_err("unknown");
    assert!(error.to_string().contains("no service \"wex\"; it has web"), "{error}");
    assert_eq!(error.kind(), SinkErrorKind::UnknownBackend);
    for nonsense in ["", "{}", "{\"read\":7}", "set server web/s1 weight 5"] {
        assert!(bed.say(nonsense).contains("not_understood"), "{nonsense:?}");
    }

    // Weights that happen to be the configured ones are the controller's once it has said so.
    sink.apply(&plan(&[10, 20, 30])).await.expect("applied");
    let before = sink.read().await.expect("read");
    assert_eq!(before.method.kind, MethodKind::Split);
    place.write("l4.yaml", &file.replace("weight: 10", "weight: 99"));
    bed.stop();
    let error = sink.read().await.expect_err("nobody there");
    assert_eq!((error.kind(), error.retryable()), (SinkErrorKind::Unreachable, true), "{error}");
    bed.start_again();
    let after = sink.read().await.expect("read");
    assert_eq!(after.generation, before.generation);
    assert_eq!(each(&place.status(), "weight"), [10, 20, 30]);

    // Given back, they are the configuration's; taken off, counters and weights begin anew.
    let released = place.run("lb", &["l4", "release", "--vip", "web"], "l4.yaml");
    assert!(released.status.success());
    assert_eq!(each(&place.status(), "weight"), [99, 20, 30]);
    bed.stop();
    assert!(place.run("lb", &["l4", "detach"], "l4.yaml").status.success());
    place.write("l4.yaml", &file.replace("weighted_round_robin", "round_robin"));
    let _daemon = place.balance();
    let anew = sink.read().await.expect("read");
    assert_ne!(anew.generation, before.generation);
    assert_eq!(anew.method.kind, MethodKind::NoLiveWeights);
    let error = sink.apply(&plan(&[1, 2, 3])).await.expect_err("no weights");
    assert_eq!((error.kind(), error.retryable()), (SinkErrorKind::NoLiveWeights, false), "{error}");
}
