//! Policies that go by what backends tell of themselves: ingresses are asked, applications are not.

use std::time::Duration;

use crate::support::*;

/// Ingresses before these, which trust the peers in `trust`.
fn ingresses(backends: &[&Backend], trust: &str, keys: &str) -> Running {
    let entry = |(i, backend): (usize, &&Backend)| {
        let (port, upstream) = (i + 1, backend.address);
        format!(
            "    - {{ name: i{i}, listen: \"127.0.0.1:{port}\", upstream: \"{upstream}\", trust: [\"{trust}\"], \
             capacity: {{ static: 1000 }}{keys} }}\n"
        )
    };
    let entries: String = backends.iter().enumerate().map(entry).collect();
    start(&format!("  threads: 1\n  ingress:\n{entries}"))
}

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const PROBE: &str = "OPTIONS * HTTP/1.1\r\nhost: a\r\nplimsoll-probe: 1\r\n\r\n";

#[test]
fn an_ingress_tells_its_load_to_those_it_trusts() {
    let gate = Gate::default();
    let backend = Backend::gated(&gate);
    let proxy = ingresses(&[&backend], "127.0.0.0/8", "");
    let load = || {
        let answer = proxy.client("i0").send(PROBE).answer();
        assert_eq!(answer.status, 204);
        answer.header("plimsoll-load").expect("a load").to_owned()
    };
    assert!(load().starts_with("in_flight=0, latency_us=0"), "{}", load());
    let mut held: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = proxy.client("i0");
            client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
            client
        })
        .collect();
    until("all are in flight", || load().starts_with("in_flight=3, latency_us=0"));
    gate.open();
    held.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    until("counted", || load().starts_with("in_flight=0, latency_us="));
    let told = load();
    let us = told.split("latency_us=").nth(1).and_then(|rest| rest.split(',').next());
    assert!(us.and_then(|us| us.parse::<f64>().ok()).is_some_and(|us| us > 0.0), "{told}");
    // The second reading of the CPU has something to compare with.
    until("the CPU is known", || load().contains(", cpu="));
    assert_eq!(backend.count(), 3, "the application is not asked");

    // Of others it is a request like any, and what is ours of it ends here; so is one of anybody's that is for the
    // application.
    let closed = ingresses(&[&backend], "192.0.2.0/24", "");
    let get = "GET /x HTTP/1.1\r\nhost: a\r\nplimsoll-probe: 1\r\n\r\n";
    let options = get.replace("GET", "OPTIONS");
    for (of, request) in [(&closed, PROBE), (&closed, get), (&proxy, get), (&proxy, &options)] {
        let before = backend.count();
        let answer = of.client("i0").send(request).answer();
        assert_eq!((answer.status, answer.header("plimsoll-load")), (200, None), "{request}");
        assert_eq!(backend.count(), before + 1, "{request}");
        assert_eq!(backend.last().header("plimsoll-probe"), None);
    }
}

