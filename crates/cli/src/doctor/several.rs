//! What several balancers before one pool cost, and whether they can be steered together.

use plimsoll_control::ServiceView;
use plimsoll_model::{Method, MethodKind};

use super::finding::{Finding, Findings};

/// Why several cost anything.
const BLIND: &str = "under leastconn each counts only its own requests in flight";
/// What two were seen to cost at 70 % load, with the weights of one; docs/benchmarks.md has both numbers.
const COST_OF_TWO: &str = "at 70 % load clients waited 1.32 times as long as behind one (simulated, the 30 backends of the \
                           KnapsackLB paper) and 1.57 times (measured, two HAProxys before six servers)";
/// The same of three.
const COST_OF_THREE: &str = "at 70 % load clients waited 1.67 times as long as behind one (simulated: three, the 30 \
                             backends of the KnapsackLB paper)";
/// Where to get a better number.
const ASK_A_DAEMON: &str =
    "a daemon that runs (also with --observe) models this pool, and says what they cost here";

/// What there is to do about it.
const SUBSETS: &str = "`subsets: true` gives each a subset of the servers, and with it the counts of nearly all of them";

/// `methods`: where each balancer is, and how it picks, where it tells. `subsets`: each has a subset of the servers.
pub fn examine(
    name: &str,
    methods: &[(String, Option<Method>)],
    subsets: bool,
    told: Option<&ServiceView>,
    findings: &mut Findings,
) {
    let count = methods.len();
    if count < 2 {
        return;
    }
    let mut known = methods.iter().filter_map(|(place, method)| Some((place, method.as_ref()?)));
    let Some((first, method)) = known.next() else { return };
    if let Some((other, theirs)) = known.find(|(_, theirs)| theirs.kind != method.kind) {
        return findings.add(Finding::error(
            name,
            format!(
                "{first} balances by {}, {other} by {}: a weight cannot mean the same in both",
                method.name, theirs.name
            ),
            "give all balancers of the service the same method",
        ));
    }
    let plan = told.map(|view| &view.plan);
    let modelled = plan.and_then(|plan| plan.several_cost.zip(plan.subsets_cost));
    let cost = match (method.kind, modelled, count) {
        // It takes no weights, which has been reported.
        (MethodKind::NoLiveWeights, ..) => return,
        (MethodKind::InFlight, ..) if subsets => format!(
            "each has a subset of the servers, weight 0 at the others, and all of them once no other balancer answers \
             ({} shared at most)",
            match count - 1 {
                1 => "one server is".to_owned(),
                some => format!("{some} servers are"),
            }
        ),
        (MethodKind::Split, ..) => {
            let idle = if subsets { "; `subsets` does nothing under it" } else { "" };
            format!("each splits its requests by the same weights, which costs nothing{idle}")
        }
        (MethodKind::InFlight, Some((whole, subsets)), _) => format!(
            "{BLIND}: clients wait about {:.0} % longer than behind one balancer with these weights, by the daemon's \
             model of this pool at its present load, and {:.0} % with `subsets: true`, which gives each a subset of the \
             servers",
            whole * 100.0,
            subsets * 100.0
        ),
        (MethodKind::InFlight, None, count) => {
            let cost = if count == 2 { COST_OF_TWO } else { COST_OF_THREE };
            format!("{BLIND}: {cost}; {ASK_A_DAEMON}; {SUBSETS}")
        }
    };
    findings.add(Finding::note(name, format!("{count} balancers before one pool: {cost}")));
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    fn found(kinds: &[Option<MethodKind>]) -> Option<Finding> {
        examined(kinds, false)
    }

    fn examined(kinds: &[Option<MethodKind>], subsets: bool) -> Option<Finding> {
        let one = |(i, kind): (usize, &Option<MethodKind>)| {
            let method = kind.map(|kind| Method { name: format!("{kind:?}"), kind });
            (format!("socket {i}"), method)
        };
        let methods: Vec<_> = kinds.iter().enumerate().map(one).collect();
        let mut findings = Findings::default();
        examine("shop", &methods, subsets, None, &mut findings);
        assert!(findings.all().len() < 2);
        findings.all().first().cloned()
    }

    #[test]
    fn balancers_that_pick_alike_cost_what_their_method_costs() {
        use MethodKind::{InFlight, Split};
        assert_eq!(found(&[Some(Split)]), None);
        assert_eq!(found(&[None, None]), None, "nothing is known");
        for (kinds, part) in [
            (vec![Some(Split); 2], "costs nothing"),
            (vec![Some(InFlight); 2], "1.32 times as long as behind one (simulated, "),
            (vec![Some(InFlight); 2], "1.57 times (measured, two HAProxys before six servers)"),
            (
                vec![None, Some(InFlight), Some(InFlight)],
                "1.67 times as long as behind one (simulated: three",
            ),
        ] {
            let finding = found(&kinds).expect("a note");
            assert!(finding.severity == Severity::Note && finding.message.contains(part));
        }
    }

    #[test]
    fn subsets_are_advised_where_they_help_and_described_where_they_are() {
        let blind = found(&[Some(MethodKind::InFlight); 2]).expect("a note");
        assert!(blind.message.contains("`subsets: true` gives"), "{blind:?}");
        let finding = examined(&[Some(MethodKind::InFlight); 3], true).expect("a note");
        assert!(finding.message.contains("(2 servers are shared at most)"), "{finding:?}");
        assert_eq!(finding.severity, Severity::Note);
        let finding = examined(&[Some(MethodKind::Split); 2], true).expect("a note");
        assert!(finding.message.ends_with("`subsets` does nothing under it"), "{finding:?}");
    }

    #[test]
    fn balancers_that_pick_differently_cannot_be_steered_together() {
        let finding = found(&[None, Some(MethodKind::InFlight), Some(MethodKind::Split)]);
        let finding = finding.expect("an error");
        assert_eq!(finding.severity, Severity::Error);
        let expected = "socket 1 balances by InFlight, socket 2 by Split: a weight cannot";
        assert!(finding.message.starts_with(expected), "{finding:?}");
    }
}
