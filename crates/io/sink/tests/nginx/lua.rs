//! What every sink promises, by the Lua balancer.

use plimsoll_sink::{NginxPool, NginxSink};

use crate::contract;
use crate::rig::{Nginx, server};

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
}

#[tokio::test]
async fn what_every_sink_promises_holds() {
    let servers = (1..=3).map(|i| server(i, 10 * u32::from(i)));
    let pools =
        [NginxPool { name: "shop".to_owned(), leastconn: false, servers: servers.collect() }];
    let Some(nginx) = Nginx::start(&pools, "") else { return };
    contract::holds(&mut Shop(nginx)).await;
}
