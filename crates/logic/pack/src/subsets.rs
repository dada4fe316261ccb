//! Which balancer steers which part of the pool, where several balancers share one and do not know of each other's
//! requests in flight.
//!
//! The weights stand in line, heaviest first, and the line is cut where one balancer's part of the traffic ends and the
//! next one's begins. A backend on a cut is shared by its neighbours, so that at most one backend fewer than there are
//! balancers is ever shared. Small changes of weights or traffic move a cut a little and leave the rest where it was.
//! (Deterministic subsetting, "Site Reliability Engineering" ch. 20, with weights in the place of counts.)

/// What each balancer gets of each backend's weight: rows in the order of `parts`, columns in that of `weights`. A
/// column sums up to its weight, and a row to the balancer's part of all weight, up to rounding. Where a balancer's part
/// would be a single backend, every balancer gets all weights instead: each must survive the loss of any one.
///
/// `parts` are the balancers' parts of the traffic in any unit; negative and infinite ones, and those that are no
/// number, count as 0. Without any, all are equal. A balancer whose part is 0 gets no weight.
///
/// Heavy weights stand together, so that a balancer has backends that are alike: under in-flight methods that serves
/// better than a mixture.
pub fn subsets(weights: &[u32], parts: &[f64]) -> Vec<Vec<u32>> {
    if parts.is_empty() {
        return Vec::new();
    }
    let part = |part: &f64| if part.is_finite() { part.max(0.0) } else { 0.0 };
    let mut parts: Vec<f64> = parts.iter().map(part).collect();
    if parts.iter().sum::<f64>() <= 0.0 {
        parts.fill(1.0);
    }
    let (all, whole): (f64, u64) =
        (parts.iter().sum(), weights.iter().map(|&weight| u64::from(weight)).sum());
    let mut until = 0.0;
    let cuts: Vec<u64> = parts
        .iter()
        .map(|part| {
            until += part;
            (until / all * whole as f64).round() as u64
        })
        .collect();
    let mut line: Vec<usize> = (0..weights.len()).collect();
    line.sort_by_key(|&i| (std::cmp::Reverse(weights[i]), i));
    let mut rows = vec![vec![0; weights.len()]; parts.len()];
    let (mut begin, mut at) = (0, 0);
    for i in line {
        let end = begin + u64::from(weights[i]);
        while begin < end {
            // The last cut is at the end of the line, but for rounding.
            let cut = if at + 1 < cuts.len() { cuts[at].clamp(begin, end) } else { end };
            rows[at][i] += (cut - begin) as u32;
            begin = cut;
            if begin < end {
                at += 1;
            }
        }
    }
    let backends = |row: &Vec<u32>| row.iter().filter(|weight| **weight > 0).count();
    if rows.iter().any(|row| backends(row) == 1) {
        rows.iter_mut().filter(|row| backends(row) > 0).for_each(|row| *row = weights.to_vec());
    }
    rows
}
