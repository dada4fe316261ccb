//! Loads that are given in order to measure are taken back.

use plimsoll_control::BackendState;
use plimsoll_model::{MethodKind, Nanos};

use super::bed::{Bed, spec};

/// The longest measurement is 30 s, and windows are a second long.
const LONGEST_S: f64 = 32.0;
/// A steady pool is decided on every 10 s.
const TAKEN_BACK_S: f64 = 15.0;

#[test]
fn measurements_end_and_what_they_gave_is_taken_back() {
    let mut measured = 0;
    for seed in 1..=3 {
        let mut bed = Bed::new(spec(4), &[1, 2, 4, 8], MethodKind::Split, 300.0, seed);
        let mut since: [Option<Nanos>; 4] = [None; 4];
        let mut ended: [Option<Nanos>; 4] = [None; 4];
        bed.run_with(900.0, |bed| {
            let view = bed.controller.view(bed.now());
            for (i, b) in bed.controller.beliefs().enumerate() {
                if b.is_measured {
                    measured += usize::from(since[i].is_none());
                    let began = *since[i].get_or_insert(bed.now());
                    let took = bed.now().since(began).as_secs_f64();
                    assert!(took <= LONGEST_S, "seed {seed}, s{i}: {took} s");
                    ended[i] = None;
                } else if since[i].take().is_some() {
                    ended[i] = Some(bed.now());
                }
                let waited = ended[i].map_or(0.0, |at| bed.now().since(at).as_secs_f64());
                let is_pinned = view.backends[i].reason.contains("being measured");
                let is_over =
                    waited > TAKEN_BACK_S && view.backends[i].state == BackendState::Ready;
                assert!(!(is_over && is_pinned), "seed {seed}, s{i}: {waited} s after its end");
            }
        });
    }
    assert!(measured > 3, "{measured}");
}
