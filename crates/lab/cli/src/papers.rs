//! `plimsoll-lab list`, `run` and `report`: the experiments of the papers, each from one command.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use plimsoll_lanes::{Interrupt, raise_descriptor_limit, twice};
use plimsoll_papers::{
    Context, Experiment, Failure, Missing, Options, Provenance, Ran, ServerPool, edge_live, haproxy,
};
use plimsoll_terminal::table::{self, Table, left};
use plimsoll_terminal::{Format, Screen, Tone, complain, exit, fail, json, written};
use serde::Serialize;

mod show;

/// Experiments that last no longer than this are not worth a word while they run.
const SILENT: Duration = Duration::from_secs(2);
/// Between two words.
const EVERY: Duration = Duration::from_secs(1);
/// The same where every word stays on the screen.
const EVERY_LINE: Duration = Duration::from_secs(10);

/// List the experiments of the papers
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// How to answer
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

/// Run experiments of the papers: CSV, plots, and their numbers beside ours
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Names, as `plimsoll-lab list` shows them
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "paper"])]
    names: Vec<String>,
    /// All experiments
    #[arg(long, conflicts_with_all = ["names", "paper"])]
    all: bool,
    /// All experiments of this paper
    #[arg(long, value_name = "PAPER", conflicts_with = "names")]
    paper: Option<String>,
    /// Where results go, each into a directory of its name
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// Show within seconds that it works; the numbers get no verdict
    #[arg(long)]
    quick: bool,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What serves, where the HAProxy study's experiments have a choice: emulated servers, the lab's own in control
    /// groups, or WordPress; the last two need root
    #[arg(long, value_enum, value_name = "POOL,…", value_delimiter = ',')]
    pool: Vec<ServerPool>,
    /// The WordPress site of `--pool wordpress`: made where the directory is empty or not there
    #[arg(long, value_name = "DIR")]
    site: Option<PathBuf>,
    /// How long each lane of these experiments is measured
    #[arg(long, value_name = "D", value_parser = super::duration)]
    lane: Option<Duration>,
    /// Parts of the servers' capacity that clients ask for, where an experiment of that study has them
    #[arg(long, value_name = "PART,…", value_delimiter = ',')]
    loads: Vec<f64>,
    /// Rates at which clients ask, in tasks per 60 s of that study, where an experiment of it has them
    #[arg(long, value_name = "RATE,…", value_delimiter = ',')]
    tasks: Vec<f64>,
    /// How often everything is run, where an experiment of that study repeats it: more decide more
    #[arg(long, value_name = "N")]
    repetitions: Option<u32>,
    /// Cores of each server, where an experiment of that study has a choice, such as 2,2,4; for real servers and
    /// WordPress the proportions in which they share the machine's
    #[arg(long, value_name = "CORES,…", value_delimiter = ',')]
    sizes: Vec<u32>,
    /// How long live experiments of network functions measure each point; their own choice by default
    #[arg(long, value_name = "D", value_parser = super::duration)]
    window: Option<Duration>,
    /// How to answer
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

impl RunArgs {
    fn options(&self) -> Options {
        let sorted = |values: &[f64]| {
            let mut values = values.to_vec();
            values.sort_by(f64::total_cmp);
            values
        };
        Options {
            pools: self.pool.clone(),
            site: self.site.clone(),
            lane: self.lane,
            loads: sorted(&self.loads),
            tasks: sorted(&self.tasks),
            repetitions: self.repetitions,
            sizes: self.sizes.clone(),
            window: self.window,
        }
    }

    /// Those of them that this experiment has.
    fn options_of(&self, name: &str) -> Options {
        let mut all = self.options();
        let lacks = |names: &[&str]| !names.contains(&name);
        if lacks(haproxy::WITH_OPTIONS) {
            (all.pools, all.site, all.lane) = (Vec::new(), None, None);
        }
        if lacks(haproxy::WITH_LOADS) {
            all.loads.clear();
        }
        if lacks(haproxy::WITH_TASKS) {
            all.tasks.clear();
        }
        if lacks(haproxy::WITH_REPETITIONS) {
            all.repetitions = None;
        }
        if lacks(haproxy::WITH_SIZES) {
            all.sizes.clear();
        }
        if lacks(edge_live::WITH_WINDOW) {
            all.window = None;
        }
        all
    }
}

/// Put all results into one page
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Where `plimsoll-lab run` has put them
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    from: PathBuf,
    /// The page; DIR/index.html by default
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// One experiment in `list -o json`, or one that is missing.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    paper: &'a str,
    figure: &'a str,
    title: &'a str,
    claim: Option<&'a str>,
    provenance: &'a [Provenance],
    seconds: Option<f64>,
    quick_seconds: Option<f64>,
    /// Why there is none; it can be run where this is `null`.
    missing: Option<&'a str>,
}

