//! Lists of partial solutions: one half of the core, enumerated class by class.
//!
//! A partial solution is a change from the base choice: its weight, and the reduced cost `r ≥ 0` that
//! it adds to the bound. A list is kept in ascending order of weight, without what exceeds the budget,
//! what cannot reach the target any more, and what another partial solution dominates.

/// A change of one class away from its base choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Move {
    pub weight: i64,
    pub reduced: f64,
    pub class: u32,
    pub to: u32,
}

/// A partial solution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub weight: i64,
    pub reduced: f64,
    /// The node of the last change, [`NONE`] for the base itself.
    pub node: u32,
    /// The change just made on top of `node`, not yet in the trail; [`NONE`] otherwise.
    pending: u32,
}

/// No node, no pending change.
pub(crate) const NONE: u32 = u32::MAX;

/// How a partial solution came about: a change on top of an earlier node.
#[derive(Clone, Copy, Debug)]
struct Node {
    before: u32,
    class: u32,
    to: u32,
}

/// The history of every partial solution that survived its class.
#[derive(Debug, Default)]
pub(crate) struct Trail(Vec<Node>);

impl Trail {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Makes the changes that led to `node`.
    pub fn apply(&self, mut node: u32, chosen: &mut [u32]) {
        while node != NONE {
            let change = self.0[node as usize];
            chosen[change.class as usize] = change.to;
            node = change.before;
        }
    }
}

/// What a partial solution must respect to be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// The most reduced cost.
    pub budget: f64,
    /// The price of a unit of weight.
    pub lambda: f64,
    /// The change of weight that the whole solution must reach.
    pub need: i64,
    /// The change of weight beyond which the excess alone is over budget.
    pub most: i64,
    /// Costs closer than this are equal.
    pub tolerance: f64,
    /// The most states in one list.
    pub states: usize,
}

/// The least and the greatest change of weight that classes can still bring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    pub least: i64,
    pub most: i64,
}

impl Reach {
    /// Of one class, which may also stay at its base.
    pub fn of<'a>(moves: impl IntoIterator<Item = &'a Move>) -> Reach {
        moves.into_iter().fold(Reach::default(), |reach, change| Reach {
            least: reach.least.min(change.weight),
            most: reach.most.max(change.weight),
        })
    }

    /// Of both together.
    pub fn plus(self, other: Reach) -> Reach {
        Reach {
            least: self.least.saturating_add(other.least),
            most: self.most.saturating_add(other.most),
        }
    }
}

/// The lists and buffers of an enumeration, reused from round to round.
#[derive(Debug, Default)]
pub(crate) struct Half {
    pub states: Vec<State>,
    before: Vec<State>,
    merged: Vec<State>,
    /// Whether nothing was left out for want of room.
    pub complete: bool,
}

impl Half {
    /// Enumerates `classes` (moves of one class each); `rest[k]` is what remains to be decided after
    /// class k, here and elsewhere. Takes what it does from `work`, and thins the lists out when that
    /// or the room runs out.
    pub fn enumerate(
        &mut self,
        classes: &[&[Move]],
        rest: &[Reach],
        frame: &Frame,
        work: &mut usize,
        trail: &mut Trail,
    ) {
        self.states.clear();
        self.states.push(State { weight: 0, reduced: 0.0, node: NONE, pending: NONE });
        self.complete = true;
        for (moves, rest) in classes.iter().zip(rest) {
            self.before.clone_from(&self.states);
            let room = if *work == 0 { frame.states.min(SPENT_ROOM) } else { frame.states };
            for (position, change) in moves.iter().enumerate() {
                self.add(change, position as u32, frame.budget);
                *work = work.saturating_sub(self.states.len());
                if self.states.len() > CROWDED * room {
                    self.make_room(room, frame);
                }
            }
            self.states.retain(|state| {
                state.weight.saturating_add(rest.most) >= frame.need
                    && state.weight.saturating_add(rest.least) <= frame.most
            });
            self.make_room(room, frame);
            for state in &mut self.states {
                if state.pending != NONE {
                    let change = moves[state.pending as usize];
                    trail.0.push(Node { before: state.node, class: change.class, to: change.to });
                    state.node = (trail.0.len() - 1) as u32;
                    state.pending = NONE;
                }
            }
        }
    }

    /// Merges into the list what one change makes of every state before this class. Of two with the
    /// same weight the cheaper stays.
    fn add(&mut self, change: &Move, position: u32, budget: f64) {
        self.merged.clear();
        let mut old = self.states.iter().copied().peekable();
        for source in &self.before {
            let reduced = source.reduced + change.reduced;
            if reduced > budget {
                continue;
            }
            let weight = source.weight + change.weight;
            while let Some(state) = old.next_if(|state| state.weight < weight) {
                self.merged.push(state);
            }
            let new = State { weight, reduced, node: source.node, pending: position };
            match old.next_if(|state| state.weight == weight) {
                Some(state) if state.reduced <= reduced => self.merged.push(state),
                _ => self.merged.push(new),
            }
        }
        self.merged.extend(old);
        std::mem::swap(&mut self.states, &mut self.merged);
    }

    fn make_room(&mut self, room: usize, frame: &Frame) {
        self.drop_dominated(frame);
        if self.states.len() > room {
            self.thin_out(room);
        }
    }

    /// Drops every state that a heavier one undercuts: weight beyond the target is no harm.
    fn drop_dominated(&mut self, frame: &Frame) {
        let mut least = f64::INFINITY;
        let mut kept = self.states.len();
        for at in (0..self.states.len()).rev() {
            let state = self.states[at];
            let cost = state.reduced + frame.lambda * state.weight as f64;
            if cost < least - frame.tolerance {
                least = cost;
                kept -= 1;
                self.states[kept] = state;
            }
        }
        self.states.drain(..kept);
    }

    /// Keeps the cheapest state of each of `room` equal stretches of weight.
    fn thin_out(&mut self, room: usize) {
        self.complete = false;
        let lightest = self.states[0].weight;
        let span = self.states[self.states.len() - 1].weight - lightest;
        let stretch = span / room as i64 + 1;
        let mut current = -1;
        let mut kept = 0;
        for at in 0..self.states.len() {
            let state = self.states[at];
            let number = (state.weight - lightest) / stretch;
            if number != current {
                current = number;
                self.states[kept] = state;
                kept += 1;
            } else if state.reduced < self.states[kept - 1].reduced {
                self.states[kept - 1] = state;
            }
        }
        self.states.truncate(kept);
    }
}

/// Within a class a list may outgrow its room by this factor.
const CROWDED: usize = 2;

/// Room for each list once the work is spent: enough to end the round with a fair solution, soon.
const SPENT_ROOM: usize = 1024;

/// The cheapest pair of partial solutions, one of each half, that reaches the target together: its
/// reduced cost with the price of the excess, and both nodes.
pub(crate) fn cheapest_pair(left: &Half, right: &Half, frame: &Frame) -> Option<(f64, [u32; 2])> {
    let mut best: Option<(f64, [u32; 2])> = None;
    let mut partner = right.states.len();
    for state in &left.states {
        // Costs rise with weight in a list without dominated states, so the lightest partner that
        // reaches the target is the cheapest.
        while partner > 0 && state.weight + right.states[partner - 1].weight >= frame.need {
            partner -= 1;
        }
        let Some(other) = right.states.get(partner) else { continue };
        let excess = state.weight + other.weight - frame.need;
        let cost = state.reduced + other.reduced + frame.lambda * excess as f64;
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, [state.node, other.node]));
        }
    }
    best
}