/// An application that does one request at a time, behind an ingress that learns.
#[test]
fn an_ingress_tells_the_cores_that_it_has_learned() {
    let core = std::sync::Mutex::new(());
    let backend = Backend::new(move |_, stream| {
        let busy = core.lock().expect("nobody panics");
        std::thread::sleep(Duration::from_millis(3));
        drop(busy);
        write(stream, &response("200 OK", "", "done"));
        true
    });
    let proxy = start(&format!(
        "  threads: 1\n  ingress:\n    - {{ name: i0, listen: \"127.0.0.1:1\", upstream: \"{}\", trust: [\"127.0.0.0/8\"] }}\n",
        backend.address
    ));
    let load =
        || proxy.client("i0").send(PROBE).answer().header("plimsoll-load").map(str::to_owned);
    let told = || load().expect("a load").split("cores=").nth(1).map(str::to_owned);
    assert_eq!(told(), None, "there may be any number yet");
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..6 {
            let (proxy, ends) = (&proxy, &ends);
            // From one to six at a time, for some time each; no longer than the wait below, which else never fails.
            scope.spawn(move || {
                let mut client_of = proxy.client("i0");
                for round in 0..20_000 {
                    if ends.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                    match round / 30 % 6 >= client {
                        true => assert!([200, 429].contains(&client_of.get("/").status)),
                        false => std::thread::sleep(Duration::from_millis(3)),
                    }
                }
            });
        }
        until("a core is told", || told().as_deref() == Some("1"));
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn probes_are_not_in_the_access_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("access.json");
    let backend = Backend::ok("hi");
    let proxy = start(&format!(
        "  threads: 1\n  access_log: {{ file: \"{}\" }}\n  ingress:\n    - {{ name: i0, listen: \"127.0.0.1:1\", \
         upstream: \"{}\", trust: [\"127.0.0.0/8\"] }}\n",
        file.display(),
        backend.address
    ));
    let mut client = proxy.client("i0");
    assert_eq!(client.send(PROBE).answer().status, 204);
    assert_eq!(client.get("/logged").status, 200);
    assert_eq!(client.send(PROBE).answer().status, 204);
    drop((client, proxy));
    let log = std::fs::read_to_string(&file).expect("a log");
    assert!(log.lines().count() == 1 && log.contains("/logged"), "{log}");
}

/// How often an application was asked.
fn asked(backend: &Backend) -> usize {
    let received = backend.received.lock().expect("a list");
    received.iter().filter(|request| request.line() == "OPTIONS * HTTP/1.1").count()
}

/// How many requests an application got, besides.
fn served(backend: &Backend) -> usize {
    let received = backend.received.lock().expect("a list");
    received.iter().filter(|request| request.line() != "OPTIONS * HTTP/1.1").count()
}

/// An application that answers probes as an ingress does.
fn tells_its_load() -> Backend {
    Backend::new(|request, stream| {
        match request.header("plimsoll-probe") {
            Some(_) => {
                let load = "plimsoll-load: in_flight=0, latency_us=1, cpu=0.1\r\n";
                write(stream, &format!("HTTP/1.1 204 No Content\r\n{load}\r\n"));
            }
            None => write(stream, &response("200 OK", "", "hi")),
        }
        true
    })
}

#[test]
fn a_backend_that_has_left_is_not_asked_any_more() {
    let (stays, leaves) = (tells_its_load(), tells_its_load());
    let pool = "policy: cpu_random, load_age: 40ms";
    let both = [stays.address, leaves.address];
    let proxy = start(&egress(1, "", pool, &both));
    until("both are asked", || asked(&stays) > 2 && asked(&leaves) > 2);
    reload(&proxy, &egress(1, "", pool, &both[..1])).expect("taken up");
    until("it is left alone", || {
        let (before, of_other) = (asked(&leaves), asked(&stays));
        until("the other is asked", || asked(&stays) > of_other + 5);
        asked(&leaves) == before
    });
}

/// An application that serves, and answers no probe until the gate is opened.
fn hangs_when_asked(gate: &Gate) -> Backend {
    let gate = gate.clone();
    Backend::new(move |request, stream| {
        if request.header("plimsoll-probe").is_some() {
            gate.pass();
        }
        write(stream, &response("200 OK", "", "hi"));
        true
    })
}

#[test]
fn a_backend_that_hangs_is_asked_again_before_its_news_would_be_old() {
    let gate = Gate::default();
    let hangs = hangs_when_asked(&gate);
    let proxy = start(&egress(1, "", "policy: prequal, load_age: 1h", &[hangs.address]));
    let mut client = proxy.client("out");
    // As many as may wait at once, and one more.
    until("more are asked", || {
        assert_eq!(client.get("/").status, 200);
        asked(&hangs) > 64
    });
    gate.open();
}

