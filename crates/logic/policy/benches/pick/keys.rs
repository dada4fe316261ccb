//! What a key costs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll_policy::{HashKey, KeySource};

use super::request::{FUNCTIONS, Sent, keys, name, sources};
use super::{REQUESTS, RUNS, is_asked};

/// So many fit a processor's nearest cache.
const CLIENTS: u32 = 64;

/// A row of every source, and rows of the addresses of IPv6 and of a key that is mixed once more.
pub fn rows() {
    let mut rows: Vec<(String, KeySource, bool, bool)> = Vec::new();
    for source in sources() {
        let row = format!("key of {}", name(&source));
        rows.push((row.clone(), source.clone(), false, false));
        match source {
            KeySource::Source => rows.push((format!("{row}, IPv6"), source, true, false)),
            KeySource::Cookie(_) => rows.push((format!("{row}, avalanche"), source, false, true)),
            _ => {}
        }
    }
    rows.retain(|(name, ..)| is_asked(name));
    if rows.is_empty() {
        return;
    }
    println!();
    println!("{:<32} {:^39} {:>11}", "", "ns per key", "allocations");
    print!("{:<32}", "function");
    FUNCTIONS.iter().for_each(|f| print!(" {:>7}", format!("{f:?}").to_lowercase()));
    println!(" {:>11}", "per key");
    for (name, source, v6, avalanche) in rows {
        let sent: Vec<Sent> = (0..CLIENTS).map(|client| Sent::by(client, v6)).collect();
        let (ns, allocations) = costs(&keys(&source, avalanche), &sent);
        print!("{name:<32}");
        ns.iter().for_each(|ns| print!(" {ns:>7.1}"));
        println!(" {:>11}", allocations as f64 / (FUNCTIONS.len() * RUNS * REQUESTS) as f64);
    }
}

/// Nanoseconds per key by each, the least of runs in turn, and the allocations of all of them.
fn costs(keys: &[HashKey; FUNCTIONS.len()], sent: &[Sent]) -> ([f64; FUNCTIONS.len()], u64) {
    let (mut least, mut allocations) = ([Duration::MAX; FUNCTIONS.len()], 0);
    for _ in 0..RUNS {
        for (key, least) in keys.iter().zip(&mut least) {
            let counted = allocation_counter::measure(|| {
                let begun = Instant::now();
                for request in sent.iter().cycle().take(REQUESTS) {
                    black_box(black_box(key).key(black_box(request)));
                }
                *least = (*least).min(begun.elapsed());
            });
            allocations += counted.count_total;
        }
    }
    (least.map(|d| d.as_nanos() as f64 / REQUESTS as f64), allocations)
}
