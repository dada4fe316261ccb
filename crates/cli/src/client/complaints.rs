//! What the clients of a service suffer from, as its daemon shows it: one plain sentence each, for `status` and
//! `doctor` alike.

use plimsoll_control::{BackendState, BackendView, Phase, ServiceView};

/// Clients who wait this many times as long as an unloaded backend takes wait for others.
const LONG: f64 = 10.0;

/// A backend with at least this share of errors among its answers is reported; the controller ejects from the same share on.
const ERRORS: f64 = 0.1;
/// Where at least this part of all answers are errors, no request is served.
const ALL: f64 = 0.95;

/// Something that clients suffer from.
#[derive(Clone, Debug, PartialEq)]
pub struct Complaint {
    /// The service, or `service/backend`.
    pub about: String,
    /// What is so.
    pub message: String,
    /// What to do about it.
    pub advice: &'static str,
    /// No request is served.
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
    match serving(view) {
        Serving::Some => {}
        Serving::Nobody => {
            let message = "no backend serves: clients get errors".to_owned();
            found.push(Complaint { is_outage: true, ..complaint(message, "see what follows") });
        }
        Serving::Unknown => {
            let why = match (&view.trouble, view.backends.is_empty()) {
                (Some(_), true) => "the balancer has reported none that can be steered",
                (Some(_), false) => "the balancer cannot be read and steered",
                (None, true) => "the balancer has reported none yet",
                (None, false) => "the balancer has not been read yet",
            };
            let message = format!("whether its backends serve is not known: {why}");
            let advice = match &view.trouble {
                Some(_) => "mend what the daemon's trouble with the balancer is",
                None => "ask again in a few seconds",
            };
            found.push(complaint(message, advice));
        }
    }
    if let Some(message) = shared_errors(view) {
        let is_outage = answers_in_error(view) >= ALL;
        let advice =
            "look for what these backends have in common: a release, a database, a network";
        found.push(Complaint { is_outage, ..complaint(message, advice) });
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

/// What is known of a service's backends together.
enum Serving {
    /// At least one gets requests.
    Some,
    /// Each is known to get none.
    Nobody,
    /// None is known to get requests, and of some, or all, nothing is known.
    Unknown,
}

fn serving(view: &ServiceView) -> Serving {
    let gets_none = |b: &BackendView| is_out(b) || b.programmed == Some(0);
    if view.backends.iter().any(serves) {
        Serving::Some
    } else if !view.backends.is_empty() && view.backends.iter().all(gets_none) {
        Serving::Nobody
    } else {
        Serving::Unknown
    }
}

/// It is known to get requests.
pub fn serves(b: &BackendView) -> bool {
    !is_out(b) && b.programmed.is_some_and(|weight| weight > 0)
}

fn is_out(b: &BackendView) -> bool {
    matches!(b.state, BackendState::Failed | BackendState::SetAside)
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

/// The part of all recent answers that are errors.
fn answers_in_error(view: &ServiceView) -> f64 {
    let share = |b: &&BackendView| b.share > 0.0;
    let all: f64 = view.backends.iter().filter(share).map(|b| b.share).sum();
    let errors: f64 = view.backends.iter().filter(share).map(|b| b.share * b.error_share).sum();
    if all > 0.0 { errors / all } else { 0.0 }
}

/// What the errors of most backends that serve are: none is taken out for what most do.
fn shared_errors(view: &ServiceView) -> Option<String> {
    let serving = view.backends.iter().filter(|b| serves(b)).count();
    let failing = view.backends.iter().filter(|b| serves(b) && b.error_share >= ERRORS).count();
    (2 * failing > serving).then(|| {
        format!(
            "{:.0} % of the answers to clients are errors, from {failing} of {serving} backends that serve: none is \
             taken out for what most do",
            100.0 * answers_in_error(view)
        )
    })
}

fn judge(b: &BackendView) -> Option<(String, &'static str)> {
    match b.state {
        BackendState::Failed => {
            let message = match &b.cause {
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
        _ if serves(b) && b.error_share >= ERRORS => Some((
            format!("{:.0} % of its answers to clients are errors", 100.0 * b.error_share),
            "see its own log; it is taken out where most others are well and have room",
        )),
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
        view.backends[2].cause = Some("connection refused".to_owned());
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
    fn an_unknown_state_is_no_outage() {
        let mut unread = calm();
        for b in &mut unread.backends {
            (b.programmed, b.weight) = (None, 0);
        }
        let mut none = calm();
        none.backends.clear();
        for (mut view, trouble, why) in [
            (unread.clone(), None, "has not been read yet"),
            (unread, Some("it has no such server"), "cannot be read and steered"),
            (none.clone(), None, "has reported none yet"),
            (none, Some("4 slots are free"), "has reported none that can be steered"),
        ] {
            view.trouble = trouble.map(str::to_owned);
            let found = of(&view);
            assert!(found.len() == 1 && !found[0].is_outage, "{found:?}");
            assert!(found[0].message.starts_with("whether its backends serve is not known"));
            assert!(found[0].message.ends_with(why), "{found:?}");
        }
        // What checks found holds whether or not the balancer can be read.
        let mut gone = calm();
        for b in &mut gone.backends {
            (b.programmed, b.state) = (None, BackendState::Failed);
        }
        assert!(of(&gone)[0].is_outage, "{gone:?}");
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

    #[test]
    fn errors_of_one_backend_are_its_own_and_those_of_most_are_the_services() {
        let mut view = calm();
        view.backends[1].error_share = 0.5;
        let one = ("shop/s2".to_owned(), "50 % of its answers to clients are errors".to_owned());
        assert_eq!(said(&view), std::slice::from_ref(&one));
        view.backends[0].error_share = 0.5;
        let found = of(&view);
        let shared = "50 % of the answers to clients are errors, from 2 of 2 backends that serve";
        assert!(found[0].message.starts_with(shared) && !found[0].is_outage, "{found:?}");
        assert_eq!((found.len(), &found[2].about), (3, &one.0));
        view.backends.iter_mut().for_each(|b| b.error_share = 1.0);
        assert!(of(&view)[0].is_outage);
        view.backends.iter_mut().for_each(|b| b.error_share = 0.09);
        assert_eq!(said(&view), []);
    }
}
