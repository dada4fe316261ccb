//! The choices that a round of the search considers, with the repetitions of equal backends left out.

use crate::classes::Classes;
use crate::pareto::{Frame, Half, Move, Reach, Trail};

/// The moves within a round's budget, grouped by class.
pub(crate) struct Core {
    moves: Vec<Move>,
    /// Start and end of each class in `moves`, the class with the cheapest move first.
    groups: Vec<(usize, usize)>,
}

/// Classes with the same moves: it does not matter which of them makes one.
struct Alike<'a> {
    moves: &'a [Move],
    groups: &'a [(f64, usize, usize)],
    /// The change of weight of its move without reduced cost, if there is exactly one.
    free: Option<i64>,
    /// What all its moves without reduced cost together can bring.
    reach: Reach,
}

impl Core {
    pub fn within(classes: &Classes, moves: &[Move], frame: &Frame) -> Core {
        let moves: Vec<Move> =
            moves.iter().filter(|change| change.reduced <= frame.budget).copied().collect();
        let mut groups: Vec<(f64, usize, usize)> = Vec::new();
        let mut start = 0;
        for group in moves.chunk_by(|x, y| x.class == y.class) {
            let cheapest = group.iter().fold(f64::INFINITY, |least, x| least.min(x.reduced));
            groups.push((cheapest, start, start + group.len()));
            start += group.len();
        }
        let moves_of = |group: &(f64, usize, usize)| &moves[group.1..group.2];
        groups.sort_by(|x, y| x.0.total_cmp(&y.0).then_with(|| compare(moves_of(x), moves_of(y))));
        let alike: Vec<Alike> = groups
            .chunk_by(|x, y| x.0 == y.0 && compare(moves_of(x), moves_of(y)).is_eq())
            .map(|groups| Alike::new(moves_of(&groups[0]), groups))
            .collect();
        let others = Others::new(&alike, &moves, frame);
        let mut kept = Vec::with_capacity(groups.len());
        for run in &alike {
            let count = run.movers(&alike, &others, classes, frame).min(run.groups.len());
            kept.extend(run.groups[..count].iter().map(|&(_, start, end)| (start, end)));
        }
        Core { moves, groups: kept }
    }

    /// Deals the classes out to two halves in turn, and enumerates both.
    pub fn enumerate(
        &self,
        left: &mut Half,
        right: &mut Half,
        frame: &Frame,
        work: &mut usize,
        trail: &mut Trail,
    ) {
        let dealt = |parity: usize| -> Vec<&[Move]> {
            let of_half = self.groups.iter().skip(parity).step_by(2);
            of_half.map(|&(start, end)| &self.moves[start..end]).collect()
        };
        let halves = [dealt(0), dealt(1)];
        let reach = |half: &[&[Move]]| {
            half.iter().fold(Reach::default(), |sum, moves| sum.plus(Reach::of(*moves)))
        };
        let totals = [reach(&halves[0]), reach(&halves[1])];
        for (half, number) in [(left, 0), (right, 1)] {
            let classes = &halves[number];
            let mut rest = vec![totals[1 - number]; classes.len()];
            for at in (0..classes.len().saturating_sub(1)).rev() {
                rest[at] = rest[at + 1].plus(Reach::of(classes[at + 1]));
            }
            half.enumerate(classes, &rest, frame, work, trail);
        }
    }
}

/// What the solutions of a round can bring in weight.
struct Others {
    /// All moves without reduced cost.
    free: Reach,
    /// All others, as far as the budget pays for them.
    paid: Reach,
}

impl Others {
    fn new(alike: &[Alike], moves: &[Move], frame: &Frame) -> Others {
        let free = alike.iter().fold(Reach::default(), |sum, run| sum.plus(run.reach));
        let (mut up, mut down) = (0f64, 0f64);
        for change in moves.iter().filter(|change| change.reduced > 0.0) {
            let ratio = change.weight as f64 / change.reduced;
            up = up.max(ratio);
            down = down.max(-ratio);
        }
        let paid = Reach {
            least: -((down * frame.budget).ceil() as i64),
            most: (up * frame.budget).ceil() as i64,
        };
        Others { free, paid }
    }
}

impl<'a> Alike<'a> {
    fn new(moves: &'a [Move], groups: &'a [(f64, usize, usize)]) -> Self {
        let mut free = moves.iter().filter(|change| change.reduced == 0.0);
        let (first, second) = (free.next(), free.next());
        let one = Reach::of(moves.iter().filter(|change| change.reduced == 0.0));
        let count = groups.len() as i64;
        Alike {
            moves,
            groups,
            free: first.filter(|_| second.is_none()).map(|change| change.weight),
            reach: Reach {
                least: one.least.saturating_mul(count),
                most: one.most.saturating_mul(count),
            },
        }
    }

    /// How many of these classes can leave their base in some best solution, at the most.
    fn movers(&self, alike: &[Alike], others: &Others, classes: &Classes, frame: &Frame) -> usize {
        if self.groups.len() == 1 {
            return 1;
        }
        let cheapest = self.moves.iter().filter(|change| change.reduced > 0.0);
        let cheapest = cheapest.fold(f64::INFINITY, |least, change| least.min(change.reduced));
        let paid = (frame.budget / cheapest) as usize;
        if self.moves.iter().all(|change| change.reduced > 0.0) {
            return paid;
        }
        let Some(step) = self.free else { return usize::MAX };
        // Of two classes with the same menu, one step up in the one and the same step down in the other
        // only swap their roles: a best solution need not do both.
        let menu = |run: &Alike| classes.class(run.moves[0].class as usize);
        let mirror = alike
            .iter()
            .find(|run| run.free == Some(-step) && menu(run) == menu(self))
            .map_or(Reach::default(), |run| run.reach);
        let rest = Reach {
            least: others.free.least - self.reach.least - mirror.least,
            most: others.free.most - self.reach.most - mirror.most,
        }
        .plus(others.paid);
        // The whole change of weight lies between what is needed and what the budget allows.
        let room = if step > 0 {
            frame.most.saturating_sub(rest.least)
        } else {
            rest.most.saturating_sub(frame.need)
        };
        let free = (room.max(0) / step.abs()) as usize + 1;
        free.saturating_add(paid)
    }
}

fn compare(x: &[Move], y: &[Move]) -> std::cmp::Ordering {
    let key = |change: &Move| (change.weight, change.reduced.to_bits());
    x.iter().map(key).cmp(y.iter().map(key))
}
