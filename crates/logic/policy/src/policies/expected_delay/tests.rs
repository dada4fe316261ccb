use super::*;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

fn policy(sight: Sight, backends: usize) -> ExpectedDelay {
    let expected_delay = ExpectedDelaySettings { sight, probes: 3 };
    ExpectedDelay::new(&vec![1; backends], &Settings { expected_delay, ..Settings::default() })
}

/// Each backend serves requests one by one, then two at a time, so that one core is known.
fn serve_alone(policy: &mut ExpectedDelay, ms: &[u64]) -> Nanos {
    let mut now = Nanos::ZERO;
    for _ in 0..400 {
        for (i, &ms) in ms.iter().enumerate() {
            let (one, two) = (Duration::from_millis(ms), Duration::from_millis(2 * ms));
            policy.on_start(i, now);
            policy.on_start(i, now);
            policy.on_finish(i, &Finish::success(one), now + one);
            policy.on_finish(i, &Finish::success(two), now + two);
            now = now + two;
        }
    }
    now
}

#[test]
fn a_free_core_comes_before_a_faster_one_that_is_busy_and_queues_go_by_time() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut policy = policy(Sight::Own, 3);
    let now = serve_alone(&mut policy, &[10, 30, 65]);
    let mut order = Vec::new();
    for _ in 0..8 {
        let i = policy.pick(&Request::default(), now, &mut rng).unwrap();
        policy.on_start(i, now);
        order.push(i);
    }
    // The fast one's keys are 10, 40, 70, 100, 130; the next one's 30 and 120; the slow one's 65.
    assert_eq!(order, [0, 1, 0, 2, 0, 0, 1, 0]);
}

#[test]
fn a_backend_that_refuses_more_gets_less_and_recovers() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut policy = policy(Sight::Refusals, 4);
    let mut now = Nanos::ZERO;
    // A request a millisecond; each backend serves one at a time, in 4 ms, backend 0 in so many.
    let mut share = |first_ms: u64| {
        let (mut asked, mut free_at) = (0, [Nanos::ZERO; 4]);
        for k in 0..16_000 {
            now = now + Duration::from_millis(1);
            let i = policy.pick(&Request::default(), now, &mut rng).unwrap();
            policy.on_start(i, now);
            asked += u32::from(i == 0 && k >= 12_000);
            let finish = if free_at[i] <= now {
                let ms = if i == 0 { first_ms } else { 4 };
                free_at[i] = now + Duration::from_millis(ms);
                Finish::success(Duration::ZERO)
            } else {
                Finish::rejected(Duration::ZERO)
            };
            policy.on_finish(i, &finish, now);
        }
        f64::from(asked) / 4_000.0
    };
    let even = share(4);
    assert!((even - 0.25).abs() < 0.05, "{even}");
    let slow = share(40);
    assert!((0.01..0.08).contains(&slow), "{slow}");
    let fast = share(1);
    assert!(fast > 0.45, "{fast}");
}

#[test]
fn the_backend_with_the_fewest_in_flight_of_those_that_answered_is_picked() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut policy = policy(Sight::Probes, 6);
    assert_eq!(policy.probing(), Probing::Before);
    let now = Nanos::from_secs_f64(1.0);
    let mut targets = Vec::new();
    policy.probe_targets(&Request::default(), now, &mut rng, &mut targets);
    targets.sort();
    targets.dedup();
    assert_eq!(targets.len(), 3, "three different ones");
    let tell = |policy: &mut ExpectedDelay, backend, in_flight| {
        let load = ServerLoad { in_flight, ..ServerLoad::default() };
        policy.on_probe(backend, load, now);
    };
    for (backend, in_flight) in [(5, 0), (2, 9), (4, 3), (1, 4)] {
        tell(&mut policy, backend, in_flight);
    }
    let mut pick = |policy: &mut ExpectedDelay, request: Request<'_>, now| {
        policy.pick(&request.answered_by(&[2, 4, 1]), now, &mut rng).unwrap()
    };
    assert_eq!(pick(&mut policy, Request::default(), now), 4, "5 told another request");
    assert_eq!(pick(&mut policy, Request::default().avoiding(&[4]), now), 1);
    (0..2).for_each(|_| policy.on_start(4, now));
    assert_eq!(pick(&mut policy, Request::default(), now), 1, "4 has five by now");
    let all = Request::default().avoiding(&[0, 1, 2, 4, 5]);
    assert_eq!(pick(&mut policy, all, now), 3, "drawn where nobody who answered is left");
    let later = now + Duration::from_secs(2);
    let drawn: Vec<usize> = (0..99).map(|_| pick(&mut policy, Request::default(), later)).collect();
    assert!((0..6).all(|i| drawn.contains(&i)), "old answers are none: {drawn:?}");
}

