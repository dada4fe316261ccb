use super::{Kind, KindRan, Ran};
use crate::outcome::{Table, row};
use crate::plot::{Axis, Bars, Plot};
use crate::{Baseline, Better, Comparison, Failure, Provenance, Tolerance};

/// All rows, one line per method, source and type, and one per method and source for all clients.
pub fn table(kinds: &[Kind], rows: &[Ran]) -> Result<Table, Failure> {
    let title = "Latency and CPU utilisation (busy cores over cores) by type of backend";
    let mut table = Table::empty("methods", title);
    for ran in rows {
        let overload = if ran.overload { "yes" } else { "no" };
        row!(table, ran.provenance, {
            method: ran.method.name;
            clients: ran.clients.name();
            backends: "all";
            latency_ms: ran.mean_ms, "ms";
            standard_error_ms: ran.error_ms, "ms";
            p99_ms: ran.p99_ms, "ms";
            utilisation: (), "part of the cores";
            share: 1.0, "part of the requests";
            served_rps: ran.served_rps, "requests/s";
            errors: ran.errors, "requests";
            overload: overload;
        })?;
        for (kind, seen) in kinds.iter().zip(&ran.kinds) {
            row!(table, ran.provenance, {
                method: ran.method.name;
                clients: ran.clients.name();
                backends: &kind.label;
                latency_ms: seen.latency_ms;
                utilisation: seen.utilisation;
                share: seen.share;
                served_rps: seen.share * ran.served_rps;
                overload: overload;
            })?;
        }
    }
    Ok(table)
}

/// Two plots of these rows, in their order: latency and CPU by type. Overloads are left out: beside theirs,
/// no other latency would be seen.
pub fn bars(name: &str, title: &str, kinds: &[Kind], rows: &[&Ran]) -> Vec<Plot> {
    let labels: Vec<String> = kinds.iter().map(|k| k.label.clone()).collect();
    let series = |value: fn(&super::KindRan) -> Option<f64>| {
        let bar = |ran: &&Ran| {
            let values = ran.kinds.iter().map(value).collect();
            Bars::new(ran.method.name, ran.provenance, values)
        };
        rows.iter().filter(|ran| !ran.overload).map(bar).collect::<Vec<Bars>>()
    };
    let latency = series(|k| k.latency_ms);
    let cpu = series(|k| Some(100.0 * k.utilisation));
    let plot = |what: &str, axis: &str, series| {
        let title = format!("{title}: {what}");
        let file = format!("{name}-{what}");
        Plot::bars(&file, &title, "backends", Axis::linear(axis), labels.clone(), series)
    };
    vec![
        plot("latency", "mean latency (ms)", latency),
        plot("cpu", "busy cores over cores (%)", cpu),
    ]
}

/// How much of its latency one method cuts off another's, percent.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// Of which backends.
    pub kind: String,
    /// Their place among the types.
    pub place: usize,
    /// Percent; negative where it adds.
    pub percent: f64,
}

/// The greatest cut over the types of backends: the paper's "up to".
pub fn cut(kinds: &[Kind], from: &Ran, to: &Ran) -> Cut {
    let pairs = kinds.iter().zip(from.kinds.iter().zip(&to.kinds));
    let cuts = pairs.enumerate().filter_map(|(place, (kind, (from, to)))| {
        let percent = 100.0 * (1.0 - to.latency_ms? / from.latency_ms?);
        Some(Cut { kind: kind.label.clone(), place, percent })
    });
    let most = cuts.max_by(|a, b| a.percent.total_cmp(&b.percent));
    most.unwrap_or(Cut { kind: "none".to_owned(), place: 0, percent: 0.0 })
}

/// What all clients gain, which the paper does not give: a type can gain by what another loses.
pub fn compare_means((from, to): (&Ran, &Ran)) -> Comparison {
    let (to_name, from_name) = (to.method.name, from.method.name);
    let what = format!(
        "cut by {to_name} against {from_name}, mean of all clients ({} clients)",
        to.clients.name()
    );
    let ours = 100.0 * (1.0 - to.mean_ms / from.mean_ms);
    let why = "The paper gives latencies by type of backend only; of all clients, more or fewer come to each \
               type.";
    Comparison::silent(provenance(from, to), what, "not given", ours, "%")
        .why(overload(from, to).unwrap_or_else(|| why.to_owned()))
}

/// Cuts this near to each other are the same, percentage points.
const NEAR: Tolerance = Tolerance::Absolute(5.0);

/// A cut of the paper beside ours, over all types or over one. `klb` is the paper's method on the same pool
/// under the same clients: more is better only than that, and only where the mean of all clients is cut as
/// well.
pub fn compare_cuts(
    kinds: &[Kind],
    (from, to, klb): (&Ran, &Ran, Option<&Ran>),
    only: Option<usize>,
    paper: f64,
    why: &str,
) -> Comparison {
    let range = only.map_or(0..kinds.len(), |i| i..i + 1);
    let of = |ran: &Ran| Ran { kinds: ran.kinds[range.clone()].to_vec(), ..ran.clone() };
    let cut = |to: &Ran| cut(&kinds[range.clone()], &of(from), &of(to));
    let ours = cut(to);
    let clients = to.clients.name();
    let (to_name, from_name) = (to.method.name, from.method.name);
    let what = format!("cut by {to_name} against {from_name}, {} ({clients} clients)", ours.kind);
    let found = Comparison::number(provenance(from, to), what, (paper, NEAR), ours.percent, "%");
    if let Some(why) = overload(from, to) {
        return found.incomparable(why);
    }
    let klb =
        klb.filter(|klb| klb.method != to.method && !klb.overload && to.mean_ms < from.mean_ms);
    let place = range.start + ours.place;
    let moved = moved(&ours.kind, (&from.kinds[place], from), (&to.kinds[place], to));
    found.why(format!("{moved} {why}").trim_end()).beside(klb.map(|klb| Baseline {
        name: "KLB rebuilt".to_owned(),
        paper,
        here: cut(klb).percent,
        same: NEAR,
        better: Better::More,
    }))
}

