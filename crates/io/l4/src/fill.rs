//! The lists from which the program serves SYNs: what a policy means is decided here, and the
//! program looks at one place.
//!
//! * in turn (`round_robin`, `weighted_round_robin`, `awrr`): smooth weighted round robin (nginx), so
//!   that a server of weight 5 among others of 1 does not get five connections in a row;
//! * by hash (`maglev`, and every connection without a cookie): Maglev (Eisenbud et al., NSDI '16,
//!   §3.4) with weights as turns, a table of 8,191 places: a change of one server among n moves little
//!   more than 1/n of the hashes;
//! * by hash (`hash`): a plain list, each server as often as its weight.
//!
//! Cost: O(places · servers) for turns, O(places) expected for Maglev.

use std::collections::BTreeMap;

use crate::layout::MAX_SLOTS;

/// Of a connection where it costs most: times 2^31 connections and 64 places it fits 63 bits.
const GREATEST_COST: u64 = 1 << 25;

/// The part of a weight that is all of it: each step of a part has the tables written.
pub const WHOLE: u16 = 100;

/// The size of a Maglev table: the largest prime within [`MAX_SLOTS`].
pub const MAGLEV_PLACES: usize = 8191;

/// A server that takes connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub id: u16,
    /// Its share; one of zero gets none.
    pub weight: u16,
    /// What its places in a Maglev table hang on: its name, never its place in the list.
    pub name: String,
}

/// Servers in turn, as smoothly as their weights allow. Weights whose sum passes the length of a list
/// are scaled, with every server that has a weight keeping a turn.
pub fn in_turn(candidates: &[Candidate]) -> Vec<u16> {
    let weights = scaled(candidates, MAX_SLOTS as u64);
    let total: i64 = weights.iter().sum();
    let mut current = vec![0i64; candidates.len()];
    let mut list = Vec::with_capacity(total as usize);
    for _ in 0..total {
        for (now, weight) in current.iter_mut().zip(&weights) {
            *now += weight;
        }
        // The first of equals, as in the configuration.
        let best = (0..current.len()).rev().max_by_key(|index| current[*index]).unwrap_or(0);
        current[best] -= total;
        list.push(candidates[best].id);
    }
    list
}

/// Candidates that are alike, but for those that take none.
pub fn same_weights(candidates: &[Candidate]) -> Vec<Candidate> {
    let even = |one: &Candidate| Candidate { weight: one.weight.min(1), ..one.clone() };
    candidates.iter().map(even).collect()
}

/// Each server once for each unit of weight, one after the other.
pub fn in_line(candidates: &[Candidate]) -> Vec<u16> {
    let weights = scaled(candidates, MAX_SLOTS as u64);
    let each = candidates.iter().zip(weights);
    each.flat_map(|(one, weight)| std::iter::repeat_n(one.id, weight as usize)).collect()
}

/// Each server with a weight once.
pub fn each_once(candidates: &[Candidate]) -> Vec<u16> {
    candidates.iter().filter(|one| one.weight > 0).map(|one| one.id).take(MAX_SLOTS).collect()
}

/// What a connection costs the server at each place of a list, for comparing loads without dividing:
/// so large a number that the least weight's and the greatest's differ by less than 0.2 % from exact, unless one of
/// them is new: of the weight of such a one `part` counts, by its id.
pub fn costs(list: &[u16], candidates: &[Candidate], part: impl Fn(u16) -> u16) -> Vec<u32> {
    let bears = |one: &Candidate| u64::from(one.weight) * u64::from(part(one.id).max(1));
    let serving = || candidates.iter().filter(|one| one.weight > 0);
    let least = serving().map(bears).min().unwrap_or(0);
    let cost = |one: &Candidate| (GREATEST_COST * least / bears(one)).max(1) as u32;
    let by_id: BTreeMap<u16, u32> = serving().map(|one| (one.id, cost(one))).collect();
    list.iter().map(|id| by_id[id]).collect()
}

/// Maglev's table.
pub fn maglev(candidates: &[Candidate]) -> Vec<u16> {
    let serving: Vec<&Candidate> = candidates.iter().filter(|one| one.weight > 0).collect();
    let Some(heaviest) = serving.iter().map(|one| u32::from(one.weight)).max() else {
        return Vec::new();
    };
    let walks: Vec<(usize, usize)> = serving
        .iter()
        .map(|one| {
            let (first, second) = (mix(&one.name, 1), mix(&one.name, 2));
            let places = MAGLEV_PLACES as u64;
            ((first % places) as usize, (second % (places - 1)) as usize + 1)
        })
        .collect();
    let mut table = vec![0u16; MAGLEV_PLACES];
    let mut taken = vec![false; MAGLEV_PLACES];
    let mut steps = vec![0usize; serving.len()];
    let mut credit = vec![0u32; serving.len()];
    let mut filled = 0;
    loop {
        for (index, one) in serving.iter().enumerate() {
            // A lighter server sits out some rounds.
            credit[index] += u32::from(one.weight);
            if credit[index] < heaviest {
                continue;
            }
            credit[index] -= heaviest;
            let (offset, skip) = walks[index];
            loop {
                let place = (offset + steps[index] * skip) % MAGLEV_PLACES;
                steps[index] += 1;
                if !std::mem::replace(&mut taken[place], true) {
                    table[place] = one.id;
                    break;
                }
            }
            filled += 1;
            if filled == MAGLEV_PLACES {
                return table;
            }
        }
    }
}

