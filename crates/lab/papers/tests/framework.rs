//! What holds for every experiment, shown with small ones of our own.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_lanes::Interrupt;
use plimsoll_papers::{
    Axis, Bars, Comparison, Context, Experiment, Failure, Lines, Manifest, Outcome, Paper, Plot,
    Provenance, ResultFile, Table, Tolerance, Verdict, report, run,
};

const PAPER: Paper = Paper { key: "toy", name: "Toy", citation: "Nobody, Nowhere, 2025" };

const fn toy(name: &'static str, run: fn(&Context) -> Result<Outcome, Failure>) -> Experiment {
    Experiment {
        name,
        paper: &PAPER,
        figure: "Figure 1",
        title: "A toy",
        claim: "Toys are fun.",
        provenance: &[Provenance::Simulated],
        takes: Duration::from_secs(1),
        takes_quick: Duration::from_secs(1),
        run,
    }
}

/// A table, two plots, a comparison and a note, all made from the seed.
fn whole(context: &Context) -> Result<Outcome, Failure> {
    context.progress(0.5, "half")?;
    let seed = context.seed as f64;
    let mut table = Table::new("numbers", "Numbers", &[("name", ""), ("latency_ms", "ms")]);
    table.row(Provenance::Simulated, ["a, b".into(), seed.into()]);
    table.row(Provenance::Reported, ["<theirs>".into(), 4.0.into()]);
    let line = Lines::new("ours", Provenance::Simulated, vec![(0.0, seed), (1.0, 2.0)]);
    let bars = Bars::new("ours", Provenance::Simulated, vec![Some(seed)]);
    let (x, y) = (Axis::linear("x (s)"), Axis::linear("y (ms)"));
    Ok(Outcome {
        tables: vec![table],
        plots: vec![
            Plot::lines("lines", "Lines", x, y.clone(), vec![line]),
            Plot::bars("bars", "Bars", "", y, vec!["one".into()], vec![bars]),
        ],
        comparisons: vec![
            Comparison::number(
                Provenance::Simulated,
                "latency",
                (4.0, Tolerance::Part(0.1)),
                seed,
                "ms",
            )
            .why("Another toy."),
        ],
        notes: vec!["A <note>.".into()],
    })
}

fn fails(_: &Context) -> Result<Outcome, Failure> {
    Err(Failure::Other("the toy is broken".into()))
}

/// It has a table, but a plot without a point.
fn cannot_be_drawn(context: &Context) -> Result<Outcome, Failure> {
    let empty = Lines::new("nothing", Provenance::Simulated, Vec::new());
    let (x, y) = (Axis::linear("x"), Axis::linear("y"));
    let plots = vec![Plot::lines("empty", "Empty", x, y, vec![empty])];
    Ok(Outcome { plots, ..whole(context)? })
}

fn context(seed: u64) -> Context {
    Context::new(seed, true, Interrupt::never())
}

