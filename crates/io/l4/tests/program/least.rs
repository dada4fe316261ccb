//! `least_connections` and a server that joins: it has no connections, and by their number alone it would get every
//! SYN until it has as many as the others.

use std::time::Duration;

use plimsoll_l4::{BackendState, Balancer, L4Config, Policy, status};
use plimsoll_l4bench::packet::{SYN, Segment, syn_options};
use plimsoll_l4bench::{Replies, VIP, keys};

use super::support::Rig;
use super::support::rig::privileged;

const HOUR: Duration = Duration::from_secs(3600);

/// Connections that begin, from this number on: how many each of three servers got.
fn begin(b: &Rig, numbers: std::ops::Range<u32>) -> [usize; 3] {
    let mut got = [0; 3];
    for number in numbers {
        let client = format!("10.0.1.2:{}", 1024 + number);
        let syn = Segment::new(&client, VIP, SYN, syn_options(1, 0)).bytes();
        got[usize::from(b.by_client(&syn).1[5]) - 1] += 1;
    }
    got
}

/// How much of their weights counts, as `l4 status` tells.
fn parts(b: &Rig) -> Vec<f64> {
    let seen = status(&b.net.pins()).expect("status");
    seen.vips[0].backends.iter().map(|one| one.part).collect()
}

/// Three servers, of which the third is to come.
fn rig(slow_start: Duration) -> (Rig, L4Config) {
    let mut b = Rig::new(Policy::LeastConnections, 3, Replies::Uplink);
    let mut config = b.config.clone();
    config.vips[0].slow_start = slow_start;
    let joined = config.clone();
    config.vips[0].backends[2].state = BackendState::Draining;
    b.balancer.apply(&config).expect("applied");
    (b, joined)
}

#[test]
fn without_a_slow_start_a_newcomer_gets_all_until_it_has_as_many() {
    if !privileged() {
        return;
    }
    let (mut b, joined) = rig(Duration::ZERO);
    assert_eq!(begin(&b, 0..200), [100, 100, 0]);
    b.balancer.apply(&joined).expect("applied");
    assert_eq!(begin(&b, 200..300), [0, 0, 100]);
    assert_eq!(begin(&b, 300..360), [20, 20, 20], "now they are equal");
}

#[test]
fn a_newcomer_gets_a_part_that_grows() {
    if !privileged() {
        return;
    }
    let (mut b, joined) = rig(HOUR);
    assert_eq!(begin(&b, 0..200), [100, 100, 0], "those who began together are equal");
    std::thread::sleep(Duration::from_millis(1500));
    b.balancer.apply(&joined).expect("applied");
    // The first two have taken connections for 1.5 s or longer, so that 2 parts in 5 count at most.
    let begins = parts(&b);
    assert!(begins[..2] == [1.0; 2] && (0.01..=0.4).contains(&begins[2]), "{begins:?}");
    let got = begin(&b, 200..300);
    assert!((1..=52).contains(&got[2]), "{got:?}");
    assert!(got[0].abs_diff(got[1]) <= 1, "{got:?}");
    std::thread::sleep(Duration::from_millis(1100));
    b.balancer.refresh().expect("refreshes");
    assert_eq!(begin(&b, 300..301), [0, 0, 1], "more of its weight counts");
    assert!(parts(&b)[2] > begins[2], "and that is told");

    // A daemon that starts over knows since when: else it would have all of these.
    let (mine, others) = (got[2] + 1, (200 + got[0] + got[1]) / 2);
    b.balancer = Balancer::start_with(&joined, keys()).expect("starts").0;
    let got = begin(&b, 301..301 + (others - mine) as u32);
    assert!(got[0] + got[1] > 0, "{got:?}");

    // One that returns has the connections that it had, and gets more when the others have as many by what they
    // bear: neither none for a while nor all that come.
    let mut config = joined.clone();
    config.vips[0].backends[0].weight = 0;
    b.balancer.apply(&config).expect("applied");
    assert_eq!(begin(&b, 500..549)[0], 0);
    b.balancer.apply(&joined).expect("applied");
    let got = begin(&b, 549..569);
    assert!((1..=14).contains(&got[0]), "{got:?}");
    // One under another name is the same server.
    config = joined.clone();
    config.vips[0].backends[1].name = "renamed".to_owned();
    b.balancer.apply(&config).expect("applied");
    let got = begin(&b, 569..589);
    assert!((1..=14).contains(&got[1]), "{got:?}");
}

#[test]
fn a_controllers_weights_count_whole() {
    if !privileged() {
        return;
    }
    let (mut b, joined) = rig(HOUR);
    let set = |b: &mut Rig, weights: &[(&str, u16)]| {
        let weights: Vec<_> = weights.iter().map(|(n, w)| ((*n).to_owned(), *w)).collect();
        b.balancer.set_weights("four", &weights, "a test", 1).expect("set");
    };
    set(&mut b, &[("s001", 100), ("s002", 100)]);
    assert_eq!(begin(&b, 0..100), [50, 50, 0]);
    std::thread::sleep(Duration::from_millis(1500));
    let mut light = joined.clone();
    light.vips[0].backends[2].weight = 100;
    b.balancer.apply(&light).expect("applied");
    let got = begin(&b, 100..150);
    assert!((1..=30).contains(&got[2]), "no plan knows of it yet: {got:?}");
    assert!(parts(&b)[2] < 1.0);
    set(&mut b, &[("s003", 100)]);
    assert_eq!(parts(&b), [1.0; 3]);
    let behind = got[0].min(got[1]) + 50 - got[2];
    assert_eq!(begin(&b, 150..150 + behind as u32), [0, 0, behind], "it is to bear as much");
    // Parked for a moment, as a controller does: its weight is what the controller says.
    set(&mut b, &[("s001", 0)]);
    assert_eq!(begin(&b, 300..360)[0], 0);
    set(&mut b, &[("s001", 100)]);
    assert_eq!(begin(&b, 360..370), [10, 0, 0]);
}
