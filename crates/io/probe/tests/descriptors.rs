//! A machine without free descriptors says nothing of its backends. In a process of its own, since it
//! uses up the descriptors of the whole process.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_model::BackendId;
use plimsoll_probe::{
    Clock, LivenessCheck, LivenessSpec, Probe, ProbePlan, ProbeSpec, Prober, Scheduler, Target,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

#[tokio::test]
async fn a_full_table_of_descriptors_is_a_local_fault_and_no_event() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = plimsoll_config::Address::from(listener.local_addr().expect("a bound socket"));
    let probe = Arc::new(Probe::new(ProbeSpec::default()).expect("a valid spec"));
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) })
        .expect("a lower limit");
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }

    let prober = Prober::new(address.clone(), probe.clone(), 1).expect("a valid address");
    let fault = prober.probe().await.expect_err("no descriptor is left");
    assert!(fault.to_string().contains("this machine cannot probe"), "{fault}");

    let (probes_in, mut probes) = mpsc::channel(16);
    let (liveness_in, mut liveness) = mpsc::channel(16);
    let clock = Clock::new(Instant::now());
    let mut scheduler = Scheduler::new(Handle::current(), clock, 1, probes_in, liveness_in);
    let (interval, limit) = (Duration::from_millis(20), Duration::from_secs(1));
    let watch = LivenessSpec::new(LivenessCheck::Connect, 3, limit);
    let target = Target {
        address,
        probe: Some(probe),
        liveness: Some(watch.expect("a valid watch")),
        max_in_flight: 4,
    };
    scheduler.set(BackendId(0), target).expect("a valid target");
    scheduler.set_watch(BackendId(0), Some(interval), false);
    scheduler.set_plan(BackendId(0), ProbePlan::new(interval, 1, 0.0).expect("a valid plan"));
    let end = Instant::now() + Duration::from_secs(20);
    while scheduler.local_faults() < 20 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(scheduler.local_faults() >= 20);
    assert!(probes.try_recv().is_err() && liveness.try_recv().is_err());

    drop(files);
    let event = tokio::time::timeout(Duration::from_secs(20), liveness.recv()).await;
    assert!(event.expect("a round in time").expect("the scheduler lives").successes > 0);
}
