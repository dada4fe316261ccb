//! Connections without timestamps stay while no server comes or goes, whatever weights are in force.

use std::time::Duration;

use plimsoll_l4::{BackendState, Load, Policy};
use plimsoll_l4bench::packet::{ACK, DROP, SYN, Segment};
use plimsoll_l4bench::{Replies, VIP, VIP6};

use super::support::Rig;
use super::support::rig::privileged;

const CLIENTS: u16 = 300;

impl Rig {
    /// Where segments without timestamps go, by client: servers' numbers.
    fn spread(&self) -> Vec<u8> {
        let go = |(client, vip): (String, &str)| {
            self.by_client(&Segment::new(&client, vip, ACK, Vec::new()).bytes()).1[5]
        };
        let v4 = (0..CLIENTS).map(|port| (format!("10.0.1.2:{}", 2000 + port), VIP));
        let v6 = (0..CLIENTS).map(|port| (format!("[fd00:1::2]:{}", 2000 + port), VIP6));
        v4.chain(v6).map(go).collect()
    }
}

fn moved(before: &[u8], after: &[u8]) -> Vec<(u8, u8)> {
    before.iter().zip(after).filter(|(a, b)| a != b).map(|(a, b)| (*a, *b)).collect()
}

#[test]
fn no_weight_in_force_moves_them() {
    if !privileged() {
        return;
    }
    let mut b = Rig::new(Policy::WeightedRoundRobin, 4, Replies::Uplink);
    let before = b.spread();
    assert!((1..=4).all(|id| before.contains(&id)));
    let names: Vec<String> = b.config.vips[0].backends.iter().map(|one| one.name.clone()).collect();
    for (epoch, weights) in [(1, [100, 101, 99, 100]), (2, [1, 7, 0, 0])] {
        let plan: Vec<_> = names.iter().cloned().zip(weights).collect();
        for vip in b.config.vips.clone() {
            b.balancer.set_weights(&vip.name, &plan, "test", epoch).expect("taken");
        }
        assert_eq!(moved(&before, &b.spread()), [], "plan {weights:?}");
    }

    let mut config = b.config.clone();
    for vip in &mut config.vips {
        vip.policy = Policy::Awrr(Load::Connections);
    }
    b.balancer.apply(&config).expect("applied");
    for port in 0..40 {
        let client = format!("10.0.1.2:{}", 9000 + port);
        let syn = Segment::new(&client, VIP, SYN, plimsoll_l4bench::packet::syn_options(1, 0));
        b.by_client(&syn.bytes());
    }
    b.balancer.refresh().expect("refreshes");
    assert_eq!(moved(&before, &b.spread()), [], "awrr");
}

#[test]
fn a_server_that_drains_keeps_its_part_and_one_that_is_down_does_not() {
    if !privileged() {
        return;
    }
    let mut b = Rig::new(Policy::RoundRobin, 4, Replies::Uplink);
    let before = b.spread();
    let mut config = b.config.clone();
    let mut all = |b: &mut Rig, change: &dyn Fn(&mut Vec<plimsoll_l4::Backend>)| {
        config.vips.iter_mut().for_each(|vip| change(&mut vip.backends));
        b.balancer.apply(&config).expect("applied");
        moved(&before, &b.spread())
    };
    assert_eq!(all(&mut b, &|servers| servers[1].weight = 0), [], "a weight of 0");
    assert_eq!(all(&mut b, &|servers| servers[2].state = BackendState::Draining), [], "drains");
    assert_eq!(all(&mut b, &|servers| drop(servers.remove(1))), [], "no longer named");
    let gone = all(&mut b, &|servers| servers[0].state = BackendState::Down);
    assert!(!gone.is_empty());
    let others = gone.iter().filter(|(from, _)| *from != 1).count();
    assert!(others * 5 < gone.len(), "few but its own move: {others} of {}", gone.len());

    // The last one that takes connections is down as well: one that drains gets no SYN for it.
    all(&mut b, &|servers| servers.iter_mut().for_each(|one| one.state = BackendState::Down));
    let segment =
        |flags| b.by_client(&Segment::new("10.0.1.2:2000", VIP, flags, Vec::new()).bytes());
    assert_eq!(segment(SYN).0, DROP);
    assert_eq!((segment(ACK).1[5]), 2, "the one that is no longer named");
}

#[test]
fn a_server_that_drains_and_answers_nothing_loses_its_part() {
    if !privileged() {
        return;
    }
    let mut b = Rig::new(Policy::RoundRobin, 4, Replies::Uplink);
    let before = b.spread();
    let mut config = b.config.clone();
    config.vips.iter_mut().for_each(|vip| drop(vip.backends.remove(1)));
    b.balancer.apply(&config).expect("applied");
    b.balancer.refresh().expect("refreshes");
    assert_eq!(moved(&before, &b.spread()), []);
    b.balancer.refresh().expect("refreshes");
    std::thread::sleep(Duration::from_millis(10_100));
    assert!(b.spread().contains(&2), "nobody has looked");
    b.balancer.refresh().expect("refreshes");
    assert!(!b.spread().contains(&2));
}
