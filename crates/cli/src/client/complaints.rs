//! What the clients of a service suffer from, as its daemon shows it: one plain sentence each, for `status` and
//! `doctor` alike.

use plimsoll_control::{BackendState, BackendView, Phase, ServiceView};

/// Clients who wait this many times as long as an unloaded backend takes wait for others.
const LONG: f64 = 10.0;

/// Something that clients suffer from.
#[derive(Clone, Debug, PartialEq)]
pub struct Complaint {
    /// The service, or `service/backend`.
    pub about: String,
    /// What is so.
    pub message: String,
    /// What to do about it.
    pub advice: &'static str,
    /// Nobody is served.
    pub is_outage: bool,
}

/// All that clients suffer from, the worst first.
pub fn of(view: &ServiceView) -> Vec<Complaint> {
    let service = view.service.as_str();
    let complaint = |message: String, advice| Complaint {
        about: service.to_owned(),
        message,
        advice,
        is_outage: false,
    };
    let mut found = Vec::new();
    if view.backends.iter().all(|b| !serves(b)) {
        let message = "no backend serves: clients get errors".to_owned();
        found.push(Complaint { is_outage: true, ..complaint(message, "see what follows") });
    }
    if view.phase == Phase::ShortOfCapacity && view.plan.capacity_rps > 0.0 {
        let message = format!(
            "more arrives than the backends in use can serve: {:.0} of {:.0} req/s",
            view.rate_rps, view.plan.capacity_rps
        );
        found.push(complaint(message, "add backends, or admit less"));
    }
    if let Some((waits_ms, rest_ms)) = wait(view)
        && waits_ms > LONG * rest_ms
    {
        let message = format!(
            "clients wait {waits_ms:.1} ms in the mean, {:.0} times as long as an unloaded backend takes \
             ({rest_ms:.1} ms)",
            waits_ms / rest_ms
        );
        found.push(complaint(
            message,
            "see which backends do not serve, and whether all are short of CPU",
        ));
    }
    for b in &view.backends {
        if let Some((message, advice)) = judge(b) {
            let about = format!("{service}/{}", b.backend);
            found.push(Complaint { about, ..complaint(message, advice) });
        }
    }
    found
}

/// It gets requests.
pub fn serves(b: &BackendView) -> bool {
    let is_out = matches!(b.state, BackendState::Failed | BackendState::SetAside);
    !is_out && b.programmed.unwrap_or(b.weight) > 0
}

/// What clients wait in the mean, and what the backends that serve them would take unloaded, milliseconds.
pub fn wait(view: &ServiceView) -> Option<(f64, f64)> {
    let (mut sum, mut parts) = (0.0, 0.0);
    for b in view.backends.iter().filter(|b| b.share > 0.0) {
        if let Some(curve) = view.curves.iter().find(|curve| curve.backend == b.backend) {
            sum += b.share * curve.l0_ms;
            parts += b.share;
        }
    }
    (sum > 0.0).then_some((view.latency_ms?, sum / parts))
}

fn judge(b: &BackendView) -> Option<(String, &'static str)> {
    match b.state {
        BackendState::Failed => {
            let why = b.reason.strip_prefix("failed: ");
            let message = match why {
                Some(why) => format!("it has failed and gets nothing: {why}"),
                None => "it has failed and gets nothing".to_owned(),
            };
            Some((message, "see why; it is given traffic again by itself"))
        }
        BackendState::SetAside => Some((
            "it is set aside and gets nothing: requests wait there and none is answered".to_owned(),
            "it has its share again with its first answer",
        )),
        BackendState::Ready | BackendState::Exploring | BackendState::Joining
            if b.programmed == Some(0) && b.weight > 0 =>
        {
            let message =
                format!("its weight in the balancer is 0 where it should be {}", b.weight);
            Some((message, "see in `plimsoll events` who sets it, or what refuses it"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::view;
    use super::*;

    fn said(view: &ServiceView) -> Vec<(String, String)> {
        of(view).into_iter().map(|c| (c.about, c.message)).collect()
    }

    /// Two of three backends serve, and the third is parked.
    fn calm() -> ServiceView {
        let mut view = view("shop");
        view.backends[1].programmed = Some(64);
        view.backends[2].state = BackendState::Parked;
        view.backends[2].programmed = Some(0);
        view
    }

    #[test]
    fn a_pool_that_serves_gives_no_cause() {
        assert_eq!(said(&calm()), []);
        let mut idle = calm();
        (idle.latency_ms, idle.rate_rps) = (None, 0.0);
        idle.backends.iter_mut().for_each(|b| b.share = 0.0);
        assert_eq!(said(&idle), []);
    }

    #[test]
    fn backends_without_weight_that_should_serve_are_named() {
        let mut view = calm();
        view.backends[0].state = BackendState::SetAside;
        view.backends[1].programmed = Some(0);
        view.backends[2].state = BackendState::Failed;
        view.backends[2].reason = "failed: connection refused".to_owned();
        let found = of(&view);
        assert!(found[0].is_outage && found[0].about == "shop", "{found:?}");
        let said = said(&view);
        let expected = [
            ("shop/s1", "set aside and gets nothing"),
            ("shop/s2", "is 0 where it should be 64"),
            ("shop/s3", "has failed and gets nothing: connection refused"),
        ];
        for ((about, message), (backend, part)) in said[1..].iter().zip(expected) {
            assert!(about == backend && message.contains(part), "{about}: {message}");
        }
        assert_eq!(said.len(), 4);
    }

    #[test]
    fn a_long_wait_is_said_beside_what_it_would_be_unloaded() {
        let mut view = calm();
        view.latency_ms = Some(5_800.0);
        let message = &said(&view)[0].1;
        assert!(message.contains("5800.0 ms") && message.contains("290 times"), "{message}");
        view.latency_ms = Some(190.0);
        assert_eq!(said(&view), [], "below ten times of 20 ms");
    }

    #[test]
    fn too_much_traffic_is_said_with_its_numbers() {
        let mut view = calm();
        (view.phase, view.rate_rps) = (Phase::ShortOfCapacity, 640.0);
        assert!(said(&view)[0].1.contains("640 of 500 req/s"), "{:?}", said(&view));
    }
}
