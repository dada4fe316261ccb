use super::*;

const NOW: Nanos = Nanos(0);

fn round(
    h: &mut Health,
    now: Nanos,
    started: Nanos,
    successes: u32,
    why: Option<FailureKind>,
) -> Option<Turn> {
    let patience = Duration::ZERO;
    h.liveness(
        now,
        &Round {
            started,
            successes,
            why,
            doubted: false,
            contradicted: false,
            patience,
            bare: false,
        },
    )
}

#[test]
fn one_failed_round_fails_a_backend_and_three_successful_ones_return_it() {
    let mut h = Health::default();
    assert_eq!(round(&mut h, NOW, NOW, 1, Some(FailureKind::Reset)), None);
    let cause = Cause::Liveness(Some(FailureKind::Refused));
    assert_eq!(round(&mut h, NOW, NOW, 0, Some(FailureKind::Refused)), Some(Turn::Failed(cause)));
    assert_eq!(round(&mut h, NOW, NOW, 3, None), None);
    assert_eq!(round(&mut h, NOW, NOW, 3, None), None);
    assert_eq!(round(&mut h, NOW, NOW, 3, None), Some(Turn::Returned));
}

#[test]
fn a_timed_out_round_does_not_override_a_later_one() {
    let mut h = Health::default();
    round(&mut h, Nanos(10), Nanos(9), 3, None);
    assert_eq!(round(&mut h, Nanos(11), Nanos(2), 0, Some(FailureKind::Timeout)), None);
    assert!(round(&mut h, Nanos(12), Nanos(11), 0, None).is_some());
}

#[test]
fn flapping_doubles_the_rounds_to_return() {
    let mut h = Health::default();
    let mut rounds = Vec::new();
    for _ in 0..3 {
        round(&mut h, NOW, NOW, 0, None);
        rounds.push((1..).find(|_| round(&mut h, NOW, NOW, 3, None).is_some()).unwrap());
    }
    assert_eq!(rounds, [3, 6, 12]);
    round(&mut h, Nanos(120_000_000_000), NOW, 0, None);
    assert_eq!((1..).find(|_| round(&mut h, NOW, NOW, 3, None).is_some()), Some(3), "forgiven");
}

#[test]
fn a_wrong_url_fails_no_backend_and_a_wrong_answer_fails_one() {
    let (ok, bad) = (Outcome::Success, Outcome::Failure(FailureKind::Status));
    let mut h = Health::default();
    for _ in 0..20 {
        assert_eq!(h.work(NOW, bad, false), None);
    }
    assert_eq!(h.work_failure(), Some(FailureKind::Status));
    let failed = Turn::Failed(Cause::Work(FailureKind::Status));
    assert_eq!(h.work(NOW, bad, true), Some(failed));
    assert_eq!(round(&mut h, NOW, NOW, 3, None), None, "alive, but not at work");
    assert_eq!(h.work(NOW, ok, true), None);
    assert_eq!(h.work(NOW, ok, true), None);
    assert_eq!(h.work(NOW, ok, true), Some(Turn::Returned));
}

fn fail_work(h: &mut Health, kind: FailureKind) {
    for _ in 0..PROBES_TO_FAIL {
        h.work(NOW, Outcome::Failure(kind), true);
    }
}

fn pass_rounds(h: &mut Health) -> Option<Turn> {
    (0..ROUNDS_TO_RETURN).find_map(|_| round(h, NOW, NOW, 3, None))
}

#[test]
fn live_backend_does_not_return_while_its_work_fails_even_if_it_never_worked() {
    let mut h = Health::default();
    round(&mut h, NOW, NOW, 0, Some(FailureKind::Refused));
    fail_work(&mut h, FailureKind::Status);
    assert_eq!(pass_rounds(&mut h), None);
    assert_eq!(h.cause(), Some(Cause::Work(FailureKind::Status)));
    assert_eq!(h.work(NOW, Outcome::Success, true), None, "once may be chance");
    h.work(NOW, Outcome::Success, true);
    assert_eq!(h.work(NOW, Outcome::Success, true), Some(Turn::Returned));
}

#[test]
fn probes_refused_before_the_return_are_forgotten_and_later_ones_count() {
    let mut h = Health::default();
    round(&mut h, NOW, NOW, 0, Some(FailureKind::Refused));
    fail_work(&mut h, FailureKind::Refused);
    assert_eq!(pass_rounds(&mut h), Some(Turn::Returned));
    round(&mut h, NOW, NOW, 0, Some(FailureKind::Refused));
    round(&mut h, NOW, NOW, 3, None);
    fail_work(&mut h, FailureKind::Refused);
    assert_eq!((0..20).find_map(|_| round(&mut h, NOW, NOW, 3, None)), None);
}

