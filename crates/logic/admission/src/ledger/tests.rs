use super::*;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

const MS: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_secs(1);

fn ledger(weights: &[u32]) -> ChipLedger {
    ChipLedger::new(weights, LedgerOptions::default()).expect("valid options")
}

fn rng() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(7)
}

fn pick(ledger: &mut ChipLedger, now: Nanos) -> Option<usize> {
    ledger.pick(now, &mut rng(), |_| true, |_| 0.0)
}

#[test]
fn a_chip_is_spent_and_earned_and_a_refusal_takes_all() {
    let mut ledger = ledger(&[1]);
    let now = Nanos::ZERO + 5 * INTERVAL;
    assert_eq!(ledger.chips(0), 1);
    ledger.on_dispatch(0, now);
    ledger.on_dispatch(0, now);
    assert_eq!(ledger.chips(0), 0, "never below 0");
    ledger.on_chip(0, true, now);
    ledger.on_chip(0, false, now);
    assert_eq!(ledger.chips(0), 1);
    (0..100).for_each(|_| ledger.on_chip(0, true, now));
    assert_eq!(ledger.chips(0), MOST_CHIPS);
    ledger.on_rejection(0, now);
    assert_eq!(ledger.chips(0), 0);
    assert!(!ledger.is_eligible(0, now + INTERVAL - MS));
    assert!(ledger.is_eligible(0, now + INTERVAL));
}

#[test]
fn one_without_chips_is_probed_once_per_interval() {
    let mut ledger = ledger(&[1, 1]);
    let now = Nanos::ZERO + 5 * INTERVAL;
    ledger.on_rejection(0, now);
    ledger.on_rejection(1, now + 100 * MS);
    let at = now + INTERVAL;
    assert_eq!(pick(&mut ledger, at), Some(0), "its interval has passed");
    assert!(!ledger.is_eligible(0, at));
    assert_eq!(ledger.counts(), LedgerCounts { probes: 1, ..LedgerCounts::default() });
    assert_eq!(pick(&mut ledger, at + 100 * MS), Some(1));
    assert_eq!(pick(&mut ledger, at + INTERVAL), Some(0));
}

#[test]
fn with_none_eligible_the_oldest_is_probed_or_the_request_fails() {
    let now = Nanos::ZERO + 5 * INTERVAL;
    for when_none in [WhenNone::ProbeOldest, WhenNone::FailFast] {
        let options = LedgerOptions { when_none, ..LedgerOptions::default() };
        let mut ledger = ChipLedger::new(&[1, 1, 1], options).expect("valid options");
        for (backend, at) in [(2, 0), (0, 10), (1, 20)] {
            ledger.on_rejection(backend, now + at * MS);
        }
        let picks: Vec<Option<usize>> =
            (0..4).map(|k| pick(&mut ledger, now + (30 + k) * MS)).collect();
        let counts = ledger.counts();
        match when_none {
            WhenNone::ProbeOldest => {
                assert_eq!(picks, [Some(2), Some(0), Some(1), Some(2)]);
                assert_eq!(counts, LedgerCounts { forced: 4, ..LedgerCounts::default() });
            }
            WhenNone::FailFast => {
                assert_eq!(picks, [None; 4]);
                assert_eq!(counts, LedgerCounts { failed_fast: 4, ..LedgerCounts::default() });
            }
        }
    }
}

#[test]
fn the_fall_back_heeds_what_is_allowed_and_counts_nothing_when_nothing_is() {
    let mut ledger = ledger(&[1, 0, 1]);
    let now = Nanos::ZERO + 5 * INTERVAL;
    ledger.on_rejection(0, now);
    ledger.on_rejection(2, now + MS);
    let other = ledger.pick(now + 2 * MS, &mut rng(), |b| b != 0, |_| 0.0);
    assert_eq!(other, Some(2));
    assert_eq!(ledger.pick(now + 3 * MS, &mut rng(), |b| b == 1, |_| 0.0), None);
    assert_eq!(ledger.counts(), LedgerCounts { forced: 1, ..LedgerCounts::default() });
}

#[test]
fn of_two_distinct_ones_the_less_loaded_is_picked() {
    let mut ledger = ledger(&[1; 5]);
    let mut rng = rng();
    let mut picked = [0u32; 5];
    for _ in 0..100_000 {
        let backend = ledger.pick(Nanos::ZERO, &mut rng, |_| true, |b| b as f64);
        picked[backend.expect("all are eligible")] += 1;
    }
    // The pair's lesser index: of the 10 pairs, 4 hold 0, 3 more hold 1, and so on; never 4.
    for (backend, pairs) in [4.0, 3.0, 2.0, 1.0, 0.0].into_iter().enumerate() {
        let share = f64::from(picked[backend]) / 1e5;
        assert!((share - pairs / 10.0).abs() < 0.006, "{backend}: {share}");
    }
}

