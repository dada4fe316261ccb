//! What the forwarder and a node must agree on, in short: the numbers on the wire, and what the node itself does. Other
//! nodes are none of its business, so that one can be added without the rest; nor is what only one side acts on (a
//! node's mode, whether it is a standby) or where a file of rules lies on each machine.
//!
//! The digest is of a text of fixed form, so that two versions of the program agree where the form is the same.

use std::fmt::Write;

use ring::digest;

use crate::config::{Cidr, EdgeConfig, Element, Function, Match, Node, Protocol, Service};

/// One more with each change of the text's form.
const FORM: u32 = 1;

/// Sixteen hexadecimal digits, the same where a configuration says the same about this node.
pub(crate) fn agreement(config: &EdgeConfig, node: usize) -> String {
    let digest = digest::digest(&digest::SHA256, text(config, node).as_bytes());
    digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A line for each thing. Names hold no spaces, and a list is as long as its lines.
fn text(config: &EdgeConfig, at: usize) -> String {
    let mut text = format!("form {FORM}\nvni {}\n", config.vni);
    for Service { name, matches, chain } in &config.services {
        let _ = writeln!(text, "service {name}");
        for of in matches {
            let _ = writeln!(text, "match {}", flows(of));
        }
        for element in chain {
            let _ = writeln!(text, "chain {}", function(element));
        }
    }
    let _ = writeln!(text, "place {at}");
    if let Some(node) = config.nodes.get(at) {
        let Node { name, address, mode: _, cpus, services, external, standby: _ } = node;
        let _ = writeln!(text, "node {name} {address}");
        for cpu in cpus {
            let _ = writeln!(text, "cpu {cpu}");
        }
        for service in services {
            let _ = writeln!(text, "serves {service}");
        }
        for (service, addresses) in external {
            for address in addresses {
                let _ = writeln!(text, "external {service} {address}");
            }
        }
    }
    text
}

fn flows(of: &Match) -> String {
    let Match { source, destination, protocol, ports } = of;
    let network = |of: &Option<Cidr>| of.as_ref().map_or_else(|| "any".to_owned(), cidr);
    let protocol = match protocol {
        Protocol::Any => "any",
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Icmp => "icmp",
    };
    let ports = ports.map_or_else(|| "any".to_owned(), |(from, to)| format!("{from}-{to}"));
    format!("{} {} {protocol} {ports}", network(source), network(destination))
}

fn function(of: &Element) -> String {
    match of {
        Element::Nftables(_) => "nftables".to_owned(),
        Element::Xdp(Function::Counter) => "counter".to_owned(),
        Element::Xdp(Function::Work(time)) => format!("work {}", time.as_nanos()),
        Element::Xdp(Function::Rewrite { from, to }) => {
            format!("rewrite {} {}", cidr(from), cidr(to))
        }
    }
}

fn cidr(of: &Cidr) -> String {
    format!("{}/{}", of.address, of.bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> EdgeConfig {
        let text = "edge:
  vni: 77
  interfaces: [ { name: eth0 } ]
  services:
    - { name: a, match: { destination: \"2001:db8::/32\", protocol: udp }, chain: [ { nftables: ./a.nft }, { xdp: counter } ] }
  nodes:
    - { name: n1, address: 10.3.0.11, cpus: [0], services: [a] }
    - { name: n2, address: 10.3.0.12, cpus: [0, 1], services: [a] }
";
        let document = plimsoll_config::Document::parse("edge.yaml", text).expect("YAML");
        let read = document.read(|cursor| {
            cursor.fields(&["edge"])?.required("edge", "the section", EdgeConfig::read)
        });
        read.expect("valid")
    }

    #[test]
    fn the_form_is_fixed() {
        let expected = "form 1\nvni 77\nservice a\nmatch any 2001:db8::/32 udp any\nchain nftables\nchain counter\n\
                        place 1\nnode n2 10.3.0.12\ncpu 0\ncpu 1\nserves 0\n";
        assert_eq!(text(&config(), 1), expected, "another form is another number");
    }

    #[test]
    fn other_nodes_and_what_one_side_alone_acts_on_are_none_of_a_nodes_business() {
        let config = config();
        let was = [agreement(&config, 0), agreement(&config, 1)];
        assert_ne!(was[0], was[1]);
        let mut other = config.clone();
        other.nodes[1].cpus.push(2);
        other.nodes.push(config.nodes[0].clone());
        other.nodes[0].standby = true;
        other.services[0].chain[0] = Element::Nftables("/etc/other.nft".into());
        assert_eq!(agreement(&other, 0), was[0], "another node changed, and one was appended");
        assert_ne!(agreement(&other, 1), was[1], "it changed itself");
        other.nodes.swap(0, 2);
        other.nodes.insert(0, config.nodes[1].clone());
        assert_ne!(agreement(&other, 1), was[0], "its number on the wire changed");
        let mut other = config.clone();
        other.vni += 1;
        assert_ne!(agreement(&other, 0), was[0]);
        let mut other = config.clone();
        other.services[0].name.push('b');
        assert_ne!(agreement(&other, 0), was[0]);
        let mut other = config;
        other.services[0].chain.pop();
        assert_ne!(agreement(&other, 0), was[0]);
    }
}
