//! Every mutant of the controller is caught; the unchanged controller passes the same seeds.

use plimsoll_sim::{Mutant, Order, Rule, cores, on_cores};

/// Seeds for a mutant before it counts as not caught.
const SEEDS: u64 = 40;
/// Simulated days of each.
const DAYS: f64 = 0.05;

/// The runs up to the first that catches it, and the rule.
fn caught(mutant: Mutant) -> Option<(Vec<Order>, Rule)> {
    let mut tried = Vec::new();
    for order in orders(mutant, &[]) {
        let result = order.run();
        tried.push(order);
        if let Err(failure) = result {
            return Some((tried, failure.violation.rule));
        }
    }
    None
}

/// Each of these is caught by the rule for it, whatever else it breaks.
const MEANT_FOR: [(Mutant, Rule); 27] = [
    (Mutant::ForgetOne, Rule::WholePlan),
    (Mutant::NotANumber, Rule::WholePlan),
    (Mutant::SharesOfMoreThanAll, Rule::WholePlan),
    (Mutant::TwoWeights, Rule::WholePlan),
    (Mutant::OutOfRange, Rule::WholePlan),
    (Mutant::ScaleOneWeight, Rule::WeightsFollowShares),
    (Mutant::AllZero, Rule::SomeBackendServes),
    (Mutant::LeaveOneAlone, Rule::SurvivesALoss),
    (Mutant::SwallowFailures, Rule::FailedGetNothing),
    (Mutant::KeepFailedAtOne, Rule::FailedGetNothing),
    (Mutant::DropZeros, Rule::FailedGetNothing),
    (Mutant::KeepEjected, Rule::FailedGetNothing),
    (Mutant::IgnoreBalancerChecks, Rule::FailedGetNothing),
    (Mutant::InventFailures, Rule::HealthyNeverFail),
    (Mutant::BelieveOldTimeouts, Rule::HealthyNeverFail),
    (Mutant::IgnoreAdministrator, Rule::ReservedIsLeftAlone),
    (Mutant::PlanOnStaleData, Rule::FreshData),
    (Mutant::OldEpoch, Rule::EpochsRise),
    (Mutant::IgnoreMinInterval, Rule::Pace),
    (Mutant::ShowNonsense, Rule::SaneView),
    (Mutant::Panic, Rule::NoPanic),
    (Mutant::BelieveInPlans, Rule::BeliefIsTrue),
    (Mutant::PlanTooOften, Rule::Pace),
    (Mutant::PlanTwice, Rule::OneAtATime),
    (Mutant::ForeignMemory, Rule::Resumes),
    (Mutant::IgnoreReload, Rule::Agreement),
    (Mutant::IgnoreForeign, Rule::Agreement),
];

/// The runs in which this mutant is to be caught, with these rules ignored.
fn orders(mutant: Mutant, beyond: &[Rule]) -> impl Iterator<Item = Order> {
    let order = move |seed| Order {
        mutant: Some(mutant),
        beyond: beyond.to_vec(),
        ..Order::days(seed, DAYS)
    };
    (0..SEEDS).map(order)
}

#[test]
fn every_rule_has_a_mutant() {
    let missing = |rule: &&Rule| !MEANT_FOR.iter().any(|(_, meant)| meant == *rule);
    assert_eq!(Rule::ALL.iter().find(missing), None);
}

#[test]
fn every_rule_catches_its_mutants_by_itself() {
    for_each(&MEANT_FOR, |&(mutant, rule)| {
        let others: Vec<Rule> = Rule::ALL.into_iter().filter(|r| *r != rule).collect();
        let caught =
            orders(mutant, &others).find_map(|order| Some((order.seed, order.run().err()?)));
        println!("{mutant}: {rule} with seed {:?}", caught.as_ref().map(|(seed, _)| seed));
        let (_, failure) = caught.unwrap_or_else(|| panic!("{mutant} is not caught by {rule}"));
        assert_eq!(failure.violation.rule, rule, "{mutant}");
    });
}

/// Runs something for each of these on all cores.
fn for_each<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    on_cores(cores(), 0..all.len() as u64, |at| work(&all[at as usize]))
}

#[test]
fn every_mutant_is_caught_and_the_unchanged_controller_passes_the_same_seeds() {
    let found = for_each(&Mutant::ALL, |&mutant| {
        let caught = caught(mutant);
        let seen = caught.as_ref().map(|(orders, rule)| (orders.last().map(|o| o.seed), rule));
        println!("{mutant}: {seen:?}");
        (mutant, caught)
    });
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
