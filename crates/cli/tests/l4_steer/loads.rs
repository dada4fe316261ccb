//! `policy: awrr` with `load: cpu`: real agents, one of them on a machine that burns its CPUs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_l4::Keys;
use plimsoll_testbed::net::SiteSpec;
use serde_json::Value;

use crate::place::{Place, Process, binary, each, until};

/// Something that goes on on a thread until it is dropped.
struct Ongoing(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Ongoing {
    fn start(mut step: impl FnMut() + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                step();
            }
        });
        Ongoing(over, Some(thread))
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            let _ = thread.join();
        }
    }
}

/// Every CPU of this machine busy.
fn burn() -> Vec<Ongoing> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let spin = || {
        for n in 0..1_000_000u64 {
            std::hint::black_box(n);
        }
    };
    (0..cpus).map(|_| Ongoing::start(spin)).collect()
}

/// A `/proc/stat` of a machine that is idle: namespaces share the real one.
fn idle(path: &Path) -> Ongoing {
    let line = |idle: u64| format!("cpu  1 0 1 {idle:012} 0 0 0 0 0 0\ncpu0 1 0 1 1 0 0 0 0 0 0\n");
    fs::write(path, line(0)).expect("written");
    let file = File::options().write(true).open(path).expect("opened");
    let mut jiffies = 0;
    Ongoing::start(move || {
        jiffies += 5;
        // In place and of one length, so that no reader sees a part.
        file.write_all_at(line(jiffies).as_bytes(), 0).expect("written");
        std::thread::sleep(Duration::from_millis(50));
    })
}

/// Agents of one machine share its bpffs: each pins elsewhere, by a file of its own.
fn agent(place: &Place, server: usize, stat: Option<&Path>) -> Process {
    let name = &place.site.servers[server];
    let pins = place.site.net.pins();
    let text = fs::read_to_string(place.path("l4.yaml")).expect("read");
    let own = text.replace(
        &format!("pin_dir: {}", pins.join("l4").display()),
        &format!("pin_dir: {}", pins.join(name).display()),
    );
    let file = place.write(&format!("{name}.yaml"), &own);
    let mut command = Command::new("unshare");
    // Its own mounts, so that it can have its own /proc/stat.
    command.args([
        "--mount",
        "sh",
        "-c",
        "[ -z \"$0\" ] || mount --bind \"$0\" /proc/stat; exec \"$@\"",
    ]);
    command.arg(stat.unwrap_or(Path::new("")));
    let inner = binary(&["l4", "agent", "run"], &file);
    command.arg(inner.get_program()).args(inner.get_args());
    place.start(name, &mut command, &format!("{name}.log"))
}

fn load(status: &Value, server: usize) -> Option<f64> {
    status["backends"][server]["load"].as_f64()
}

#[test]
fn turns_follow_the_servers_cpus_and_a_silent_one_is_taken_for_average() {
    let Some(place) = Place::new(&SiteSpec::new(2)) else { return };
    Keys::load_or_create(&place.path("l4.key"), 0).expect("made");
    let beside = |i: usize| format!(", id: {}, agent: true", i + 1);
    let rest = "  agent: { listen: \"0.0.0.0:7402\" }\n";
    place.write("l4.yaml", &place.l4("awrr\n      load: cpu", beside, rest));
    let stat = place.path("stat");
    let _idle = idle(&stat);
    let burning = burn();
    let busy = agent(&place, 0, None);
    let _quiet = agent(&place, 1, Some(&stat));
    let _balancer = place.balance();
    until("both to tell their load", || {
        let status = place.status();
        load(&status, 0).is_some_and(|load| load > 0.8)
            && load(&status, 1).is_some_and(|load| load < 0.1)
    });
    // Mean 1/2: the busy one has 10 / 1.5 turns, the idle one 10 / 0.5.
    let weights = || each(&place.status(), "weight");
    until("turns to follow", || matches!(weights()[..], [6..=7, 19..=20]));
    assert_eq!(place.status()["weights"]["set_by"], "load");
    drop(burning);

    let failures = || each(&place.status(), "load_failures");
    let before = failures();
    drop(busy);
    until("its load to be too old", || load(&place.status(), 0).is_none());
    until("it to be taken for average", || weights() == [10, 10]);
    // A busy machine may fail some of the other one, too.
    until("failures to be counted, hardly any of the other one", || {
        let now = failures();
        now[0] - before[0] > 2 + 3 * (now[1] - before[1])
    });
    until("the load of the other one", || load(&place.status(), 1).is_some());
    assert!(place.log("l4.log").contains("/v1/load"), "{}", place.log("l4.log"));

    let _again = agent(&place, 0, None);
    until("it to be heard again", || load(&place.status(), 0).is_some());
    let output = place.run("lb", &["l4", "status"], "l4.yaml");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("weights set by the servers' load") && text.contains("load of s1"),
        "{text}"
    );
}
