//! Combines the weights that explorations request into weights that sum to one (KnapsackLB §4.6).
//!
//! Requests are granted greedily in order of class (over-utilised > rest), first in first out within a class,
//! skipping those that do not fit. The paper's third class, old curves measured again, is left out: nothing here asks
//! for it. A request fits when the granted weights stay within 1 and the other backends can
//! take what they leave within their bounds. The others share it in proportion to capacity, never above their bounds.
//! So the first request that fits alone is granted in every round: n such requests wait at most n rounds. Cost O(n log
//! n), plus O(n) per bound reached.
//!
//! It fails where the pool is short of capacity: then no request is granted, the shortage is shared in proportion to
//! capacity, and [`Assignment::beyond_bounds`] is set.

use std::collections::BTreeMap;

use plimsoll_model::BackendId;

/// Rounding errors of sums of weights are far below this, relevant differences far above.
const TOLERANCE: f64 = 1e-9;

/// Classes of requests, the first served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// A backend that is overloaded at its present weight.
    OverUtilised,
    /// Every other exploration.
    Rest,
}

/// A backend that can be given weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// The backend.
    pub backend: BackendId,
    /// The greatest weight it may get while it only takes what others leave: its w_max where known, or else its present
    /// weight. Values above 1 mean 1.
    pub bound: f64,
    /// The key by which the rest is shared: its learned capacity. 0 where unknown: then its bound is the key.
    pub capacity: f64,
}

/// A weight that an exploration requests to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// The backend.
    pub backend: BackendId,
    /// The weight, 0…1.
    pub weight: f64,
    /// Its class.
    pub priority: Priority,
    /// Lower tickets came first.
    pub ticket: u64,
}

/// Weights for one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// Every member's weight, in order of [`BackendId`]; they sum to 1.
    pub weights: Vec<(BackendId, f64)>,
    /// Backends whose request is granted exactly, in the order of service.
    pub granted: Vec<BackendId>,
    /// Backends whose request has to wait, in the order of service.
    pub waiting: Vec<BackendId>,
    /// The bounds of all together are below the traffic: some members exceed theirs.
    pub beyond_bounds: bool,
}

/// Why there is no assignment.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// There is no member.
    #[error("no backend can be given weight")]
    NoMembers,
    /// A backend occurs twice, as a member or with a request.
    #[error("{0} occurs twice")]
    Twice(BackendId),
    /// A request by a backend that is no member.
    #[error("{0} requests a weight but is no member")]
    Unknown(BackendId),
    /// A bound, capacity or weight is out of its range.
    #[error("{backend}: {name} is {value}, expected {expected}")]
    OutOfRange {
        /// The backend.
        backend: BackendId,
        /// Which number.
        name: &'static str,
        /// Its value.
        value: f64,
        /// Its range.
        expected: &'static str,
    },
}

/// A member while the round is made.
struct Seat {
    bound: f64,
    key: f64,
    weight: f64,
    granted: bool,
}

/// Makes one round.
///
/// # Errors
/// [`ScheduleError`] names the backend with an invalid number.
pub fn schedule(members: &[Member], wanted: &[Wanted]) -> Result<Assignment, ScheduleError> {
    let mut seats = seat(members)?;
    let mut queue: Vec<&Wanted> = wanted.iter().collect();
    check_wishes(&seats, &queue)?;
    queue.sort_by_key(|wish| (wish.priority, wish.ticket, wish.backend));

    // The weight that is left over after grants and the bounds of the others; negative: spare room.
    let mut lacking = 1.0 - seats.values().map(|seat| seat.bound).sum::<f64>();
    let mut given = 0.0;
    let (mut granted, mut waiting) = (Vec::new(), Vec::new());
    for wish in queue {
        let Some(seat) = seats.get_mut(&wish.backend) else { continue };
        let would_lack = lacking + seat.bound - wish.weight;
        let fits =
            given + wish.weight <= 1.0 + TOLERANCE && would_lack <= lacking.max(0.0) + TOLERANCE;
        if !fits {
            waiting.push(wish.backend);
            continue;
        }
        (lacking, given) = (would_lack, given + wish.weight);
        (seat.weight, seat.granted) = (wish.weight, true);
        granted.push(wish.backend);
    }
    if lacking > TOLERANCE {
        // Granting some of the requests would put the whole shortage on the other backends.
        waiting.splice(0..0, granted.drain(..));
        for seat in seats.values_mut() {
            (seat.weight, seat.granted) = (0.0, false);
        }
        given = 0.0;
    }
    let beyond_bounds = share_rest(&mut seats, 1.0 - given);
    settle(&mut seats);
    let weights = seats.into_iter().map(|(backend, seat)| (backend, seat.weight)).collect();
    Ok(Assignment { weights, granted, waiting, beyond_bounds })
}