/// What became of a type of backends and of all clients, the one beside the other.
fn moved(name: &str, (a, from): (&KindRan, &Ran), (b, to): (&KindRan, &Ran)) -> String {
    format!(
        "{name}: {:.1} % of the requests become {:.1} %, cores busy to {:.0} % become so to {:.0} %, and all \
         clients wait {:.1} ms where they waited {:.1}.",
        100.0 * a.share,
        100.0 * b.share,
        100.0 * a.utilisation,
        100.0 * b.utilisation,
        to.mean_ms,
        from.mean_ms
    )
}

/// Why nothing can be said of the two, if nothing can.
fn overload(from: &Ran, to: &Ran) -> Option<String> {
    let ran = [from, to].into_iter().find(|ran| ran.overload)?;
    Some(format!(
        "{} asks more of some backends than they can serve: with open clients the queue, and so this \
         number, grows with the time that one looks on.",
        ran.method.name
    ))
}

/// That of the less real one.
fn provenance(a: &Ran, b: &Ran) -> Provenance {
    a.provenance.max(b.provenance)
}

#[cfg(test)]
mod tests {
    use super::super::{Clients, METHODS, method};
    use super::*;
    use crate::{Cell, Verdict};

    fn ran(latencies: [Option<f64>; 3]) -> Ran {
        let kind = |latency_ms| KindRan { latency_ms, ..KindRan::default() };
        Ran {
            method: &METHODS[0],
            provenance: Provenance::Simulated,
            clients: Clients::Open,
            served_rps: 10.0,
            mean_ms: 1.0,
            error_ms: None,
            p99_ms: 2.0,
            errors: 0,
            kinds: latencies.map(kind).to_vec(),
            overload: false,
        }
    }

    fn kinds() -> Vec<Kind> {
        ["a", "b", "c"].map(|l| Kind { label: l.to_owned(), backends: vec![0] }).to_vec()
    }

    #[test]
    fn the_greatest_cut_is_that_of_the_type_which_gains_most() {
        let from = ran([Some(10.0), Some(20.0), Some(30.0)]);
        let mut to = ran([Some(9.0), Some(10.0), None]);
        to.mean_ms = 0.9;
        let most = cut(&kinds(), &from, &to);
        assert_eq!((most.kind.as_str(), most.percent), ("b", 50.0));
        let klb = Ran { method: method("KLB"), ..ran([Some(9.0), Some(10.9), Some(29.0)]) };
        let of = |to: &Ran, klb: Option<&Ran>, only, paper| {
            let mut one = compare_cuts(&kinds(), (&from, to, klb), only, paper, "so.");
            one.judge(false);
            one
        };
        let verdict = |to: &Ran, klb, only, paper| of(to, klb, only, paper).verdict();
        assert_eq!(verdict(&to, None, None, 46.0), Verdict::Agrees);
        assert_eq!(verdict(&to, None, None, 40.0), Verdict::Differs);
        assert_eq!(verdict(&to, None, Some(0), 40.0), Verdict::Differs);
        // KLB cuts 45.5 % here, near the 44 % of the paper; 50 % is no more than that beyond the tolerance, 60 % is.
        assert_eq!(verdict(&to, Some(&klb), None, 44.0), Verdict::Differs);
        let mut more = Ran { mean_ms: 0.9, ..ran([Some(9.0), Some(8.0), None]) };
        assert_eq!(verdict(&more, Some(&klb), None, 44.0), Verdict::Better);
        assert_eq!(verdict(&more, Some(&klb), None, 38.0), Verdict::Differs, "another baseline");
        // What one type gains is nothing better where all clients together lose.
        (to.mean_ms, more.mean_ms) = (1.1, 1.1);
        assert_eq!(verdict(&more, Some(&klb), None, 44.0), Verdict::Differs);
        let less = of(&to, None, None, 40.0).reason();
        assert!(less.starts_with("b: ") && less.ends_with(" so."), "{less}");
        assert!(less.contains("wait 1.1 ms where they waited 1.0"), "{less}");
        assert!(matches!(compare_means((&from, &to)).ours, Cell::Number(n) if n < -9.0));
    }

    #[test]
    fn nothing_is_claimed_of_an_overload() {
        let mut from = ran([Some(1e6); 3]);
        from.overload = true;
        let to = ran([Some(1.0); 3]);
        let mut comparison = compare_cuts(&kinds(), (&from, &to, None), None, 45.0, "");
        comparison.judge(false);
        assert_eq!(comparison.verdict(), Verdict::NotComparable);
        assert!(comparison.reason().contains("grows with the time"));
    }

    #[test]
    fn a_table_has_a_line_for_all_and_one_per_type() {
        let table = table(&kinds(), &[ran([Some(1.0), None, Some(2.0)])]).unwrap();
        assert_eq!(table.rows.len(), 4);
        assert_eq!(table.rows[2].cells[3], Cell::Empty);
    }
}
