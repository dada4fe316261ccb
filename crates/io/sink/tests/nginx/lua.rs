//! What every sink promises, by the Lua balancer.

use plimsoll_sink::{NginxPool, NginxSink};

use crate::contract;
use crate::rig::{Nginx, server, until};

struct Shop(Nginx);

impl contract::Bed for Shop {
    type Sink = NginxSink;
    const KEEPS_WEIGHTS: bool = false;

    fn sink(&self, servers: &[&str]) -> NginxSink {
        self.0.sink(servers)
    }

    fn weight(&self, server: &str) -> u32 {
        u32::try_from(self.0.column(server, 3)).expect("a weight")
    }

    fn meddle(&self, weight: u32) {
        let answer = self.0.ask("PUT", "/shop", &format!("epoch 1\ns2 {weight}\n"));
        assert!(answer.contains("changed 1"), "{answer}");
    }

    fn stop(&mut self) {
        self.0.stop();
    }

    fn start_again(&mut self) {
        self.0.start_again();
    }

    fn take_away(&mut self, server: &str) {
        self.0.reload_with(&pools(|name| name != server));
    }
}

fn pools(wanted: impl Fn(&str) -> bool) -> [NginxPool; 1] {
    let servers = (1..=3).map(|i| server(i, 10 * u32::from(i)));
    let servers = servers.filter(|server| wanted(&server.name)).collect();
    [NginxPool { name: "shop".to_owned(), leastconn: false, servers }]
}

#[tokio::test]
async fn what_every_sink_promises_holds() {
    let Some(nginx) = Nginx::start(&pools(|_| true), "") else { return };
    let mut shop = Shop(nginx);
    contract::holds(&mut shop).await;
    contract::goes_on_without_a_server(&mut shop).await;
}

#[tokio::test]
async fn where_all_that_had_a_weight_have_left_the_others_serve() {
    let Some(nginx) = Nginx::start(&pools(|_| true), "") else { return };
    let weights = || ["s1", "s3"].map(|name| nginx.column(name, 3));
    let answer = nginx.ask("PUT", "/shop", "epoch 1\ns1 0\ns2 700\ns3 0\n");
    assert!(answer.contains("changed 3"), "{answer}");
    nginx.reload_with(&pools(|name| name != "s2"));
    until("the configured weights", || weights() == [10, 30]);
    let answer = nginx.ask("PUT", "/shop", "epoch 2\ns1 600\ns3 200\n");
    assert!(answer.contains("changed 2"), "{answer}");
    nginx.reload_with(&pools(|_| true));
    let joined = || nginx.column_if_there("s2", 3) == Some(400);
    until("the mean of the others for what has joined", joined);
    assert_eq!(weights(), [600, 200]);
}
