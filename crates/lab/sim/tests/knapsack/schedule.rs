use std::collections::BTreeMap;

use plimsoll_model::BackendId;
use plimsoll_sim::knapsack::{Assignment, Member, Priority, ScheduleError, Wanted, schedule};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

fn member(id: u32, bound: f64, capacity: f64) -> Member {
    Member { backend: BackendId(id), bound, capacity }
}

fn wish(id: u32, weight: f64, priority: Priority, ticket: u64) -> Wanted {
    Wanted { backend: BackendId(id), weight, priority, ticket }
}

fn weight_of(assignment: &Assignment, id: u32) -> f64 {
    let found = assignment.weights.iter().find(|(backend, _)| *backend == BackendId(id));
    found.expect("every member is listed").1
}

#[test]
fn two_requests_of_seven_tenths_take_two_rounds() {
    // The paper's own example (§4.6).
    let members = [member(1, 0.6, 1.0), member(2, 0.6, 1.0)];
    let wishes = [wish(1, 0.7, Priority::Rest, 5), wish(2, 0.7, Priority::Rest, 9)];
    let first = schedule(&members, &wishes).expect("sound");
    assert_eq!((first.granted, first.waiting), (vec![BackendId(1)], vec![BackendId(2)]));
    let second = schedule(&members, &wishes[1..]).expect("sound");
    assert_eq!(second.weights, vec![(BackendId(1), 1.0 - 0.7), (BackendId(2), 0.7)]);
    assert!(!second.beyond_bounds);
}

#[test]
fn classes_come_before_tickets() {
    let members: Vec<Member> = (1..=3).map(|id| member(id, 0.5, 1.0)).collect();
    let wishes = [
        wish(1, 0.6, Priority::Rest, 2),
        wish(2, 0.6, Priority::Rest, 1),
        wish(3, 0.1, Priority::OverUtilised, 3),
    ];
    let got = schedule(&members, &wishes).expect("sound");
    assert_eq!(got.granted, vec![BackendId(3), BackendId(2)]);
    assert_eq!(got.waiting, vec![BackendId(1)]);
    assert!((weight_of(&got, 1) - 0.3).abs() < 1e-12);
}

#[test]
fn a_request_that_the_others_cannot_compensate_is_not_granted() {
    let members = [member(1, 0.5, 1.0), member(2, 0.6, 1.0)];
    let got = schedule(&members, &[wish(1, 0.1, Priority::Rest, 1)]).expect("sound");
    assert_eq!(got.granted, vec![]);
    assert!(!got.beyond_bounds && weight_of(&got, 2) <= 0.6);
}

#[test]
fn the_rest_is_shared_by_capacity_within_bounds() {
    let members =
        [member(1, 0.1, 4.0), member(2, 0.9, 3.0), member(3, 0.9, 1.0), member(4, 0.9, 9.0)];
    let got = schedule(&members, &[wish(4, 0.1, Priority::Rest, 1)]).expect("sound");
    assert!((weight_of(&got, 1) - 0.1).abs() < 1e-12, "at its bound");
    assert!((weight_of(&got, 2) - 0.6).abs() < 1e-12);
    assert!((weight_of(&got, 3) - 0.2).abs() < 1e-12);
}

#[test]
fn a_pool_short_of_capacity_grants_nothing_and_reports_it() {
    let members = [member(1, 0.3, 1.0), member(2, 0.3, 3.0)];
    let wishes = [wish(1, 0.1, Priority::OverUtilised, 1), wish(2, 0.2, Priority::Rest, 2)];
    let got = schedule(&members, &wishes).expect("sound");
    assert!(got.beyond_bounds && got.granted.is_empty() && got.waiting.len() == 2);
    assert!((weight_of(&got, 1) - 0.4).abs() < 1e-12);
    assert!((weight_of(&got, 2) - 0.6).abs() < 1e-12);
    // A request that brings enough room is granted: otherwise no backend could explore upwards.
    let got = schedule(&members, &[wish(2, 0.8, Priority::Rest, 1)]).expect("sound");
    assert_eq!((got.granted.len(), got.beyond_bounds), (1, false));
}

