//! What it tells of itself, and what it refuses.

use std::net::SocketAddr;

use plimsoll_sink::{
    NginxConfig, NginxPool, NginxServer, NginxSink, ReportSource, Sink, SinkError, SocketAddress,
    WeightSink, nginx_snippet,
};

use crate::contract::plan;
use crate::rig::{Nginx, server};

#[tokio::test]
async fn it_tells_what_it_has_and_says_what_it_does_not_understand() {
    let servers = |n: u16| (1..=n).map(|i| server(i, 100)).collect();
    let pools = [
        NginxPool { name: "shop".to_owned(), leastconn: true, servers: servers(2_000) },
        NginxPool { name: "a_80".to_owned(), leastconn: false, servers: servers(1) },
    ];
    let Some(nginx) = Nginx::start(&pools, "") else { return };
    let found = Sink::Nginx(NginxConfig::new(nginx.socket(), "")).look().await.expect("found");
    assert_eq!(found.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["shop", "a_80"]);
    assert_eq!(found[0].out_of_reach(), None);
    assert_eq!(found[0].steerable().count(), 2_000);
    assert!(found[1].out_of_reach().is_some_and(|why| why.contains("one server")));
    for bad in [
        "",
        "s1 5",
        "epoch 1\ns1 5\ns9999 5",
        "epoch 1\ns1 -1",
        "epoch 1\ns1 1001",
        "epoch 1\ns1 5 6",
        "{}",
    ] {
        let answer = nginx.ask("PUT", "/shop", bad);
        assert!(answer.contains("409") && answer.contains("refused "), "{bad:?}: {answer}");
    }
    assert_eq!((nginx.column("s1", 3), nginx.column("s2", 3)), (100, 100), "nothing was changed");
    let all: Vec<String> = (1..=2_000).map(|i| format!("s{i}")).collect();
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    let wanted: Vec<u32> = (0..2_000).map(|i| 2 + i % 900).collect();
    let applied = nginx.sink(&names).apply(&plan(&wanted)).await.expect("applied");
    assert_eq!(applied.weights.iter().map(|(_, weight)| *weight).collect::<Vec<_>>(), wanted);

    let config = NginxConfig::new(nginx.socket(), "shoq");
    let error =
        NginxSink::new(config, Vec::new()).expect("good names").read().await.expect_err("unknown");
    assert!(matches!(error, SinkError::UnknownUpstream { .. }), "{error}");
    assert!(error.to_string().contains("no upstream \"shoq\"; it has shop, a_80"), "{error}");
    let clients = SocketAddress::Tcp(nginx.address.to_string());
    let error =
        NginxSink::new(NginxConfig::new(clients, "shop"), Vec::new()).expect("good").read().await;
    let error = error.expect_err("not the Lua balancer");
    assert!(error.to_string().contains("is this the socket of the Lua balancer?"), "{error}");
}

#[test]
fn what_cannot_stand_in_a_configuration_is_refused() {
    let at = SocketAddr::from(([127, 0, 0, 1], 1));
    let unix = SocketAddress::Unix("/run/x.sock".into());
    let pool = |name: &str, server: &str| NginxPool {
        name: name.to_owned(),
        leastconn: false,
        servers: vec![NginxServer { name: server.to_owned(), address: at, weight: 100 }],
    };
    assert!(nginx_snippet(&unix, &[pool("shop", "s1")]).is_ok());
    for (name, server) in [
        ("sh op", "s1"),
        ("shop\"", "s1"),
        ("", "s1"),
        ("shop", "s\\1"),
        ("shop", "]]"),
        ("shop", "a=1"),
    ] {
        assert!(nginx_snippet(&unix, &[pool(name, server)]).is_err(), "{name} {server}");
    }
    let mut twice = pool("shop", "s1");
    twice.servers.push(twice.servers[0].clone());
    let error = nginx_snippet(&unix, &[twice]).expect_err("one name, two servers");
    assert!(error.to_string().contains("given twice"), "{error}");
    for path in ["/run/x y.sock", "/run/x;.sock", "/run/{x}.sock", "/run/$x"] {
        assert!(nginx_snippet(&SocketAddress::Unix(path.into()), &[]).is_err(), "{path}");
    }
}
