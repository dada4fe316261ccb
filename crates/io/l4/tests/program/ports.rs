//! Packets leave by interfaces that are configured and have the program. To others many drivers drop what is
//! redirected, so it is the kernel's to send.

use plimsoll_l4::{AttachMode, Balancer, Interface, L4Config, Policy, status};
use plimsoll_l4bench::packet::{ACK, DROP, PASS, REDIRECT, Segment, timestamps};
use plimsoll_l4bench::{Replies, VIP, keys};

use super::support::Rig;
use super::support::rig::{backend, privileged};
use super::{CLIENT, cookie};

/// Behind the third leg.
const OTHER: &str = "203.0.113.7:4000";
const OTHER6: &str = "[2001:db8:9::7]:4000";
/// The routers there.
const HOP_MAC: [u8; 6] = [2, 0, 0, 0, 5, 2];

/// A third leg, `lbx`, which is not configured yet, and clients behind it.
fn rig() -> Rig {
    let mut rig = Rig::new(Policy::RoundRobin, 2, Replies::DefaultRoute);
    let out = rig.net.full("out");
    rig.routes(&format!(
        "ip link add lbx address 02:00:00:00:05:01 type veth peer name x0 netns {out}
            ip -n {out} link set x0 up; ip link set lbx up
            ip addr add 10.0.5.1/24 dev lbx; ip addr add fd00:5::1/64 dev lbx nodad
            for hop in 10.0.5.2 fd00:5::2; do
                ip neigh replace $hop lladdr 02:00:00:00:05:02 dev lbx
            done
            ip route add 203.0.113.0/24 via 10.0.5.2; ip route add 2001:db8:9::/48 via fd00:5::2"
    ));
    rig
}

fn with(config: &L4Config, names: &[String]) -> L4Config {
    let mut config = config.clone();
    let interface = |name: &String| Interface { name: name.clone(), mode: AttachMode::Native };
    config.interfaces.extend(names.iter().map(interface));
    config
}

/// Replies by the third leg, of either family: redirected there, or left to the kernel.
fn leave(b: &Rig, by: u32, when: &str) {
    // The second of them by what was remembered of the first, where something was.
    for client in [OTHER, OTHER6, OTHER, OTHER6] {
        let before = b.counted("no_route");
        let (verdict, out) = b.reply(client);
        assert_eq!(verdict, by, "{when}: {client}");
        assert_eq!(out[..6] == HOP_MAC, by == REDIRECT, "{when}: {client}");
        assert_eq!(b.counted("no_route") > before, by == PASS, "{when}: {client}");
    }
}

/// The kernel lets go of the program of before a moment after it was taken off; the daemon looks again every second.
fn nothing_waits(b: &mut Rig) {
    let taken = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        b.balancer.refresh().expect("refreshes").0.is_empty()
    });
    assert!(taken, "the interfaces take the program");
}

#[test]
fn an_interface_that_is_no_longer_configured_is_sent_nothing() {
    if !privileged() {
        return;
    }
    let mut b = rig();
    let two = b.config.clone();
    let three = with(&two, &["lbx".to_owned()]);
    leave(&b, PASS, "never configured");
    for _ in 0..2 {
        b.balancer.apply(&three).expect("applied");
        nothing_waits(&mut b);
        leave(&b, REDIRECT, "configured");
        b.balancer.apply(&two).expect("applied");
        leave(&b, PASS, "dropped by a reload");
        b.balancer.refresh().expect("refreshes");
        leave(&b, PASS, "and later");
    }
    assert!(!status(&b.net.pins()).expect("status").interfaces.contains(&"lbx".to_owned()));
    b.balancer = Balancer::start_with(&two, keys()).expect("starts").0;
    leave(&b, PASS, "with the next daemon");
    b.balancer = Balancer::start_with(&three, keys()).expect("starts").0;
    leave(&b, REDIRECT, "which has it configured");
}

