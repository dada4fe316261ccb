//! Changes of a server's service rate: inferred from fresh news only, of servers that serve, and of those alone.

use std::time::Duration;

use plimsoll_control::{Event, ProbeRate, RecordKind, ServiceSpec};
use plimsoll_model::{BackendId, MethodKind, Nanos, Outcome, ServerStatus};

use super::bed::{Bed, spec};

const CORES: [u32; 3] = [2, 2, 4];

fn known(seed: u64) -> Bed {
    let spec = ServiceSpec { refresh: false, ..spec(CORES.len()) };
    let mut bed = Bed::new(spec, &CORES, MethodKind::Split, 240.0, seed);
    bed.run_for(240.0);
    bed
}

fn changed(bed: &Bed) -> Vec<Option<(Nanos, f64)>> {
    bed.controller.beliefs().map(|b| b.changed).collect()
}

#[test]
fn only_the_curve_of_the_server_that_changed_is_rescaled() {
    let mut inferred = 0;
    for (seed, slowed) in [(1, 0), (2, 1), (3, 2), (4, 2)] {
        let mut bed = known(seed);
        let (before, from) = (changed(&bed), bed.now());
        bed.servers[slowed].speed = 0.5;
        bed.run_for(20.0);
        let after = changed(&bed);
        inferred += usize::from(bed.recorded(RecordKind::Drift, slowed, from).is_some());
        for i in (0..CORES.len()).filter(|i| *i != slowed) {
            assert_eq!(after[i], before[i], "seed {seed}: s{slowed} changed, not s{i}");
        }
        assert!(after[slowed] != before[slowed], "seed {seed}: {:?}", bed.records);
    }
    assert!(inferred > 1, "{inferred} of 4");
}

/// A pause of the readings, or of this process, is no change of a server.
#[test]
fn no_change_is_inferred_from_readings_that_are_late_or_far_apart() {
    for (every_s, late_s, is_seen) in [(0, 0, true), (3, 0, false), (0, 3, false)] {
        let mut bed = known(1);
        let before = changed(&bed);
        bed.servers[2].speed = 0.5;
        (bed.every, bed.late) = (Duration::from_secs(every_s), Duration::from_secs(late_s));
        bed.run_for(30.0);
        let after = changed(&bed);
        assert_eq!(after != before, is_seen, "every {every_s} s, {late_s} s late: {after:?}");
    }
}

/// Probes of a server, 50 ms apart.
fn probe(bed: &mut Bed, i: u32, scale: f64) {
    for n in 0..2_000 {
        let latency_us = scale * 5e3 * f64::from(1 + n % 3);
        let (backend, detail) = (BackendId(i), String::new());
        bed.step(Event::Probe { backend, outcome: Outcome::Success, latency_us, detail });
        bed.run_for(0.05);
    }
}

#[test]
fn no_change_is_inferred_of_a_server_that_does_not_serve() {
    for (status, is_seen) in
        [(ServerStatus::Up, true), (ServerStatus::Maintenance, false), (ServerStatus::Down, false)]
    {
        let spec = ServiceSpec { probe: Some(ProbeRate::default()), refresh: false, ..spec(3) };
        let mut bed = Bed::new(spec, &CORES, MethodKind::Split, 40.0, 1);
        // It is slow enough to be parked, and probes of servers without load show their rate.
        bed.servers[1].speed = 0.2;
        bed.run_for(200.0);
        assert_eq!(bed.weights()[1], 0);
        probe(&mut bed, 1, 1.0);
        bed.servers[1].status = status;
        bed.weights_changed();
        bed.run_for(1.0);
        let before = changed(&bed);
        probe(&mut bed, 1, 4.0);
        let after = changed(&bed);
        assert_eq!(after[1] != before[1], is_seen, "{status:?}: {after:?}");
    }
}