/// Weights divided by their greatest common divisor, and scaled down when their sum passes `limit`.
fn scaled(candidates: &[Candidate], limit: u64) -> Vec<i64> {
    let weights: Vec<u64> = candidates.iter().map(|one| u64::from(one.weight)).collect();
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    let total: u64 = weights.iter().map(|weight| weight / divisor).sum();
    let scale = |weight: u64| {
        let weight = weight / divisor;
        if total <= limit || weight == 0 {
            return weight as i64;
        }
        // Half of the places are shared by weight, so that every server's one turn surely fits.
        (weight * (limit / 2) / total).max(1) as i64
    };
    weights.into_iter().map(scale).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// FNV-1a with splitmix's finish: the same on every balancer and in every version.
fn mix(name: &str, salt: u64) -> u64 {
    let mut hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64 ^ salt, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(weights: &[u16]) -> Vec<Candidate> {
        let one = |(index, weight): (usize, &u16)| Candidate {
            id: index as u16 + 1,
            weight: *weight,
            name: format!("s{}", index + 1),
        };
        weights.iter().enumerate().map(one).collect()
    }

    fn share(list: &[u16], id: u16) -> f64 {
        list.iter().filter(|one| **one == id).count() as f64 / list.len() as f64
    }

    #[test]
    fn turns_are_smooth_and_exact() {
        assert_eq!(in_turn(&servers(&[1, 1, 1])), [1, 2, 3]);
        assert_eq!(in_turn(&servers(&[5, 1, 1])), [1, 1, 2, 1, 3, 1, 1], "as nginx does");
        assert_eq!(in_turn(&servers(&[100, 50])), [1, 2, 1], "the divisor is taken out");
        assert_eq!(in_turn(&servers(&[0, 3])), [2]);
        assert!(in_turn(&servers(&[0, 0])).is_empty() && in_turn(&[]).is_empty());
    }

    #[test]
    fn heavy_weights_fit_and_no_server_loses_its_last_turn() {
        let mut weights = vec![1u16; 2047];
        weights[0] = 60_000;
        for list in [in_turn(&servers(&weights)), in_line(&servers(&weights))] {
            assert!(list.len() <= MAX_SLOTS, "{}", list.len());
            assert!((1..=2047).all(|id| list.contains(&id)));
        }
    }

    #[test]
    fn a_connection_costs_by_weight_and_by_what_of_it_counts() {
        let list = [1, 2, 3];
        let all = servers(&[1, 2, 4, 0]);
        assert_eq!(costs(&list, &all, |_| WHOLE), [1 << 25, 1 << 24, 1 << 23]);
        let new = |new| move |id| if id == new { WHOLE / 10 } else { WHOLE };
        let [first, second, new] = costs(&list, &all, new(3))[..] else { panic!("three") };
        assert_eq!((first, second, new), ((1 << 25) * 2 / 5, (1 << 25) / 5, 1 << 25));
        // The most that there can be is as far apart as it gets, and never for nothing.
        let far = servers(&[u16::MAX, 1]);
        let part = |id| if id == 1 { WHOLE } else { 1 };
        assert_eq!(costs(&[1, 2], &far, part), [5, 1 << 25]);
    }

    #[test]
    fn maglev_shares_by_weight_and_moves_little() {
        let before = maglev(&servers(&[10; 24]));
        assert_eq!(before.len(), MAGLEV_PLACES);
        assert!((1..=24).all(|id| (share(&before, id) - 1.0 / 24.0).abs() < 0.001));
        let mut weights = [10; 24];
        weights[3] = 0;
        let after = maglev(&servers(&weights));
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        let least = before.iter().filter(|id| **id == 4).count();
        assert!(moved >= least && moved < 2 * least, "{moved} moved, {least} had to");
        let uneven = maglev(&servers(&[30, 10]));
        assert!((share(&uneven, 1) - 0.75).abs() < 0.01, "{}", share(&uneven, 1));
        assert!(maglev(&servers(&[0])).is_empty());
    }
}
