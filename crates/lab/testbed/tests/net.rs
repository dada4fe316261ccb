//! Sites: real servers and clients in namespaces. The balancer is the kernel here, which routes the
//! service to one server, and so to another one: what that breaks must be seen.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use plimsoll_testbed::net::clients::{Break, ClientReport, ClientSpec, Clients, Session, Sessions};
use plimsoll_testbed::net::{Download, Namespaces, Nginx, ReplyPath, Site, SiteSpec, requirements};

/// No test waits longer.
const PATIENCE: Duration = Duration::from_secs(20);
const DOWNLOAD: Download = Download { bytes: 1 << 30, bytes_per_s: 1 << 20 };

/// Whether networks can be made here; says so when not.
fn possible() -> bool {
    let met = requirements();
    if let Err(why) = &met {
        eprintln!("skipped: {why}");
    }
    met.is_ok()
}

/// The kernel's route to one of two servers.
fn route(site: &Site, server: usize) {
    let (vip, via) = (site.vip.ip(), site.address_of(server));
    let family = if vip.is_ipv4() { "" } else { "-6" };
    site.net.run("lb", &format!("ip {family} route replace {vip} via {via}")).unwrap();
}

fn serve(site: &Site) -> Vec<Nginx> {
    let start = |name: &String| Nginx::start(&site.net, name, site.vip, DOWNLOAD).unwrap();
    site.servers.iter().map(start).collect()
}

/// Looks at the clients' numbers until they are so.
fn until(clients: &Clients, what: &str, is_so: impl Fn(&ClientReport) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so(&clients.report()) {
        assert!(Instant::now() < end, "waited in vain for {what}: {:?}", clients.report().broken);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All clients ask the first server; then the second one takes over.
fn take_over(spec: &SiteSpec) {
    let site = Site::new(spec).unwrap();
    let _servers = serve(&site);
    route(&site, 0);
    let spec = ClientSpec {
        sessions: Sessions::Closed { clients: 4 },
        requests: 1_000_000,
        pause: Duration::from_millis(10),
        downloads: 3,
        ..ClientSpec::new(site.vip)
    };
    let clients = Clients::start(&site.net.namespace("cli").unwrap(), spec).unwrap();
    until(&clients, "answers", |r| r.open == 7 && r.requests > 20 && r.download_bytes > 1 << 20);
    let before = clients.report();
    assert_eq!(before.broken, vec![]);
    assert_eq!(before.latency_us.len(), before.requests);
    assert_eq!(before.by_server.keys().collect::<Vec<_>>(), ["s1"]);
    route(&site, 1);
    until(&clients, "broken ones", |r| r.broken.len() == 7);
    until(&clients, "new ones", |r| r.open == 7);
    let after = clients.finish();
    // A server that does not know a connection resets it.
    assert_eq!(after.by_break().into_iter().collect::<Vec<_>>(), [(Break::Reset, 7)]);
    assert_eq!(after.broken.iter().filter(|one| one.download).count(), 3);
    assert!(after.broken.iter().all(|one| one.server.as_deref() != Some("s2")));
    assert_eq!(after.seconds.iter().map(|one| one.broken).sum::<u64>(), 7);
    assert_eq!(after.by_server["s2"], 7);
    assert_eq!((after.opened, after.broken_share()), (14, 0.5));
}

#[test]
fn a_server_that_takes_over_breaks_every_connection() {
    if possible() {
        take_over(&SiteSpec::new(2));
    }
}

#[test]
fn so_it_does_by_ipv6_and_with_replies_that_go_straight_to_the_client() {
    if possible() {
        take_over(&SiteSpec { v6: true, reply_path: ReplyPath::Direct, ..SiteSpec::new(2) });
    }
}

#[test]
fn no_address_is_probed_for_duplicates() {
    /// IFA_F_TENTATIVE of linux/if_addr.h, fifth of the columns of if_inet6.
    const TENTATIVE: u32 = 0x40;
    if !possible() {
        return;
    }
    let site = Site::new(&SiteSpec::new(2)).unwrap();
    for name in ["cli", "lb", "s1", "s2"] {
        let list = || std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
        let list = site.net.inside(name, list).unwrap();
        assert!(list.lines().count() > 2, "{name}: {list}");
        for line in list.lines() {
            let flags = line.split_whitespace().nth(4).unwrap();
            assert_eq!(u32::from_str_radix(flags, 16).unwrap() & TENTATIVE, 0, "{name}: {line}");
        }
    }
}

/// Answers as `one`, then `other`, on each connection.
fn two_faced(net: &Namespaces) -> SocketAddr {
    let listener = net.inside("a", || TcpListener::bind("127.0.0.1:80")).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the process: it holds nothing but a socket of a namespace that is removed.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut names = ["one", "other"].iter().cycle();
            let mut writer = stream.try_clone().unwrap();
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if line.is_empty() {
                    let name = names.next().unwrap();
                    let head = format!("HTTP/1.1 200 OK\r\nX-Backend: {name}\r\n");
                    let _ = write!(writer, "{head}Content-Length: 3\r\n\r\nhi\n");
                }
            }
        }
    });
    address
}

#[test]
fn a_changed_server_and_a_refused_connection_are_counted_as_broken() {
    if !possible() {
        return;
    }
    let net = Namespaces::new(&["a"]).unwrap();
    let spec = ClientSpec {
        sessions: Sessions::Open { connections_per_s: 50.0 },
        requests: 2,
        pause: Duration::ZERO,
        ..ClientSpec::new(two_faced(&net))
    };
    let clients = Clients::start(&net.namespace("a").unwrap(), spec.clone()).unwrap();
    until(&clients, "changed servers", |r| r.broken.len() >= 5);
    let report = clients.finish();
    assert!(report.broken.iter().all(|one| one.how == Break::ChangedServer), "{report:?}");
    assert!(report.broken.iter().all(|one| one.server.as_deref() == Some("one")));

    // A port without a listener.
    let nobody = ClientSpec { target: "127.0.0.1:81".parse().unwrap(), ..spec };
    let clients = Clients::start(&net.namespace("a").unwrap(), nobody).unwrap();
    until(&clients, "refusals", |r| r.broken.len() >= 5);
    let report = clients.finish();
    assert!(report.broken.iter().all(|one| one.how == Break::NotOpened), "{report:?}");
    assert_eq!((report.opened, report.broken_share()), (0, 1.0));
}

#[test]
fn listed_connections_last_as_long_as_listed() {
    if !possible() {
        return;
    }
    let site = Site::new(&SiteSpec::new(1)).unwrap();
    let _servers = serve(&site);
    route(&site, 0);
    let session = |begins, lasts| Session {
        begins: Duration::from_millis(begins),
        lasts: Duration::from_millis(lasts),
    };
    let spec = ClientSpec {
        sessions: Sessions::Listed(vec![session(0, 0), session(50, 500), session(100, 600_000)]),
        pause: Duration::from_millis(200),
        ..ClientSpec::new(site.vip)
    };
    let clients = Clients::start(&site.net.namespace("cli").unwrap(), spec).unwrap();
    // One at the beginning; one for each pause, and one at the end.
    until(&clients, "one that stays", |r| r.opened == 3 && r.open == 1 && r.requests >= 1 + 4 + 4);
    let report = clients.finish();
    assert_eq!(report.broken, vec![]);
    assert_eq!(report.seconds.iter().map(|one| one.ended).sum::<u64>(), 2);
}