/// Prints the experiments.
pub fn list(args: &ListArgs) -> ExitCode {
    let (all, missing) = (plimsoll_papers::experiments(), plimsoll_papers::missing());
    answer(|out| match args.output {
        Format::Json => {
            let missing = missing.iter().map(|one| absent(one));
            json(out, &all.iter().map(|e| listed(e)).chain(missing).collect::<Vec<_>>())
        }
        Format::Table => {
            let columns = ["NAME", "FIGURE", "PROVENANCE", "TAKES", "QUICK", "WHAT"].map(left);
            let mut rows = Table::new(columns);
            for e in &all {
                let takes = [e.takes, e.takes_quick].map(duration);
                let [full, quick] = takes;
                rows.row(
                    [e.name, e.figure, &provenance(e), &full, &quick, e.title]
                        .map(table::Cell::from),
                );
            }
            for one in &missing {
                let what = format!("{}. {}", one.title, one.why);
                rows.row([one.name, one.figure, "missing", "", "", &what].map(table::Cell::from));
            }
            out.write_all(rows.render(&Screen::stdout()).as_bytes())
        }
    })
}

fn listed<'a>(e: &'a Experiment) -> Listed<'a> {
    Listed {
        name: e.name,
        paper: e.paper.name,
        figure: e.figure,
        title: e.title,
        claim: Some(e.claim),
        provenance: e.provenance,
        seconds: Some(e.takes.as_secs_f64()),
        quick_seconds: Some(e.takes_quick.as_secs_f64()),
        missing: None,
    }
}

fn absent(one: &Missing) -> Listed<'static> {
    Listed {
        name: one.name,
        paper: one.paper.name,
        figure: one.figure,
        title: one.title,
        claim: None,
        provenance: &[],
        seconds: None,
        quick_seconds: None,
        missing: Some(one.why),
    }
}

fn provenance(e: &Experiment) -> String {
    let names: Vec<&str> = e.provenance.iter().map(|p| p.name()).collect();
    names.join(", ")
}

