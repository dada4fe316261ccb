//! Figure 16 (§6.4): backends of Table 3's pool fail, or lose a quarter of their capacity.
//!
//! Simulated: Plimsoll's controller with its sequential test, with the paper's bare threshold, and in the
//! paper's method altogether, against weights that stay, over several seeds. Emulated: the real daemon and a
//! real HAProxy beside another that keeps the weights of before. Then the price of a test: how often it
//! fires while nothing happens.

use std::time::Duration;

use plimsoll_model::Objective;
use plimsoll_sim::Method;

use super::baselines::changed::{self, Through};
use super::dynamics::episode::{self, Length};
use super::dynamics::quiet::{self, Quiet};
use super::dynamics::seen::{Seen, groups, mean, median, standard_error};
use super::dynamics::{
    self, Disturbance, GROUPS, LOAD, STEERINGS, Steering, emulated, optimum, tables,
};
use crate::outcome::Outcome;
use crate::plot::{Axis, Bars, Plot};
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig16",
    paper: &super::PAPER,
    figure: "Figure 16",
    title: "Two backends fail; four lose a quarter of their capacity",
    claim: "A failure is seen within 100 ms and a loss of capacity within a second; 120 ms later new \
            weights give most to the large backends, and those that lost 25 % of capacity lose 15 to \
            17 % of weight.",
    provenance: &[Provenance::Simulated, Provenance::Emulated],
    takes: Duration::from_secs(930),
    takes_quick: Duration::from_secs(25),
    run,
};

const WHATS: [Disturbance; 2] = [Disturbance::Failure, Disturbance::Capacity];
const WATCHING: [Steering; 4] =
    [Steering::Plimsoll, Steering::Untested, Steering::PaperMended, Steering::PaperPrinted];

/// What the paper gives of Fig. 16(a): DIP-1 to 16, DIP-17 to 24, DIP-27 to 30 gain so much weight.
const THEIR_GAINS: [f64; 3] = [0.012, 0.027, 0.066];
/// Of Fig. 16(b): DIP-25 to DIP-28 lose 15 to 17 %.
const THEIR_LOSS: (f64, f64) = (15.0, 17.0);
/// Until a failure is seen, until another capacity is, and the ILP: seconds.
const THEIR_FAILURE_S: f64 = 0.1;
const THEIR_CAPACITY_S: f64 = 1.0;
const THEIR_ILP_S: f64 = 0.12;

fn run(context: &Context) -> Result<Outcome, Failure> {
    let length = context.pick(
        Length { learning_s: 60.0, settling_s: 20.0, measured_s: 20.0 },
        Length { learning_s: 400.0, settling_s: 60.0, measured_s: 120.0 },
    );
    let mut runs = episode::every_steering(context, &WHATS, length, context.pick(1, 3), 0.0..0.15)?;
    let quiet = watch(context, 0.15..0.2)?;
    let seconds = Duration::from_secs;
    let (length, whats) = context.pick(
        (
            emulated::Length {
                learning: seconds(3),
                before: seconds(1),
                settling: seconds(1),
                measured: seconds(2),
                healing: seconds(0),
                // So that equal weights overload no backend: nothing is learned in so short a time.
                load: 0.4,
            },
            &WHATS[..1],
        ),
        (
            emulated::Length {
                learning: seconds(60),
                before: seconds(20),
                settling: seconds(30),
                measured: seconds(25),
                healing: seconds(25),
                load: LOAD,
            },
            &WHATS[..],
        ),
    );
    let real = emulated::run(context, whats, length, 0.2..0.5)?;
    let methods = every_method(context, 0.5..1.0)?;
    let requests = context.pick(50_000, 1_000_000);
    let mut best_ms = Vec::new();
    for what in WHATS {
        best_ms.push((what, optimum::mean_after_ms(what, requests, context.seed)?));
    }
    let best = |what| best_ms.iter().find(|(w, _)| *w == what).map(|(_, ms)| *ms);
    let comparisons = comparisons(&runs, &real, &quiet, &best)?;
    runs.extend(real);
    let mut tables = vec![tables::runs(&runs, best)?, tables::weights(&runs, &WHATS)?];
    tables.push(tables::quiet(&quiet)?);
    tables.push(changed::table(&methods)?);
    let mut plots = plots(&runs)?;
    for ((what, rows), file) in methods.iter().zip(["methods-failure", "methods-capacity"]) {
        plots.extend(changed::before_and_after(file, what, rows));
    }
    Ok(Outcome { tables, plots, comparisons, notes: notes() })
}

