//! Menus made ready for the solvers: one flat list, sorted, without what can never be chosen.

use crate::problem::{Choice, MenuProblem, PackError};

/// The menus of a problem, one after the other; in the knapsack's words, classes of items.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    items: Vec<Choice>,
    starts: Vec<usize>,
}

impl Classes {
    /// Every menu by ascending weight, equal weights reduced to the cheapest. Checks the input.
    pub fn sorted(problem: &MenuProblem) -> Result<Classes, PackError> {
        if problem.menus.is_empty() {
            return Err(PackError::NoBackends);
        }
        let mut classes = Classes::with_capacity(problem.menus.len(), 16);
        let (mut heaviest, mut costs) = (0i64, 0f64);
        for (backend, menu) in problem.menus.iter().enumerate() {
            check(backend, menu)?;
            let start = classes.items.len();
            classes.items.extend_from_slice(menu);
            let ascending = menu.windows(2).all(|pair| pair[0].weight < pair[1].weight);
            if !ascending {
                classes.items[start..].sort_unstable_by(|x, y| {
                    x.weight.cmp(&y.weight).then(x.cost.total_cmp(&y.cost))
                });
                let mut kept = start;
                for at in start..classes.items.len() {
                    if at == start || classes.items[at].weight != classes.items[kept - 1].weight {
                        classes.items[kept] = classes.items[at];
                        kept += 1;
                    }
                }
                classes.items.truncate(kept);
            }
            classes.starts.push(classes.items.len());
            heaviest = classes
                .items
                .last()
                .and_then(|last| heaviest.checked_add(last.weight))
                .ok_or(PackError::Overflow { what: "weights" })?;
            costs += menu.iter().fold(0.0f64, |most, item| most.max(item.cost.abs()));
        }
        if !(costs * 4.0).is_finite() {
            return Err(PackError::Overflow { what: "costs" });
        }
        Ok(classes)
    }

    fn with_capacity(backends: usize, each: usize) -> Classes {
        let mut starts = Vec::with_capacity(backends + 1);
        starts.push(0);
        Classes { items: Vec::with_capacity(backends * each), starts }
    }

    /// The number of backends.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// One backend's choices.
    pub fn class(&self, backend: usize) -> &[Choice] {
        &self.items[self.starts[backend]..self.starts[backend + 1]]
    }

    /// All backends' choices in turn.
    pub fn iter(&self) -> impl Iterator<Item = &[Choice]> {
        self.starts.windows(2).map(|ends| &self.items[ends[0]..ends[1]])
    }

    /// Only what passes `keep`, without the dominated: an entry goes when another is as heavy and as
    /// cheap. What remains of a class is strictly ascending in weight and in cost. None when a class
    /// becomes empty.
    pub fn efficient(&self, keep: impl Fn(Choice) -> bool) -> Option<Classes> {
        let mut out = Classes::with_capacity(self.len(), 0);
        out.items.reserve(self.items.len());
        for class in self.iter() {
            let start = out.items.len();
            push_efficient(class.iter().copied().filter(|&item| keep(item)), &mut out.items);
            if out.items.len() == start {
                return None;
            }
            out.starts.push(out.items.len());
        }
        Some(out)
    }

    /// Only what passes `keep`. None when a class becomes empty.
    pub fn only(&self, keep: impl Fn(Choice) -> bool) -> Option<Classes> {
        let mut out = Classes::with_capacity(self.len(), 0);
        for class in self.iter() {
            let start = out.items.len();
            out.items.extend(class.iter().copied().filter(|&item| keep(item)));
            if out.items.len() == start {
                return None;
            }
            out.starts.push(out.items.len());
        }
        Some(out)
    }

    /// All choices of all backends.
    pub fn items(&self) -> &[Choice] {
        &self.items
    }

    /// The weight and cost of one choice per backend.
    pub fn total(&self, chosen: &[u32]) -> (i64, f64) {
        self.iter().zip(chosen).fold((0, 0.0), |(weight, cost), (class, &at)| {
            let item = class[at as usize];
            (weight + item.weight, cost + item.cost)
        })
    }

    /// The chosen weights.
    pub fn weights(&self, chosen: &[u32]) -> Vec<i64> {
        self.iter().zip(chosen).map(|(class, &at)| class[at as usize].weight).collect()
    }

