use crate::problem::Choice;

/// Cost per unit of weight on the way from one choice to a heavier one.
pub(crate) fn slope(from: Choice, to: Choice) -> f64 {
    (to.cost - from.cost) / (to.weight - from.weight) as f64
}

/// The lower convex hull of choices in strictly ascending order of weight: positions into `items`, into
/// `out`. The slopes from one to the next are strictly ascending as [`slope`] computes them, so that
/// taking steps in order of slope never skips one.
pub(crate) fn lower_hull(items: &[Choice], out: &mut Vec<u32>) {
    out.clear();
    for (position, &item) in items.iter().enumerate() {
        while let [.., before, last] = out[..] {
            let (before, last) = (items[before as usize], items[last as usize]);
            if slope(before, last) < slope(last, item) {
                break;
            }
            out.pop();
        }
        out.push(position as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hull_of(points: &[(i64, f64)]) -> Vec<u32> {
        let items: Vec<Choice> =
            points.iter().map(|&(weight, cost)| Choice { weight, cost }).collect();
        let mut out = vec![7];
        lower_hull(&items, &mut out);
        out
    }

    #[test]
    fn keeps_only_points_below_every_chord() {
        assert_eq!(hull_of(&[(0, 0.0)]), [0]);
        assert_eq!(hull_of(&[(0, 0.0), (1, 5.0), (2, 6.0), (3, 6.5)]), [0, 3]);
        assert_eq!(hull_of(&[(0, 0.0), (1, 1.0), (2, 4.0), (3, 9.0)]), [0, 1, 2, 3]);
        assert_eq!(hull_of(&[(0, 0.0), (1, 1.0), (2, 2.0)]), [0, 2], "collinear points go");
    }
}
