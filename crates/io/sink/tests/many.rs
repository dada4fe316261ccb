//! Several backends of one real HAProxy on one connection.

mod common;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use common::{Haproxy, PATIENCE, free_port, named, plan};
use plimsoll_model::{BalancerReport, ServerStatus};
use plimsoll_sink::{
    HaproxyConfig, HaproxyConnection, Sink, SinkErrorKind, SocketAddress, SteeredBackend, Witness,
};

/// Backends pool0, pool1, … of so many servers s0, s1, …
fn pools(backends: usize, servers: usize) -> String {
    let mut text = String::new();
    for backend in 0..backends {
        writeln!(text, "backend pool{backend}\n  balance roundrobin").unwrap();
        for server in 0..servers {
            writeln!(text, "  server s{server} 127.0.0.1:1 weight {}", 10 + backend).unwrap();
        }
    }
    text
}

fn steered(backend: usize, servers: usize) -> SteeredBackend {
    let names: Vec<String> = (0..servers).map(|server| format!("s{server}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    SteeredBackend::new(&format!("pool{backend}"), named(&names)).unwrap()
}

fn connect(address: SocketAddress) -> HaproxyConnection {
    HaproxyConnection::new(address, PATIENCE, Instant::now())
}

fn connection(haproxy: &Haproxy) -> HaproxyConnection {
    connect(SocketAddress::Unix(haproxy.socket("admin")))
}

async fn read(
    connection: &mut HaproxyConnection,
    backends: &mut [SteeredBackend],
) -> Vec<BalancerReport> {
    let mut all: Vec<&mut SteeredBackend> = backends.iter_mut().collect();
    let reports = connection.read(&mut all).await.unwrap();
    reports.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn rows_of_one_reading_do_not_reach_another_backend() {
    let haproxy = Haproxy::start(&pools(40, 4));
    let mut connection = connection(&haproxy);
    for count in [40, 3] {
        // In another order than HAProxy's.
        let mut backends: Vec<_> = (0..count).rev().map(|backend| steered(backend, 4)).collect();
        for _ in 0..2 {
            let reports = read(&mut connection, &mut backends).await;
            for (backend, report) in (0..count).rev().zip(reports) {
                let weights: Vec<u32> = report.servers.iter().map(|server| server.weight).collect();
                assert_eq!(weights, vec![10 + u32::try_from(backend).unwrap(); 4]);
            }
        }
    }
    assert_eq!(connection.opened(), 1);
}

#[tokio::test]
async fn few_backends_of_a_large_haproxy_are_not_read_with_all_the_others() {
    let haproxy = Haproxy::start(&pools(60, 5));
    let mut connection = connection(&haproxy);
    let mut all: Vec<_> = (0..60).map(|backend| steered(backend, 5)).collect();
    read(&mut connection, &mut all).await;
    assert_eq!(connection.rows(all.iter()), 300, "each server once");
    assert!(connection.rows(all[..2].iter()) < 20);
    let before = connection.witness().await.unwrap().sent;
    read(&mut connection, &mut all[..2]).await;
    let two = connection.witness().await.unwrap().sent - before;
    read(&mut connection, &mut all).await;
    let whole = connection.witness().await.unwrap().sent - before - two;
    assert!(5 * two < whole, "{two} bytes for two backends, {whole} for all");
}

#[tokio::test]
async fn changes_in_a_large_haproxy_are_not_missed_between_readings_of_states() {
    let haproxy = Haproxy::start(&pools(30, 5));
    let mut connection = connection(&haproxy);
    let mut backends: Vec<_> = (0..30).map(|backend| steered(backend, 5)).collect();
    // The second reading learns what `show stat` shows; from then on states are read when that changes.
    for _ in 0..2 {
        read(&mut connection, &mut backends).await;
    }
    haproxy.ask("set server pool7/s1 weight 99");
    haproxy.ask("set server pool8/s2 state maint");
    haproxy.ask("set server pool9/s3 state drain");
    let reports = read(&mut connection, &mut backends).await;
    assert_eq!(reports[7].servers[1].weight, 99);
    assert_eq!(reports[8].servers[2].status, ServerStatus::Maintenance);
    assert_eq!(reports[9].servers[3].status, ServerStatus::Drain);
    haproxy.ask("set server pool8/s2 state ready");
    haproxy.ask("set server pool9/s4 state maint");
    haproxy.ask("del server pool9/s4");
    let reports = read(&mut connection, &mut backends).await;
    assert_eq!(reports[8].servers[2].status, ServerStatus::Up);
    assert_eq!(reports[9].servers[4].status, ServerStatus::Maintenance, "it has left");
    backends[9]
        .apply(&mut connection, &plan(&[7, 8, 9, 10]))
        .await
        .expect("the others are steered");
    assert!(haproxy.ask("get weight pool9/s3").starts_with("10"));
    backends[9] = steered(9, 4);
    let reports = read(&mut connection, &mut backends).await;
    assert_eq!(reports[9].servers.len(), 4);
    (0..4).for_each(|n| {
        haproxy.ask(&format!("set server pool9/s{n} state maint"));
        haproxy.ask(&format!("del server pool9/s{n}"));
    });
    let mut one: Vec<&mut SteeredBackend> = backends[9..10].iter_mut().collect();
    let reports = connection.read(&mut one).await.expect("HAProxy answers");
    let kind = reports[0].as_ref().err().map(|error| error.kind());
    assert_eq!(kind, Some(SinkErrorKind::UnknownServers), "all have left");
}

#[tokio::test]
async fn an_error_of_one_backend_does_not_fail_the_reading_of_the_others() {
    let haproxy = Haproxy::start(&pools(3, 2));
    let mut connection = connection(&haproxy);
    let mut backends = [steered(0, 2), steered(1, 3), steered(7, 2), steered(2, 2)];
    let mut all: Vec<&mut SteeredBackend> = backends.iter_mut().collect();
    let reports = connection.read(&mut all).await.unwrap();
    let kinds: Vec<_> =
        reports.iter().map(|report| report.as_ref().err().map(|error| error.kind())).collect();
    use SinkErrorKind::{UnknownBackend, UnknownServers};
    assert_eq!(kinds, [None, Some(UnknownServers), Some(UnknownBackend), None]);
    backends[3].apply(&mut connection, &plan(&[33, 44])).await.unwrap();
    assert_eq!(connection.opened(), 1);
    assert!(haproxy.ask("get weight pool2/s1").starts_with("44"));
}

#[tokio::test]
async fn two_processes_are_not_taken_for_one_and_two_sockets_of_one_are() {
    let port = free_port();
    let socket = format!("global\n  stats socket ipv4@127.0.0.1:{port} level admin\n");
    let haproxy = Haproxy::start(&format!("{socket}{}", pools(1, 1)));
    let other = Haproxy::start(&pools(1, 1));
    let mut unix = connection(&haproxy);
    let tcp = format!("localhost:{port}").parse().unwrap();
    for (second, same) in
        [(connect(tcp), true), (connection(&haproxy), true), (connection(&other), false)]
    {
        let mut second = second;
        for connection in [&mut unix, &mut second] {
            read(connection, &mut [steered(0, 1)]).await;
        }
        // HAProxy counts what it sent a little after it was sent.
        let counted = || tokio::time::sleep(Duration::from_millis(50));
        let began = Instant::now();
        let proven = loop {
            let first = unix.witness().await.unwrap();
            counted().await;
            let mut between = second.witness().await.unwrap();
            counted().await;
            let last = unix.witness().await.unwrap();
            // As twins in containers would have it.
            between.identity = first.identity.clone();
            let proven = Witness::is_one_process(&first, &between, &last);
            // It may have had no time to count: one process proves to be one at another try.
            if proven || !same || began.elapsed() > PATIENCE {
                break proven;
            }
        };
        assert_eq!(proven, same);
    }
    let operator = SocketAddress::Unix(haproxy.socket("operator"));
    let mut operator = connect(operator);
    read(&mut operator, &mut [steered(0, 1)]).await;
    let (admin, operator) = (unix.witness().await.unwrap(), operator.witness().await.unwrap());
    assert_ne!(admin.identity, operator.identity, "who may less is not served by it");
}

#[tokio::test]
async fn a_connection_that_is_shared_does_not_follow_its_socket_to_another_process() {
    let mut haproxy = Haproxy::start(&pools(1, 2));
    let mut connection = connection(&haproxy);
    let mut backends = [steered(0, 2)];
    read(&mut connection, &mut backends).await;
    connection.may_reopen(false);
    haproxy.restart();
    for _ in 0..2 {
        let error = connection.read(&mut [&mut backends[0]]).await.unwrap_err();
        assert!(error.retryable(), "{error}");
    }
    let error = backends[0].apply(&mut connection, &plan(&[1, 2])).await.unwrap_err();
    assert!(error.retryable(), "{error}");
    assert_eq!((connection.opened(), connection.is_open()), (1, false));
    connection.may_reopen(true);
    read(&mut connection, &mut backends).await;
    assert_eq!(connection.opened(), 2);
}

#[tokio::test]
async fn thousands_of_servers_are_found_and_those_without_an_address_are_left_alone() {
    let servers: String = (0..3_000)
        .map(|n| format!("  server s{n} 127.1.{}.{}:80\n", n / 250, n % 250 + 1))
        .collect();
    let haproxy = Haproxy::start(&format!(
        "\nbackend large\n  balance roundrobin\n{servers}\
         backend odd\n  balance leastconn\n  server good 127.0.0.1:1\n  server true 127.0.0.1:2\n  \
         server twin 127.0.0.1:1\n  server socket unix@DIR/none.sock\n  server any 0.0.0.0:0\n  \
         server ports 127.0.0.1\n  server spare 127.0.0.1:3 backup\n  server out 127.0.0.1:4 weight 0\n  \
         server-template slot 1-2 none.invalid:80 init-addr none\n\
         backend hashed\n  balance uri\n  server s1 127.0.0.1:1\n  server s2 127.0.0.1:2\n"
    ));
    let config = HaproxyConfig {
        timeout: PATIENCE,
        ..HaproxyConfig::new(SocketAddress::Unix(haproxy.socket("admin")), "")
    };
    let found = Sink::Haproxy(config).look().await.expect("found");
    let [large, odd, hashed] = &found[..] else { panic!("{found:?}") };
    assert_eq!((large.steerable().count(), large.out_of_reach()), (3_000, None));
    assert_eq!(odd.out_of_reach(), None);
    assert_eq!(odd.steerable().map(|(name, _)| name).collect::<Vec<_>>(), ["good", "true"]);
    let alone = odd.left_alone().join("; ");
    for said in [
        "slot1, slot2 (its name is not resolved yet)",
        "socket (it listens on a Unix socket)",
        "any, ports (it has no address and port of its own)",
        "spare (it is a backup server)",
        "out (its configured weight is 0)",
        "twin (a server before it has the same address)",
    ] {
        assert!(alone.contains(said), "{said:?} is not in {alone}");
    }
    let why = hashed.out_of_reach().expect("out of reach");
    assert!(why.contains("`balance uri` with a map-based hash"), "{why}");
}
