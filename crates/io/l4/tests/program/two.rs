//! The power of two choices (Mitzenmacher 1996): two servers are compared, never one with itself, and the
//! less loaded gets the connection.

use plimsoll_l4::{Policy, status};
use plimsoll_l4bench::packet::{SYN, Segment, syn_options};
use plimsoll_l4bench::{Replies, VIP, VIP6};

use super::support::Rig;
use super::support::rig::privileged;

fn begin(b: &Rig, number: u32, v6: bool) -> u8 {
    let port = 1024 + number;
    let (client, vip) =
        if v6 { (format!("[fd00:1::2]:{port}"), VIP6) } else { (format!("10.0.1.2:{port}"), VIP) };
    b.by_client(&Segment::new(&client, vip, SYN, syn_options(1, 0)).bytes()).1[5]
}

#[test]
fn of_two_servers_the_less_loaded_always_wins() {
    if !privileged() {
        return;
    }
    let b = Rig::new(Policy::PowerOfTwo, 2, Replies::Uplink);
    for v6 in [false, true] {
        for pair in 0..400 {
            let (one, other) = (begin(&b, 2 * pair, v6), begin(&b, 2 * pair + 1, v6));
            assert_ne!(one, other, "pair {pair}: one had a connection more");
        }
    }
}

#[test]
fn the_most_loaded_of_four_servers_gets_nothing() {
    if !privileged() {
        return;
    }
    let mut b = Rig::new(Policy::PowerOfTwo, 4, Replies::Uplink);
    // A head start: all connections of a while.
    let mut config = b.config.clone();
    for one in &mut config.vips[0].backends[1..] {
        one.weight = 0;
    }
    b.balancer.apply(&config).expect("applied");
    for number in 0..600 {
        assert_eq!(begin(&b, number, false), 1, "the only server");
    }
    config.vips[0].backends[1..].iter_mut().for_each(|one| one.weight = 1);
    b.balancer.apply(&config).expect("applied");
    let mut seen = [0; 5];
    for number in 600..1800 {
        seen[usize::from(begin(&b, number, false))] += 1;
    }
    assert_eq!(seen[1], 0, "{seen:?}");
    assert!(seen[2..].iter().all(|n| (350..=450).contains(n)), "{seen:?}");
    let open: Vec<u64> = status(&b.net.pins()).expect("status").vips[0]
        .backends
        .iter()
        .map(|one| one.open_connections)
        .collect();
    assert_eq!(open.iter().sum::<u64>(), 1800, "{open:?}");
}

#[test]
fn servers_are_compared_by_load_over_weight() {
    if !privileged() {
        return;
    }
    let mut b = Rig::new(Policy::PowerOfTwo, 2, Replies::Uplink);
    let mut config = b.config.clone();
    config.vips[0].backends[1].weight = 3;
    b.balancer.apply(&config).expect("applied");
    let mut seen = [0u32; 3];
    for number in 0..4000 {
        seen[usize::from(begin(&b, number, false))] += 1;
    }
    // Only where the heavy server is drawn three times in a row, its load is not looked at.
    assert!(seen[1].abs_diff(1000) < 20, "{seen:?}");
}
