//! The task against a runtime API that hangs where a real one cannot be made to.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_model::{BackendId, Nanos, Plan, PlanEntry, PlanKind};

use super::*;
use crate::SinkHandle;

/// Nothing here takes so long, but an answer that never comes.
const PATIENCE: Duration = Duration::from_secs(30);

/// HAProxy with backends `a` and `b` of one server each; a weight for `a` is never answered.
struct Fake {
    dir: tempfile::TempDir,
    connections: Arc<AtomicUsize>,
}

impl Fake {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("h.sock")).expect("a socket");
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let weights = Arc::new(Mutex::new(["10".to_owned(), "10".to_owned()]));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::Relaxed);
                let weights = weights.clone();
                std::thread::spawn(move || serve(stream, &weights));
            }
        });
        Fake { dir, connections }
    }

    fn subscribe(&self, balancers: &HaproxyTasks, backend: &str) -> SinkHandle {
        self.subscribe_within(PATIENCE, balancers, backend)
    }

    /// One that waits no longer for an answer.
    fn subscribe_within(
        &self,
        timeout: Duration,
        balancers: &HaproxyTasks,
        backend: &str,
    ) -> SinkHandle {
        let (handle, end) = SinkHandle::new();
        let servers = vec![(BackendId(1), "s1".to_owned())];
        let backend = SteeredBackend::new(backend, servers).expect("names");
        let socket = SocketAddress::Unix(self.dir.path().join("h.sock"));
        let names = (backend.name().to_owned(), socket);
        let subscriber = Subscriber::new(names, backend, timeout, Poll::ByReading, false, end);
        balancers.subscribe(subscriber, std::time::Instant::now());
        handle
    }
}

fn serve(stream: UnixStream, weights: &Mutex<[String; 2]>) {
    let mut writer = stream.try_clone().expect("a second handle");
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let held = weights.lock().expect("weights").clone();
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["show", "info"] => {
                "Pid: 42\nStopping: 0\nStart_time_sec: 9\nTotalBytesOut: 0".to_owned()
            }
            ["show", "cli", "level"] => "admin".to_owned(),
            ["show", "servers", "state", ..] => {
                let mut text = "1\n# be_id srv_name srv_op_state srv_admin_state srv_uweight \
                                srv_iweight srv_check_state srv_agent_state\n"
                    .to_owned();
                for (i, name) in ["a", "b"].iter().enumerate() {
                    if words.get(3).is_none_or(|wanted| wanted == name) {
                        text += &format!("{} s1 2 0 {} 10 0 0\n", i + 2, held[i]);
                    }
                }
                text
            }
            ["show", "stat", id, kind, _] => {
                let mut text = "# pxname,iid,svname,qcur,scur,slim,stot,econ,eresp,wretr,wredis,\
                                status,weight,type,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,hrsp_other,\
                                check_status,addr,algo,bck\n"
                    .to_owned();
                let (server, class, algo) =
                    if kind == "2" { ("BACKEND", 1, "roundrobin") } else { ("s1", 2, "") };
                for (name, number) in [("a", "2"), ("b", "3")] {
                    if id == "-1" || id == number {
                        text += &format!(
                            "{name},{number},{server},,,,,,,,,UP,10,{class},,,,,,,,,{algo},\n"
                        );
                    }
                }
                text
            }
            ["set", "server", "a/s1", ..] => {
                std::thread::sleep(2 * PATIENCE);
                return;
            }
            ["set", "server", "b/s1", "weight", weight] => {
                weights.lock().expect("weights")[1] = weight.to_owned();
                String::new()
            }
            _ => String::new(),
        };
        if writer.write_all(format!("{answer}\n\n> ").as_bytes()).is_err() {
            return;
        }
    }
}

fn plan(epoch: u64, weight: u32) -> Plan {
    let entries = vec![PlanEntry { backend: BackendId(1), share: 1.0, weight }];
    Plan { epoch, at: Nanos::ZERO, kind: PlanKind::Packed, reason: String::new(), entries }
}