#[test]
fn failed_probes_before_and_after_a_return_add_up() {
    let mut h = Health::default();
    round(&mut h, NOW, NOW, 0, Some(FailureKind::Timeout));
    round(&mut h, NOW, NOW, 3, None);
    let bad = Outcome::Failure(FailureKind::Status);
    (0..2).for_each(|_| assert_eq!(h.work(NOW, bad, true), None));
    assert_eq!(pass_rounds(&mut h), Some(Turn::Returned));
    let failed = Turn::Failed(Cause::Work(FailureKind::Status));
    assert_eq!(h.work(NOW, bad, true), Some(failed));
}

#[test]
fn backend_held_down_by_the_balancer_returns_only_with_the_balancers_report() {
    let mut h = Health::default();
    h.balancer(NOW, true);
    round(&mut h, NOW, NOW, 0, Some(FailureKind::Timeout));
    assert_eq!(pass_rounds(&mut h), None, "it would get nothing");
    assert_eq!(h.cause(), Some(Cause::Balancer));
    assert_eq!(h.balancer(NOW, false), Some(Turn::Returned));
}

#[test]
fn needed_backend_returns_after_one_round_once_the_balancer_reports_it_up() {
    let mut h = Health::default();
    round(&mut h, NOW, NOW, 0, Some(FailureKind::Refused));
    h.balancer(NOW, true);
    round(&mut h, NOW, NOW, 3, None);
    assert_eq!(h.return_at_once(NOW), None, "it would get nothing");
    assert_eq!(h.balancer(NOW, false), None, "one good round is not enough by itself");
    assert_eq!(h.return_at_once(NOW), Some(Turn::Returned), "no other backend serves");
}

#[test]
fn error_share_leads_to_ejection() {
    let mut h = Health::default();
    h.answers(1_000.0, 4.0);
    assert!(!h.is_failing_fast());
    for _ in 0..10 {
        h.answers(10.0, 30.0);
    }
    assert!(h.error_share() > 0.6);
    let mut later = h.clone();
    later.fade(30.0);
    assert_eq!(later.error_share(), 0.0, "long ago");
    assert_eq!(h.eject(NOW), Some(Turn::Failed(Cause::Errors)));
    assert_eq!(round(&mut h, NOW, NOW, 3, None), None, "being alive is not enough to return");
}

#[test]
fn a_check_timeout_fails_no_backend_while_clients_get_answers_or_before_patience_ends() {
    let mut h = Health::default();
    let at = |s: u64| Nanos(s * 1_000_000_000);
    let timed_out = |h: &mut Health, s: u64, doubted: bool| {
        let why = Some(FailureKind::Timeout);
        let patience = Duration::from_secs(2);
        let round = Round {
            started: at(s - 1),
            successes: 0,
            why,
            doubted,
            contradicted: false,
            patience,
            bare: false,
        };
        h.liveness(at(s), &round)
    };
    (1..60).for_each(|s| assert_eq!(timed_out(&mut h, s, true), None));
    assert_eq!(timed_out(&mut h, 60, false), None);
    assert_eq!(timed_out(&mut h, 61, true), None, "clients get answers again");
    assert_eq!(timed_out(&mut h, 62, false), None);
    assert!(timed_out(&mut h, 63, false).is_some(), "for 2 s, and no client waits");
}

#[test]
fn backend_failed_for_silence_returns_with_an_answer_unless_it_refuses_connections() {
    let mut h = Health::default();
    assert!(h.fail_silent(NOW, Duration::from_secs(3)).is_some());
    assert!(h.is_doubtful());
    assert_eq!(h.answered(NOW), Some(Turn::Returned));
    assert!(h.fail_silent(NOW, Duration::from_secs(3)).is_some());
    round(&mut h, NOW, NOW, 0, Some(FailureKind::Refused));
    assert!(!h.is_doubtful());
    assert_eq!(h.answered(NOW), None);
}
#[test]
fn silent_backend_is_returned_by_checks_only_after_a_time_that_doubles() {
    let at = |s: u64| Nanos(s * 1_000_000_000);
    let mut h = Health::default();
    let mut out_for = Vec::new();
    let mut now = 100;
    for _ in 0..3 {
        assert!(h.fail_silent(at(now), Duration::from_secs(3)).is_some());
        let back =
            (now..).find(|s| (0..20).any(|_| round(&mut h, at(*s), at(*s), 1, None).is_some()));
        let back = back.expect("at last");
        out_for.push(back - now);
        now = back + 1;
    }
    assert_eq!(out_for, [5, 10, 20]);
    // An answer is stronger evidence.
    assert!(h.fail_silent(at(now), Duration::from_secs(3)).is_some());
    assert_eq!(h.answered(at(now)), Some(Turn::Returned));
}

