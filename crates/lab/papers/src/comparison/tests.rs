use super::*;

const SIMULATED: Provenance = Provenance::Simulated;

fn judged(mut comparison: Comparison) -> Verdict {
    comparison.judge(false);
    comparison.verdict()
}

fn number(paper: f64, ours: f64) -> Comparison {
    Comparison::number(SIMULATED, "x", (paper, Tolerance::Part(0.1)), ours, "ms")
}

#[test]
fn a_number_agrees_within_its_tolerance_alone() {
    assert_eq!(judged(number(10.0, 10.9)), Verdict::Agrees);
    for ours in [11.2, 8.8, 0.001, f64::NAN, f64::INFINITY] {
        assert_eq!(judged(number(10.0, ours)), Verdict::Differs, "{ours}");
    }
    let near =
        |tolerance, ours| judged(Comparison::number(SIMULATED, "x", (10.0, tolerance), ours, ""));
    assert_eq!(near(Tolerance::Absolute(0.0), 10.0), Verdict::Agrees);
    assert_eq!(near(Tolerance::Absolute(0.5), 10.6), Verdict::Differs);
    assert_eq!(near(Tolerance::Factor(2.0), 5.1), Verdict::Agrees);
    assert_eq!(near(Tolerance::Factor(2.0), 4.9), Verdict::Differs);
}

#[test]
fn ranges_limits_orders_and_words_are_checked() {
    let range = |ours| {
        let paper = (2.0, 3.0, Tolerance::Part(0.1));
        judged(Comparison::range(SIMULATED, "x", paper, ours, ""))
    };
    assert_eq!([1.9, 3.2].map(range), [Verdict::Agrees; 2]);
    assert_eq!([1.7, 3.4, f64::NAN].map(range), [Verdict::Differs; 3]);
    let more = |ours| {
        let paper = ("more than 80 %", Bound::AtLeast(80.0));
        judged(Comparison::bound(SIMULATED, "x", paper, ours, "%"))
    };
    assert_eq!([84.8, 64.8].map(more), [Verdict::Agrees, Verdict::Differs]);
    let order = |ours: [f64; 2]| {
        let ours = [("a", ours[0]), ("b", ours[1])];
        judged(Comparison::order(SIMULATED, "x", "less", ours, ""))
    };
    let orders = [[1.0, 2.0], [2.0, 1.0], [f64::NAN, 1.0]].map(order);
    assert_eq!(orders, [Verdict::Agrees, Verdict::Differs, Verdict::Differs]);
    let word = |ours| judged(Comparison::word(SIMULATED, "x", "overload", ours));
    assert_eq!(["overload", "3 ms"].map(word), [Verdict::Agrees, Verdict::Differs]);
}

#[test]
fn better_needs_the_papers_own_method_here_with_the_papers_number() {
    let base = |here, better| {
        let (name, same) = ("theirs".to_owned(), Tolerance::Factor(2.0));
        Some(Baseline { name, paper: 10.0, here, same, better })
    };
    assert_eq!(judged(number(10.0, 1.0)), Verdict::Differs, "without a baseline");
    let less = |here, ours| judged(number(10.0, ours).beside(base(here, Better::Less)));
    assert_eq!(less(8.0, 1.0), Verdict::Better);
    assert_eq!(less(4.0, 1.0), Verdict::Differs, "another baseline");
    assert_eq!(less(6.0, 5.7), Verdict::Differs, "hardly better than the baseline");
    assert_eq!(less(8.0, 30.0), Verdict::Differs, "worse");
    let more = |here, ours| judged(number(10.0, ours).beside(base(here, Better::More)));
    assert_eq!((more(12.0, 14.0), more(12.0, 13.0)), (Verdict::Better, Verdict::Differs));
}

#[test]
fn what_was_fitted_never_agrees_and_is_never_better() {
    let fitted = |ours| number(10.0, ours).fitted("the pause of 150 ms");
    assert_eq!(judged(fitted(10.0)), Verdict::Fitted);
    assert_eq!(judged(fitted(20.0)), Verdict::Differs);
    let (name, same) = ("theirs".to_owned(), Tolerance::Part(0.1));
    let base = Baseline { name, paper: 10.0, here: 10.0, same, better: Better::Less };
    assert_eq!(judged(fitted(1.0).beside(Some(base))), Verdict::Differs);
    let mut one = fitted(10.0).why("So.");
    one.judge(false);
    assert_eq!(one.reason(), "Chosen to give the paper's number: the pause of 150 ms. So.");
    let mut silent = Comparison::silent(SIMULATED, "x", "not given", 1.0, "");
    silent = silent.fitted("the pause of 150 ms").why("So.");
    silent.judge(false);
    assert_eq!(silent.reason(), "So.");
}

#[test]
fn a_target_of_our_own_is_reached_or_missed_and_never_agrees() {
    let target = |ours| {
        let wanted = ("not in it; wanted: at most 3", Bound::AtMost(3.0));
        Comparison::bound(SIMULATED, "x", wanted, ours, "points").target()
    };
    assert_eq!([2.0, 4.0].map(target).map(judged), [Verdict::Reached, Verdict::Missed]);
    let mut quick = target(2.0);
    quick.judge(true);
    assert_eq!(quick.verdict(), Verdict::QuickRun);
}

#[test]
fn quick_runs_and_silence_get_no_verdict() {
    let mut quick = number(10.0, 10.0);
    assert_eq!(quick.verdict(), Verdict::QuickRun, "none before it is judged");
    quick.judge(true);
    assert_eq!(quick.verdict(), Verdict::QuickRun);
    let silent = Comparison::silent(SIMULATED, "x", "not given", 1.0, "");
    assert_eq!(judged(silent), Verdict::NotComparable);
    assert_eq!(judged(number(10.0, 10.0).incomparable("Overload.")), Verdict::NotComparable);
}

#[test]
fn what_repetitions_leave_undecided_gets_no_verdict() {
    let late = |ours| Comparison::bound(SIMULATED, "x", ("late", Bound::AtLeast(0.05)), ours, "");
    let of = |values: [f64; 3]| {
        let alone = values.map(late);
        let mean = values.iter().sum::<f64>() / 3.0;
        judged(late(mean).decided_by(&alone.iter().collect::<Vec<_>>()))
    };
    assert_eq!(of([0.1, 0.11, 0.12]), Verdict::Agrees);
    assert_eq!(of([0.02, 0.1, 0.3]), Verdict::NotComparable, "as ratios");
    assert_eq!(of([0.0, 0.0, 0.2]), Verdict::NotComparable, "with parts of 0");
    assert_eq!(of([0.0, 0.001, 0.0]), Verdict::Differs);
    assert_eq!(of([0.1, 0.1, f64::NAN]), Verdict::NotComparable);
    assert_eq!(of([0.01, 0.011, 0.2]), Verdict::NotComparable);
    let alone = [0.04, 0.041, 0.042].map(late);
    let decided = late(0.07).decided_by(&alone.iter().collect::<Vec<_>>());
    assert_eq!(
        decided.what,
        "x (by repetition 0.04, 0.041, 0.042; 95 % interval 0.03858 to 0.04355)"
    );
    assert_eq!(judged(decided), Verdict::NotComparable, "one great mean among small ones");
}