async fn until(handle: &mut SinkHandle, mut wanted: impl FnMut(&SinkReport) -> bool) {
    let told = async {
        let mut is_so = false;
        while !is_so {
            is_so = wanted(&handle.reports.recv().await.expect("the task lives"));
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("it is told");
}

#[tokio::test]
async fn a_plan_that_hangs_at_one_service_does_not_stop_the_others() {
    let (fake, balancers) = (Fake::start(), HaproxyTasks::default());
    // Time for all that does not hang, on a machine that does other things.
    let limit = Duration::from_secs(1);
    let mut a = fake.subscribe_within(limit, &balancers, "a");
    let mut b = fake.subscribe_within(limit, &balancers, "b");
    for handle in [&mut a, &mut b] {
        until(handle, |report| matches!(report, SinkReport::Read(..))).await;
    }
    for epoch in 1..4 {
        a.program(plan(epoch, 77));
        b.program(plan(epoch, 20 + epoch as u32));
        until(&mut b, |report| matches!(report, SinkReport::Applied(done) if done.epoch == epoch))
            .await;
        until(&mut b, |report| matches!(report, SinkReport::Read(..))).await;
    }
    until(&mut a, |report| matches!(report, SinkReport::Failed(..))).await;
}

#[tokio::test]
async fn services_behind_one_haproxy_do_not_take_a_connection_each() {
    let (fake, balancers) = (Fake::start(), HaproxyTasks::default());
    let mut handles = [fake.subscribe(&balancers, "a"), fake.subscribe(&balancers, "b")];
    for _ in 0..3 {
        for handle in &mut handles {
            until(handle, |report| matches!(report, SinkReport::Read(..))).await;
        }
    }
    assert_eq!(fake.connections.load(Ordering::Relaxed), 1);
    // Its task ends with the last service; the next one begins with a connection of its own.
    drop(handles);
    let mut again = fake.subscribe(&balancers, "a");
    until(&mut again, |report| matches!(report, SinkReport::Read(..))).await;
}

#[tokio::test]
async fn a_haproxy_that_is_not_there_is_lost_again_and_again_and_a_plan_fails() {
    let (handle, end) = SinkHandle::new();
    let mut handle = handle;
    let servers = vec![(BackendId(1), "s1".to_owned())];
    let backend = SteeredBackend::new("shop", servers).expect("names");
    let names = ("shop".to_owned(), SocketAddress::Unix("/no/such.sock".into()));
    let timeout = Duration::from_secs(1);
    let subscriber = Subscriber::new(names, backend, timeout, Poll::ByReading, false, end);
    handle.program(plan(5, 1));
    HaproxyTasks::default().subscribe(subscriber, std::time::Instant::now());
    until(&mut handle, |report| matches!(report, SinkReport::Failed(5, loss) if loss.retryable))
        .await;
    for _ in 0..2 {
        until(&mut handle, |report| matches!(report, SinkReport::Lost(loss) if loss.retryable))
            .await;
    }
}

#[test]
fn intervals_do_not_change_below_a_hundred_servers_and_grow_with_many() {
    let (_handle, end) = SinkHandle::new();
    let backend = SteeredBackend::new("shop", Vec::new()).expect("a name");
    let names = ("shop".to_owned(), SocketAddress::Unix("/h.sock".into()));
    let mut subscriber =
        Subscriber::new(names, backend, Duration::ZERO, Poll::ByReading, false, end);
    let ms = Duration::from_millis;
    assert_eq!([1, 100, 300].map(|rows| subscriber.interval(rows)), [ms(25); 3]);
    assert_eq!([1_000, 3_000].map(|rows| subscriber.interval(rows)), [ms(65), ms(195)]);
    assert_eq!(subscriber.interval(100_000), LONGEST);
    subscriber.kind = MethodKind::InFlight;
    assert_eq!([1, 100, 1_000].map(|rows| subscriber.interval(rows)), [ms(50), ms(50), ms(65)]);
    subscriber.poll = Poll::Every(ms(30));
    assert_eq!(subscriber.interval(3_000), ms(30), "an operator's word");
}

#[tokio::test]
async fn a_corrected_server_name_is_steered_at_the_next_reading() {
    let (fake, balancers) = (Fake::start(), HaproxyTasks::default());
    let mut b = fake.subscribe(&balancers, "b");
    until(&mut b, |report| matches!(report, SinkReport::Read(..))).await;
    let server = |id, name: &str| (BackendId(id), name.to_owned());
    b.set_servers(vec![server(1, "s1"), server(2, "s9")]);
    b.program(plan(1, 30));
    until(&mut b, |report| matches!(report, SinkReport::Failed(1, loss) if !loss.retryable)).await;
    b.set_servers(vec![server(1, "s1")]);
    b.program(plan(2, 31));
    until(&mut b, |report| matches!(report, SinkReport::Applied(done) if done.epoch == 2)).await;
    let next = b.reports.recv().await.expect("the task lives");
    assert!(matches!(next, SinkReport::Read(..)), "{next:?}");
}