#[test]
fn a_refused_check_is_not_believed_against_answers_until_a_request_is_lost() {
    let at = |s: u64| Nanos(s * 1_000_000_000);
    let within = Duration::from_secs(2);
    let refused = |h: &mut Health, s: u64| {
        let why = Some(FailureKind::Refused);
        let patience = Duration::ZERO;
        let (doubted, contradicted) = (true, true);
        h.liveness(
            at(s),
            &Round {
                started: at(s),
                successes: 0,
                why,
                doubted,
                contradicted,
                patience,
                bare: false,
            },
        )
    };
    let mut h = Health::default();
    assert_eq!(h.believe_refusal(at(0), within), None, "nothing was refused");
    (1..60).for_each(|s| assert_eq!(refused(&mut h, s), None));
    assert!(h.is_contradicted_by(Some(at(30))) && !h.is_contradicted_by(Some(at(0))));
    assert_eq!(h.believe_refusal(at(62), within), None, "long ago");
    let cause = Cause::Liveness(Some(FailureKind::Refused));
    assert_eq!(h.believe_refusal(at(60), within), Some(Turn::Failed(cause)));
    assert_eq!(h.answered(at(61)), None, "an answer that was under way proves nothing");
}

/// A bare connection at this second that is refused, or one that is accepted.
fn bare(h: &mut Health, second: u64, accepted: bool) -> Option<Turn> {
    let at = Nanos(second * 1_000_000_000);
    let why = (!accepted).then_some(FailureKind::Refused);
    let (successes, patience) = (u32::from(accepted), Duration::ZERO);
    let (doubted, contradicted) = (false, false);
    h.liveness(
        at,
        &Round { started: at, successes, why, doubted, contradicted, patience, bare: true },
    )
}

#[test]
fn refused_connections_prove_nothing_until_one_was_accepted() {
    let mut h = Health::default();
    assert!((0..100).all(|s| bare(&mut h, s, false).is_none()));
    assert_eq!(bare(&mut h, 100, true), None);
    let refused = Cause::Liveness(Some(FailureKind::Refused));
    assert_eq!(bare(&mut h, 101, false), Some(Turn::Failed(refused)));
}

#[test]
fn a_passing_check_of_the_balancer_outvotes_refused_connections_in_the_end() {
    let mut h = Health::default();
    bare(&mut h, 0, true);
    assert!(bare(&mut h, 1, false).is_some(), "it has stopped, as far as is known");
    let at = |second: u64| Nanos(second * 1_000_000_000);
    let returned = (1..60).find(|s| {
        bare(&mut h, *s, false);
        h.vouched_for(at(*s)).is_some()
    });
    assert_eq!(returned, Some(31));
    assert!((32..100).all(|s| bare(&mut h, s, false).is_none()), "and they prove nothing then");
}

#[test]
fn backend_that_was_never_reached_returns_after_a_time_when_its_requests_had_failed() {
    let at = |second: u64| Nanos(second * 1_000_000_000);
    let mut h = Health::default();
    let mut out_for = Vec::new();
    let mut now = 0;
    for _ in 0..3 {
        assert!(h.fail_broken(at(now)).is_some());
        let returned = (now..now + 100).find(|s| {
            bare(&mut h, *s, false);
            h.end_ejection(at(*s), true).is_some()
        });
        out_for.push(returned.expect("returned") - now);
        now = returned.expect("returned") + 1;
    }
    assert_eq!(out_for, [5, 10, 20]);
    // Where others of the pool are reached, it is probably dead, unless the balancer's own check passes.
    assert!(h.fail_broken(at(now)).is_some());
    assert!((now..now + 900).all(|s| h.end_ejection(at(s), false).is_none()));
    assert!(h.vouched_for(at(now)).is_none() && h.vouched_for(at(now + 40)).is_some());
    now += 900;
    bare(&mut h, now, true);
    assert!(h.fail_broken(at(now)).is_some());
    assert!(
        (now..now + 900).all(|s| h.end_ejection(at(s), true).is_none()),
        "its checks return it"
    );
}