#[test]
fn prequal_avoids_a_backend_that_tells_of_many_in_flight() {
    let gate = Gate::default();
    let (busy, idle) = (Backend::gated(&gate), Backend::ok("idle"));
    let behind = ingresses(&[&busy, &idle], "127.0.0.0/8", "");
    // Requests of others, which only the backend knows of.
    let others: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = behind.client("i0");
            client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
            client
        })
        .collect();
    until("they are there", || busy.count() == 20);
    let addresses = [behind.address("i0"), behind.address("i1")];
    let proxy = start(&egress(2, "", "policy: prequal, load_age: 10s", &addresses));
    // Without an answer yet the first are drawn; those that go to the busy one wait.
    let mut drawn = Vec::new();
    until("both have told", || {
        let mut client = proxy.client("out");
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        drawn.push(client);
        idle.count() >= 20
    });
    // What is on its way no backend tells of.
    let arrived = || busy.count() + idle.count();
    until("all drawn are there", || arrived() >= 20 + drawn.len());
    let sent = || (proxy.backends()[0].sent, proxy.backends()[1].sent);
    let before = sent();
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..100 {
        let mut client = proxy.client("out");
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        clients.push(client);
        until("it is there", || arrived() >= 20 + drawn.len() + clients.len());
    }
    let after = sent();
    // By draws it would be half, give or take five; which answers are at hand when one is picked is the system's to say.
    let to_busy = after.0 - before.0;
    assert!(to_busy <= 35, "{to_busy} of 100 went where 20 wait");
    gate.open();
    drop((others, drawn, clients));
    until("nothing is in flight", || proxy.in_flight() == 0 && behind.in_flight() == 0);
}

#[test]
fn expected_delay_by_probes_goes_where_backends_tell_of_fewest_whoever_sent_them() {
    let gate = Gate::default();
    let backends = [(); 3].map(|()| Backend::gated(&gate));
    let behind = ingresses(&backends.each_ref(), "127.0.0.0/8", "");
    let names = ["i0", "i1", "i2"];
    // Requests of others, which only the backends know of.
    let mut others: Vec<Client> = Vec::new();
    for (backend, name, has) in [(0, "i0", 12), (1, "i1", 6)] {
        for _ in 0..has {
            let mut client = behind.client(name);
            others.push(Client { stream: client.send(GET).stream.try_clone().expect("a socket") });
        }
        until("they are there", || backends[backend].count() == has);
    }
    let pool = "policy: expected_delay, expected_delay: { sight: probes }";
    let proxy = start(&egress(2, "", pool, &names.map(|name| behind.address(name))));
    let mut clients: Vec<Client> = Vec::new();
    for sent in 1..=36 {
        let mut client = proxy.client("out");
        client.send(GET);
        clients.push(client);
        let count = || backends.iter().map(Backend::count).sum::<usize>();
        until("it is there", || count() == 18 + sent);
    }
    // Drawn, they would be 12 each. An answer may be late; then the last ones count.
    let sent: Vec<u64> = proxy.backends().iter().map(|backend| backend.sent).collect();
    for (sent, exact) in sent.iter().zip([6, 12, 18]) {
        assert!(sent.abs_diff(exact) <= 3, "{sent} in place of {exact}");
    }
    gate.open();
    for client in clients.iter_mut().chain(&mut others) {
        assert_eq!(client.answer().status, 200);
    }
    until("nothing is in flight", || proxy.in_flight() + behind.in_flight() == 0);
}

#[test]
fn ten_balancers_that_do_not_know_of_each_other_fill_backends_evenly_by_probes() {
    let gate = Gate::default();
    let backends = [(); 4].map(|()| Backend::gated(&gate));
    let behind = ingresses(&backends.each_ref(), "127.0.0.0/8", "");
    let backend = |i: usize| {
        let address = behind.address(&format!("i{i}"));
        format!("{{ name: b{i}, address: \"{address}\" }}")
    };
    let entry = |i: usize| format!("    - {{ name: out{i}, listen: \"127.0.0.1:{}\" }}\n", i + 1);
    let entries: String = (0..10).map(entry).collect();
    let proxy = start(&format!(
        "  threads: 1\n  egress:\n{entries}  pools: [ {{ name: pool, policy: expected_delay, \
         expected_delay: {{ sight: probes }}, backends: [ {} ] }} ]\n",
        [0, 1, 2, 3].map(backend).join(", ")
    ));
    // One after the other, each through another balancer, none of which has ended.
    let mut clients: Vec<Client> = Vec::new();
    for sent in 1..=80 {
        let mut client = proxy.client(&format!("out{}", sent % 10));
        client.send(GET);
        clients.push(client);
        let count = || backends.iter().map(Backend::count).sum::<usize>();
        until("it is there", || count() == sent);
    }
    let counts = backends.each_ref().map(Backend::count);
    // By own counts each would begin anew. An answer may be late; then the last ones count.
    assert!(counts.iter().all(|count| count.abs_diff(20) <= 3), "{counts:?}");
    gate.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
}

