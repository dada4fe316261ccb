//! Without Lua: weights in a file, and reloads.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use plimsoll_model::BackendId;
use plimsoll_sink::{
    NginxPool, NginxReloadConfig, NginxReloadSink, ReportSource, Servers, WeightSink,
};

use crate::contract::{self, ALL, plan};
use crate::rig::{Nginx, PROGRAM, server, until};

/// What stands first in a file that NGINX has not read.
const UNREAD: &str = "# plimsoll: NGINX has not read this file yet\n";

/// The same NGINX, whose first pool is an upstream of its own with a file of servers.
struct Reloaded(Nginx);

impl Reloaded {
    fn start() -> Option<Self> {
        let pools =
            [NginxPool { name: "lua".to_owned(), leastconn: false, servers: vec![server(9, 1)] }];
        let nginx = Nginx::prepare(&pools, "own")?;
        let lines: String =
            (1..=3).map(|i| format!("server 127.0.0.1:{i} weight={};\n", 10 * i)).collect();
        std::fs::write(nginx.dir.join("own.servers"), lines).expect("written");
        let mut reloaded = Reloaded(nginx);
        reloaded.0.start_again();
        Some(reloaded)
    }

    fn config(&self) -> NginxReloadConfig {
        let dir = &self.0.dir;
        let config = dir.join("nginx.conf").display().to_string();
        let command = [PROGRAM, "-p", &dir.display().to_string(), "-c", &config].map(str::to_owned);
        NginxReloadConfig {
            pid: dir.join("pid"),
            command: command.into(),
            // The contract changes weights as fast as it can.
            min_interval: Duration::from_nanos(1),
            ..NginxReloadConfig::new(dir.join("own.servers"))
        }
    }

    /// Servers of the contract are called s1, s2, s3: by their addresses here.
    fn name(server: &str) -> String {
        match server.strip_prefix('s').and_then(|n| n.parse::<u16>().ok()) {
            Some(n) => format!("127.0.0.1:{n}"),
            None => server.to_owned(),
        }
    }

    fn sink_of(&self, servers: &[&str]) -> NginxReloadSink {
        let named = (1..).map(BackendId).zip(servers.iter().map(|name| Self::name(name))).collect();
        NginxReloadSink::new(self.config(), named).expect("good names")
    }

    fn named(&self) -> Servers {
        (1..=3).map(|i| (BackendId(i), format!("127.0.0.1:{i}"))).collect()
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.0.dir.join("own.servers")).expect("readable")
    }
}

impl contract::Bed for Reloaded {
    type Sink = NginxReloadSink;
    const KEEPS_WEIGHTS: bool = true;

    fn sink(&self, servers: &[&str]) -> NginxReloadSink {
        self.sink_of(servers)
    }

    fn named(&self, server: &str) -> String {
        Self::name(server)
    }

    fn weight(&self, server: &str) -> u32 {
        let text = self.file();
        let line =
            text.lines().find(|line| line.contains(&format!("server {} ", Self::name(server))));
        let line = line.unwrap_or_else(|| panic!("{server} in {text}"));
        if line.contains(" down;") {
            return 0;
        }
        let (_, rest) = line.split_once("weight=").expect("a weight");
        rest.split([' ', ';']).next().and_then(|weight| weight.parse().ok()).expect("a number")
    }

    fn meddle(&self, weight: u32) {
        let name = Self::name("s2");
        let change = |line: &str| match line.contains(&name) {
            true => format!("server {name} weight={weight};\n"),
            false => format!("{line}\n"),
        };
        let text: String = self.file().lines().map(change).collect();
        std::fs::write(self.0.dir.join("own.servers"), text).expect("written");
    }

    fn stop(&mut self) {
        self.0.stop();
    }

    fn start_again(&mut self) {
        self.0.start_again();
    }

    fn take_away(&mut self, server: &str) {
        let name = format!("server {} ", Self::name(server));
        let file = self.file();
        let rest: Vec<&str> = file.lines().filter(|line| !line.contains(&name)).collect();
        std::fs::write(self.0.dir.join("own.servers"), rest.join("\n") + "\n").expect("written");
        self.0.signal("HUP");
    }
}

#[tokio::test]
async fn what_every_sink_promises_holds_by_reloads() {
    let Some(mut bed) = Reloaded::start() else { return };
    contract::holds(&mut bed).await;
    contract::goes_on_without_a_server(&mut bed).await;
}

#[tokio::test]
async fn a_link_to_the_file_stays_one() {
    let Some(bed) = Reloaded::start() else { return };
    let (file, own) = (bed.0.dir.join("own.servers"), bed.0.dir.join("real.servers"));
    std::fs::rename(&file, &own).expect("moved");
    std::os::unix::fs::symlink(&own, &file).expect("linked");
    let mut sink = bed.sink_of(&ALL);
    sink.rehearse().await.expect("all is there");
    sink.apply(&plan(&[5, 6, 7])).await.expect("applied");
    assert!(file.symlink_metadata().expect("there").is_symlink());
    assert!(std::fs::read_to_string(&own).expect("readable").contains("weight=5;"));
    let config = NginxReloadConfig { command: vec!["/no/nginx".to_owned()], ..bed.config() };
    let sink = NginxReloadSink::new(config, bed.named()).expect("good names");
    let error = sink.rehearse().await.expect_err("no such program");
    assert!(error.to_string().contains("cannot run `/no/nginx`"), "{error}");
}

