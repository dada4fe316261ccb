//! Without a file: a running HAProxy tells what it has, and is steered.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::rig::{Daemon, Rig, arg, err, out, plimsoll, until, until_within};

/// Backends that cannot be helped.
const BEYOND_HELP: &str = "
backend hashed
  balance uri
  server s1 127.0.0.1:1
  server s2 127.0.0.1:1
backend single
  server s1 127.0.0.1:1
backend fixed
  balance static-rr
  server s1 127.0.0.1:1
  server s2 127.0.0.1:1
";

fn names(daemon: &Daemon) -> BTreeSet<String> {
    let weights = daemon.weights();
    let backends = weights["backends"].as_array().into_iter().flatten();
    backends.map(|b| b["backend"].as_str().expect("a name").to_owned()).collect()
}

fn services(daemon: &Daemon) -> Vec<String> {
    let weights = daemon.ask("weights");
    let services = weights["services"].as_array().into_iter().flatten();
    services.map(|one| one["service"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_running_haproxy_is_steered_without_a_file_and_what_is_out_of_reach_is_named() {
    let mut rig = Rig::new("leastconn", &[1.0, 2.0, 4.0]);
    rig.haproxy.extend(BEYOND_HELP);
    let _clients = rig.clients(300.0);
    let began = Instant::now();
    let daemon = rig.daemon_without_a_file(&[]);
    until("a plan", || daemon.weights()["epoch"].as_u64().is_some_and(|epoch| epoch > 0));
    eprintln!("first plan {:.1} s after the start", began.elapsed().as_secs_f64());
    assert_eq!(services(&daemon), ["shop"]);
    let socket = rig.haproxy.socket("admin");
    let asked = ["doctor", "--haproxy", arg(&socket), "--listen", &rig.api.to_string()];
    let report = out(&plimsoll(&asked));
    assert!(report.contains("api: a daemon answers at") && report.contains("serve; "), "{report}");
    for why in [
        "`balance uri` with a map-based hash: its weights are fixed",
        "it has one server: nothing to divide",
        "`static-rr` takes no weights",
        "can be helped: leastconn, 3 servers",
    ] {
        daemon.until_log_has(why);
    }
    // It learns from ordinary traffic alone, and shares the machine with other tests.
    until_within(Duration::from_secs(90), "the fastest server to have the most", || {
        let [s1, s3] = ["s1", "s3"].map(|name| rig.weight(name));
        s1 > 0 && 2 * s3 > 3 * s1
    });

    // A server that is added while it runs joins, and leaves when it is taken away.
    let spare = crate::rig::emulated(&[1.0]);
    let more = plimsoll_testbed::Testbed::start(plimsoll_testbed::TestbedSpec {
        admin: None,
        backends: spare,
    })
    .expect("one more");
    let (_, at) = &more.addresses()[0];
    rig.haproxy.ask(&format!("add server shop/new {at} weight 100"));
    rig.haproxy.ask("enable server shop/new");
    until("it to join", || names(&daemon).contains("new"));
    rig.haproxy.ask("set server shop/new state maint");
    until("its deletion", || rig.haproxy.ask("del server shop/new").contains("deleted"));
    until("it to leave", || !names(&daemon).contains("new"));
    assert_eq!(names(&daemon).len(), 3);
}

#[test]
fn observing_without_a_file_changes_nothing_and_needs_no_more_than_operator() {
    let mut rig = Rig::new("roundrobin", &[1.0, 4.0]);
    rig.haproxy.extend("backend other\n  server s1 127.0.0.1:1\n  server s2 127.0.0.1:2\n");
    rig.level = "operator";
    let _clients = rig.clients(200.0);
    let daemon = rig.daemon_without_a_file(&["--observe", "--backend", "shop"]);
    until("a plan that is only shown", || {
        daemon.backend("s2")["weight"].as_u64() > daemon.backend("s1")["weight"].as_u64()
    });
    assert_eq!(services(&daemon), ["shop"], "--backend narrows");
    assert_eq!([rig.weight("s1"), rig.weight("s2")], [100, 100]);
}

#[test]
fn a_file_that_init_writes_passes_check_and_follows_the_balancer() {
    let mut rig = Rig::new("roundrobin", &[1.0, 2.0]);
    rig.haproxy.extend(&format!(
        "{BEYOND_HELP}backend 007\n  server true 127.0.0.1:1\n  server 1e5 127.0.0.1:2\n"
    ));
    let socket = rig.haproxy.socket("admin");
    let file = rig.path("init.yaml");
    for more in [&[][..], &["--list"]] {
        let output = plimsoll(&[&["init", "--haproxy", arg(&socket)], more].concat());
        assert!(output.status.success(), "{}", err(&output));
        std::fs::write(&file, out(&output)).expect("written");
        let checked = plimsoll(&["check", "--config", arg(&file)]);
        assert!(checked.status.success(), "{} of {}", err(&checked), out(&output));
    }
    let output = plimsoll(&["init", "--haproxy", arg(&socket), "--backend", "shop"]);
    let text = out(&output);
    let of_others = text.contains("007\"") || text.contains("backend: 007");
    assert!(text.contains("backends: auto") && !of_others, "{text}");
    let text = text
        .replace("./plimsoll-state", arg(&rig.path("state")))
        .replace("127.0.0.1:7400", &rig.api.to_string());
    std::fs::write(&file, text).expect("written");
    let mut daemon = Daemon::spawn(&file, rig.api, &rig.path("log"), &[]);
    daemon.wait_until_it_answers();
    assert_eq!(names(&daemon), BTreeSet::from(["s1", "s2"].map(str::to_owned)));
    let report = plimsoll(&["doctor", "--config", arg(&file)]);
    assert!(out(&report).contains("asked of the balancer"), "{}", out(&report));
    rig.haproxy.ask("add server shop/s3 127.0.0.1:3 weight 100");
    until("it to join", || names(&daemon).contains("s3"));
}

/// A HAProxy whose slots follow this server's answers, and a file that leaves them to it.
fn with_slots(dns: &Dns, more: &str) -> (Rig, PathBuf) {
    let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
    rig.haproxy.extend(&format!(
        "resolvers here\n  nameserver one 127.0.0.1:{}\n  timeout resolve 300ms\n  timeout retry 300ms\n  hold \
         nx 300ms\n  hold obsolete 300ms\n  hold valid 300ms\nbackend slots\n  balance leastconn\n  server-template \
         web 1-4 shop.test:80 resolvers here init-addr none check inter 500ms\n",
        dns.port
    ));
    let file = rig.path("auto.yaml");
    let text = format!(
        "services:\n  - name: slots\n    backends: auto\n    sink: {{ haproxy: {{ socket: {}, backend: slots }} }}\n\
         {more}store: {{ path: {} }}\napi: {{ listen: \"{}\" }}\n",
        rig.haproxy.socket("admin").display(),
        rig.path("state").display(),
        rig.api
    );
    std::fs::write(&file, text).expect("written");
    (rig, file)
}

#[test]
fn slots_of_a_server_template_join_when_they_are_resolved() {
    let dns = Dns::start();
    let (rig, file) = with_slots(&dns, "");
    let mut daemon = Daemon::spawn(&file, rig.api, &rig.path("log"), &[]);
    daemon.wait_until_it_answers();
    assert_eq!(names(&daemon), BTreeSet::new());
    until("why it is out of reach", || daemon.log().contains("its name is not resolved yet"));
    let status = out(&plimsoll(&["status", "--api", daemon.api()]));
    assert!(!status.contains("OUTAGE"), "{status}");
    assert!(status.contains("whether its backends serve is not known"), "{status}");
    dns.answer(&[Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)]);
    until_within(std::time::Duration::from_secs(60), "two slots to join", || {
        names(&daemon).len() == 2
    });
    dns.answer(&[2, 3, 4].map(|n| Ipv4Addr::new(127, 0, 0, n)));
    until_within(std::time::Duration::from_secs(60), "a third", || names(&daemon).len() == 3);
    let report = out(&plimsoll(&["doctor", "--config", arg(&file)]));
    assert_eq!(report.matches("its name is not resolved yet").count(), 1, "{report}");
    assert!(!report.contains("is not planned"), "{report}");
    assert!(daemon.is_running());
}

/// It only has to be one: nobody answers the probes.
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIULxrHx+Mye8PPiPLmCszeeJ0xJU8wCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjkxNTIxNTRaGA8yMTI2MTEwNTE1MjE1
NFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABMlz
e+wnLAOyjnTjjrTxasQ8WKEp2zPoPzMdUxRBKiljZre7wAhuZmuw57hjukDb48Tz
eW8FyeMuZKlIANnotxGjUzBRMB0GA1UdDgQWBBQSSjOJCX/grW8gFOA1uzVg+It9
EjAfBgNVHSMEGDAWgBQSSjOJCX/grW8gFOA1uzVg+It9EjAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIBoJHGgE8CqRAFKGifNG9b/Hb32MhHfY0Opy
wX+PAvFwAiEAlgG12St3jKj9SxxNzNTgO7Qp5Z3zc1WB0ctzmUJNsqQ=
-----END CERTIFICATE-----
";

#[test]
fn a_change_that_was_refused_is_taken_up_when_it_can_be() {
    let dns = Dns::start();
    let directory = tempfile::tempdir().expect("a directory");
    let (here, away) = (directory.path().join("ca.pem"), directory.path().join("away"));
    std::fs::write(&here, CERTIFICATE).expect("written");
    let probe =
        format!("    probe: {{ path: /, scheme: https, tls: {{ ca: \"{}\" }} }}\n", here.display());
    let (rig, file) = with_slots(&dns, &probe);
    let mut daemon = Daemon::spawn(&file, rig.api, &rig.path("log"), &[]);
    daemon.wait_until_it_answers();
    // While the file is replaced a server comes.
    std::fs::rename(&here, &away).expect("moved");
    dns.answer(&[Ipv4Addr::new(127, 0, 0, 2)]);
    let refused = "ca.pem";
    until_within(Duration::from_secs(60), "it to be refused", || daemon.log().contains(refused));
    assert_eq!(names(&daemon), BTreeSet::new());
    std::fs::rename(&away, &here).expect("moved");
    until_within(Duration::from_secs(60), "the server", || names(&daemon).len() == 1);
    assert!(daemon.is_running());
}

#[test]
fn a_haproxy_that_is_not_up_yet_is_waited_for_and_one_whose_pools_went_is_watched_on() {
    let mut rig = Rig::new("roundrobin", &[1.0, 2.0]);
    rig.haproxy.stop();
    let daemon = rig.daemon_without_a_file(&[]);
    daemon.until_log_has("waiting for the balancer");
    assert_eq!(services(&daemon), Vec::<String>::new());
    for command in ["status", "plan"] {
        let said = err(&plimsoll(&[command, "--api", daemon.api()]));
        assert!(said.contains("has no services: waiting for the balancer: "), "{said}");
    }
    rig.haproxy.start_again();
    until("its pool", || services(&daemon) == ["shop"]);
    rig.haproxy.rename("shop", "store");
    until("the pool that it has now", || services(&daemon) == ["store"]);
    rig.haproxy.rename("store\n  balance roundrobin", "store\n  balance static-rr");
    rig.haproxy.rename("store", "other");
    until("none to be steered", || services(&daemon).is_empty());
    daemon.until_log_has("`static-rr` takes no weights");
}

/// HAProxy's port maps tell an address that is none, like those of a HAProxy in another network.
#[test]
fn servers_that_only_haproxy_reaches_are_steered_and_none_is_taken_out_for_it() {
    let mut rig = Rig::new("roundrobin", &[1.0, 4.0]);
    let front = rig.haproxy.address.port();
    for (_, address) in rig.bed.addresses().to_vec() {
        let map = format!("{}:+{}", address.ip(), address.port() - front);
        rig.haproxy.rename(&address.to_string(), &map);
    }
    let daemon = rig.daemon_without_a_file(&[]);
    let weights = || [rig.weight("s1"), rig.weight("s2")];
    let said = "no server can be reached at its address from here";
    until("what Plimsoll cannot see", || daemon.log().contains(said));
    let served = || {
        let output = plimsoll(&["doctor", "--haproxy", arg(&rig.haproxy.socket("admin"))]);
        out(&output).contains("2 of 2 servers take no connection at their addresses from here")
    };
    assert!(served(), "doctor tells");
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(weights(), [100, 100], "nobody asks, and nothing is known");
    let clients = rig.clients(200.0);
    until_within(Duration::from_secs(60), "weights by capacity", || {
        let [s1, s2] = weights();
        s1 > 0 && s2 > 2 * s1
    });
    drop(clients);
    let lull = Instant::now();
    while lull.elapsed() < Duration::from_secs(6) {
        assert!(weights().iter().all(|weight| *weight > 0), "{:?}: {}", weights(), daemon.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    daemon.signal("TERM");
    assert!(daemon.end().success());
    assert!(weights().iter().all(|weight| *weight > 0), "{:?}", weights());
}

#[test]
fn what_cannot_be_helped_ends_it_with_the_reason() {
    let rig = Rig::new("uri", &[1.0, 1.0]);
    let socket = rig.haproxy.socket("admin");
    let store = rig.path("state");
    let run = |more: &[&str]| {
        let output = plimsoll(&[&["run", "--store", arg(&store), "--haproxy"], more].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        err(&output)
    };
    let said = run(&[arg(&socket)]);
    assert!(said.contains("none of its pools can be helped; shop: `balance uri`"), "{said}");
    let said = run(&[arg(&socket), "--backend", "shoq"]);
    assert!(said.contains("it has no \"shoq\"; it has shop"), "{said}");
    let said = run(&[arg(&socket), "--backend", "shoq", "--backend", "shop", "--backend", "x"]);
    assert!(said.contains("it has no \"shoq\", \"x\"; it has shop"), "{said}");
    let output = plimsoll(&["run", "--haproxy", arg(&socket), "--listen", "0.0.0.0:7400"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = plimsoll(&["init", "--haproxy", arg(&socket)]);
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true), "{output:?}");
    assert!(err(&output).contains("can be helped; shop: `balance uri`"), "{}", err(&output));
    for more in [&[][..], &["--backend", "shop"]] {
        let asked = ["doctor", "--haproxy", arg(&socket)];
        let listen = rig.api.to_string();
        let output = plimsoll(&[&asked[..], &["--listen", listen.as_str()], more].concat());
        assert_eq!(output.status.code(), Some(1), "nothing can be helped: {output:?}");
        assert!(out(&output).contains("out of reach: `balance uri`"), "{}", out(&output));
    }
    let said = err(&plimsoll(&["run"]));
    for one in ["--config", "--haproxy", "--nginx", "--l4"] {
        assert!(said.contains(one), "{one} in {said}");
    }
}

/// A name server that answers every question for an address with the same ones.
struct Dns {
    port: u16,
    addresses: Arc<Mutex<Vec<Ipv4Addr>>>,
}

impl Dns {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let port = socket.local_addr().expect("its address").port();
        let addresses: Arc<Mutex<Vec<Ipv4Addr>>> = Arc::default();
        let theirs = addresses.clone();
        std::thread::spawn(move || {
            let mut question = [0; 1_500];
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                let answer = reply(&question[..length], &theirs.lock().expect("no panic"));
                let _ = socket.send_to(&answer, from);
            }
        });
        Dns { port, addresses }
    }

    fn answer(&self, addresses: &[Ipv4Addr]) {
        *self.addresses.lock().expect("no panic") = addresses.to_vec();
    }
}

fn reply(question: &[u8], addresses: &[Ipv4Addr]) -> Vec<u8> {
    let end = 12 + question[12..].iter().position(|b| *b == 0).expect("a name") + 5;
    let is_address = question[end - 4..end - 2] == [0, 1];
    let addresses = if is_address { addresses } else { &[] };
    let code = if addresses.is_empty() { 3 } else { 0 };
    let mut answer = question[..2].to_vec();
    answer.extend([0x81, 0x80 | code, 0, 1, 0, addresses.len() as u8, 0, 0, 0, 0]);
    answer.extend(&question[12..end]);
    for address in addresses {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(address.octets());
    }
    answer
}