#[test]
fn requests_do_not_wait_for_a_backend_that_does_not_answer_probes() {
    let gate = Gate::default();
    let hangs = hangs_when_asked(&gate);
    let (well, mute) = (Backend::ok("hi"), Backend::ok("hi"));
    let behind = ingresses(&[&well], "127.0.0.0/8", "");
    let (_held, refuses) = dead();
    let all = [hangs.address, behind.address("i0"), mute.address, refuses];
    let pool = "policy: expected_delay, expected_delay: { sight: probes, probes: 4 }";
    let proxy = start(&egress(1, "", pool, &all));
    let picked = || (well.count(), served(&hangs), served(&mute));
    // Where the one that tells is late, too, another serves: not in every round.
    until("whoever tells is picked, of 50", || {
        let (before, hung, silent) = (picked(), asked(&hangs), asked(&mute));
        let are_well = (0..50).all(|_| proxy.client("out").get("/").status == 200);
        assert!(asked(&hangs) < hung + 50, "it was asked again before it had answered");
        let was_left_alone = asked(&mute) <= silent + 1;
        are_well && was_left_alone && picked() == (before.0 + 50, before.1, before.2)
    });
    gate.open();
}

#[test]
fn by_probes_a_request_waits_here_rather_than_at_a_backend_without_room() {
    // One core.
    let core = std::sync::Arc::new(std::sync::Mutex::new(()));
    let backend = Backend::new(move |_, stream| {
        let one = core.lock();
        std::thread::sleep(std::time::Duration::from_millis(5));
        drop(one);
        write(stream, &response("200 OK", "", "slow"));
        true
    });
    let behind = ingresses(&[&backend], "127.0.0.0/8", "");
    let pool = "policy: expected_delay, expected_delay: { sight: probes }, refusals: { queue: {} }";
    let proxy = start(&egress(2, "", pool, &[behind.address("i0")]));
    let queue = || proxy.proxy.status().egress[0].pools[0].queue.expect("a queue");
    let address = proxy.address("out");
    let client = || {
        std::thread::spawn(move || {
            let mut client = Client::new(address);
            (0..100).all(|_| client.get("/").status == 200)
        })
    };
    // A request whose probe is late is sent without its news: not every round tells.
    until("requests wait here, and the backend refuses none", || {
        let (rejected, total) = (proxy.backends()[0].rejected, queue().total);
        let clients: Vec<_> = (0..8).map(|_| client()).collect();
        assert!(clients.into_iter().all(|client| client.join().expect("answers")));
        assert_eq!((queue().now, queue().refused), (0, 0));
        proxy.backends()[0].rejected == rejected && queue().total > total
    });
}

