//! Every policy and every admission of the registries serves.

use plimsoll_policy::PolicyKind;

use crate::support::*;

const CAPACITIES: [&str; 3] = ["{ static: 4 }", "average", "{ adaptive: { max_wait: 500ms } }"];

#[test]
fn every_policy_and_every_admission_serves() {
    let applications = [Backend::ok("0"), Backend::ok("1")];
    for capacity in CAPACITIES {
        let entry = |i: usize| {
            let (port, upstream) = (i + 1, applications[i].address);
            format!(
                "    - {{ name: i{i}, listen: \"127.0.0.1:{port}\", upstream: \"{upstream}\", \
                 trust: [\"127.0.0.0/8\"], capacity: {capacity} }}\n"
            )
        };
        let behind = start(&format!("  threads: 1\n  ingress:\n{}{}", entry(0), entry(1)));
        let backends = ["i0", "i1"].map(|name| behind.address(name));
        let mut pools: Vec<String> =
            PolicyKind::ALL.iter().map(|kind| format!("policy: {kind}")).collect();
        for sight in ["auto", "own", "refusals", "probes"] {
            pools.push(format!("policy: expected_delay, expected_delay: {{ sight: {sight} }}"));
        }
        for pool in pools {
            let key = if pool.contains("hash") { ", key: uri" } else { "" };
            let proxy = start(&egress(2, "", &format!("{pool}{key}"), &backends));
            for request in 0..4 {
                let answer = proxy.client("out").get(&format!("/{request}"));
                assert_eq!(answer.status, 200, "{pool} before {capacity}: {}", answer.body);
            }
            let sent: u64 = proxy.backends().iter().map(|backend| backend.sent).sum();
            assert!(sent >= 4, "{pool}: {sent}");
        }
    }
}