/// All methods through both changes; a quick run has the first.
fn every_method(
    context: &Context,
    progress: std::ops::Range<f64>,
) -> Result<Vec<(&'static str, Vec<Through>)>, Failure> {
    let setting = dynamics::setting(context.seed);
    let whats = if context.quick { &WHATS[..1] } else { &WHATS[..] };
    let step = (progress.end - progress.start) / whats.len() as f64;
    let one = |(i, &what): (usize, &Disturbance)| {
        let from = progress.start + step * i as f64;
        let part = (from, from + step);
        let happening = what.happening();
        let rows = changed::through(context, &setting, &happening, changed::EMULATED_US, part)?;
        Ok((what.name(), rows))
    };
    whats.iter().enumerate().map(one).collect()
}

fn watch(context: &Context, progress: std::ops::Range<f64>) -> Result<Vec<Quiet>, Failure> {
    let steerings = if context.quick { &WATCHING[..2] } else { &WATCHING[..] };
    let (learning_s, quiet_s) = context.pick((60.0, 60.0), (400.0, 3600.0));
    let mut quiet = Vec::new();
    for (i, &steering) in steerings.iter().enumerate() {
        let done = i as f64 / steerings.len() as f64;
        let done = progress.start + (progress.end - progress.start) * done;
        context.progress(done, &format!("a quiet hour: {}", steering.name()))?;
        quiet.push(quiet::run(context, steering, learning_s, quiet_s, context.seed)?);
    }
    Ok(quiet)
}

fn of(
    runs: &[Seen],
    what: Disturbance,
    method: Method,
    steering: Steering,
    from: Provenance,
) -> impl Iterator<Item = &Seen> + Clone {
    let key = (what, method, steering, from);
    runs.iter().filter(move |seen| (seen.what, seen.method, seen.steering, seen.provenance) == key)
}

fn plimsoll(
    runs: &[Seen],
    what: Disturbance,
    from: Provenance,
) -> impl Iterator<Item = &Seen> + Clone {
    of(runs, what, Method::RoundRobin, Steering::Plimsoll, from)
}

/// The gains of the paper's three groups after the failure, from those of ours.
fn gains(parts: &[(f64, f64)]) -> [f64; 3] {
    let gain = |i: usize| parts[i].1 - parts[i].0;
    [gain(0), gain(1), gain(3) + gain(4)]
}

/// What DIP-25 to DIP-28 lose, percent.
fn loss(parts: &[(f64, f64)]) -> f64 {
    let (before, after) = (parts[2].0 + parts[3].0, parts[2].1 + parts[3].1);
    100.0 * (1.0 - after / before)
}

fn plots(runs: &[Seen]) -> Result<Vec<Plot>, Failure> {
    let mut plots = vec![failure_plot(runs)?, capacity_plot(runs)?];
    for (what, name, title) in [
        (WHATS[0], "latency-failure", "DIP-25 and DIP-26 fail: clients' mean, one run of each"),
        (WHATS[1], "latency-capacity", "DIP-25 to DIP-28 at 75 %: clients' mean, one run of each"),
    ] {
        let shown: Vec<&Seen> = STEERINGS[..5]
            .iter()
            .filter_map(|&(m, steering)| of(runs, what, m, steering, Provenance::Simulated).next())
            .collect();
        plots.push(tables::latencies(name, title, &shown, 60.0));
        let real = |seen: &&Seen| (seen.what, seen.provenance) == (what, Provenance::Emulated);
        let shown: Vec<&Seen> = runs.iter().filter(real).collect();
        if !shown.is_empty() {
            let (name, title) = (format!("{name}-emulated"), format!("{title}, real HAProxy"));
            plots.push(tables::latencies(&name, &title, &shown, 55.0));
        }
    }
    Ok(plots)
}

