//! No policy allocates while requests come and go, whatever is set around it; nor does a key.

#[path = "../benches/pick/request.rs"]
mod request;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{
    EjectionSettings, ExpectedDelaySettings, Finish, PolicyKind, Probing, Request, ServerLoad,
    Settings, Sight, SlowStartSettings,
};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use request::Sent;

const BACKENDS: usize = 70;
/// At first, and while allocations are counted.
const IN_FLIGHT: [usize; 2] = [BACKENDS, 30 * BACKENDS];

/// Runs requests, of which a fifth fail, are refused or given up, with more and more in flight; gives how often
/// memory was allocated.
fn allocations(kind: PolicyKind, settings: &Settings) -> u64 {
    let mut weights: Vec<u32> = (0..BACKENDS).map(|i| 1 + (i % 8) as u32).collect();
    weights[9] = 0;
    let mut policy = kind.build(&weights, settings).expect("these settings are valid");
    weights[9] = 5;
    policy.set_weights(&weights);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut now = Nanos::ZERO;
    let mut targets = Vec::with_capacity(16);
    let mut running = VecDeque::with_capacity(IN_FLIGHT[1]);
    let mut run = |requests: u64, in_flight: usize| {
        for k in 0..requests {
            now = now + Duration::from_micros(500);
            let avoid = [(rng.next_u64() % 70) as usize];
            let key = rng.next_u64();
            let request = if k % 5 > 0 { Request::with_key(key) } else { Request::default() };
            let request = if k % 7 > 0 { request } else { request.avoiding(&avoid) };
            targets.clear();
            for round in 0..2 {
                let before = targets.len();
                let probing = policy.probing();
                if probing == Probing::Before || round == 0 && probing != Probing::Never {
                    policy.probe_targets(&request, now, &mut rng, &mut targets);
                }
                let load = |in_flight| ServerLoad {
                    in_flight,
                    latency_us: 900.0,
                    cpu: Some(0.85),
                    cores: Some(4.0),
                };
                for &i in &targets[before..] {
                    policy.on_probe(i, load((key % 9) as u32), now);
                }
            }
            if let Some(i) = policy.pick(&request.answered_by(&targets), now, &mut rng) {
                policy.on_start(i, now);
                running.push_back((i, now));
            }
            if running.len() < in_flight {
                continue;
            }
            let Some((i, began)) = running.pop_front() else { continue };
            let latency = now.since(began);
            let mut finish = match key % 20 {
                0 => Finish::failure(latency),
                1 => Finish::rejected(latency),
                2 => Finish::abandoned(10 * latency),
                3 => Finish::too_late(Duration::ZERO),
                _ => Finish::success(latency),
            };
            finish.chip = Some(key % 3 > 0);
            let (in_flight, latency_us) = (3, 800.0);
            finish.load = Some(ServerLoad {
                in_flight,
                latency_us,
                cpu: Some((key % 100) as f32 / 100.0),
                cores: None,
            });
            policy.on_finish(i, &finish, now);
        }
    };
    run(5_000, IN_FLIGHT[0]);
    allocation_counter::measure(|| run(50_000, IN_FLIGHT[1])).count_total
}

#[test]
fn nothing_is_allocated_for_a_key() {
    let sent: Vec<Sent> = (0..64).map(|client| Sent::by(client, client % 2 > 0)).collect();
    for source in request::sources() {
        for avalanche in [false, true] {
            for key in request::keys(&source, avalanche) {
                let mut made = Vec::with_capacity(sent.len());
                let counted = allocation_counter::measure(|| {
                    made.extend(sent.iter().filter_map(|request| key.key(request)));
                });
                assert_eq!(counted.count_total, 0, "{key:?}");
                let different: BTreeSet<&u64> = made.iter().collect();
                let name = request::name(&source);
                assert!(made.len() == sent.len() && different.len() > 50, "{name}: {different:?}");
            }
        }
    }
}

#[test]
fn nothing_is_allocated_for_a_request() {
    let guarded = Settings {
        max_in_flight: Some(50),
        ejection: Some(EjectionSettings { base_ms: 500, ..EjectionSettings::default() }),
        slow_start: Some(SlowStartSettings { window_ms: 3_000, least_percent: 10 }),
        hash_balance_factor: Some(150),
        ..Settings::default()
    };
    let seen = allocation_counter::measure(|| drop(std::hint::black_box(vec![1u8; 100])));
    assert_eq!(seen.count_total, 1, "the counter counts");
    for &kind in PolicyKind::ALL {
        assert_eq!(allocations(kind, &Settings::default()), 0, "{kind}");
        assert_eq!(allocations(kind, &guarded), 0, "{kind} with all guards");
    }
    for sight in [Sight::Own, Sight::Refusals, Sight::Probes] {
        let expected_delay = ExpectedDelaySettings { sight, ..ExpectedDelaySettings::default() };
        let sees = |settings| Settings { expected_delay, ..settings };
        let kind = PolicyKind::ExpectedDelay;
        assert_eq!(allocations(kind, &sees(Settings::default())), 0, "{sight:?}");
        assert_eq!(allocations(kind, &sees(guarded)), 0, "{sight:?} with all guards");
    }
}