fn seat(members: &[Member]) -> Result<BTreeMap<BackendId, Seat>, ScheduleError> {
    let mut seats = BTreeMap::new();
    for &Member { backend, bound, capacity } in members {
        for (name, value) in [("bound", bound), ("capacity", capacity)] {
            if value.is_nan() || value < 0.0 || (name == "capacity" && value.is_infinite()) {
                let expected = "a number of at least 0";
                return Err(ScheduleError::OutOfRange { backend, name, value, expected });
            }
        }
        let bound = bound.min(1.0);
        let key = if capacity > 0.0 { capacity } else { bound };
        let seat = Seat { bound, key, weight: 0.0, granted: false };
        if seats.insert(backend, seat).is_some() {
            return Err(ScheduleError::Twice(backend));
        }
    }
    if seats.is_empty() { Err(ScheduleError::NoMembers) } else { Ok(seats) }
}

fn check_wishes(
    seats: &BTreeMap<BackendId, Seat>,
    wishes: &[&Wanted],
) -> Result<(), ScheduleError> {
    let mut seen = std::collections::BTreeSet::new();
    for &&Wanted { backend, weight, .. } in wishes {
        if !seats.contains_key(&backend) {
            return Err(ScheduleError::Unknown(backend));
        }
        if !seen.insert(backend) {
            return Err(ScheduleError::Twice(backend));
        }
        if !(0.0..=1.0).contains(&weight) {
            let (name, expected) = ("wanted weight", "a number from 0 to 1");
            return Err(ScheduleError::OutOfRange { backend, name, value: weight, expected });
        }
    }
    Ok(())
}

/// Gives `rest` to the backends without a grant, in proportion to their keys and within their bounds where possible.
/// Returns whether bounds had to be exceeded.
fn share_rest(seats: &mut BTreeMap<BackendId, Seat>, rest: f64) -> bool {
    let mut open: Vec<&mut Seat> = seats.values_mut().filter(|seat| !seat.granted).collect();
    let room: f64 = open.iter().map(|seat| seat.bound).sum();
    let keys: f64 = open.iter().map(|seat| seat.key).sum();
    if rest > room + TOLERANCE {
        let equal = 1.0 / open.len() as f64;
        for seat in open {
            let part = if keys > 0.0 { seat.key / keys } else { equal };
            seat.weight = seat.bound + (rest - room) * part;
        }
        return true;
    }
    // Ordered by when they reach their bound: each is closed once, so one pass is enough.
    let fill = |seat: &Seat| if seat.key > 0.0 { seat.bound / seat.key } else { 0.0 };
    open.sort_by(|left, right| fill(left).total_cmp(&fill(right)));
    let (mut rest, mut keys) = (rest.max(0.0), keys);
    for seat in open {
        let fair = if keys > 0.0 { rest * seat.key / keys } else { 0.0 };
        seat.weight = fair.min(seat.bound);
        rest -= seat.weight;
        keys -= seat.key;
    }
    false
}

/// Adds the rounding error to the greatest weight among those without a grant, or among all.
fn settle(seats: &mut BTreeMap<BackendId, Seat>) {
    for _ in 0..2 {
        let off = 1.0 - seats.values().map(|seat| seat.weight).sum::<f64>();
        let greatest = seats.values_mut().max_by(|l, r| {
            (!l.granted, l.weight)
                .partial_cmp(&(!r.granted, r.weight))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        if let Some(seat) = greatest
            && seat.weight > 0.0
        {
            seat.weight = (seat.weight + off).max(0.0);
        }
    }
}
