//! What must hold between thresholds. A change that breaks one of these does not compile.

use std::time::Duration;

use plimsoll_learn::{LONG_BEFORE, USABLE_CAPACITY};

use super::belief::{drift, grain, knowledge, variability};
use super::commit::{commitment, foreign, plan};
use super::experiments::{drain, refresh};
use super::gate::{decide, phase, trial, worth};
use super::members::{asking, backend, health, life, pool_health, silence};
use super::observe::{reports, traffic};
use super::propose::{in_flight, reserve, search, split};
use super::{control, observe, show};

/// Whether the first is shorter.
const fn shorter(a: Duration, b: Duration) -> bool {
    a.as_nanos() < b.as_nanos()
}

/// Whether it is a part of a whole.
const fn part(x: f64) -> bool {
    0.0 < x && x < 1.0
}

/// Reports and windows.
const _: () = {
    // A window must be able to close between two reports that still belong together.
    assert!(shorter(traffic::WINDOW, traffic::GAP));
    // A report in which a window closes is fresh.
    assert!(shorter(traffic::WINDOW, reports::STALE));
    // Readings are kept for as long as the furthest look back.
    assert!(traffic::MOST_PAST as f64 > LONG_BEFORE * traffic::PAST_OF_SERVICE);
    assert!(traffic::NEAR < traffic::MOST_PAST);
    assert!(part(observe::pool::PEAK_FADES) && observe::pool::TYPICAL_CREEP > 1.0);
};

/// Beliefs.
const _: () = {
    // A lower bound of the cores may differ by more than a known number before its detector is replaced, and what is the
    // same number replaces none.
    assert!(
        drift::SAME_CORES <= drift::OTHER_CORES.0 && drift::OTHER_CORES.0 < drift::OTHER_CORES.1
    );
    assert!(drift::LASTING_CHANGE_S < drift::LASTING_S && drift::LASTING_S < drift::SURE_S);
    assert!(part(drift::SUSPECT) && drift::GROWN_BY > 1.0 && drift::MOST > drift::GROWN_BY);
    // Between the two it is undecided whether there is a quota.
    assert!(part(grain::HELD) && grain::HELD < grain::NOT_HELD && grain::NOT_HELD < 1.0);
    assert!(grain::FEW < grain::SEVERAL && grain::BLOCK_S < grain::STRATUM_S);
    assert!(part(grain::STRATA_KEPT) && grain::SCATTER.0 < 1.0 && 1.0 < grain::SCATTER.1);
    assert!(variability::VARIABILITY.0 < 1.0 && 1.0 < variability::VARIABILITY.1);
    // A backend that was only rescaled is still known.
    assert!(knowledge::RESCALED_ERROR < knowledge::KNOWN);
    // What the pool shows as a prior does not outweigh what a backend remembers of itself.
    assert!(knowledge::ALIKE_REQUESTS < knowledge::RELEARNED_REQUESTS);
    assert!(knowledge::OPTIMISM > knowledge::GROWN && knowledge::GROWN > 1.0);
};

/// The backends.
const _: () = {
    // Looked into before it is set aside, set aside before it is failed (one whose usual wait is above a second may be
    // failed at once).
    assert!(shorter(asking::LOOKED_INTO, life::LEAST_ASIDE) && part(asking::LOOKED_INTO_AT_COST));
    assert!(shorter(life::LEAST_ASIDE, life::MOST_ASIDE));
    assert!(!shorter(life::LEAST_FAILED, life::MOST_ASIDE));
    assert!(shorter(life::LEAST_FAILED, life::MOST_FAILED));
    assert!(shorter(life::MOST_FAILED, life::PATIENCE));
    assert!(1.0 < life::BEYOND && life::BEYOND < life::BEYOND_DOUBT);
    assert!(shorter(life::PAST, life::REMEMBERED));
    // A suspected backend can be checked within the shortest silence that sets one aside.
    assert!(shorter(asking::SUSPECT, life::LEAST_ASIDE) && shorter(asking::SUSPECT, asking::IDLE));
    assert!(shorter(asking::IDLE, asking::FIRST_INTERVAL) && part(asking::BUDGET));
    assert!(part(asking::CARRIED_FADES) && asking::WORTH_CHANGING > 1.0);
    assert!(health::ROUNDS_TO_RETURN < health::MAX_ROUNDS_TO_RETURN);
    assert!(health::MAX_PROBES_TO_RETURN < health::MAX_ROUNDS_TO_RETURN);
    assert!(health::PROBES_TO_FAIL < health::TIMEOUTS_TO_FAIL);
    assert!(shorter(health::FIRST_EJECTION, health::LONGEST_EJECTION));
    assert!(part(health::ERROR_SHARE) && part(health::ERROR_DECAY));
    // Never most of a pool, however many give errors.
    assert!(pool_health::MOST_EJECTED < 0.5 && pool_health::SLOW > 1.0 && part(silence::SUSPECT));
    assert!(part(backend::RAMP_START) && part(backend::FADING) && part(backend::EXCESS_KEPT));
    assert!(part(backend::SLOWEST_FADING) && backend::FADING < backend::SLOWEST_FADING);
};

