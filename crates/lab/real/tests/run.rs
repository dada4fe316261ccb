//! What lanes of real servers have in common.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_lanes::{Family, Front, FrontSpec, Lb, Server, haproxy_version};
use plimsoll_testbed::Service;

#[test]
fn lanes_have_the_same_arrivals_and_every_request_the_same_work() {
    if haproxy_version().is_none() {
        eprintln!("skipped: no haproxy");
        return;
    }
    let family = Family::start().unwrap();
    let seen = ["one", "two"].map(|name| {
        // A server that answers nothing and keeps what was asked.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server { name: "s1".into(), address, weight: 1 };
        let spec = FrontSpec {
            name: name.into(),
            lb: Lb::Haproxy,
            balance: "roundrobin",
            servers: vec![server],
            balancers: 1,
            steering: None,
            rate_rps: 50.0,
            work: Some(Service::exponential(Duration::from_micros(5500))),
            seed: 7,
        };
        let mut front = Front::start(&family, spec).unwrap();
        let reader = std::thread::spawn(move || {
            let mut asked = BTreeMap::new();
            for _ in 0..20 {
                let (mut stream, _) = listener.accept().unwrap();
                let target = first_line(&mut stream);
                *asked.entry(target).or_insert(0_u32) += 1;
                let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                std::io::Write::write_all(&mut stream, answer).unwrap();
            }
            asked
        });
        front.open(&family).unwrap();
        let asked = reader.join().unwrap();
        // What is still asked is refused: nobody listens any more.
        let (_, report) = front.finish().unwrap();
        let starts: Vec<u64> = report.records.iter().take(20).map(|r| r.start_ns).collect();
        (asked, starts)
    });
    assert_eq!(seen[0].1.len(), 20);
    assert_eq!(seen[0], seen[1]);
}

fn first_line(stream: &mut std::net::TcpStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        std::io::Read::read_exact(stream, &mut byte).unwrap();
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap().lines().next().unwrap().to_owned()
}