/// The standard errors over runs of what is shown of them.
fn errors<'a>(
    runs: impl Iterator<Item = &'a Seen>,
    shown: impl Fn(&[(f64, f64)]) -> Vec<f64>,
) -> Vec<Option<f64>> {
    let each: Vec<Vec<f64>> = runs.map(|seen| shown(&groups(std::iter::once(seen)))).collect();
    let count = each.first().map_or(0, Vec::len);
    (0..count).map(|i| standard_error(each.iter().map(|values| values[i]))).collect()
}

fn failure_plot(runs: &[Seen]) -> Result<Plot, Failure> {
    let what = Disturbance::Failure;
    let bars = |name: &str, from, parts: &[(f64, f64)]| {
        Bars::new(name, from, gains(parts).map(Some).to_vec())
    };
    let mut series = Vec::new();
    for from in [Provenance::Simulated, Provenance::Emulated] {
        if plimsoll(runs, what, from).next().is_some() {
            let runs = plimsoll(runs, what, from);
            let each = errors(runs.clone(), |parts| gains(parts).to_vec());
            series.push(bars("Plimsoll", from, &groups(runs)).errors(each));
        }
    }
    for (name, objective) in tables::BEST {
        series.push(bars(name, Provenance::Simulated, &tables::best_groups(what, objective)?));
    }
    series.push(Bars::new("paper", Provenance::Reported, THEIR_GAINS.map(Some).to_vec()));
    let names = ["1-16 (1 core)", "17-24 (2 cores)", "27-30 (4 and 8 cores)"];
    let y = Axis::linear("cumulative gain of weight");
    let names = names.map(str::to_owned).to_vec();
    Ok(Plot::bars(
        "weights-failure",
        "Where the weight of 25 and 26 goes",
        "backends",
        y,
        names,
        series,
    ))
}

fn capacity_plot(runs: &[Seen]) -> Result<Plot, Failure> {
    let what = Disturbance::Capacity;
    let four = |parts: &[(f64, f64)]| -> Vec<Option<f64>> {
        let joined = (parts[2].0 + parts[3].0, parts[2].1 + parts[3].1);
        let all = [parts[0], parts[1], joined, parts[4]];
        all.map(|(before, after)| Some(100.0 * (after / before - 1.0))).to_vec()
    };
    let mut series = Vec::new();
    for from in [Provenance::Simulated, Provenance::Emulated] {
        if plimsoll(runs, what, from).next().is_some() {
            let runs = plimsoll(runs, what, from);
            let changes = |parts: &[(f64, f64)]| four(parts).into_iter().flatten().collect();
            let each = errors(runs.clone(), changes);
            series.push(Bars::new("Plimsoll", from, four(&groups(runs))).errors(each));
        }
    }
    for (name, objective) in tables::BEST {
        let parts = tables::best_groups(what, objective)?;
        series.push(Bars::new(name, Provenance::Simulated, four(&parts)));
    }
    let middle = -(THEIR_LOSS.0 + THEIR_LOSS.1) / 2.0;
    series.push(Bars::new("paper", Provenance::Reported, vec![None, None, Some(middle), None]));
    let names = GROUPS.map(|(name, _)| name.to_owned());
    let [one, two, _, _, eight] = names;
    let names = vec![one, two, "25-28 (4 cores, 3 left)".to_owned(), eight];
    let y = Axis::linear("change of the weight (%)");
    Ok(Plot::bars("weights-capacity", "25 to 28 lose a core each", "backends", y, names, series))
}

