//! What the Lua balancer counts, and what it forgets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use plimsoll_sink::{NginxPool, SocketAddress, nginx_snippet};
use plimsoll_testbed::load::{LoadSpec, Target, start};
use plimsoll_testbed::{Change, Mode};

use crate::rig::{Nginx, PATIENCE, bed, pool, server, until};

/// Answers 200 on a port of its own, to whatever it is asked.
fn plain() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4_096];
            let _ = stream.read(&mut request);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    address
}

#[test]
fn internal_redirects_end_what_came_before_and_another_upstreams_answer_is_not_counted() {
    let bed = bed(2, Duration::from_millis(1));
    for server in ["s1", "s2"] {
        bed.set(server, Change::mode(Mode::Status(404))).expect("the testbed runs");
    }
    let front = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let more = format!(
        "server {{ listen {front}; proxy_intercept_errors on; recursive_error_pages on;\n\
         location / {{ proxy_pass http://shop; error_page 404 500 = @again; }}\n\
         location @again {{ proxy_pass http://shop; error_page 404 500 = @plain; }}\n\
         location @plain {{ proxy_pass http://{}; }} }}",
        plain()
    );
    let Some(nginx) = Nginx::start(&[pool(&bed, true)], &more) else { return };
    let get = || {
        let mut stream = TcpStream::connect(front).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        write!(stream, "GET /work HTTP/1.0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "the last upstream's: {answer}");
    };
    let sum = |column: usize| nginx.column("s1", column) + nginx.column("s2", column);
    for round in 1..=20 {
        get();
        until("the end of the request", || sum(5) == 0);
        assert_eq!(sum(6), 2 * round, "asked twice, by a redirect");
    }
    // A status of 404 is an answer, and no failure.
    assert_eq!((sum(7), sum(8)), (0, 40));
    for server in ["s1", "s2"] {
        bed.set(server, Change::mode(Mode::Status(500))).expect("the testbed runs");
    }
    for _ in 0..20 {
        get();
    }
    until("the end of the requests", || sum(5) == 0);
    assert_eq!(
        (sum(6), sum(7), sum(8)),
        (80, 40, 80),
        "500 is one, whoever has answered in the end"
    );
}

#[test]
fn workers_forget_what_a_killed_one_had_in_flight_without_a_query() {
    let bed = bed(2, Duration::from_secs(1));
    let peek = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let more = format!(
        "server {{ listen {peek}; location / {{ content_by_lua_block {{\n\
         local dict, places = ngx.shared.plimsoll, 0\n\
         for _, key in ipairs(dict:get_keys(0)) do if key:find('^k:') then places = places + 1 end end\n\
         ngx.say(dict:get('f:shop/s1') or 0, ' ', dict:get('f:shop/s2') or 0, ' ', places)\n}} }} }}"
    );
    let Some(nginx) = Nginx::start(&[pool(&bed, true)], &more) else { return };
    let peek = || -> Vec<i64> {
        let mut answer = String::new();
        let mut stream = TcpStream::connect(peek).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        write!(stream, "GET / HTTP/1.0\r\n\r\n").expect("sent");
        stream.read_to_string(&mut answer).expect("answered");
        let last = answer.lines().last().unwrap_or_default();
        last.split(' ').map(|n| n.parse().unwrap_or_else(|_| panic!("{answer}"))).collect()
    };
    let target = Target::resolve(&format!("http://{}/work", nginx.address)).expect("a URL");
    for _ in 0..2 {
        let spec = LoadSpec::poisson(target.clone(), 50.0, Duration::from_secs(600));
        let clients = start(spec).expect("clients");
        until("requests in flight", || peek()[0] > 3);
        nginx.kill_workers();
        clients.stop();
        drop(clients);
    }
    // The workers of now have a request each, so that they are there to look.
    let mut spec = LoadSpec::poisson(target, 50.0, Duration::from_secs(1));
    spec.seed = 3;
    start(spec).expect("clients").join().expect("a report");
    until("their requests to be forgotten", || peek()[..2] == [0, 0] && peek()[2] <= 2);
    assert_eq!(nginx.column("s1", 5) + nginx.column("s2", 5), 0);
    assert_eq!(nginx.errors().iter().filter(|line| line.contains("plimsoll")).count(), 0);
}

#[test]
fn the_dictionary_has_room_for_the_counters_of_all_workers() {
    let socket = SocketAddress::Unix("/run/x.sock".into());
    for (count, size) in [(3, "4m"), (100, "4m"), (200, "8m"), (2_000, "128m")] {
        let servers = (1..=count).map(|i| server(i, 100)).collect();
        let pools = [NginxPool { name: "shop".to_owned(), leastconn: true, servers }];
        let text = nginx_snippet(&socket, &pools).expect("good names");
        assert!(text.contains(&format!("\nlua_shared_dict plimsoll {size};\n")), "{count}");
    }
}
