//! Programming weights into a real HAProxy, and reading them back.

mod common;
mod contract;

use common::{Haproxy, named, plan, sink_at};
use plimsoll_model::{BackendId, MethodKind, ServerStatus};
use plimsoll_sink::{HaproxySink, ReportSource, SinkError, SocketAddress, WeightSink};

const LEASTCONN: &str = "
backend shop
  balance leastconn
  server s1 127.0.0.1:1 weight 10
  server s2 127.0.0.1:1 weight 20
  server s3 127.0.0.1:1 weight 30
";

fn weights(applied: &[(BackendId, u32)]) -> Vec<u32> {
    applied.iter().map(|(_, weight)| *weight).collect()
}

struct Shop(Haproxy);

impl contract::Bed for Shop {
    type Sink = HaproxySink;
    const KEEPS_WEIGHTS: bool = false;

    fn sink(&self, servers: &[&str]) -> HaproxySink {
        self.0.sink(servers)
    }

    fn weight(&self, server: &str) -> u32 {
        self.0.weight(server).parse().expect("a number")
    }

    fn meddle(&self, weight: u32) {
        self.0.ask(&format!("set server shop/s2 weight {weight}"));
    }

    fn stop(&mut self) {
        self.0.stop();
    }

    fn start_again(&mut self) {
        self.0.start_again();
    }

    fn take_away(&mut self, server: &str) {
        self.0.ask(&format!("set server shop/{server} state maint"));
        assert!(self.0.ask(&format!("del server shop/{server}")).contains("deleted"));
    }
}

#[tokio::test]
async fn what_every_sink_promises_holds() {
    let mut shop = Shop(Haproxy::start(LEASTCONN));
    contract::holds(&mut shop).await;
    contract::goes_on_without_a_server(&mut shop).await;
}

#[tokio::test]
async fn a_weight_out_of_range_is_reported_with_the_range() {
    let haproxy = Haproxy::start(LEASTCONN);
    let mut sink = haproxy.sink(&["s1", "s2", "s3"]);
    for (bad, said) in [
        (plan(&[5, 257, 5]), "weight 257 of \"s2\" is out of HAProxy's range 0…256"),
        (plan(&[0, 0, 0]), "every server of \"shop\" at weight 0"),
    ] {
        let error = sink.apply(&bad).await.unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test]
async fn an_unknown_name_is_reported_with_the_known_ones() {
    let haproxy = Haproxy::start(LEASTCONN);
    let mut sink = haproxy.sink(&["s1", "sX"]);
    for error in [sink.read().await.unwrap_err(), sink.apply(&plan(&[1, 2])).await.unwrap_err()] {
        let said = "backend \"shop\" has no server sX; it has s1, s2, s3";
        assert_eq!(error.to_string(), said);
    }
    assert_eq!(haproxy.weight("s1"), "10");
    let socket = SocketAddress::Unix(haproxy.socket("admin"));
    let error = sink_at(socket, "shoq", &["s1"]).read().await.unwrap_err();
    assert_eq!(error.to_string(), "HAProxy has no backend \"shoq\"; it has shop");
    assert!(matches!(error, SinkError::UnknownBackend { .. }));
}

#[tokio::test]
async fn servers_join_and_leave_at_run_time() {
    let haproxy = Haproxy::start(LEASTCONN);
    let mut sink = haproxy.sink(&["s1", "s2"]);
    assert_eq!(sink.read().await.unwrap().servers.len(), 2);
    sink.set_servers(named(&["s1", "s2", "s3"])).unwrap();
    assert_eq!(sink.read().await.unwrap().servers[2].weight, 30);
    assert!(sink.set_servers(named(&["s1", "s1"])).is_err());
    assert!(sink.set_servers(named(&["s1; shutdown sessions server shop/s1"])).is_err());
    assert_eq!(sink.read().await.unwrap().servers.len(), 3, "a bad list changes nothing");
    sink.set_servers(vec![(BackendId(3), "s3".into())]).unwrap();
    let report = sink.read().await.unwrap();
    assert_eq!((report.servers[0].backend, report.servers[0].weight), (BackendId(3), 30));
    assert!(sink.apply(&plan(&[5])).await.is_err(), "b1 has left");
}

#[tokio::test]
async fn a_frontend_of_the_same_name_does_not_get_in_the_way() {
    let haproxy = Haproxy::start(
        "
frontend shop
  bind unix@DIR/web.sock
  default_backend shop
backend other
  server s1 127.0.0.1:1 weight 77
backend shop
  balance roundrobin
  server s1 127.0.0.1:1 weight 5
",
    );
    let mut sink = haproxy.sink(&["s1"]);
    let report = sink.read().await.unwrap();
    assert_eq!((report.method.name.as_str(), report.servers[0].weight), ("roundrobin", 5));
}

#[tokio::test]
async fn a_backend_that_gets_its_first_server_at_run_time() {
    let haproxy = Haproxy::start("\nbackend shop\n  balance leastconn\n");
    let mut sink = haproxy.sink(&[]);
    let report = sink.read().await.unwrap();
    assert_eq!((report.method.kind, report.servers.len()), (MethodKind::InFlight, 0));
    haproxy.ask("add server shop/s1 127.0.0.1:1 weight 12");
    sink.set_servers(named(&["s1"])).unwrap();
    let report = sink.read().await.unwrap();
    assert_eq!(report.servers[0].weight, 12);
    assert_eq!(report.servers[0].status, ServerStatus::Maintenance);
    assert_eq!(weights(&sink.apply(&plan(&[13])).await.unwrap().weights), [13]);
}

#[tokio::test]
async fn five_hundred_servers_in_one_batch() {
    let servers: Vec<String> = (0..500).map(|i| format!("server-number-{i}")).collect();
    let lines: String = servers.iter().map(|s| format!("  server {s} 127.0.0.1:1\n")).collect();
    let haproxy = Haproxy::start(&format!("\nbackend shop\n  balance roundrobin\n{lines}"));
    let names: Vec<&str> = servers.iter().map(String::as_str).collect();
    let mut sink = haproxy.sink(&names);
    let wanted: Vec<u32> = (0..500).map(|i| 2 + i % 255).collect();
    let applied = sink.apply(&plan(&wanted)).await.unwrap();
    assert_eq!(applied.commands, 500);
    assert_eq!(weights(&applied.weights), wanted);
}
