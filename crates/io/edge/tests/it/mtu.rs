//! Packets that are longer than a service's namespace takes.

use crate::bad::one;
use crate::packet::{REDIRECT, ip4, udp};
use crate::rig::{CLIENT, Rig, SERVER, privileged, until};

const RULES: &str = "table inet edge { chain forward { type filter hook forward priority 0; }; }";
const SECTION: &str = "
  services:
    - { name: wall, match: { destination: \"10.2.0.0/24\", protocol: udp, ports: 53 }, chain: [ { nftables: RULES } ] }
    - { name: plain, match: { destination: \"10.2.0.0/24\" }, chain: [ { xdp: counter } ] }
  nodes:
    - { name: n1, address: \"10.3.0.11\", cpus: [0], services: [wall, plain] }
";

#[test]
fn senders_of_packets_that_a_namespace_does_not_take_get_an_error() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::with_rules(SECTION, RULES);
    rig.start_node("n1");
    // A network of jumbo frames, to the forwarder's program as far as native XDP takes them on the test's cables.
    rig.config.interfaces[0].mode = plimsoll_l4::AttachMode::Generic;
    rig.net.run("sw", "ip link set p-fwd mtu 9000 && ip link set br0 mtu 9000").expect("set");
    rig.net.run("fwd", "ip link set eth0 mtu 9000").expect("set");
    rig.start_forwarder();
    rig.until_serving(&["n1"]);
    until("slots are filled", || rig.status().places.iter().all(|place| place.weight > 0.0));
    let of = |port: u16, bytes: usize| {
        let payload = vec![1; bytes - 28];
        one(&rig, &ip4(CLIENT, SERVER, 17, 0x4000, &udp(4_000, port, &payload)))
    };
    // Longer by VXLAN, or an ICMP error with the size that fits.
    let wrapped = |bytes: usize| (REDIRECT, bytes + 14 + 50);
    let seen = |port, bytes| {
        let ran = of(port, bytes);
        (ran.verdict, ran.packet.len())
    };
    assert_eq!(seen(53, 3_498), wrapped(3_498));
    let told = of(53, 3_499);
    assert_eq!(
        (told.verdict, told.packet[23], told.packet[34], told.packet[35]),
        (REDIRECT, 1, 3, 4)
    );
    assert_eq!(u16::from_be_bytes([told.packet[40], told.packet[41]]), 3_498);
    assert_eq!(seen(80, 3_499), wrapped(3_499), "it has no namespace");
}