    /// The greatest weight that can be reached.
    pub fn heaviest(&self) -> i64 {
        self.iter().map(|class| class[class.len() - 1].weight).sum()
    }

    /// The target rounded up to a sum that can occur: all sums differ by multiples of the greatest
    /// common divisor of the differences within the menus. `target` must not pass [`Self::heaviest`].
    pub fn reachable_target(&self, target: i64) -> i64 {
        let lightest: i64 = self.iter().map(|class| class[0].weight).sum();
        if target <= lightest {
            return target;
        }
        let mut divisor = 0;
        for class in self.iter() {
            for item in &class[1..] {
                divisor = gcd(divisor, item.weight - class[0].weight);
                if divisor == 1 {
                    return target;
                }
            }
        }
        // Here target ≤ heaviest, which is itself on the lattice, so this cannot overflow.
        let steps = (target - lightest) / divisor + i64::from((target - lightest) % divisor != 0);
        lightest + steps * divisor
    }
}

/// Appends what no other of `items` (ascending in weight) dominates.
pub(crate) fn push_efficient(items: impl Iterator<Item = Choice>, out: &mut Vec<Choice>) {
    let start = out.len();
    for item in items {
        while out.len() > start && out[out.len() - 1].cost >= item.cost {
            out.pop();
        }
        out.push(item);
    }
}

fn check(backend: usize, menu: &[Choice]) -> Result<(), PackError> {
    if menu.is_empty() {
        return Err(PackError::EmptyMenu { backend });
    }
    for (entry, item) in menu.iter().enumerate() {
        if item.weight < 0 {
            return Err(PackError::BadWeight { backend, entry });
        }
        if !item.cost.is_finite() {
            return Err(PackError::BadCost { backend, entry });
        }
    }
    Ok(())
}

fn gcd(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn menu(entries: &[(i64, f64)]) -> Vec<Choice> {
        entries.iter().map(|&(weight, cost)| Choice { weight, cost }).collect()
    }

    #[test]
    fn sorts_and_drops_what_cannot_be_chosen() {
        let menus = [menu(&[(5, 9.0), (0, 4.0), (5, 3.0), (2, 8.0), (1, 2.0)])];
        let problem = MenuProblem { menus: &menus, target: 0, theta: None };
        let sorted = Classes::sorted(&problem).unwrap();
        assert_eq!(sorted.class(0), menu(&[(0, 4.0), (1, 2.0), (2, 8.0), (5, 3.0)]));
        let efficient = sorted.efficient(|_| true).unwrap();
        assert_eq!(efficient.class(0), menu(&[(1, 2.0), (5, 3.0)]));
        assert!(sorted.efficient(|item| item.weight > 5).is_none());
    }

    #[test]
    fn says_where_the_input_is_wrong() {
        let wrong = |menus: &[Vec<Choice>]| {
            Classes::sorted(&MenuProblem { menus, target: 0, theta: None }).unwrap_err()
        };
        let fine = menu(&[(1, 1.0)]);
        assert_eq!(wrong(&[]), PackError::NoBackends);
        assert_eq!(wrong(&[fine.clone(), vec![]]), PackError::EmptyMenu { backend: 1 });
        assert_eq!(
            wrong(&[fine.clone(), menu(&[(1, 1.0), (-2, 1.0)])]),
            PackError::BadWeight { backend: 1, entry: 1 }
        );
        assert_eq!(wrong(&[menu(&[(1, f64::NAN)])]), PackError::BadCost { backend: 0, entry: 0 });
        assert_eq!(
            wrong(&[menu(&[(i64::MAX, 1.0)]), fine.clone()]),
            PackError::Overflow { what: "weights" }
        );
        assert_eq!(wrong(&[menu(&[(1, f64::MAX)]), fine]), PackError::Overflow { what: "costs" });
    }

    #[test]
    fn raises_the_target_to_the_lattice() {
        let menus = [menu(&[(3, 0.0), (9, 1.0)]), menu(&[(1, 0.0), (5, 1.0)])];
        let problem = MenuProblem { menus: &menus, target: 0, theta: None };
        let classes = Classes::sorted(&problem).unwrap();
        assert_eq!(classes.reachable_target(3), 3, "already covered");
        assert_eq!(classes.reachable_target(5), 6);
        assert_eq!(classes.reachable_target(14), 14);
    }
}