fn names(dir: &Path) -> Vec<String> {
    let places = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        places.map(|place| place.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_result_has_all_its_files_and_reads_back() {
    let out = tempfile::tempdir().unwrap();
    let full = Context::new(7, false, Interrupt::never());
    let ran = run(&toy("toy-1", whole), &full, out.path()).unwrap();
    assert_eq!(names(out.path()), ["toy-1"]);
    let expected =
        ["README.md", "bars.svg", "lines.svg", "manifest.json", "numbers.csv", "result.json"];
    assert_eq!(names(&ran.dir), expected);
    let text = |name: &str| fs::read_to_string(ran.dir.join(name)).unwrap();
    assert_eq!(
        text("numbers.csv"),
        "name,latency_ms,provenance\n\"a, b\",7,simulated\n<theirs>,4,reported\n"
    );
    let read: ResultFile = serde_json::from_str(&text("result.json")).unwrap();
    assert_eq!(read, ran.result);
    assert_eq!(read.outcome.comparisons[0].verdict(), Verdict::Differs);
    for part in [
        "# toy-1: A toy",
        "> Toys are fun.",
        "| latency | 4 | 7 (simulated) | ms | ± 10 % | differs",
    ] {
        assert!(text("README.md").contains(part), "{part}:\n{}", text("README.md"));
    }
}

#[test]
fn a_quick_run_gets_no_verdict_however_near_it_is() {
    let out = tempfile::tempdir().unwrap();
    let ran = run(&toy("toy-1", whole), &context(4), out.path()).unwrap();
    assert_eq!(ran.result.outcome.comparisons[0].verdict(), Verdict::QuickRun);
    let text = fs::read_to_string(ran.dir.join("README.md")).unwrap();
    assert!(text.contains("| latency | 4 | 4 (simulated) | ms | ± 10 % | quick run"), "{text}");
}

#[test]
fn a_manifest_says_how_to_repeat_it() {
    let out = tempfile::tempdir().unwrap();
    let ran = run(&toy("toy-1", whole), &context(7), out.path()).unwrap();
    let text = fs::read_to_string(ran.dir.join("manifest.json")).unwrap();
    let manifest: Manifest = serde_json::from_str(&text).unwrap();
    assert_eq!(manifest.command, "plimsoll-lab run toy-1 --seed 7 --quick");
    assert_eq!((manifest.seed, manifest.quick), (7, true));
    assert_eq!(manifest.provenance, [Provenance::Simulated]);
    assert_eq!(manifest.plimsoll, env!("CARGO_PKG_VERSION"));
    assert!(manifest.rustc.is_some_and(|rustc| rustc.starts_with("rustc ")));
    assert!(manifest.started.ends_with('Z') && manifest.cores >= 1);
    match checked_out() {
        // The rest is `-dirty` or nothing.
        Some(commit) => assert!(manifest.commit.is_some_and(|c| c.starts_with(&commit))),
        None => assert_eq!(manifest.commit, None),
    }
}

/// The commit whose checkout this is; none in a source archive.
fn checked_out() -> Option<String> {
    let ask = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        Some(text.trim().to_owned())
    };
    ask(&["rev-parse", "--show-prefix"]).filter(|prefix| prefix == "crates/lab/papers/")?;
    ask(&["rev-parse", "--short=12", "HEAD"])
}

#[test]
fn a_directory_that_cannot_be_written_is_reported_before_the_experiment() {
    static BEGAN: AtomicBool = AtomicBool::new(false);
    let tells = |context: &Context| {
        BEGAN.store(true, Ordering::Relaxed);
        whole(context)
    };
    // Nothing can be made in there, not even by root; a directory without write rights stops all but root.
    let failure = run(&toy("toy-1", tells), &context(1), Path::new("/proc/self")).unwrap_err();
    assert!(failure.to_string().contains("cannot write into /proc/self"), "{failure}");
    assert!(!BEGAN.load(Ordering::Relaxed));
}

#[test]
fn the_same_seed_gives_the_same_result_and_another_replaces_it() {
    let out = tempfile::tempdir().unwrap();
    let result = |seed| {
        let ran = run(&toy("toy-1", whole), &context(seed), out.path()).unwrap();
        assert_eq!(names(out.path()), ["toy-1"]);
        fs::read(ran.dir.join("result.json")).unwrap()
    };
    let first = result(7);
    assert_eq!(result(7), first);
    assert_ne!(result(8), first);
}

#[test]
fn an_experiment_that_fails_leaves_what_was_there() {
    let out = tempfile::tempdir().unwrap();
    for broken in [fails, cannot_be_drawn] {
        assert!(run(&toy("toy-1", broken), &context(1), out.path()).is_err());
        assert_eq!(names(out.path()), Vec::<String>::new());
    }
    let before = run(&toy("toy-1", whole), &context(1), out.path()).unwrap();
    let text = fs::read(before.dir.join("result.json")).unwrap();
    for broken in [fails, cannot_be_drawn] {
        assert!(run(&toy("toy-1", broken), &context(2), out.path()).is_err());
        assert_eq!(names(out.path()), ["toy-1"]);
        assert_eq!(fs::read(before.dir.join("result.json")).unwrap(), text);
    }
}

#[test]
fn what_is_no_result_is_not_replaced() {
    let out = tempfile::tempdir().unwrap();
    fs::create_dir(out.path().join("toy-1")).unwrap();
    fs::write(out.path().join("toy-1/thesis.txt"), "years of work").unwrap();
    let failure = run(&toy("toy-1", whole), &context(1), out.path()).unwrap_err();
    assert!(failure.to_string().contains("is no result"), "{failure}");
    assert_eq!(names(&out.path().join("toy-1")), ["thesis.txt"]);
}

#[test]
fn a_report_holds_every_result_and_nothing_from_elsewhere() {
    let out = tempfile::tempdir().unwrap();
    let page = out.path().join("index.html");
    let none = report(out.path(), &page).unwrap_err();
    assert!(none.to_string().contains("no results"), "{none}");
    for name in ["toy-1", "toy-2"] {
        run(&toy(name, whole), &context(3), out.path()).unwrap();
    }
    assert_eq!(report(out.path(), &page).unwrap(), 2);
    let text = fs::read_to_string(&page).unwrap();
    for name in ["toy-1", "toy-2"] {
        assert!(text.contains(&format!("<section id=\"{name}\">")), "{name}");
        assert!(text.contains(&format!("<a href=\"#{name}\">")), "{name}");
    }
    assert_eq!(text.matches("<svg").count(), 4);
    assert!(text.contains("A &lt;note&gt;.") && text.contains("&lt;theirs&gt;"));
    for elsewhere in ["src=", "<link", "@import", "url(", "<script"] {
        assert!(!text.contains(elsewhere), "{elsewhere}");
    }
    assert_eq!(names(out.path()), ["index.html", "toy-1", "toy-2"]);
}

#[test]
fn a_damaged_result_is_named() {
    let out = tempfile::tempdir().unwrap();
    let ran = run(&toy("toy-1", whole), &context(3), out.path()).unwrap();
    fs::write(ran.dir.join("manifest.json"), "{").unwrap();
    let failure = report(out.path(), &out.path().join("index.html")).unwrap_err();
    assert!(failure.to_string().contains("toy-1/manifest.json"), "{failure}");
    assert_eq!(names(out.path()), ["toy-1"]);
}
