//! Controllers broken on purpose, one way at a time, are all caught; the unbroken one passes the same
//! seeds.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_sim::{Fault, Method, Order, Rule, Sabotage, Scenario};

/// Seeds that a broken controller gets before it counts as not caught.
const SEEDS: u64 = 40;
/// Simulated days of each.
const DAYS: f64 = 0.05;

/// The runs in which a broken controller is to be caught.
fn tried(sabotage: Sabotage) -> Vec<Order> {
    match sabotage {
        // Few of all runs have room enough for a ramp to matter.
        Sabotage::HurryRamp => orders(sabotage, Rule::Ramp)
            .into_iter()
            .map(|order| Order { beyond: Vec::new(), ..order })
            .collect(),
        _ => (0..SEEDS)
            .map(|seed| Order { sabotage: Some(sabotage), ..Order::days(seed, DAYS) })
            .collect(),
    }
}

/// The runs up to the first that catches it, and the rule.
fn caught(sabotage: Sabotage) -> Option<(Vec<Order>, Rule)> {
    let mut orders = tried(sabotage);
    let (last, rule) = orders
        .iter()
        .enumerate()
        .find_map(|(i, order)| Some((i, order.run().err()?.violation.rule)))?;
    orders.truncate(last + 1);
    Some((orders, rule))
}

/// Each of these is caught by the rule that is there for it, whatever else it breaks.
const MEANT_FOR: [(Sabotage, Rule); 41] = [
    (Sabotage::ForgetOne, Rule::WholePlan),
    (Sabotage::NotANumber, Rule::WholePlan),
    (Sabotage::SharesOfMoreThanAll, Rule::WholePlan),
    (Sabotage::TwoWeights, Rule::WholePlan),
    (Sabotage::OutOfRange, Rule::WholePlan),
    (Sabotage::ScaleOneWeight, Rule::WeightsFollowShares),
    (Sabotage::AllZero, Rule::SomebodyServes),
    (Sabotage::LeaveOneAlone, Rule::SurvivesALoss),
    (Sabotage::SwallowFailures, Rule::DeadGetNothing),
    (Sabotage::KeepFailedAtOne, Rule::FailedGetNothing),
    (Sabotage::DropZeros, Rule::FailedGetNothing),
    (Sabotage::KeepEjected, Rule::FailedGetNothing),
    (Sabotage::IgnoreBalancerChecks, Rule::FailedGetNothing),
    (Sabotage::InventFailures, Rule::LivingNeverFail),
    (Sabotage::BelieveOldTimeouts, Rule::LivingNeverFail),
    (Sabotage::IgnoreAdministrator, Rule::ReservedIsLeftAlone),
    (Sabotage::PlanOnStaleData, Rule::FreshData),
    (Sabotage::ProgramWhileObserving, Rule::MaySteer),
    (Sabotage::IgnoreConflict, Rule::MaySteer),
    (Sabotage::OldEpoch, Rule::EpochsRise),
    (Sabotage::IgnoreMinInterval, Rule::Pace),
    (Sabotage::ShowNonsense, Rule::SaneView),
    (Sabotage::Panic, Rule::NoPanic),
    (Sabotage::IgnoreTheta, Rule::Theta),
    (Sabotage::LeapWhileLearning, Rule::MaxStep),
    (Sabotage::PlanForNothing, Rule::WorthIt),
    (Sabotage::BlameTheOthers, Rule::DriftIsLocal),
    (Sabotage::DriftOnStaleData, Rule::DriftIsFresh),
    (Sabotage::DriftOfTheDead, Rule::DriftOfTheServing),
    (Sabotage::RefreshUnasked, Rule::RefreshIsAsked),
    (Sabotage::RefreshTooMuch, Rule::RefreshIsSmall),
    (Sabotage::RefreshForever, Rule::RefreshEnds),
    (Sabotage::DrainAgain, Rule::DrainIsRare),
    (Sabotage::BelieveInPlans, Rule::BeliefIsTrue),
    (Sabotage::PlanTooOften, Rule::Pace),
    (Sabotage::PlanTwice, Rule::OneAtATime),
    (Sabotage::ForeignMemory, Rule::Resumes),
    (Sabotage::IgnoreReload, Rule::Agreement),
    (Sabotage::IgnoreForeign, Rule::Agreement),
    (Sabotage::LoseRamp, Rule::Ramp),
    (Sabotage::HurryRamp, Rule::Ramp),
];

