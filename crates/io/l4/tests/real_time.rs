//! Wraps of the timestamps' lower half and long silences, by the wall clock and through real kernels'
//! stacks. Minutes long, so not among what CI runs; `wraps.rs` shows the same with crafted packets.
//!
//! `cargo test -p plimsoll-l4 --test real_time -- --ignored --nocapture`

mod rig;

use std::time::{Duration, Instant};

use plimsoll_cookie::Layout;
use plimsoll_l4::Policy;
use rig::privileged;
use rig::service::{Connection, Service};

const WRAP: Duration = Duration::from_millis(1 << 16);
const EACH: usize = 8;

/// Leaves connections silent, and asks all at once: how many were answered by the server that answered first.
fn kept_after(mut silent: Vec<Connection>, silence: Duration) -> usize {
    std::thread::sleep(silence);
    let stays = |one: &mut Connection| one.ask().is_ok_and(|who| who == one.server);
    std::thread::scope(|scope| {
        let asked: Vec<_> = silent.iter_mut().map(|one| scope.spawn(|| stays(one))).collect();
        asked.into_iter().filter_map(|one| one.join().expect("asks").then_some(())).count()
    })
}

/// Asks ten times a second for more than three wraps; how often each was answered.
fn transferred(mut connections: Vec<Connection>) -> (usize, usize) {
    let (began, mut asked, mut right) = (Instant::now(), 0, 0);
    while began.elapsed() < WRAP * 3 + WRAP / 10 {
        for one in &mut connections {
            asked += 1;
            right += usize::from(one.ask().is_ok_and(|who| who == one.server));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    (asked, right)
}

/// Connections silent for each of these, beside others that transfer all the time.
fn silences_and_transfers(version_bits: u32, seconds: &[u64]) {
    let service = Service::new(2, 2, false);
    let mut config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    config.cookie.layout = Layout::new(version_bits).expect("in range");
    let limit = Duration::from_millis(config.cookie.layout.silence_limit_ms());
    let balancer = service.balance(&config);
    std::thread::scope(|scope| {
        let busy = service.opened(EACH);
        let busy = scope.spawn(move || transferred(busy));
        let mut waiting = Vec::new();
        for silence in seconds.iter().copied().map(Duration::from_secs) {
            let silent = service.opened(EACH);
            waiting.push((silence, scope.spawn(move || kept_after(silent, silence))));
        }
        let (asked, right) = busy.join().expect("transfers");
        println!("n={version_bits}, transfers over three wraps: {right} of {asked} right");
        assert_eq!(right, asked, "over three wraps");
        for (silence, kept) in waiting {
            let kept = kept.join().expect("asks");
            println!("n={version_bits}, silent for {silence:?}: {kept} of {EACH} kept");
            let expected = if silence < limit { EACH } else { 0 };
            assert_eq!(kept, expected, "silent for {silence:?}, of {limit:?}");
        }
    });
    let seen = plimsoll_l4::status(&service.net.pins()).expect("status");
    assert!(seen.vips[0].fallbacks.values().all(|count| *count == 0));
    drop(balancer);
}

#[test]
#[ignore = "ten minutes"]
fn four_version_bits_keep_silent_connections_for_nearly_nine_minutes_and_no_longer() {
    if privileged() {
        silences_and_transfers(4, &[60, 130, 260, 500, 560]);
    }
}

/// Until shortly before 2,147 s: from then on Linux (since 6.7) minds no timestamp.
#[test]
#[ignore = "36 minutes"]
fn six_version_bits_keep_silent_connections_for_35_minutes_and_no_longer() {
    if privileged() {
        silences_and_transfers(6, &[600, 1200, 2080, 2120]);
    }
}