#[test]
fn answers_that_took_as_long_as_a_service_decide_only_what_they_can() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut policy = policy(Sight::Probes, 2);
    let (service, mut now) = (Duration::from_millis(10), Nanos::from_secs_f64(1.0));
    for k in 0..200 {
        policy.on_start(k % 2, now);
        now = now + service;
        policy.on_finish(k % 2, &Finish::success(service), now);
    }
    let mut part_of_first = |in_flight: [u32; 2], took| {
        for (backend, in_flight) in in_flight.into_iter().enumerate() {
            policy.on_probe(backend, ServerLoad { in_flight, ..ServerLoad::default() }, now);
        }
        let request = Request::default().answered_by(&[0, 1]);
        let picks = (0..1_000).filter(|_| policy.pick(&request, now + took, &mut rng) == Some(0));
        picks.count() as f64 / 1_000.0
    };
    // In the time of a service two come or go: one in service and two that wait are not yet more than none.
    assert!((part_of_first([2, 0], service) - 0.5).abs() < 0.05);
    assert_eq!(part_of_first([3, 0], service), 0.0);
    assert_eq!(part_of_first([2, 0], service / 100), 0.0);
    assert!((part_of_first([1, 1], Duration::ZERO) - 0.5).abs() < 0.05, "equal ones take turns");
}

#[test]
fn under_probes_a_backend_that_fails_fast_is_not_taken_for_idle() {
    let settings = Settings {
        expected_delay: ExpectedDelaySettings {
            sight: Sight::Probes,
            ..ExpectedDelaySettings::default()
        },
        ..Settings::default()
    };
    let mut policy = ExpectedDelay::new(&[1, 1], &settings);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    let (mut now, mut to_the_failing) = (Nanos::ZERO, 0);
    for round in 0..4_000 {
        now = now + Duration::from_millis(10);
        // Neither has anything in flight; from half way on the second fails within a millisecond.
        for backend in 0..2 {
            policy.on_probe(backend, ServerLoad::default(), now);
        }
        let request = Request::default().answered_by(&[0, 1]);
        let Some(i) = policy.pick(&request, now, &mut rng) else { continue };
        policy.on_start(i, now);
        let fails = i == 1 && round >= 2_000;
        let finish = match fails {
            false => Finish::success(Duration::from_millis(8)),
            true => Finish::failure(Duration::from_millis(1)),
        };
        to_the_failing += u32::from(fails);
        policy.on_finish(i, &finish, now + finish.latency);
    }
    assert!(to_the_failing < 400, "{to_the_failing} of 2,000");
}

#[test]
fn no_answer_is_too_great() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut policy = policy(Sight::Probes, 2);
    let now = Nanos::from_secs_f64(1.0);
    for (backend, in_flight) in [(0, u32::MAX), (1, 5)] {
        policy.on_probe(backend, ServerLoad { in_flight, ..ServerLoad::default() }, now);
    }
    policy.on_start(0, now);
    let request = Request::default().answered_by(&[0, 1]);
    assert_eq!(policy.pick(&request, now, &mut rng), Some(1));
}

#[test]
fn a_backend_that_refuses_late_requests_keeps_its_share() {
    let mut policy = policy(Sight::Refusals, 2);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let (mut now, mut asked) = (Nanos::ZERO, [0u32; 2]);
    for _ in 0..4_000 {
        now = now + Duration::from_millis(1);
        let i = policy.pick(&Request::default(), now, &mut rng).unwrap();
        policy.on_start(i, now);
        asked[i] += 1;
        let finish = match i {
            0 => Finish::too_late(Duration::ZERO),
            _ => Finish::success(Duration::ZERO),
        };
        policy.on_finish(i, &finish, now);
    }
    let share = f64::from(asked[0]) / 4_000.0;
    // What the other serves raises that one's weight somewhat.
    assert!((0.35..0.55).contains(&share), "{share}");
}

#[test]
fn one_rather_waits_where_requests_of_this_balancer_end_sooner_than_the_backend_has_room() {
    let mut policy = policy(Sight::Probes, 3);
    let now = serve_alone(&mut policy, &[10, 10, 10]);
    let ms = Duration::from_millis;
    let mut tell = |in_flight| {
        policy.on_probe(0, ServerLoad { in_flight, ..ServerLoad::default() }, now);
        [0, 2, 20, 60].map(|here| policy.rather_waits(0, ms(here), now))
    };
    assert_eq!(tell(0), [false; 4], "there is room");
    // The keys are 40 and 100; that of waiting is 10 and three times as long.
    assert_eq!(tell(1), [true, true, false, false]);
    assert_eq!(tell(3), [true, true, true, false]);
    let later = now + ms(1_000_000);
    assert!(!policy.rather_waits(0, Duration::ZERO, later), "what was told is old");
}