#[test]
fn errors_name_invalid_input() {
    let one = member(1, 1.0, 1.0);
    let rest = |id, weight| wish(id, weight, Priority::Rest, 0);
    assert_eq!(schedule(&[], &[]), Err(ScheduleError::NoMembers));
    assert_eq!(schedule(&[one, one], &[]), Err(ScheduleError::Twice(BackendId(1))));
    assert_eq!(schedule(&[one], &[rest(2, 0.1)]), Err(ScheduleError::Unknown(BackendId(2))));
    assert_eq!(
        schedule(&[one], &[rest(1, 0.1), rest(1, 0.2)]),
        Err(ScheduleError::Twice(BackendId(1)))
    );
    for weight in [-0.1, 1.1, f64::NAN] {
        let error = schedule(&[one], &[rest(1, weight)]).expect_err("no weight");
        assert!(matches!(error, ScheduleError::OutOfRange { name: "wanted weight", .. }));
    }
    for bound in [-1.0, f64::NAN] {
        assert!(schedule(&[member(1, bound, 1.0)], &[]).is_err());
    }
    assert!(schedule(&[member(1, f64::INFINITY, f64::INFINITY)], &[]).is_err());
    assert!(schedule(&[member(1, f64::INFINITY, 0.0)], &[]).is_ok(), "unbounded is a bound");
}

/// Whatever the pool: weights sum to one, none is negative, grants are exact, bounds hold unless the assignment reports
/// otherwise.
#[test]
fn every_round_is_sound() {
    const PRIORITIES: [Priority; 2] = [Priority::OverUtilised, Priority::Rest];
    let mut rng = rng(17);
    for round in 0..20_000 {
        let n = rng.random_range(1..=12_u32);
        let scale = rng.random_range(0.2..4.0) / f64::from(n);
        let zero_or = |rng: &mut rand_xoshiro::Xoshiro256PlusPlus, value: f64| {
            if rng.random::<f64>() < 0.15 { 0.0 } else { value }
        };
        let mut members = Vec::new();
        let mut wishes = Vec::new();
        for id in 0..n {
            let (bound, capacity) = (rng.random::<f64>() * scale, rng.random::<f64>());
            members.push(member(id, zero_or(&mut rng, bound), zero_or(&mut rng, capacity)));
            if rng.random::<bool>() {
                let weight = (rng.random::<f64>() * scale).min(1.0);
                let weight = zero_or(&mut rng, weight);
                let priority = PRIORITIES[rng.random_range(0..2)];
                wishes.push(wish(id, weight, priority, rng.random_range(0..5)));
            }
        }
        let got = schedule(&members, &wishes).expect("sound input");
        let what = format!("round {round}: {members:?} {wishes:?} {got:?}");
        let sum: f64 = got.weights.iter().map(|(_, weight)| weight).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{what}");
        assert_eq!(got.weights.len(), members.len(), "{what}");
        assert_eq!(got.granted.len() + got.waiting.len(), wishes.len(), "{what}");
        let wanted: BTreeMap<BackendId, f64> =
            wishes.iter().map(|wish| (wish.backend, wish.weight)).collect();
        for (member, (backend, weight)) in members.iter().zip(&got.weights) {
            assert!(*weight >= 0.0, "{what}");
            if got.granted.contains(backend) {
                assert!((weight - wanted[backend]).abs() < 1e-9, "{what}");
            } else if !got.beyond_bounds {
                assert!(*weight <= member.bound + 1e-9, "{what}");
            }
        }
    }
}

/// First in, first out: with requests arriving all the time, none waits longer than there are backends.
#[test]
fn no_request_waits_for_more_rounds_than_there_are_backends() {
    const BACKENDS: u32 = 20;
    let mut rng = rng(23);
    // Room to spare, so that every request below fits alone.
    let members: Vec<Member> = (0..BACKENDS).map(|id| member(id, 0.1, 1.0)).collect();
    let mut queue: Vec<(Wanted, u32)> = Vec::new();
    let (mut ticket, mut longest) = (0, 0);
    for _ in 0..2_000 {
        for id in 0..BACKENDS {
            let waits = queue.iter().any(|(wish, _)| wish.backend == BackendId(id));
            if !waits && rng.random::<f64>() < 0.3 {
                ticket += 1;
                queue.push((wish(id, rng.random_range(0.0..0.9), Priority::Rest, ticket), 0));
            }
        }
        let wishes: Vec<Wanted> = queue.iter().map(|(wish, _)| *wish).collect();
        let got = schedule(&members, &wishes).expect("sound");
        queue.retain(|(wish, _)| !got.granted.contains(&wish.backend));
        for (_, waited) in &mut queue {
            *waited += 1;
            longest = longest.max(*waited);
        }
    }
    assert!(longest > 1, "the test must make wishes wait");
    assert!(longest <= BACKENDS, "a wish waited {longest} rounds");
}