#[tokio::test]
async fn without_lua_weights_are_written_and_reloaded_and_nothing_is_left_half_done() {
    let Some(mut bed) = Reloaded::start() else { return };
    let mut sink = bed.sink_of(&["s1", "s2", "s3"]);
    let workers = |bed: &Reloaded| {
        let pid = bed.0.child.as_ref().expect("it runs").id().to_string();
        let children = Command::new("pgrep").args(["-P", &pid]).output().expect("run pgrep");
        String::from_utf8_lossy(&children.stdout).into_owned()
    };
    // Workers come a moment after NGINX answers, and those that a reload replaces leave a moment after it.
    let settled = |bed: &Reloaded| {
        until("two workers", || workers(bed).lines().count() == 2);
        workers(bed)
    };
    let before = settled(&bed);
    let report = sink.read().await.expect("read");
    assert_eq!(report.servers.iter().map(|s| s.weight).collect::<Vec<_>>(), [10, 20, 30]);
    let applied = sink.apply(&plan(&[1_000, 20, 0])).await.expect("applied");
    assert_eq!(applied.commands, 2);
    until("other workers", || workers(&bed) != before);
    let written = "server 127.0.0.1:1 weight=1000;\nserver 127.0.0.1:2 weight=20;\nserver 127.0.0.1:3 weight=1 down; # \
                   weight 0 by plimsoll\n";
    assert_eq!(bed.file(), written);
    let again = sink.apply(&plan(&[1_000, 20, 0])).await.expect("applied");
    assert_eq!(again.commands, 0, "nothing differs: no reload");
    for bad in [plan(&[5, 1_001, 5]), plan(&[0, 0, 0]), plan(&[5, 5, 5, 5])] {
        assert!(!sink.apply(&bad).await.expect_err("refused").retryable());
    }
    let error = bed.sink_of(&["s1", "s7"]).apply(&plan(&[1, 2])).await.expect_err("unknown");
    assert!(error.to_string().contains("no server 127.0.0.1:7; it has 127.0.0.1:1,"), "{error}");

    // A life that ended between the writing and the reload left this file: the next one has NGINX read it before it says
    // that these are the weights, and once.
    let before = settled(&bed);
    let left = format!("{UNREAD}{}", written.replace("weight=20", "weight=21"));
    std::fs::write(bed.0.dir.join("own.servers"), left).expect("written");
    let error = bed.sink_of(&["s1"]).that_only_looks().read().await.expect_err("not read");
    assert!(error.to_string().contains("NGINX has not read"), "{error}");
    assert_eq!(workers(&bed), before, "a look changes nothing");
    let mut next = bed.sink_of(&["s1", "s2", "s3"]);
    let held =
        next.read().await.expect("read").servers.iter().map(|s| s.weight).collect::<Vec<_>>();
    assert_eq!(held, [1_000, 21, 0]);
    assert_ne!(workers(&bed), before, "NGINX runs with what was read");
    let before = settled(&bed);
    next.read().await.expect("read");
    assert_eq!((bed.file(), workers(&bed)), (written.replace("weight=20", "weight=21"), before));
    next.apply(&plan(&[1_000, 20, 0])).await.expect("applied");

    // A reload that NGINX refuses is reported in its words, and the file is as it was.
    let main = bed.0.dir.join("nginx.conf");
    let good = std::fs::read_to_string(&main).expect("readable");
    std::fs::write(&main, good.replace("worker_processes 2;", "worker_processes two;"))
        .expect("written");
    let error = sink.apply(&plan(&[1, 2, 3])).await.expect_err("NGINX refuses");
    assert!(error.retryable() && error.to_string().contains("worker_processes"), "{error}");
    assert_eq!(bed.file(), written);
    // So is one that passes the test and fails after all: another program listens there.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let busy = good.replacen("listen ", &format!("listen {address};\nlisten "), 1);
    std::fs::write(&main, busy).expect("written");
    let config = NginxReloadConfig { timeout: Duration::from_secs(4), ..bed.config() };
    let mut hasty = NginxReloadSink::new(config, bed.named()).expect("good names");
    let error = hasty.apply(&plan(&[1, 2, 3])).await.expect_err("NGINX goes on as before");
    assert!(error.retryable() && error.to_string().contains("no new workers"), "{error}");
    // It may take them yet, so the file is to be read again; and what NGINX does not run with is not said to be held.
    assert_eq!(bed.file(), format!("{UNREAD}{written}"));
    for _ in 0..2 {
        let error = hasty.read().await.expect_err("not read");
        assert!(error.retryable() && error.to_string().contains("has not read"), "{error}");
    }
    assert!(bed.file().starts_with(UNREAD));
    drop(taken);
    std::fs::write(&main, good).expect("written");
    sink.apply(&plan(&[1, 2, 3])).await.expect("applied");

    // Seldom: the second of two is refused, and says when.
    let config = NginxReloadConfig { min_interval: Duration::from_secs(600), ..bed.config() };
    let mut seldom = NginxReloadSink::new(config, bed.named()).expect("good names");
    assert_eq!(seldom.limits().min_interval, Duration::from_secs(600));
    seldom.apply(&plan(&[3, 2, 1])).await.expect("the first");
    let error = seldom.apply(&plan(&[1, 2, 3])).await.expect_err("too soon");
    assert!(error.to_string().contains("the last reload was a moment ago"), "{error}");

    bed.0.stop();
    for _ in 0..2 {
        let error = sink.read().await.expect_err("gone");
        assert!(error.retryable(), "{error}");
    }
    bed.0.start_again();
    let weights: Vec<u32> =
        sink.read().await.expect("read").servers.iter().map(|s| s.weight).collect();
    assert_eq!(weights, [3, 2, 1], "the file keeps them");
}