fn duration(takes: Duration) -> String {
    match takes.as_secs() {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

/// Runs the experiments one after another. Exits 2 when a name is unknown, 1 when one fails (the others
/// still run), 130 when interrupted.
pub fn run(args: &RunArgs) -> ExitCode {
    let chosen = match chosen(args) {
        Ok(chosen) => chosen,
        Err(problems) => {
            problems.iter().for_each(|problem| complain!("plimsoll-lab: {problem}"));
            return ExitCode::from(exit::MALFORMED);
        }
    };
    let interrupt = match Interrupt::listen() {
        Ok(interrupt) => interrupt,
        Err(error) => return fail(&error.to_string()),
    };
    raise_descriptor_limit();
    let mut ran = Vec::new();
    let mut failed = false;
    for experiment in chosen {
        let context = Context::new(args.seed, args.quick, interrupt.clone());
        let context = context.with(args.options_of(experiment.name)).keeping_cells(&args.out);
        let (tell, done) = reporter(experiment.name);
        let result = plimsoll_papers::run(experiment, &context.telling(tell), &args.out);
        done();
        match result {
            Ok(one) => {
                if args.output == Format::Table {
                    let code = answer(|out| out.write_all(show::text(&one).as_bytes()));
                    if code != ExitCode::SUCCESS {
                        return code;
                    }
                }
                ran.push(one);
            }
            Err(Failure::Interrupted) => return ExitCode::from(exit::INTERRUPTED),
            Err(error) => {
                complain!("plimsoll-lab: {}: {error}", experiment.name);
                failed = true;
            }
        }
    }
    if args.output == Format::Json {
        let code = answer(|out| json(out, &ran.iter().map(document).collect::<Vec<_>>()));
        if code != ExitCode::SUCCESS {
            return code;
        }
    }
    if failed { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS }
}

fn document(ran: &Ran) -> serde_json::Value {
    serde_json::json!({
        "experiment": ran.result.experiment,
        "outcome": ran.result.outcome,
        "manifest": ran.manifest,
        "dir": ran.dir,
    })
}

/// The experiments asked for, or everything that is wrong with the wish.
fn chosen(args: &RunArgs) -> Result<Vec<&'static Experiment>, Vec<String>> {
    let found = by_name(args)?;
    let options = args.options();
    let mut problems = twice("--pool", &options.pools, |pool| pool.name());
    problems.extend(twice("--loads", &options.loads, |load| *load));
    problems.extend(twice("--tasks", &options.tasks, |tasks| *tasks));
    problems.extend(options.problems().into_iter().map(str::to_owned));
    for (is_given, option, names) in [
        (!options.pools.is_empty(), "--pool", haproxy::WITH_OPTIONS),
        (options.site.is_some(), "--site", haproxy::WITH_OPTIONS),
        (options.lane.is_some(), "--lane", haproxy::WITH_OPTIONS),
        (!options.loads.is_empty(), "--loads", haproxy::WITH_LOADS),
        (!options.tasks.is_empty(), "--tasks", haproxy::WITH_TASKS),
        (options.repetitions.is_some(), "--repetitions", haproxy::WITH_REPETITIONS),
        (!options.sizes.is_empty(), "--sizes", haproxy::WITH_SIZES),
        (options.window.is_some(), "--window", edge_live::WITH_WINDOW),
    ] {
        let without = found.iter().map(|e| e.name).filter(|name| !names.contains(name));
        let without: Vec<&str> = without.collect();
        // With `--paper` or `--all`, those that have the option take it; a named experiment must have it.
        let is_wrong =
            if args.names.is_empty() { without.len() == found.len() } else { !without.is_empty() };
        if is_given && is_wrong {
            let (only, without) = (names.join(", "), without.join(", "));
            problems.push(format!("{option} is for {only}; not for {without}"));
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// The experiments of these names, this paper, or all.
fn by_name(args: &RunArgs) -> Result<Vec<&'static Experiment>, Vec<String>> {
    let all = plimsoll_papers::experiments();
    if args.all {
        return Ok(all);
    }
    if let Some(key) = &args.paper {
        let of_it: Vec<_> = all.into_iter().filter(|e| e.paper.key == key).collect();
        let keys: Vec<&str> = plimsoll_papers::papers().iter().map(|p| p.key).collect();
        let unknown = || vec![format!("no paper is called {key:?}; there is {}", keys.join(", "))];
        return if of_it.is_empty() { Err(unknown()) } else { Ok(of_it) };
    }
    let mut found: Vec<&'static Experiment> = Vec::new();
    let mut problems = Vec::new();
    for name in &args.names {
        match plimsoll_papers::find(name) {
            Some(e) if found.iter().all(|f| f.name != e.name) => found.push(e),
            Some(_) => problems.push(format!("{name} twice")),
            None => problems.push(unknown(name)),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

fn unknown(name: &str) -> String {
    if let Some(missing) = plimsoll_papers::find_missing(name) {
        return format!("{name} ({}) is missing: {}", missing.figure, missing.why);
    }
    let near = plimsoll_papers::near_names(name);
    if near.is_empty() {
        return format!("no experiment is called {name:?}; `plimsoll-lab list` shows all");
    }
    format!("no experiment is called {name:?}; did you mean {}?", near.join(", "))
}

/// Tells on standard error how far a run is, from two seconds on; and what to do at its end.
fn reporter(name: &'static str) -> (impl Fn(f64, &str) + Send + Sync, impl Fn()) {
    let begun = Instant::now();
    let terminal = io::stderr().is_terminal();
    let last: Mutex<Option<Instant>> = Mutex::new(None);
    let every = if terminal { EVERY } else { EVERY_LINE };
    let tell = move |done: f64, what: &str| {
        // Another thread that is telling something now tells enough.
        let Ok(mut last) = last.try_lock() else { return };
        if begun.elapsed() < SILENT || last.is_some_and(|at| at.elapsed() < every) {
            return;
        }
        *last = Some(Instant::now());
        let (lead, end) = if terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let text = format!("{lead}{name}: {:.0} %, {what}{end}", done * 100.0);
        // Nobody reads it: the run goes on.
        let _ = io::stderr().write_all(text.as_bytes());
    };
    let finish = move || {
        if terminal && begun.elapsed() >= SILENT {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    };
    (tell, finish)
}

/// Writes one page of all results, and says where it is.
pub fn report(args: &ReportArgs) -> ExitCode {
    let page = args.out.clone().unwrap_or_else(|| args.from.join("index.html"));
    match plimsoll_papers::report(&args.from, &page) {
        Ok(count) => answer(|out| writeln!(out, "{count} results: {}", page.display())),
        Err(error) => fail(&error.to_string()),
    }
}

/// Writes to standard output.
fn answer(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> ExitCode {
    let mut out = io::stdout().lock();
    written(write(&mut out).and_then(|()| out.flush()))
}

/// How a verdict looks.
fn tone(verdict: plimsoll_papers::Verdict) -> Tone {
    use plimsoll_papers::Verdict;
    match verdict {
        Verdict::Agrees | Verdict::Better | Verdict::Reached => Tone::Good,
        Verdict::Differs | Verdict::Missed => Tone::Warn,
        Verdict::Fitted | Verdict::NotComparable | Verdict::QuickRun => Tone::Quiet,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RunArgs,
    }

    fn read(words: &[&str]) -> Result<RunArgs, clap::Error> {
        Line::try_parse_from(["run"].iter().chain(words)).map(|line| line.args)
    }

    #[test]
    fn names_a_paper_or_all_choose_experiments() {
        let names = |words: &[&str]| -> Vec<&str> {
            chosen(&read(words).unwrap()).unwrap().iter().map(|e| e.name).collect()
        };
        assert_eq!(names(&["knapsack-fig8"]), ["knapsack-fig8"]);
        assert_eq!(names(&["--all"]).len(), plimsoll_papers::experiments().len());
        assert!(names(&["--paper", "knapsack"]).iter().all(|name| name.starts_with("knapsack-")));
        for wrong in [&[][..], &["--all", "knapsack-fig8"], &["--paper", "x", "--all"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn options_that_do_not_fit_are_named_all_at_once() {
        let problems = |words: &[&str]| chosen(&read(words).unwrap()).err().unwrap_or_default();
        assert_eq!(
            problems(&["haproxy-fig7", "--pool", "real,emulated", "--lane", "10s"]),
            [""; 0]
        );
        let site = ["haproxy-fig8", "--pool", "wordpress", "--site", "/srv/study"];
        assert_eq!(problems(&site), [""; 0]);
        let all = problems(&["knapsack-fig8", "--pool", "wordpress", "--lane", "10ms"]);
        assert_eq!(all.len(), 4, "{all:?}");
        let mixed = problems(&["haproxy-fig7", "haproxy-fig6", "--lane", "10s"]);
        assert!(mixed.len() == 1 && mixed[0].ends_with("not for haproxy-fig6"), "{mixed:?}");
        assert_eq!(problems(&["--paper", "haproxy", "--lane", "10s"]), [""; 0]);
        assert_eq!(problems(&["edge-fig3-live", "--window", "10s"]), [""; 0]);
        assert!(problems(&["edge-fig3", "--window", "10s"])[0].contains("edge-fig3-live"));
        assert_eq!(problems(&["haproxy-plimsoll", "--loads", "0.7,0.85"]), [""; 0]);
        let all = problems(&["haproxy-fig7", "--loads", "0.7,85,0.7"]);
        assert_eq!(all.len(), 3, "{all:?}");
        let rates = ["haproxy-fig7", "haproxy-cpu", "--tasks", "10000,60000", "--repetitions", "8"];
        assert_eq!(problems(&rates), [""; 0]);
        let all = problems(&["haproxy-plimsoll", "--tasks", "9,9", "--repetitions", "1"]);
        assert_eq!(all.len(), 5, "{all:?}");
        assert_eq!(problems(&["haproxy-deadline", "--loads", "1.4"]), [""; 0]);
        assert!(problems(&["edge-fig3-live", "--lane", "10s"])[0].contains("haproxy-fig7"));
        assert_eq!(problems(&["knapsack-fig8", "knapsack-fig8"]), ["knapsack-fig8 twice"]);
        let pools = ["haproxy-fig7", "--pool", "real,emulated,real"];
        assert_eq!(problems(&pools), ["--pool: real twice"]);
        assert!(problems(&["haproxy-fig7", "--site", "/x"])[0].contains("--pool wordpress"));
        assert!(read(&["haproxy-fig7", "--pool", "imaginary"]).is_err());
    }

    #[test]
    fn each_experiment_is_run_with_the_options_that_it_has() {
        let words = ["--paper", "haproxy", "--tasks", "60000,20000", "--loads", "0.7", "--lane"];
        let args = read(&[&words[..], &["9s", "--repetitions", "5"]].concat()).unwrap();
        let all = args.options();
        assert_eq!(all.tasks, [20_000.0, 60_000.0]);
        let none = Options::default();
        let figure = Options { loads: Vec::new(), ..all.clone() };
        assert_eq!(args.options_of("haproxy-fig7"), figure);
        assert_eq!(args.options_of("haproxy-plimsoll").repetitions, None);
        assert_eq!(args.options_of("haproxy-deadline"), Options { tasks: Vec::new(), ..all });
        assert_eq!(args.options_of("haproxy-picks"), none);
    }

    #[test]
    fn every_unknown_name_is_answered() {
        let problems = chosen(&read(&["knapsack-fig88", "qwertyuiop"]).unwrap()).unwrap_err();
        assert_eq!(problems.len(), 2);
        assert!(problems[0].contains("did you mean knapsack-fig8"), "{}", problems[0]);
        assert!(problems[1].contains("plimsoll-lab list"), "{}", problems[1]);
        let problems = chosen(&read(&["knapsack-fig18"]).unwrap()).unwrap_err();
        assert!(problems[0].contains("knapsack-fig18 (Figure 18) is missing: "), "{}", problems[0]);
        let problems = chosen(&read(&["--paper", "knapsacks"]).unwrap()).unwrap_err();
        assert_eq!(
            problems,
            ["no paper is called \"knapsacks\"; there is knapsack, bloc, cheetah, haproxy, edge"]
        );
    }
}
