//! What the daemon tells over HTTP, and where.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{Daemon, PATIENCE};
use crate::rig::service::{Service, all_stay};
use crate::rig::{at, privileged};

/// Where the clients reach the balancer's metrics.
const PLACE: &str = "10.0.1.1:7401";

/// An answer's head and body, as the clients get it.
fn ask(service: &Service, place: &str, request: &str) -> Result<(String, String), String> {
    let place: SocketAddr = at(place);
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&place, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "{request} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let text = service.net.inside("cli", exchange).expect("enters");
    let text = text.map_err(|error| error.to_string())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("no head")?;
    Ok((head.to_ascii_lowercase(), body.to_owned()))
}

/// Samples by name and labels.
fn metrics(service: &Service, place: &str) -> Result<BTreeMap<String, f64>, String> {
    let (head, body) = ask(service, place, "GET /metrics")?;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    Ok(body.lines().filter(|line| !line.starts_with('#')).map(sample).collect())
}

/// A daemon that serves them at every address.
fn serving(service: &Service) -> Daemon<'_> {
    let mut daemon = Daemon::of(service, &["s1", "s2"]);
    daemon.change("  vips:", "  metrics: { listen: \"0.0.0.0:7401\" }\n  vips:");
    daemon.start();
    daemon
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn metrics_are_what_status_tells() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let daemon = serving(&service);
    let mut connections = service.opened(10);
    all_stay(&mut connections, "while they are looked at");
    // At an instant without packets: the last ACKs of the connections come a little later.
    let mut status = daemon.status();
    let mut told = BTreeMap::new();
    until("packets to stop", || {
        told = metrics(&service, PLACE).expect("answers");
        std::mem::replace(&mut status, daemon.status()) == status
    });
    let number = |value: &Value| value.as_f64().expect("a number");
    let backends = status["vips"][0]["backends"].as_array().expect("a list");
    assert_eq!(backends.len(), 2);
    for one in backends {
        let labels = format!("{{service=\"shop\",backend={}}}", one["name"]);
        for (metric, field) in [
            ("packets_in_total", "packets_in"),
            ("bytes_in_total", "bytes_in"),
            ("packets_out_total", "packets_out"),
            ("bytes_out_total", "bytes_out"),
            ("connections_total", "new_connections"),
            ("open_connections", "open_connections"),
            ("clock_moved_total", "clock_moved"),
            ("weight", "weight"),
            ("weight_ratio", "part"),
        ] {
            let name = format!("plimsoll_l4_backend_{metric}{labels}");
            assert_eq!(told.get(&name), Some(&number(&one[field])), "{name}");
        }
        assert_eq!(told[&format!("plimsoll_l4_backend_connections_total{labels}")], 5.0);
    }
    for (reason, count) in status["vips"][0]["fallbacks"].as_object().expect("a mapping") {
        let name = format!("plimsoll_l4_fallbacks_total{{service=\"shop\",reason=\"{reason}\"}}");
        assert_eq!(told.get(&name), Some(&number(count)), "{name}");
    }
    assert_eq!(told["plimsoll_l4_attached{interface=\"lbc\"}"], 1.0);
    // The clients are on a link, and there is no default route.
    assert_eq!(told["plimsoll_l4_replies{family=\"ipv4\",by=\"routes_asked\"}"], 1.0);
    let asked = &told["plimsoll_l4_routes_asked_total{service=\"shop\"}"];
    assert_eq!(*asked, number(&status["vips"][0]["routes_asked"]));
    assert!(told.contains_key(concat!(
        "plimsoll_build_info{version=\"",
        env!("CARGO_PKG_VERSION"),
        "\"}"
    )));

    // On a busy machine an ACK may come after all.
    until("the same from the API", || {
        let (head, body) = ask(&service, PLACE, "GET /v1/status").expect("answers");
        assert!(head.contains("content-type: application/json"), "{head}");
        serde_json::from_str::<Value>(&body).expect("JSON") == daemon.status()
    });
    for (request, code) in
        [("GET /v1/services", 404), ("POST /metrics", 405), ("GET /metrics?x=1", 400)]
    {
        let (head, body) = ask(&service, PLACE, request).expect("answers");
        assert!(head.starts_with(&format!("http/1.1 {code} ")), "{request}: {head}");
        assert!(body.starts_with("{\"error\":"), "{request}: {body}");
    }

    // Taken from under the daemon, there is nothing to tell, until that has noticed and ends.
    assert!(daemon.output(&["detach"]).status.success());
    let answer = ask(&service, PLACE, "GET /metrics");
    assert!(answer.is_err() || answer.is_ok_and(|(head, _)| head.starts_with("http/1.1 503 ")));
}

#[test]
fn a_port_in_use_is_refused_at_the_start_and_waited_for_after_a_reload() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let bound = |place| service.net.inside("lb", || TcpListener::bind(place)).expect("enters");
    let listener = bound("0.0.0.0:7401").expect("listens");
    let mut daemon = Daemon::of(&service, &["s1", "s2"]);
    daemon.change("  vips:", "  metrics: { listen: \"0.0.0.0:7401\" }\n  vips:");
    // Whoever has it answers nothing that a daemon of ours would.
    listener.set_nonblocking(true).expect("set");
    let closing = std::thread::spawn(move || {
        // One is asked for its name.
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Ok((stream, _)) = listener.accept() {
                drop(stream);
                return listener;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nobody asked");
    });
    let refused = daemon.output(&["run"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("l4.metrics.listen: cannot listen on 0.0.0.0:7401: Address"), "{said}");
    let status = daemon.output(&["status"]);
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    assert!(said.contains("no balancer is pinned here"), "it took nothing over: {said}");
    drop(closing.join().expect("asked"));

    daemon.start();
    assert!(metrics(&service, PLACE).is_ok());
    let holder = bound("0.0.0.0:7499").expect("listens");
    daemon.change("7401", "7499");
    daemon.wait_for("l4.metrics.listen: cannot listen on 0.0.0.0:7499: Address");
    assert!(metrics(&service, PLACE).is_ok(), "as before");
    drop(holder);
    until("the port that was in use", || metrics(&service, "10.0.1.1:7499").is_ok());
    until("none at the port before", || metrics(&service, PLACE).is_err());
    // Another address of the same port, at which the old one would be in the way.
    daemon.change("0.0.0.0:7499", "127.0.0.1:7499");
    let at_home =
        || service.net.inside("lb", || TcpStream::connect("127.0.0.1:7499")).expect("enters");
    let is_narrow = || metrics(&service, "10.0.1.1:7499").is_err() && at_home().is_ok();
    until("nobody else to reach it", is_narrow);
    daemon.change("  metrics: { listen: \"127.0.0.1:7499\" }\n", "");
    until("none any more", || at_home().is_err());
}

#[test]
fn the_next_daemon_takes_the_port_over_from_the_one_before() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let mut daemon = serving(&service);
    let started = || metrics(&service, PLACE).ok().map(|told| told["plimsoll_start_time_seconds"]);
    let before = started().expect("served");
    let mut older = daemon.hand_over();
    let log = daemon.dir.path().join("log");
    fs::rename(&log, daemon.dir.path().join("older")).expect("moved");
    daemon.start();
    assert!(older.wait().expect("ended").success());
    until("the newer one's", || started().is_some_and(|now| now > before));
    assert!(daemon.log().contains("7401 is left by the daemon before"), "{}", daemon.log());
    assert!(!daemon.log().contains("cannot listen"), "{}", daemon.log());
}