/// Proposals.
const _: () = {
    assert!(in_flight::STEP.0 < 1.0 && 1.0 < in_flight::STEP.1 && part(in_flight::GAIN));
    assert!(1.0 < in_flight::GROWN && in_flight::GROWN < in_flight::RAISE);
    assert!(in_flight::RAISE < in_flight::OFFERED);
    // HAProxy's weights end at 256.
    assert!(1.0 < search::LEASTCONN_SCALE && search::LEASTCONN_SCALE <= 256.0);
    assert!(*search::REQUESTS.start() < *search::REQUESTS.end());
    // A change is dearer than a choice between changes, and a question is new before its answer can be.
    assert!(search::MIN_GAIN < search::MIN_CHANGE_GAIN && search::MIN_CHANGE_GAIN < search::SAME);
    assert!(split::NEAR_BOUND < split::AT_BOUND && split::AT_BOUND < 1.0);
    assert!(1.0 < split::OVERLOADED && split::OVERLOADED < split::COSTLY);
    assert!(1.0 < split::WITH_ROOM && split::WITH_ROOM < split::HEADROOM);
    assert!(split::HEADROOM < split::MOST_STRETCH && part(split::MOST_PINNED));
    assert!(1.0 < split::CALM_STEP && part(split::SPARE_FOR_QUEUES) && part(split::FIRST_LOAD));
    // After a loss no server is planned to more than can be used of it.
    assert!(reserve::AFTER_A_LOSS < USABLE_CAPACITY);
    assert!(reserve::BLENDS[reserve::BLENDS.len() - 1] == 1.0);
};

/// The gate.
const _: () = {
    // The worse the pool fares, the sooner it is decided again.
    assert!(shorter(decide::RESCUE_EVERY, decide::EXPLORE_EVERY));
    assert!(shorter(decide::EXPLORE_EVERY, decide::STEADY_EVERY));
    // The first decision has seen a window, and one that waits for a window gets several chances.
    assert!(shorter(traffic::WINDOW, decide::FIRST_LOOK));
    assert!(shorter(decide::FIRST_LOOK, decide::FIRST_RATES));
    assert!(shorter(traffic::WINDOW, decide::LATE_WINDOW));
    assert!(shorter(decide::LATE_WINDOW, decide::STEADY_EVERY));
    // An in-flight method holds more ready. What is held ready makes no pool nearly full, and a pool that is short of
    // capacity stays so until less than can be used is needed.
    assert!(decide::RETURNING < decide::READY && decide::READY < 1.0);
    assert!(decide::MOST_RETURNING < plan::NEARLY_FULL && plan::NEARLY_FULL < phase::ENOUGH_ROOM);
    assert!(phase::ENOUGH_ROOM < USABLE_CAPACITY);
    // Exploring has time for decisions that settle.
    assert!(
        phase::MAX_EXPLORING.as_nanos() > phase::SETTLED as u128 * decide::EXPLORE_EVERY.as_nanos()
    );
    // History reaches back over both sides of a trial: three times the windows that are compared, and those after it.
    assert!(4 * trial::COMPARED + trial::SETTLE.as_secs() as usize <= trial::KEPT);
    assert!(trial::WORSE > 1.0 + worth::MIN_GAIN && trial::CERTAIN > 1.0);
    assert!(trial::CORRELATION >= 1.0 && trial::SAME_RATE < trial::SAME_TRAFFIC);
    assert!(shorter(decide::STEADY_EVERY, trial::MEMORY) && part(trial::SAME_PLAN));
    assert!(part(worth::SHORT) && part(worth::ROUNDED) && trial::MAX_REJECTED > 0);
};

/// Commitment.
const _: () = {
    assert!(shorter(commitment::FIRST_RETRY, commitment::LAST_RETRY));
    // A refused plan is tried again no later than one without an answer.
    assert!(!shorter(commitment::UNANSWERED, commitment::LAST_RETRY));
    assert!(shorter(decide::STEADY_EVERY, foreign::MINUTE) && foreign::FOREIGN_LIMIT > 0);
};

/// Experiments, the process and what is shown.
const _: () = {
    assert!(refresh::LOAD.0 < refresh::LOAD.1 && refresh::LOAD.1 < 1.0 && part(refresh::SHARE));
    assert!(shorter(refresh::LEAST, refresh::MOST) && shorter(refresh::MOST, refresh::FIRST_WAIT));
    assert!(shorter(refresh::FIRST_WAIT, refresh::LONGEST_WAIT));
    // What is measured is brought to less than can be used, and what is well known is known.
    assert!(
        refresh::RAISE > 1.0 && refresh::CLOSEST < USABLE_CAPACITY && part(refresh::PARKED_LOAD)
    );
    assert!(refresh::WELL_KNOWN < knowledge::KNOWN && refresh::NEWS < refresh::WELL_KNOWN);
    // A backend that is being relearned is not measured.
    assert!(!shorter(refresh::SETTLES, drift::RELEARNING));
    assert!(shorter(drain::MOST_WAITED, drain::LONGEST) && drain::KEPT > 0);
    // A process without CPU time for that long has missed no window, and says so before a backend is failed for it.
    assert!(shorter(control::process::STALL, traffic::WINDOW));
    assert!(shorter(control::process::STALL, life::LEAST_FAILED));
    assert!(control::controller::UNHURRIED > 1 && control::controller::REFITS > 0);
    assert!(show::view::DRAWN > 2 && part(show::view::MOST) && part(show::advice::WORTH_SAYING));
};
