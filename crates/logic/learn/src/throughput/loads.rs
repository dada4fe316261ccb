//! Groups blocks by load.

use super::block::Block;

/// Rates of completion within this many standard deviations, squared, are one load.
const SAME_RATE: f64 = 9.0;

/// Joins the blocks whose rates cannot be distinguished, closest first; returns the load of each block as well.
pub(super) fn gather(blocks: &[Block]) -> (Vec<Block>, Vec<usize>) {
    let mut loads = blocks.to_vec();
    let mut load_of: Vec<usize> = (0..blocks.len()).collect();
    while let Some((distance, into, from)) = nearest(&loads) {
        if distance > SAME_RATE {
            break;
        }
        let joined = loads.remove(from);
        loads[into].join(&joined);
        for load in &mut load_of {
            *load = match *load {
                at if at == from => into,
                at if at > from => at - 1,
                at => at,
            };
        }
    }
    (loads, load_of)
}

/// The two closest loads and their distance.
fn nearest(loads: &[Block]) -> Option<(f64, usize, usize)> {
    let mut best: Option<(f64, usize, usize)> = None;
    for (i, load) in loads.iter().enumerate() {
        for (j, other) in loads.iter().enumerate().skip(i + 1) {
            let distance = load.apart(other);
            if best.is_none_or(|(least, ..)| distance < least) {
                best = Some((distance, i, j));
                if distance <= 0.0 {
                    return best;
                }
            }
        }
    }
    best
}
