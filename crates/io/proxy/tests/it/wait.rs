//! Requests that were refused wait for room, where their pool lets them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_proxy::QueueStatus;

use crate::support::*;

const GET: &str = "GET / HTTP/1.1\r\nhost: shop\r\n\r\n";

/// An ingress before this application, that lets in one request at a time.
fn ingress(application: &Backend) -> Running {
    start(&format!(
        "  threads: 1
  ingress: [ {{ name: in, listen: \"127.0.0.1:1\", upstream: \"{}\", capacity: {{ static: 1 }} }} ]
",
        application.address
    ))
}

/// The one place of the application is taken until the gate is opened; an egress, whose requests go there.
struct Taken {
    proxy: Running,
    behind: Running,
    application: Backend,
    gate: Gate,
    holder: Client,
}

impl Taken {
    fn new(threads: usize, wait: &str) -> Self {
        let gate = Gate::default();
        let application = Backend::gated(&gate);
        let behind = ingress(&application);
        let proxy = start(&egress(threads, "", &pool(wait), &[behind.address("in")]));
        let mut holder = proxy.client("out");
        holder.send(GET);
        until("the place is taken", || application.count() == 1);
        Taken { proxy, behind, application, gate, holder }
    }

    /// So many more, once they wait.
    fn waiting(&self, count: u64) -> Vec<Client> {
        let before = waits(&self.proxy).now;
        (1..=count)
            .map(|i| {
                let mut client = self.proxy.client("out");
                client.send(GET);
                until("it waits", || waits(&self.proxy).now == before + i);
                client
            })
            .collect()
    }

    fn finish(mut self, clients: Vec<Client>) {
        self.gate.open();
        assert_eq!(self.holder.answer().status, 200);
        for mut client in clients {
            assert_eq!(client.answer().status, 200);
        }
        until("all is over", || self.proxy.in_flight() + self.behind.in_flight() == 0);
        assert_eq!(waits(&self.proxy).now, 0);
    }
}

fn pool(wait: &str) -> String {
    format!("policy: least_connections, refusals: {{ most: 3{wait} }}")
}

fn waits(proxy: &Running) -> QueueStatus {
    proxy.proxy.status().egress[0].pools[0].queue.expect("a pool whose requests may wait")
}

/// The statuses that so many clients get, each of which sends so many requests, one after the other, to a slow application
/// with room for one; and the most that the application had at once.
fn answers(threads: usize, clients: usize, requests: usize, wait: &str) -> (Vec<u16>, usize) {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let peak = most.clone();
    let application = Backend::new(move |_, stream| {
        peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(10));
        now.fetch_sub(1, Ordering::SeqCst);
        write(stream, &response("200 OK", "", "slow"));
        true
    });
    let behind = ingress(&application);
    let proxy = start(&egress(threads, "", &pool(wait), &[behind.address("in")]));
    let address = proxy.address("out");
    let client = || {
        thread::spawn(move || {
            let mut client = Client::new(address);
            let status = |_| match client.post("/", "a body").status {
                200 => 200,
                status => {
                    thread::sleep(Duration::from_millis(1));
                    status
                }
            };
            (0..requests).map(status).collect::<Vec<u16>>()
        })
    };
    let clients: Vec<_> = (0..clients).map(|_| client()).collect();
    let all = clients.into_iter().flat_map(|client| client.join().expect("answers")).collect();
    until("all is over", || proxy.in_flight() + behind.in_flight() == 0);
    (all, most.load(Ordering::SeqCst))
}

#[test]
fn all_are_answered_where_they_wait_and_some_are_refused_where_they_do_not() {
    let (without, _) = answers(1, 6, 10, "");
    assert!(without.contains(&429), "{without:?}");
    for threads in [1, 3] {
        let (with, most) = answers(threads, 6, 10, ", queue: { timeout: 60s }");
        assert_eq!(with, vec![200; 60]);
        assert_eq!(most, 1, "the application's line holds");
    }
}

#[test]
fn a_queued_request_goes_when_one_in_flight_ends() {
    for threads in [1, 2] {
        let taken = Taken::new(threads, ", queue: { timeout: 60s }");
        let clients = taken.waiting(5);
        assert_eq!(taken.application.count(), 1, "none of them came to the application");
        let status = waits(&taken.proxy);
        assert_eq!(status, QueueStatus { now: 5, total: 5, refused: 0, client_left: 0 });
        taken.finish(clients);
    }
}

#[test]
fn after_the_queue_timeout_a_request_is_refused_as_without_a_queue() {
    let taken = Taken::new(1, ", queue: { timeout: 80ms }");
    let began = Instant::now();
    let answer = taken.proxy.client("out").get("/");
    assert_eq!((answer.status, answer.body.as_str()), (429, "refused: full\n"));
    assert!(began.elapsed() >= Duration::from_millis(80));
    let status = waits(&taken.proxy);
    assert_eq!(status, QueueStatus { now: 0, total: 1, refused: 1, client_left: 0 });
    taken.finish(Vec::new());
}

#[test]
fn a_request_time_out_ends_the_wait_and_is_no_failure_of_a_backend() {
    let gate = Gate::default();
    let application = Backend::gated(&gate);
    let behind = ingress(&application);
    let entry = ", timeouts: { request: 3s }";
    let pool = pool(", queue: { timeout: 60s }");
    let proxy = start(&egress(1, entry, &pool, &[behind.address("in")]));
    let mut holder = behind.client("in");
    holder.send(GET);
    until("the place is taken", || application.count() == 1);
    // Its last try is refused, or where that takes too long given up.
    let status = proxy.client("out").get("/").status;
    assert!([429, 504].contains(&status), "{status}");
    assert_eq!(proxy.backends()[0].failed, 0);
    assert!(waits(&proxy).refused == 1 || status == 504);
    gate.open();
    assert_eq!(holder.answer().status, 200);
}

#[test]
fn a_client_that_leaves_is_out_at_once_and_never_sent() {
    let taken = Taken::new(2, ", queue: { timeout: 60s, max_requests: 2 }");
    let mut clients = taken.waiting(2);
    drop(clients.remove(0));
    until("its place is free", || {
        matches!(waits(&taken.proxy), QueueStatus { now: 1, client_left: 1, .. })
    });
    clients.extend(taken.waiting(1));
    let status = waits(&taken.proxy);
    assert_eq!(status, QueueStatus { now: 2, total: 3, refused: 0, client_left: 1 });
    let received = taken.application.received.clone();
    taken.finish(clients);
    assert_eq!(received.lock().expect("a list").len(), 3, "the holder's and two more");
}

#[test]
fn no_more_wait_than_may() {
    let taken = Taken::new(1, ", queue: { timeout: 60s, max_requests: 2 }");
    let clients = taken.waiting(2);
    let answer = taken.proxy.client("out").get("/");
    assert_eq!((answer.status, answer.body.as_str()), (429, "refused: full\n"));
    assert_eq!(waits(&taken.proxy), QueueStatus { now: 2, total: 2, refused: 0, client_left: 0 });
    taken.finish(clients);
}

#[test]
fn none_that_waits_is_lost_in_a_reload() {
    let taken = Taken::new(2, ", queue: { timeout: 60s }");
    let mut clients = taken.waiting(3);
    let address = taken.behind.address("in");
    let of = |entry: &str, pool: &str| egress(2, entry, pool, &[address]);
    let same = pool(", queue: { timeout: 60s }");
    reload(&taken.proxy, &of(", timeouts: { request: 29s }", &same)).expect("taken up");
    assert_eq!(waits(&taken.proxy).now, 3);
    clients.extend(taken.waiting(1));
    // Another pool of the same name, whose requests do not wait: those that do go on.
    reload(&taken.proxy, &of("", &pool(""))).expect("taken up");
    until("taken up", || taken.proxy.client("out").get("/").status == 429);
    reload(&taken.proxy, &of("", &same)).expect("taken up");
    assert_eq!(waits(&taken.proxy).now, 4);
    taken.finish(clients);
}

#[test]
fn a_queued_request_goes_to_backends_that_came_meanwhile() {
    let taken = Taken::new(2, ", queue: { timeout: 60s }");
    let clients = taken.waiting(2);
    let newcomer = Backend::ok("new");
    let section = egress(2, "", &pool(", queue: { timeout: 60s }"), &[newcomer.address]);
    // Only the newcomer, under another name: the backend of before takes no more.
    reload(&taken.proxy, &section.replace("name: b0", "name: new")).expect("taken up");
    for mut client in clients {
        assert_eq!(client.answer().body, "new");
    }
    taken.finish(Vec::new());
}

#[test]
fn requests_that_wait_are_finished_before_the_end() {
    let mut taken = Taken::new(2, ", queue: { timeout: 60s }");
    let clients = taken.waiting(3);
    let gate = taken.gate.clone();
    let ended = {
        let Running { proxy } = taken.proxy;
        thread::spawn(move || proxy.stop(PATIENCE))
    };
    thread::sleep(Duration::from_millis(50));
    gate.open();
    assert_eq!(taken.holder.answer().status, 200);
    for mut client in clients {
        assert_eq!(client.answer().status, 200);
    }
    ended.join().expect("it ends");
    assert_eq!(taken.application.count(), 4);
}
