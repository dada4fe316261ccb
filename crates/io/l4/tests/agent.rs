//! The server's agent: replies go straight to the client, and connections stay through changes of
//! servers, balancers, agents and salts. Servers keep Linux's default, `net.ipv4.tcp_timestamps=1`.

mod rig;

use std::collections::BTreeSet;

use plimsoll_l4::{Balancer, Keys, status};
use rig::direct::Direct;
use rig::second::{By, Second, route};
use rig::service::all_stay;
use rig::{keys, privileged};

fn connections_stay(v6: bool) {
    let mut direct = Direct::new(3, v6);
    let mut balancer = direct.service.balance(&direct.config(&["s1", "s2"]));
    let mut connections = direct.service.opened(40);
    let served: BTreeSet<&str> = connections.iter().map(|one| one.server.as_str()).collect();
    assert_eq!(served, BTreeSet::from(["s1", "s2"]));
    all_stay(&mut connections, "at rest");

    for (names, when) in [
        (&["s2", "s3"][..], "s3 joins and s1 drains"),
        (&["s3"], "s2 drains, too"),
        (&["s3", "s1", "s2"], "all are back"),
    ] {
        direct.service.apply(&mut balancer, &direct.config(names));
        all_stay(&mut connections, when);
        let more = direct.service.opened(10);
        assert!(more.iter().all(|one| names.contains(&one.server.as_str())), "{when}");
        connections.extend(more);
    }

    // The kernel goes on without the agents' processes, and the next ones count on.
    let before = direct.agent_status("s1");
    direct.agents.clear();
    all_stay(&mut connections, "without the agents' processes");
    for name in ["s1", "s2", "s3"] {
        direct.start_agent(name);
    }
    all_stay(&mut connections, "after the agents started over");
    let after = direct.agent_status("s1");
    assert!(after.vips[0].counts["restored"] > before.vips[0].counts["restored"]);

    let rotated = rotate(&mut direct, &mut balancer);
    all_stay(&mut connections, "with a second salt");

    // Nothing but SYNs and later packets towards servers: no reply, and nothing out of the way.
    let seen = status(&direct.net().pins()).expect("status");
    assert!(seen.vips[0].backends.iter().all(|one| one.packets_in > 0 && one.packets_out == 0));
    assert!(
        seen.vips[0].fallbacks.values().all(|count| *count == 0),
        "{:?}",
        seen.vips[0].fallbacks
    );

    let config = direct.config(&["s1", "s2", "s3"]);
    let second = Second::new(&direct.service, &config, &rotated);
    route(direct.net(), "cli", 1, By::Second);
    for (name, agent) in &mut direct.agents {
        direct.service.net.enter(name);
        let pending = agent.refresh();
        direct.service.net.leave();
        assert_eq!(pending.expect("refreshes").0, Vec::<String>::new(), "the new link is found");
    }
    drop(balancer);
    std::fs::remove_dir_all(direct.net().pins().join("links")).expect("the first is gone");
    all_stay(&mut connections, "by another balancer that never saw them");
    connections.extend(direct.service.opened(12));
    all_stay(&mut connections, "at the end");
    let taken = status(&second.net.pins()).expect("status");
    assert!(taken.vips[0].backends.iter().all(|one| one.packets_in > 0 && one.packets_out == 0));
    drop(second);
    direct.service.no_echo_was_wrong();
    for name in ["s1", "s2", "s3"] {
        let counts = &direct.agent_status(name).vips[0].counts;
        assert!(counts["written"] > 0 && counts["restored"] > 0);
        for none in ["foreign_cookie", "no_socket", "syn_cookie"] {
            assert_eq!(counts[none], 0, "{name}: {none}");
        }
    }
}

/// A new salt, in force some seconds ago, for balancer and agents.
fn rotate(direct: &mut Direct, balancer: &mut Balancer) -> Keys {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let next = Keys {
        salts: [Some([7; 32]), Some([9; 32])],
        epoch: plimsoll_cookie::Epoch::Odd,
        since_unix_ms: now.as_millis() as u64 - 3000,
        ..keys()
    };
    // Starting an agent has led this thread away; a balancer finds its interfaces only where it is.
    direct.net().enter("lb");
    balancer.set_keys(next.clone()).expect("written");
    for agent in direct.agents.values_mut() {
        agent.set_keys(next.clone()).expect("written");
    }
    assert_eq!(direct.agent_status("s1").epoch, 1);
    next
}

#[test]
fn ipv4_connections_stay_and_replies_go_straight_to_the_client() {
    if privileged() {
        connections_stay(false);
    }
}

#[test]
fn ipv6_connections_stay_and_replies_go_straight_to_the_client() {
    if privileged() {
        connections_stay(true);
    }
}