fn comparisons(
    runs: &[Seen],
    real: &[Seen],
    quiet: &[Quiet],
    best: &impl Fn(Disturbance) -> Option<f64>,
) -> Result<Vec<Comparison>, Failure> {
    let mut all = Vec::new();
    for (runs, from) in [(runs, Provenance::Simulated), (real, Provenance::Emulated)] {
        for what in WHATS {
            if plimsoll(runs, what, from).next().is_some() {
                all.extend(weight_comparisons(runs, what, from)?);
                all.extend(time_comparisons(runs, what, from));
                all.push(client_comparison(runs, what, from, best(what)));
            }
        }
    }
    all.extend(quiet.iter().map(quiet_comparison));
    Ok(all)
}

fn weight_comparisons(
    runs: &[Seen],
    what: Disturbance,
    from: Provenance,
) -> Result<Vec<Comparison>, Failure> {
    let ours = groups(plimsoll(runs, what, from));
    let mean_best = tables::best_groups(what, Objective::Traffic)?;
    let sum_best = tables::best_groups(what, Objective::Sum)?;
    let machines =
        "The paper's curves are of its own virtual machines, whose shapes it does not give";
    if what == Disturbance::Failure {
        let names = ["DIP-1 to 16", "DIP-17 to 24", "DIP-27 to 30"];
        let (a, b) = (gains(&mean_best), gains(&sum_best));
        let one = |i: usize, ours: f64| {
            let why = format!(
                "{machines}; exact queues give {:+.3} when packed for the mean client and {:+.3} by the \
                 paper's unweighted sum.",
                a[i], b[i]
            );
            let name = format!("25 and 26 fail: cumulative gain of {}", names[i]);
            let paper = (THEIR_GAINS[i], Tolerance::Part(0.25));
            Comparison::number(from, name, paper, ours, "weight").why(why)
        };
        return Ok(gains(&ours).into_iter().enumerate().map(|(i, ours)| one(i, ours)).collect());
    }
    let ours = loss(&ours);
    let (low, high) = THEIR_LOSS;
    let why = format!(
        "{machines}; exact queues that lose a quarter of their speed lose {:.1} % when packed for the mean \
         client and {:.1} % by the paper's unweighted sum.",
        loss(&mean_best),
        loss(&sum_best)
    );
    let name = "25 to 28 at 75 %: their loss of weight";
    let paper = (low, high, Tolerance::Absolute(1.0));
    Ok(vec![Comparison::range(from, name, paper, ours, "%").why(why)])
}

fn time_comparisons(runs: &[Seen], what: Disturbance, from: Provenance) -> Vec<Comparison> {
    let runs = plimsoll(runs, what, from);
    let when = |value: fn(&Seen) -> Option<f64>| median(runs.clone().map(value));
    let (theirs, why) = match what {
        Disturbance::Failure => (
            THEIR_FAILURE_S,
            "A backend is out after one failed round of three liveness requests, a round every 100 ms; \
             then it is out at once."
                .to_owned(),
        ),
        _ => (THEIR_CAPACITY_S, why_a_test_takes_longer(runs.clone())),
    };
    let count = runs.clone().count();
    let one = |part: &str, theirs: f64, (ours, seen): (Option<f64>, usize)| {
        let why = format!("{why} Median; so it was in {seen} of {count} runs.");
        let what = format!("{}: {part}", what.name());
        let paper = format!("within {theirs}");
        match ours {
            Some(s) => Comparison::bound(from, what, (&paper, Bound::AtMost(theirs)), s, "s"),
            None => Comparison::word(from, what, &paper, "never in most runs"),
        }
        .why(why)
    };
    vec![
        one("first noticed", theirs, when(|s| s.reaction.first_s)),
        one("first new weights", theirs + THEIR_ILP_S, when(|s| s.reaction.planned_s)),
    ]
}

