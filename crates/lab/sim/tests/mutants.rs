//! Every mutant of the controller is caught; the unchanged controller passes the same seeds.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_sim::{Fault, Method, Mutant, Order, Rule, Scenario};

/// Seeds for a mutant before it counts as not caught.
const SEEDS: u64 = 40;
/// Simulated days of each.
const DAYS: f64 = 0.05;

/// The runs in which a mutant is to be caught.
fn tried(mutant: Mutant) -> Vec<Order> {
    match mutant {
        // Few runs have enough room for slow start to matter.
        Mutant::HurryRamp => orders(mutant, Rule::Ramp)
            .into_iter()
            .map(|order| Order { beyond: Vec::new(), ..order })
            .collect(),
        _ => (0..SEEDS)
            .map(|seed| Order { mutant: Some(mutant), ..Order::days(seed, DAYS) })
            .collect(),
    }
}

/// The runs up to the first that catches it, and the rule.
fn caught(mutant: Mutant) -> Option<(Vec<Order>, Rule)> {
    let mut orders = tried(mutant);
    let (last, rule) = orders
        .iter()
        .enumerate()
        .find_map(|(i, order)| Some((i, order.run().err()?.violation.rule)))?;
    orders.truncate(last + 1);
    Some((orders, rule))
}

/// Each of these is caught by the rule for it, whatever else it breaks.
const MEANT_FOR: [(Mutant, Rule); 40] = [
    (Mutant::ForgetOne, Rule::WholePlan),
    (Mutant::NotANumber, Rule::WholePlan),
    (Mutant::SharesOfMoreThanAll, Rule::WholePlan),
    (Mutant::TwoWeights, Rule::WholePlan),
    (Mutant::OutOfRange, Rule::WholePlan),
    (Mutant::ScaleOneWeight, Rule::WeightsFollowShares),
    (Mutant::AllZero, Rule::SomeBackendServes),
    (Mutant::LeaveOneAlone, Rule::SurvivesALoss),
    (Mutant::SwallowFailures, Rule::DeadGetNothing),
    (Mutant::KeepFailedAtOne, Rule::FailedGetNothing),
    (Mutant::DropZeros, Rule::FailedGetNothing),
    (Mutant::KeepEjected, Rule::FailedGetNothing),
    (Mutant::IgnoreBalancerChecks, Rule::FailedGetNothing),
    (Mutant::InventFailures, Rule::HealthyNeverFail),
    (Mutant::BelieveOldTimeouts, Rule::HealthyNeverFail),
    (Mutant::IgnoreAdministrator, Rule::ReservedIsLeftAlone),
    (Mutant::PlanOnStaleData, Rule::FreshData),
    (Mutant::ProgramWhileObserving, Rule::MaySteer),
    (Mutant::IgnoreConflict, Rule::MaySteer),
    (Mutant::OldEpoch, Rule::EpochsRise),
    (Mutant::IgnoreMinInterval, Rule::Pace),
    (Mutant::ShowNonsense, Rule::SaneView),
    (Mutant::Panic, Rule::NoPanic),
    (Mutant::IgnoreTheta, Rule::Theta),
    (Mutant::LeapWhileLearning, Rule::MaxStep),
    (Mutant::PlanForNothing, Rule::WorthIt),
    (Mutant::BlameTheOthers, Rule::DriftIsLocal),
    (Mutant::DriftOnStaleData, Rule::DriftIsFresh),
    (Mutant::DriftOfTheDead, Rule::DriftOfTheServing),
    (Mutant::RefreshUnasked, Rule::RefreshIsAsked),
    (Mutant::RefreshTooMuch, Rule::RefreshIsSmall),
    (Mutant::RefreshForever, Rule::RefreshEnds),
    (Mutant::BelieveInPlans, Rule::BeliefIsTrue),
    (Mutant::PlanTooOften, Rule::Pace),
    (Mutant::PlanTwice, Rule::OneAtATime),
    (Mutant::ForeignMemory, Rule::Resumes),
    (Mutant::IgnoreReload, Rule::Agreement),
    (Mutant::IgnoreForeign, Rule::Agreement),
    (Mutant::LoseRamp, Rule::Ramp),
    (Mutant::HurryRamp, Rule::Ramp),
];

/// Runs for a rule that applies in few of all runs.
struct Place {
    faults: &'static [Fault],
    suits: fn(&Scenario) -> bool,
}

/// Seeds searched for suitable runs, of which [`SEEDS`] are made.
const LOOKED_THROUGH: u64 = 1_000;

fn place(rule: Rule) -> Option<Place> {
    match rule {
        // A backend returns to others that are known and do not need it.
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

/// The runs in which a rule is to catch this mutant.
fn orders(mutant: Mutant, rule: Rule) -> Vec<Order> {
    let beyond: Vec<Rule> = Rule::ALL.into_iter().filter(|r| *r != rule).collect();
    let order =
        |seed| Order { mutant: Some(mutant), beyond: beyond.clone(), ..Order::days(seed, DAYS) };
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
fn every_rule_has_a_mutant() {
    let missing = |rule: &&Rule| !MEANT_FOR.iter().any(|(_, meant)| meant == *rule);
    assert_eq!(Rule::ALL.iter().find(missing), None);
}

#[test]
fn every_rule_catches_its_mutants_by_itself() {
    for_each(&MEANT_FOR, |&(mutant, rule)| {
        let orders = orders(mutant, rule);
        let caught = orders.iter().find_map(|order| Some((order.seed, order.run().err()?)));
        println!("{mutant}: {rule} with seed {:?}", caught.as_ref().map(|(seed, _)| seed));
        let (_, failure) = caught.unwrap_or_else(|| panic!("{mutant} is not caught by {rule}"));
        assert_eq!(failure.violation.rule, rule, "{mutant}");
        // Runs for such rules are not among those of the other test.
        if place(rule).is_some()
            && let Err(failure) = (Order { mutant: None, ..failure.order }).run()
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
fn every_mutant_is_caught_and_the_unchanged_controller_passes_the_same_seeds() {
    let found = Mutex::new(Vec::new());
    for_each(&Mutant::ALL, |&mutant| {
        let caught = caught(mutant);
        let seen = caught.as_ref().map(|(orders, rule)| (orders.last().map(|o| o.seed), rule));
        println!("{mutant}: {seen:?}");
        found.lock().expect("no panic while it is held").push((mutant, caught));
    });
    let found = found.into_inner().expect("no panic while it was held");
    let missed: Vec<_> = found.iter().filter(|(_, caught)| caught.is_none()).collect();
    assert!(missed.is_empty(), "not caught within {SEEDS} seeds of {DAYS} days: {missed:?}");
    let mut unbroken: Vec<Order> = Vec::new();
    for (orders, _) in found.into_iter().filter_map(|(_, caught)| caught) {
        let whole = orders.into_iter().map(|order| Order { mutant: None, ..order });
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
