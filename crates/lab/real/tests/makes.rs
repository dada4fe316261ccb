//! Servers of every make in their control groups: they burn what is asked for, and die whole.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use plimsoll_lanes::Family;
use plimsoll_real::cgroup::{CgroupError, Cgroups};
use plimsoll_real::{Make, Model, Pool, RealError, Servers};
use plimsoll_testbed::Service;

/// Long beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// One server with a core of its own, so that only its own work takes time.
struct Lone {
    // In the order in which they are to end.
    servers: Servers,
    family: Family,
    _cgroups: Cgroups,
    lane: String,
}

impl Lone {
    /// None, and a word why, where this machine does not let us have it. `number` is the test's own.
    fn start(make: Make, model: Model, threads: usize, number: u8) -> Option<Lone> {
        match make.find() {
            Err(why @ RealError::Missing { .. }) => {
                eprintln!("skipped: {why}");
                return None;
            }
            found => found.unwrap(),
        };
        let cgroups = match Cgroups::open() {
            Err(why @ (CgroupError::NoController | CgroupError::NotRoot(_))) => {
                eprintln!("skipped: {why}");
                return None;
            }
            opened => opened.unwrap(),
        };
        let pool = Pool {
            sizes: Pool::sizes(&[1.0], 1.0),
            period: Duration::from_millis(100),
            cpus: None,
            make,
            model,
            threads,
            work: Service::deterministic(Duration::from_millis(1)),
            health_work: Duration::from_millis(20),
        };
        let (family, lane) = (Family::start().unwrap(), format!("lane-{number}"));
        let servers = Servers::start(&family, &cgroups, &pool, &lane, number).unwrap();
        Some(Lone { servers, family, _cgroups: cgroups, lane })
    }

    fn address(&self) -> SocketAddr {
        self.servers.addresses()[0].1
    }

    fn send(&self, target: &str) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&self.address(), PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = format!("GET {target} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }

    fn get(&self, target: &str) -> u16 {
        status(self.send(target).unwrap()).unwrap()
    }

    /// The server's processes, not those of its neighbour.
    fn processes(&self) -> Vec<u32> {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let prefix = format!("plimsoll-real-{}-", std::process::id());
        for mount in mounts.lines().filter(|line| line.contains("cgroup")) {
            let entries = std::fs::read_dir(mount.split(' ').nth(1).unwrap());
            for run in entries.into_iter().flatten().flatten() {
                let procs = run.path().join(&self.lane).join("s1/server/cgroup.procs");
                if !run.file_name().to_string_lossy().starts_with(&prefix) || !procs.exists() {
                    continue;
                }
                let text = std::fs::read_to_string(procs).unwrap();
                return text.lines().map(|line| line.parse().unwrap()).collect();
            }
        }
        panic!("no group of {}", self.lane)
    }

    /// CPU time of all their threads.
    fn cpu_time(&self) -> Duration {
        let of = |process: u32| -> Duration {
            let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
            let of = |task: io::Result<std::fs::DirEntry>| {
                let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
                Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
            };
            tasks.map(of).sum()
        };
        self.processes().into_iter().map(of).sum()
    }
}

fn status(mut stream: TcpStream) -> io::Result<u16> {
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.ok_or_else(|| io::Error::other(format!("answered `{text}`")))
}

fn wait_for(make: Make, what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{make:?} is not {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn each_request_burns_what_it_asks_for() {
    for (make, number) in [(Make::Own, 1), (Make::Node, 2), (Make::Php, 3)] {
        let Some(lone) = Lone::start(make, Model::Threads, 2, number) else { continue };
        let before = lone.cpu_time();
        (0..10).for_each(|_| assert_eq!(lone.get("/work?work_us=30000"), 200));
        let burnt = lone.cpu_time() - before;
        // Ten times 30 ms, and something for HTTP: CPU time, however long it took.
        let bounds = Duration::from_millis(300)..Duration::from_millis(600);
        assert!(bounds.contains(&burnt), "{make:?}: {burnt:?}");
        let before = lone.cpu_time();
        (0..10).for_each(|_| assert_eq!(lone.get("/health"), 200));
        let burnt = lone.cpu_time() - before;
        let bounds = Duration::from_millis(200)..Duration::from_millis(500);
        assert!(bounds.contains(&burnt), "{make:?}: {burnt:?}");
        assert_eq!((lone.get("/work"), lone.get("/nothing")), (200, 404), "{make:?}");
        assert_eq!(lone.get("/work?work_us=much"), 400, "{make:?}");
    }
}

#[test]
fn health_waits_behind_work() {
    let one = [
        (Make::Own, Model::Threads),
        (Make::Own, Model::EventLoop),
        (Make::Node, Model::Threads),
        (Make::Php, Model::Threads),
    ];
    for ((make, model), number) in one.into_iter().zip(11..) {
        let Some(lone) = Lone::start(make, model, 1, number) else { continue };
        let before = lone.cpu_time();
        let worker = lone.send("/work?work_us=800000").unwrap();
        wait_for(make, "at work", || lone.cpu_time() > before + Duration::from_millis(50));
        assert_eq!(lone.get("/health"), 200);
        // By then the work is done: all its CPU time has been burnt, as exactly as the kernel counts.
        let burnt = lone.cpu_time() - before;
        assert!(burnt > Duration::from_millis(750), "{make:?}: {burnt:?}");
        assert_eq!(status(worker).unwrap(), 200);
    }
}

#[test]
fn all_processes_of_a_server_stop_go_on_and_die_together() {
    for (make, number) in [(Make::Own, 21), (Make::Node, 22), (Make::Php, 23)] {
        let Some(mut lone) = Lone::start(make, Model::Threads, 4, number) else { continue };
        // nginx, its worker, php-fpm and its four; the first may serve before the last is there.
        let all = if make == Make::Php { 7 } else { 1 };
        wait_for(make, "all there", || lone.processes().len() == all);
        lone.servers.stop(0);
        let waiting = lone.send("/work").unwrap();
        waiting.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let silence = status(waiting.try_clone().unwrap()).unwrap_err();
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock, "{make:?}");
        lone.servers.go_on(0);
        waiting.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(status(waiting).unwrap(), 200, "{make:?}");
        lone.servers.check().unwrap();
        lone.servers.kill(0);
        let refused = lone.send("/work").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{make:?}");
        assert_eq!(lone.processes(), [0; 0], "{make:?}");
        lone.servers.spawn(&lone.family, 0).unwrap();
        wait_for(make, "back", || lone.send("/work").and_then(status).ok() == Some(200));
        wait_for(make, "all there again", || lone.processes().len() == all);
    }
}