#[test]
fn draws_are_by_weight_whatever_the_way() {
    // A lone heavy one exhausts the tries now and then, so both ways of drawing are used.
    for weights in [vec![1, 2, 3, 4], vec![1_000, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]] {
        let mut ledger = ledger(&weights);
        ledger.set_weights(weights.iter().copied());
        let mut rng = rng();
        let draws = 200_000;
        let mut drawn = vec![0u32; weights.len()];
        for _ in 0..draws {
            drawn[ledger.draw(&mut rng, &|_| true).expect("all are eligible")] += 1;
        }
        let sum: u32 = weights.iter().sum();
        for (backend, &weight) in weights.iter().enumerate() {
            let expected = f64::from(draws) * f64::from(weight) / f64::from(sum);
            let off = f64::from(drawn[backend]) - expected;
            assert!(off.abs() < 4.5 * expected.sqrt(), "{backend}: {} {expected}", drawn[backend]);
        }
    }
}

#[test]
fn weights_changed_mid_stream_keep_chips_and_stamps() {
    let mut ledger = ledger(&[1, 1]);
    let now = Nanos::ZERO + 5 * INTERVAL;
    ledger.on_chip(0, true, now);
    ledger.on_rejection(1, now);
    ledger.set_weights([0, 0].into_iter());
    assert_eq!(pick(&mut ledger, now), None);
    // What ends meanwhile is still reported.
    ledger.on_dispatch(0, now);
    ledger.on_rejection(1, now + 500 * MS);
    ledger.set_weights([1, 1, 1].into_iter());
    assert_eq!((ledger.chips(0), ledger.chips(1), ledger.chips(2)), (1, 0, 1));
    assert!(!ledger.is_eligible(1, now + INTERVAL) && ledger.is_eligible(1, now + 1_500 * MS));
    let picked: Vec<_> =
        (0..50).filter_map(|_| ledger.pick(now + MS, &mut rng(), |_| true, |b| b as f64)).collect();
    assert!(!picked.contains(&1), "{picked:?}");
}

fn under(rng: &mut Xoshiro256PlusPlus, n: u64) -> u64 {
    rng.next_u64() % n
}

/// The chips as the paper keeps them, without any structure.
struct Plain {
    rows: Vec<(u32, u32, Nanos)>,
}

impl Plain {
    fn eligible(&self, now: Nanos) -> Vec<usize> {
        let ready = |row: &(u32, u32, Nanos)| row.0 > 0 && (row.1 > 0 || row.2 <= now);
        (0..self.rows.len()).filter(|&b| ready(&self.rows[b])).collect()
    }
}

#[test]
fn a_thousand_random_streams_agree_with_the_plain_ledger() {
    for seed in 0..1_000 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut ledger = ledger(&[1, 1, 1, 1]);
        let mut plain = Plain { rows: vec![(1, 1, Nanos::ZERO); 4] };
        let mut now = Nanos::ZERO + 2 * INTERVAL;
        for _ in 0..200 {
            now = now + under(&mut rng, 400) as u32 * MS;
            let backend = under(&mut rng, plain.rows.len() as u64) as usize;
            let row = &mut plain.rows[backend];
            match under(&mut rng, 6) {
                0 => {
                    ledger.on_dispatch(backend, now);
                    row.1 = row.1.saturating_sub(1);
                }
                1 => {
                    ledger.on_chip(backend, true, now);
                    row.1 = (row.1 + 1).min(MOST_CHIPS);
                }
                2 => {
                    ledger.on_rejection(backend, now);
                    (row.1, row.2) = (0, now + INTERVAL);
                }
                3 => {
                    let weight = under(&mut rng, 3) as u32;
                    row.0 = weight;
                    ledger.set_weights(plain.rows.iter().map(|row| row.0));
                }
                _ => {
                    let eligible = plain.eligible(now);
                    let oldest = (0..4).filter(|&b| plain.rows[b].0 > 0);
                    let oldest = oldest.map(|b| plain.rows[b].2).min();
                    let picked = ledger.pick(now, &mut rng, |_| true, |_| 0.0);
                    match picked {
                        Some(b) if eligible.is_empty() => {
                            assert_eq!(Some(plain.rows[b].2), oldest, "seed {seed}");
                            plain.rows[b].2 = now + INTERVAL;
                        }
                        Some(b) => {
                            assert!(eligible.contains(&b), "seed {seed}: {b} of {eligible:?}");
                            if plain.rows[b].1 == 0 {
                                plain.rows[b].2 = now + INTERVAL;
                            }
                        }
                        None => assert_eq!(oldest, None, "seed {seed}"),
                    }
                }
            }
            ledger.admit_those_ready(now);
            let mut open: Vec<usize> = ledger.open.iter().map(|&b| b as usize).collect();
            open.sort_unstable();
            assert_eq!(open, plain.eligible(now), "seed {seed}");
            for (b, row) in plain.rows.iter().enumerate() {
                assert_eq!(ledger.chips(b), row.1, "seed {seed}");
            }
        }
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let none = LedgerOptions { reset_interval_ms: 0, ..LedgerOptions::default() };
    assert_eq!(ChipLedger::new(&[1], none).err(), Some(LedgerOptionsError::ResetInterval));
    let none = LedgerOptions { most_chips: 0, ..LedgerOptions::default() };
    assert_eq!(ChipLedger::new(&[1], none).err(), Some(LedgerOptionsError::MostChips));
}