/// Where a rule is tried that few of all runs give an occasion for.
struct Place {
    faults: &'static [Fault],
    suits: fn(&Scenario) -> bool,
}

/// So many seeds are looked through for runs that suit, and so many of those are made.
const LOOKED_THROUGH: u64 = 1_000;

fn place(rule: Rule) -> Option<Place> {
    match rule {
        // Somebody returns to others that are known and do not need it.
        Rule::Ramp => Some(Place {
            faults: &[Fault::Death, Fault::Flapping, Fault::Reload],
            suits: |s| {
                let dies =
                    s.disturbances.iter().any(|d| d.fault != Fault::Reload && d.every_s < 3e3);
                let ramps = s.settings.slow_start.as_secs() >= 10;
                dies && ramps && s.pool.len() >= 4 && (0.4..0.65).contains(&s.profile.load)
            },
        }),
        // A pool with room is learned again and again.
        Rule::MaxStep => Some(Place {
            faults: &[Fault::CrashStoreLost, Fault::Leave, Fault::Observe, Fault::Reload],
            suits: |s| {
                s.method == Method::RoundRobin
                    && s.profile.load < 0.55
                    && !s.disturbances.is_empty()
            },
        }),
        _ => None,
    }
}

/// The runs in which a rule is to catch this.
fn orders(sabotage: Sabotage, rule: Rule) -> Vec<Order> {
    let beyond: Vec<Rule> = Rule::ALL.into_iter().filter(|r| *r != rule).collect();
    let order = |seed| Order {
        sabotage: Some(sabotage),
        beyond: beyond.clone(),
        ..Order::days(seed, DAYS)
    };
    let Some(Place { faults, suits }) = place(rule) else { return (0..SEEDS).map(order).collect() };
    let without: Vec<Fault> = Fault::ALL.into_iter().filter(|f| !faults.contains(f)).collect();
    (0..LOOKED_THROUGH)
        .map(|seed| Order {
            without: without.clone(),
            seconds: 2.0 * order(seed).seconds,
            ..order(seed)
        })
        .filter(|order| suits(&order.scenario()))
        .take(SEEDS as usize)
        .collect()
}

#[test]
fn something_is_there_for_every_invariant_to_catch() {
    let missing = |rule: &&Rule| !MEANT_FOR.iter().any(|(_, meant)| meant == *rule);
    assert_eq!(Rule::ALL.iter().find(missing), None);
}

#[test]
fn what_an_invariant_is_there_for_it_catches() {
    for_each(&MEANT_FOR, |&(sabotage, rule)| {
        let orders = orders(sabotage, rule);
        let caught = orders.iter().find_map(|order| Some((order.seed, order.run().err()?)));
        println!("{sabotage}: {rule} with seed {:?}", caught.as_ref().map(|(seed, _)| seed));
        let (_, failure) = caught.unwrap_or_else(|| panic!("{sabotage} is not caught by {rule}"));
        assert_eq!(failure.violation.rule, rule, "{sabotage}");
        // Runs of their own are not among those of the other test.
        if place(rule).is_some()
            && let Err(failure) = (Order { sabotage: None, ..failure.order }).run()
        {
            panic!("the unbroken one: {failure}");
        }
    });
}

/// Runs something for each of these on all cores.
fn for_each<T: Sync>(all: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(one);
                }
            });
        }
    });
}

#[test]
fn every_broken_controller_is_caught_and_the_unbroken_one_passes_the_same_seeds() {
    let found = Mutex::new(Vec::new());
    for_each(&Sabotage::ALL, |&sabotage| {
        let caught = caught(sabotage);
        let seen = caught.as_ref().map(|(orders, rule)| (orders.last().map(|o| o.seed), rule));
        println!("{sabotage}: {seen:?}");
        found.lock().expect("no panic while it is held").push((sabotage, caught));
    });
    let found = found.into_inner().expect("no panic while it was held");
    let missed: Vec<_> = found.iter().filter(|(_, caught)| caught.is_none()).collect();
    assert!(missed.is_empty(), "not caught within {SEEDS} seeds of {DAYS} days: {missed:?}");
    let mut unbroken: Vec<Order> = Vec::new();
    for (orders, _) in found.into_iter().filter_map(|(_, caught)| caught) {
        let whole = orders.into_iter().map(|order| Order { sabotage: None, ..order });
        for order in whole {
            if !unbroken.contains(&order) {
                unbroken.push(order);
            }
        }
    }
    for_each(&unbroken, |order| {
        if let Err(failure) = order.run() {
            panic!("the unbroken one: {failure}");
        }
    });
}
