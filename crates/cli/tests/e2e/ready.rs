//! `/readyz` says what is so.

use plimsoll_testbed::Mode;

use crate::rig::relay::{Meddle, Relay};
use crate::rig::{Rig, until};

#[test]
fn readyz_is_not_true_while_plans_are_refused() {
    let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let relay = Relay::start(&rig, Meddle::Cut);
    rig.socket = Some(relay.path.clone());
    let daemon = rig.daemon();
    until("the balancer to be read", || daemon.http("/readyz").0 == 200);
    rig.set_mode("s2", Mode::Refuse);
    until("it not to be ready", || {
        let (status, body) = daemon.http("/readyz");
        status == 503 && body.contains("was not programmed")
    });
    // Readings between two refusals change nothing: as many as come until three more plans are refused.
    let refused = || daemon.log().matches("was not programmed").count();
    let until_then = refused() + 3;
    until("three more refusals", || {
        let (status, body) = daemon.http("/readyz");
        assert_eq!(status, 503, "{body}");
        refused() >= until_then
    });
    assert_eq!(rig.weight("s2"), 100);
    relay.set(Meddle::Nothing);
    until("it to be ready", || daemon.http("/readyz").0 == 200);
    until("its weight to be 0", || rig.weight("s2") == 0);
}
