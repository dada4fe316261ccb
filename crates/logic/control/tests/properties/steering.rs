//! Nothing is programmed where nothing may be, however much the pool asks for it.

use std::time::Duration;

use plimsoll_control::{Event, RecordKind, ServiceSpec};
use plimsoll_model::MethodKind;

use super::bed::{Bed, spec};

/// A known pool at half its capacity.
fn known(kind: MethodKind) -> Bed {
    let mut bed = Bed::new(spec(3), &[1, 2, 4], kind, 175.0, 1);
    bed.run_for(60.0);
    bed
}

/// A server dies, and comes back.
fn die_and_return(bed: &mut Bed) {
    bed.set_alive(1, false);
    bed.check(1);
    bed.run_for(20.0);
    bed.set_alive(1, true);
    bed.run_for(40.0);
}

#[test]
fn nothing_is_programmed_while_observing() {
    for kind in [MethodKind::Split, MethodKind::InFlight] {
        let mut bed = known(kind);
        let from = bed.now();
        let observe = ServiceSpec { observe: true, ..spec(3) };
        bed.step(Event::Reconfigured(Box::new(observe)));
        bed.servers[0].weight = 200;
        die_and_return(&mut bed);
        assert_eq!(bed.plans_since(from).count(), 0, "{kind:?}");
        bed.step(Event::Reconfigured(Box::new(spec(3))));
        die_and_return(&mut bed);
        assert!(bed.plans_since(from).count() > 1, "{kind:?}: and then it is");
    }
}

#[test]
fn nothing_is_programmed_where_the_method_takes_no_weights() {
    let mut bed = known(MethodKind::Split);
    bed.kind = MethodKind::NoLiveWeights;
    bed.run_for(1.0);
    let from = bed.now();
    bed.servers[0].weight = 200;
    die_and_return(&mut bed);
    assert_eq!(bed.plans_since(from).count(), 0);
}

/// After a plan that was refused for good the balancer's next reading decides, and a report that it cannot be steered
/// forbids all until then.
#[test]
fn nothing_is_programmed_while_only_an_administrator_can_help() {
    for is_refused in [true, false] {
        let mut bed = Bed::new(spec(4), &[1, 2, 2, 4], MethodKind::Split, 150.0, 1);
        bed.run_for(60.0);
        (1..3).for_each(|i| bed.set_alive(i, false));
        bed.run_for(30.0);
        assert_eq!(bed.weights()[1..3], [0, 0]);
        // From here on there are no readings: servers return by their checks.
        bed.every = Duration::from_secs(60);
        bed.run_for(0.5);
        let returns = |bed: &mut Bed, i: usize| {
            let from = bed.now();
            bed.set_alive(i, true);
            (0..20).for_each(|_| bed.check(i));
            assert!(bed.recorded(RecordKind::Returned, i, from).is_some(), "{:?}", bed.records);
        };
        let from = bed.plans.len();
        if is_refused {
            bed.refuses = true;
            returns(&mut bed, 1);
            bed.refuses = false;
        } else {
            let reason = "another program sets the weights".to_owned();
            bed.step(Event::BalancerLost { reason, conflict: true });
        }
        returns(&mut bed, 2);
        bed.run_for(1.0);
        assert_eq!(bed.plans.len(), from + usize::from(is_refused), "refused: {is_refused}");
        bed.every = Duration::ZERO;
        bed.run_for(80.0);
        assert!(bed.weights()[2] > 0, "refused: {is_refused}");
    }
}
