//! Our deterministic policies pick what a real HAProxy picks. Ten times as many requests:
//! `plimsoll-lab run haproxy-picks`.

use plimsoll_lanes::haproxy_version;
use plimsoll_papers::haproxy::{CASES, compare_picks};

const REQUESTS: u64 = 1_000;

#[test]
fn every_deterministic_method_picks_what_haproxy_picks() {
    if haproxy_version().is_none() {
        eprintln!("skipped: haproxy is not installed");
        return;
    }
    let all = compare_picks(1, REQUESTS, CASES, |_, _| Ok(())).unwrap();
    assert_eq!(all.len(), CASES.len());
    let apart: Vec<String> = all
        .iter()
        .filter(|seen| seen.identical != REQUESTS)
        .map(|seen| {
            format!("{}: {} of {REQUESTS}, first {:?}", seen.name, seen.identical, seen.first_apart)
        })
        .collect();
    assert!(apart.is_empty(), "{apart:#?}");
    for (case, seen) in CASES.iter().zip(&all) {
        let expected = if case.name == "first" { 1 } else { 5 };
        assert_eq!(seen.servers_used, expected, "{}: the stream tries every server", seen.name);
    }
}
