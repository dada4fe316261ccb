//! Nothing is allocated while requests are served.

use std::time::Duration;

use plimsoll_admission::{
    Admission, AdmissionOptions, Arrival, ChipLedger, Decision, Ended, FailureRetries,
    LedgerOptions, RefusalBudget, RefusalRetries, Retries, Retry, RetryCounts, RetryOptions,
};
use plimsoll_model::Nanos;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

#[test]
fn serving_allocates_nothing() {
    let mut admission = Admission::new(&AdmissionOptions::default()).expect("valid options");
    let mut ledger = ChipLedger::new(&[1; 100], LedgerOptions::default()).expect("valid options");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut served = 0;
    let info = allocation_counter::measure(|| {
        let mut now = Nanos::ZERO;
        for k in 0..10_000u32 {
            now = now + Duration::from_micros(100);
            let in_flight = k % 12;
            let backend = ledger.pick(now, &mut rng, |_| true, |b| b as f64).expect("one");
            ledger.on_dispatch(backend, now);
            match admission.decide(now, in_flight, Arrival::default()) {
                Decision::Admit(permit) => {
                    let chip = admission.chip(in_flight + 1, &mut rng);
                    admission.finish(now, in_flight, permit, Ended::Answered);
                    ledger.on_chip(backend, chip, now);
                    served += 1;
                }
                Decision::Reject(_) => ledger.on_rejection(backend, now),
            }
        }
    });
    assert_eq!(info.count_total, 0);
    assert!(served > 1_000 && served < 10_000, "both ways were taken: {served}");
}

/// Requests of which half the tries are refused and a quarter fail, beside another that half of the time
/// has the one retry that failures may have at once.
fn serve_and_retry(retries: &mut Retries) {
    let mut random = 0u32;
    retries.begin();
    for k in 0..10_000 {
        match k % 100 {
            0 => assert_eq!(retries.failed(1), Retry::Again),
            50 => {
                retries.end(true);
                retries.begin();
            }
            _ => {}
        }
        retries.begin();
        let (mut refusals, mut failures, mut retried) = (0, 0, false);
        loop {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let left = retries.tries_left(refusals);
            let verdict = match random >> 30 {
                0 => {
                    retries.admitted();
                    break;
                }
                1 => {
                    retries.admitted();
                    failures += 1;
                    retries.failed(failures)
                }
                _ => {
                    refusals += 1;
                    let verdict = retries.refused(refusals);
                    assert_eq!(left > 0, verdict == Retry::Again, "the ingress was told so");
                    verdict
                }
            };
            if verdict != Retry::Again {
                break;
            }
            retried |= failures > 0;
        }
        retries.end(retried);
    }
}

#[test]
fn retrying_allocates_nothing() {
    let most = 2;
    for budget in [None, Some(RefusalBudget { per_admitted: 1.0, burst: 10 })] {
        let refusals = RefusalRetries { most, budget };
        let failures = FailureRetries { most, share: 0.0, least: 1 };
        let mut retries = Retries::new(RetryOptions { refusals, failures }).expect("valid options");
        let mut seen = [RetryCounts::default(); 2];
        let info = allocation_counter::measure(|| {
            serve_and_retry(&mut retries);
            seen = [retries.refusals(), retries.failures()];
        });
        assert_eq!(info.count_total, 0, "{budget:?}");
        let went = |count: u64| count > 20;
        assert!(seen.iter().all(|c| went(c.retries) && went(c.limit)), "all ways: {seen:?}");
        assert_eq!(seen.map(|c| went(c.budget)), [budget.is_some(), true], "{seen:?}");
    }
}