#[test]
fn a_backend_that_may_have_more_cores_is_tried_where_others_have_many() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut policy = policy(Sight::Probes, 2);
    let ms = Duration::from_millis;
    let mut now = Nanos::ZERO;
    let load = |in_flight| ServerLoad { in_flight, ..ServerLoad::default() };
    // Twenty at a time, none of which waits; the other had one request.
    for round in 0..200 {
        if round == 0 {
            policy.on_start(1, now);
            policy.on_finish(1, &Finish::success(ms(10)), now + ms(10));
        }
        for in_flight in 0..20 {
            policy.on_probe(0, load(in_flight), now);
            policy.on_start(0, now);
        }
        now = now + ms(10);
        (0..20).for_each(|_| policy.on_finish(0, &Finish::success(ms(10)), now));
    }
    policy.on_probe(0, load(18), now);
    policy.on_probe(1, load(10), now);
    let request = Request::default().answered_by(&[0, 1]);
    assert_eq!(policy.pick(&request, now, &mut rng), Some(1));
}

/// Requests of one balancer, each answered with a chip before the next comes, beside so many of others at each backend.
fn serve_beside(policy: &mut ExpectedDelay, others: u32, requests: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
    let (mut now, mut targets) = (Nanos::ZERO, Vec::new());
    for _ in 0..requests {
        targets.clear();
        let request = Request::default();
        if policy.probing() != Probing::Never {
            policy.probe_targets(&request, now, &mut rng, &mut targets);
        }
        for &backend in &targets {
            let in_flight = policy.in_flight.count(backend) + others;
            policy.on_probe(backend, ServerLoad { in_flight, ..ServerLoad::default() }, now);
        }
        let request = request.answered_by(&targets);
        let backend = policy.pick(&request, now, &mut rng).expect("all serve");
        policy.on_start(backend, now);
        now = now + Duration::from_millis(10);
        let finish = Finish { chip: Some(true), ..Finish::success(Duration::from_millis(10)) };
        policy.on_finish(backend, &finish, now);
    }
}

#[test]
fn one_of_many_balancers_begins_to_ask_and_the_last_of_them_ends() {
    let mut policy = policy(Sight::Auto, 4);
    serve_beside(&mut policy, 0, 2_000);
    assert_eq!((policy.sight, policy.probing()), (Sight::Own, Probing::Beside));
    serve_beside(&mut policy, 2, 2_000);
    assert_eq!((policy.sight, policy.probing()), (Sight::Probes, Probing::Before));
    // Alone again, with requests of its own in flight everywhere.
    (0..4).for_each(|backend| (0..3).for_each(|_| policy.on_start(backend, Nanos::ZERO)));
    serve_beside(&mut policy, 0, 2_000);
    assert_eq!(policy.sight, Sight::Own);
}

#[test]
fn where_none_of_those_that_answered_has_room_many_others_are_asked() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut policy = policy(Sight::Probes, 40);
    let now = serve_alone(&mut policy, &[10; 40]);
    let load = |in_flight| ServerLoad { in_flight, ..ServerLoad::default() };
    let mut targets = Vec::new();
    policy.probe_targets(&Request::default(), now, &mut rng, &mut targets);
    let first = targets.clone();
    assert_eq!((first.len(), policy.has_room(first[0], now)), (3, None));
    first.iter().for_each(|&backend| policy.on_probe(backend, load(0), now));
    assert!(first.iter().all(|&backend| policy.has_room(backend, now) == Some(true)));
    first.iter().for_each(|&backend| policy.on_probe(backend, load(1), now));
    assert!(first.iter().all(|&backend| policy.has_room(backend, now) == Some(false)));
    policy.probe_targets(&Request::default(), now, &mut rng, &mut targets);
    assert_eq!((&targets[..3], targets.len()), (&first[..], MAX_CHOICES as usize));
    targets.sort_unstable();
    targets.dedup();
    assert_eq!(targets.len(), MAX_CHOICES as usize, "each is asked once");
    let later = now + Duration::from_secs(1_000);
    assert_eq!(policy.has_room(first[0], later), None, "what was told is old");
}

#[test]
fn cores_that_a_backend_tells_are_believed_and_its_service_time_follows() {
    let mut policy = policy(Sight::Probes, 2);
    let ms = Duration::from_millis;
    let load = |cores| ServerLoad { in_flight: 7, cores, ..ServerLoad::default() };
    let mut now = Nanos::ZERO;
    let mut serve = |policy: &mut ExpectedDelay, cores| {
        // Eight at a time, each of which takes as long: a single core's requests would take 10 to 80 ms.
        for _ in 0..100 {
            (0..8).for_each(|_| policy.on_start(0, now));
            policy.on_probe(0, load(cores), now);
            now = now + ms(80);
            (0..8).for_each(|_| policy.on_finish(0, &Finish::success(ms(80)), now));
        }
        let learner = &policy.learners[0];
        (learner.cores(), learner.service_us().unwrap_or(f32::NAN).round(), learner.is_open())
    };
    let (cores, service_us, _) = serve(&mut policy, None);
    assert!(cores >= 8.0 && (service_us - 80_000.0).abs() < 2_000.0, "{cores}, {service_us}");
    let (cores, service_us, open) = serve(&mut policy, Some(4.0));
    assert_eq!((cores, open), (4.0, false));
    assert!(service_us < 70_000.0, "some of the latency is waiting: {service_us}");
    let (cores, ..) = serve(&mut policy, None);
    assert!(cores >= 8.0, "by what is seen again: {cores}");
}
