//! Nothing is allocated while requests are served.

use std::time::Duration;

use plimsoll_admission::{
    Admission, AdmissionOptions, Arrival, ChipLedger, Decision, Ended, LedgerOptions,
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