/// Why a loss of capacity is noticed later than in the paper.
fn why_a_test_takes_longer<'a>(runs: impl Iterator<Item = &'a Seen> + Clone) -> String {
    let requests = mean(runs.clone().filter_map(|s| s.reaction.requests));
    let requests = requests.map_or_else(String::new, |n| format!(" ({n:.0} each)"));
    let last = match median(runs.map(|s| s.reaction.all_s)) {
        (Some(all_s), _) => format!("the last of the four is noticed after {all_s:.1} s"),
        (None, 0) => "in no run all four are noticed one by one".to_owned(),
        (None, _) => "in most runs not all four are noticed one by one".to_owned(),
    };
    format!(
        "The paper compares one mean of 20 probes with a threshold, which fires on noise as well; a test \
         with a stated rate of false alarms needs so many requests{requests}, and {last}."
    )
}

fn client_comparison(
    runs: &[Seen],
    what: Disturbance,
    from: Provenance,
    best: Option<f64>,
) -> Comparison {
    let later =
        |steering| mean(of(runs, what, Method::RoundRobin, steering, from).map(|s| s.later_ms));
    let (ours, frozen) = (later(Steering::Plimsoll), later(Steering::Frozen));
    let (ours, frozen) = (ours.unwrap_or(f64::NAN), frozen.unwrap_or(f64::NAN));
    let best = best.filter(|_| from == Provenance::Simulated);
    let best =
        best.map_or_else(String::new, |ms| format!(" The best static split has {ms:.1} ms."));
    let name = format!("{}: clients' mean once settled", what.name());
    let lost =
        mean(of(runs, what, Method::RoundRobin, Steering::Frozen, from).map(|s| s.lost as f64));
    let why = format!(
        "With the weights of before it is {frozen:.1} ms for those that are served, and {:.0} requests are \
         lost.{best}",
        lost.unwrap_or(0.0)
    );
    Comparison::silent(from, name, "not given", ours, "ms").why(why)
}

fn quiet_comparison(quiet: &Quiet) -> Comparison {
    let rate = quiet.false_alarms as f64 / quiet.hours;
    let name = format!("false alarms in a quiet hour: {}", quiet.steering.name());
    let why = if quiet.steering == Steering::Plimsoll {
        "The paper does not say how often its threshold fires on noise. The sequential test is meant to \
         fire at most once a day in a pool of thirty."
    } else {
        "The paper does not say how often its threshold fires on noise."
    };
    Comparison::silent(Provenance::Simulated, name, "not given", rate, "1/h").why(why)
}

fn notes() -> Vec<String> {
    [
        "Speeds are those of Table 3 as the paper measures them: equal within a type, the 8-core machines \
         17.5 % faster per core. Simulated service is exponential, 30 ms; emulated, 80 ms.",
        "A lost core is a quarter of the speed of all four where it is simulated, and one core of four \
         where it is emulated: the first makes every request slower, the second makes only queues longer, \
         which needs more requests to be seen.",
        "Weights are cumulative by type; simulated they are the parts of the traffic that clients sent, \
         under round robin the same thing.",
        "\"frozen, health check\": HAProxy's `check` as it comes (2 s, three times) takes the dead out after \
         5 s, and the others share their traffic by the weights they have. The emulated frozen HAProxy has \
         no health check: it retries and redispatches.",
        "Simulated, a dead backend fails what it is sent at once and nobody tries again: under leastconn it \
         then takes everything, and with frozen weights all is lost. A real HAProxy tries again, under \
         roundrobin elsewhere: nothing is lost there. Under leastconn the dead have the fewest connections, and \
         a second try finds the other dead one: without a health check that loses requests for real.",
        "The paper's methods explore and notice changes as the paper does, learn polynomials of degree two and \
         minimise the unweighted sum of latencies.",
        "The paper's methods are rebuilt in this controller, under exponential service times: a threshold on the \
         mean of a few requests then fires on noise, and every false alarm moves weights. Under steadier \
         service times, which the paper's fixed computation may have, it would fire less.",
        "Emulated, requests through the changes of the table of methods take 120 ms, so that four lanes run \
         side by side.",
        "Emulated backends take real requests over real connections; their cores exist on a schedule and \
         burn no CPU.",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain(changed::notes())
    .collect()
}