#[test]
fn cpu_random_gives_nothing_to_a_backend_whose_cpu_is_busy() {
    // A control group of the test's own making: what counts is what the files say.
    let group = tempfile::tempdir().expect("a directory");
    let path = group.path().to_owned();
    std::fs::write(path.join("cpu.max"), "100000 100000\n").expect("written");
    let put = move |used: u64| {
        // Renamed into place: it is never read half-written.
        std::fs::write(path.join("next"), format!("usage_usec {used}\n")).expect("written");
        std::fs::rename(path.join("next"), path.join("cpu.stat")).expect("renamed");
    };
    put(0);
    // The other's is idle: the machine itself may be as busy as a threshold of 100 % says.
    let idle = tempfile::tempdir().expect("a directory");
    std::fs::write(idle.path().join("cpu.max"), "100000 100000\n").expect("written");
    std::fs::write(idle.path().join("cpu.stat"), "usage_usec 0\n").expect("written");
    let (hot, cool) = (Backend::ok("hot"), Backend::ok("cool"));
    let of = |group: &std::path::Path| format!(", cpu: {{ cgroup: {} }}", group.display());
    let first = ingresses(&[&hot], "127.0.0.0/8", &of(group.path()));
    let second = ingresses(&[&cool], "127.0.0.0/8", &of(idle.path()));
    let addresses = [first.address("i0"), second.address("i0")];
    // This machine may be as busy as it likes.
    let pool = "policy: cpu_random, cpu_threshold_percent: 100, load_age: 4s";
    let proxy = start(&egress(1, "", pool, &addresses));
    let mut used = 0;
    let mut heat = || {
        used += 1_000_000_000;
        put(used);
    };
    // Of 20 requests all go to the other: by chance that happens once in a million times.
    until("its CPU is known to be busy", || {
        heat();
        let before = hot.count();
        (0..20).for_each(|_| assert_eq!(proxy.client("out").get("/").status, 200));
        hot.count() == before
    });
    // Idle again, it gets its part.
    until("its CPU is known to be idle", || {
        let before = hot.count();
        (0..20).for_each(|_| assert_eq!(proxy.client("out").get("/").status, 200));
        hot.count() > before
    });
}

#[test]
fn an_application_without_an_ingress_is_asked_once_and_serves() {
    let backends = [Backend::ok("0"), Backend::ok("1")];
    let addresses = backends.each_ref().map(|backend| backend.address);
    let proxy = start(&egress(1, "", "policy: prequal", &addresses));
    for _ in 0..50 {
        assert_eq!(proxy.client("out").get("/").status, 200);
    }
    until("each was asked", || backends.iter().all(|backend| asked(backend) > 0));
    // Some may have been under way when the first was answered.
    let before: Vec<usize> = backends.iter().map(asked).collect();
    assert!(before.iter().all(|asked| *asked < 50), "{before:?}");
}

/// An application behind an ingress that has so many requests in flight.
fn loaded(in_flight: &std::sync::Arc<std::sync::atomic::AtomicUsize>) -> Backend {
    let in_flight = in_flight.clone();
    Backend::new(move |request, stream| {
        let in_flight = in_flight.load(std::sync::atomic::Ordering::SeqCst);
        let load = format!("plimsoll-load: in_flight={in_flight}\r\n");
        match request.line().starts_with("OPTIONS") {
            true => write(stream, &format!("HTTP/1.1 204 No Content\r\n{load}\r\n")),
            false => write(stream, &response("200 OK", "plimsoll-chip: 1\r\n", "hi")),
        }
        true
    })
}

#[test]
fn expected_delay_asks_before_it_picks_once_others_send_to_its_backends() {
    let in_flight = std::sync::Arc::default();
    let backends = [loaded(&in_flight), loaded(&in_flight)];
    let pool = "policy: expected_delay";
    let proxy = start(&egress(1, "", pool, &[backends[0].address, backends[1].address]));
    let asked = || asked(&backends[0]) + asked(&backends[1]);
    let send_to = |proxy: &Running, requests: usize| {
        (0..requests).for_each(|_| assert_eq!(proxy.client("out").get("/").status, 200));
    };
    send_to(&proxy, 320);
    until("some have asked", || asked() >= 10);
    assert!(asked() <= 20, "{}: one of sixteen asks beside it", asked());
    in_flight.store(4, std::sync::atomic::Ordering::SeqCst);
    send_to(&proxy, 640);
    let before = asked();
    send_to(&proxy, 100);
    assert!(asked() >= before + 100, "{} of 100 asked", asked() - before);
    // Where every connection is some client's, there is none to ask on.
    let pool = "policy: expected_delay, proxy_protocol: v1";
    let proxy = start(&egress(1, "", pool, &[backends[0].address]));
    let before = asked();
    send_to(&proxy, 100);
    assert_eq!(asked(), before);
}