#[test]
fn an_interface_that_does_not_take_the_program_is_sent_nothing() {
    if !privileged() {
        return;
    }
    let mut b = rig();
    let three = with(&b.config, &["lbx".to_owned()]);
    // A veth looks at its other end's, too; the kernel takes the program off there some time after the pin is gone.
    let mtu = |b: &Rig, mtu: u32| {
        let tries = format!(
            "for n in $(seq 100); do ip link set x0 mtu {mtu} && exit; sleep 0.1; done; exit 1"
        );
        b.net.exec("out", &tries);
        b.net.exec("lb", &format!("ip link set lbx mtu {mtu}"));
    };
    for when in ["a new one", "one that had it before"] {
        mtu(&b, 9000);
        let pending = b.balancer.apply(&three).expect("applied").0;
        assert!(pending.iter().any(|what| what.contains("lbx: MTU 9000")), "{pending:?}");
        leave(&b, PASS, when);
        b.balancer.refresh().expect("refreshes");
        leave(&b, PASS, when);
        mtu(&b, 1500);
        assert!(b.balancer.refresh().expect("refreshes").0.is_empty());
        leave(&b, REDIRECT, "now it does");
        let two = b.config.clone();
        b.balancer.apply(&two).expect("applied");
    }
}

#[test]
fn a_server_that_drains_behind_an_interface_without_the_program_is_lost() {
    if !privileged() {
        return;
    }
    let mut b = rig();
    let two = b.config.clone();
    let mut three = with(&two, &["lbx".to_owned()]);
    three.vips[0].backends.push(backend("x1", "10.0.5.9", [2, 0, 0, 0, 5, 9]));
    b.balancer.apply(&three).expect("applied");
    let echo = cookie(CLIENT, VIP, 3, 1);
    let packet = Segment::new(CLIENT, VIP, ACK, timestamps(9, echo)).bytes();
    let (verdict, out) = b.by_client(&packet);
    assert_eq!((verdict, &out[..6]), (REDIRECT, &[2, 0, 0, 0, 5, 9][..]));
    three.vips[0].backends.pop();
    b.balancer.apply(&three).expect("applied");
    assert_eq!(b.by_client(&packet).0, REDIRECT, "it drains");
    // Its replies would come past the program.
    b.balancer.apply(&two).expect("applied");
    let before = b.counted("no_port");
    assert_eq!(b.by_client(&packet).0, DROP);
    assert_eq!(b.counted("no_port"), before + 1);
    b.balancer.apply(&three).expect("applied");
    nothing_waits(&mut b);
    assert_eq!(b.by_client(&packet).0, REDIRECT, "it drains on");
}

#[test]
fn interfaces_that_come_and_go_never_fill_the_table() {
    if !privileged() {
        return;
    }
    let mut b = rig();
    // More than there are places, none of them ever removed from the machine.
    let names: Vec<String> = (0..70).map(|n| format!("y{n}")).collect();
    let add = "for n in $(seq 0 69); do
            echo link add y$n type veth peer name z$n; echo link set y$n up
        done | ip -batch -";
    b.net.exec("lb", add);
    let two = b.config.clone();
    for name in &names {
        let more = with(&two, std::slice::from_ref(name));
        assert!(b.balancer.apply(&more).expect("applied").0.is_empty(), "{name}");
    }
    // More than half of the table in the place of as many others: they wait until nothing names the places.
    let waits = |pending: Vec<String>| {
        assert!(pending.iter().any(|what| what.contains("all 64 places")), "{pending:?}");
    };
    let (some, others) = (with(&two, &names[..36]), with(&two, &names[34..]));
    b.balancer.apply(&some).expect("applied");
    waits(b.balancer.apply(&others).expect("applied").0);
    nothing_waits(&mut b);
    let (next, pending) = Balancer::start_with(&some, keys()).expect("starts");
    b.balancer = next;
    waits(pending.0);
    nothing_waits(&mut b);

    b.balancer.apply(&with(&two, &["lbx".to_owned()])).expect("applied");
    leave(&b, REDIRECT, "after all of them");
    b.balancer.apply(&with(&two, &names)).expect_err("there are 64 places");
    leave(&b, REDIRECT, "as before");
}
