//! `plimsoll-lab load`: puts a load on a URL and says how long clients waited.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use plimsoll_terminal::table::{Cell, Table, left, right};
use plimsoll_terminal::{Format, Screen, complain, exit, json, maybe, number, printable};
use plimsoll_testbed::load::{
    Arrivals, LoadHandle, LoadReport, LoadSpec, Pattern, Record, Summary, Target, start,
};

use crate::duration;
use crate::stop::StopSignals;

/// Runs shorter than this show no progress.
const QUIET_BELOW: Duration = Duration::from_secs(2);
/// How often a terminal sees the progress.
const ON_TERMINAL: Duration = Duration::from_secs(1);
/// How often a log file does.
const IN_LOG: Duration = Duration::from_secs(5);
/// How often to look whether the load has ended.
const TICK: Duration = Duration::from_millis(50);

/// Put a load on a URL and measure latencies from the intended start of each request.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Where to, such as http://127.0.0.1:8080/work
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// Requests per second (open loop); without it each of --concurrency clients sends its next
    /// request when the last has ended (closed loop).
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub rate: Option<f64>,
    /// How the gaps between arrivals are spread; needs --rate. Default: poisson.
    #[arg(long, value_enum, requires = "rate")]
    pub arrivals: Option<ArrivalsArg>,
    /// How long to measure, such as 10s or 2m.
    #[arg(long, value_name = "D", value_parser = duration)]
    pub duration: Duration,
    /// Load before the measured part, left out of the numbers.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "0s")]
    pub warmup: Duration,
    /// With --rate: the most connections (arrivals wait for a free one, and the wait counts). Without:
    /// the number of clients.
    #[arg(long, value_name = "C")]
    pub concurrency: Option<usize>,
    /// From the intended start; later answers are errors.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "30s")]
    pub timeout: Duration,
    /// With --rate: an arrival that finds so many unanswered requests is an error.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub max_in_flight: usize,
    /// The same seed gives the same arrivals.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The response header that names the backend.
    #[arg(long, value_name = "NAME", default_value = "x-backend")]
    pub by_header: String,
    /// The request's method.
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    pub method: String,
    /// A header of every request; may be given again.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// The body of every request.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub body: String,
    /// Write every request to this file as CSV: start_ns,latency_us,ok.
    #[arg(long, value_name = "FILE")]
    pub records: Option<PathBuf>,
    /// How to print the result.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

/// `--arrivals`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ArrivalsArg {
    /// Exponential gaps: many independent clients.
    Poisson,
    /// Equal gaps.
    Constant,
}

/// For clap: `NAME: VALUE`.
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once(':').ok_or_else(|| format!("expected NAME: VALUE, found `{text}`"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Runs a load and prints what it measured. Exits 2 when the arguments do not fit, 1 when nothing
/// could be connected.
pub async fn run(args: &Args) -> ExitCode {
    let spec = match spec(args) {
        Ok(spec) => spec,
        Err(problems) => {
            problems.iter().for_each(|problem| complain!("{problem}"));
            return ExitCode::from(exit::MALFORMED);
        }
    };
    let address = spec.target.address();
    let report = match put(spec, args).await {
        Ok(Some(report)) => report,
        Ok(None) => return ExitCode::from(exit::INTERRUPTED),
        Err(problem) => {
            complain!("{problem}");
            return ExitCode::from(exit::FAILED);
        }
    };
    // A reader that closed the pipe has seen enough.
    let _ = print(&report, args.output);
    if let Some(file) = &args.records
        && let Err(error) = write_records(file, &report.records)
    {
        complain!("{}: cannot be written: {error}", file.display());
        return ExitCode::from(exit::FAILED);
    }
    if !report.connected && report.total.requests > 0 {
        let why = report.first_error.as_deref().unwrap_or("no connection was made in time");
        complain!("{}: nothing could be connected at {address}: {}", args.url, printable(why));
        return ExitCode::from(exit::FAILED);
    }
    ExitCode::SUCCESS
}

fn spec(args: &Args) -> Result<LoadSpec, Vec<String>> {
    let target = Target::resolve(&args.url).map_err(|problem| vec![format!("--url: {problem}")])?;
    let pattern = match args.arrivals {
        Some(ArrivalsArg::Constant) => Pattern::Constant,
        Some(ArrivalsArg::Poisson) | None => Pattern::Poisson,
    };
    let arrivals = match args.rate {
        Some(rate_rps) => Arrivals::Open { pattern, rate_rps },
        None => Arrivals::Closed,
    };
    let spec = LoadSpec {
        target,
        method: args.method.clone(),
        headers: args.headers.clone(),
        body: args.body.clone().into_bytes(),
        arrivals,
        concurrency: args.concurrency,
        warmup: args.warmup,
        duration: args.duration,
        timeout: args.timeout,
        max_in_flight: args.max_in_flight,
        seed: args.seed,
        by_header: args.by_header.clone(),
        keep_records: args.records.is_some(),
        work: None,
        mix: Vec::new(),
    };
    let mut problems: Vec<String> = spec.problems().iter().map(|p| option(p)).collect();
    if args.rate == Some(0.0) {
        problems.push("--rate: expected more than 0".to_owned());
    }
    if args.rate.is_none() && args.concurrency.is_none() {
        problems = vec!["--rate (open loop) or --concurrency (closed loop) is needed".to_owned()];
    }
    if problems.is_empty() { Ok(spec) } else { Err(problems) }
}

/// A problem `key: what` under the name that the key has on the command line.
fn option(problem: &str) -> String {
    let (key, what) = problem.split_once(": ").unwrap_or(("", problem));
    format!("--{}: {what}", key.replace('_', "-"))
}

/// The report; none when a second signal asked to drop everything.
async fn put(spec: LoadSpec, args: &Args) -> Result<Option<LoadReport>, String> {
    let mut signals =
        StopSignals::listen().map_err(|error| format!("cannot wait for signals: {error}"))?;
    let whole = args.warmup + args.duration;
    let handle = start(spec).map_err(|error| error.to_string())?;
    let terminal = io::stderr().is_terminal();
    let every = if terminal { ON_TERMINAL } else { IN_LOG };
    let (mut shown, mut stopping) = (Duration::ZERO, false);
    while !handle.is_finished() {
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            () = signals.next() => {
                if stopping {
                    return Ok(None);
                }
                stopping = true;
                handle.stop();
            }
        }
        let passed = handle.started().elapsed();
        if whole > QUIET_BELOW && passed >= shown + every {
            shown = passed;
            progress(&handle, passed, whole, terminal);
        }
    }
    if terminal && !shown.is_zero() {
        // A terminal that has gone needs no line's end.
        let _ = writeln!(io::stderr());
    }
    handle.join().map(Some).map_err(|error| error.to_string())
}

fn progress(handle: &LoadHandle, passed: Duration, whole: Duration, terminal: bool) {
    let Some(report) = handle.snapshot() else { return };
    let line = format!(
        "{:.0} of {:.0} s, {} requests, {} errors, mean {} ms, p99 {} ms, {} in flight",
        passed.as_secs_f64(),
        whole.as_secs_f64(),
        report.total.requests,
        report.total.errors,
        maybe(report.total.mean_ms),
        maybe(report.total.p99_ms),
        report.in_flight
    );
    if terminal {
        // Back to the start, and whatever was longer goes.
        let _ = write!(io::stderr(), "\r{line}\x1b[K");
    } else {
        complain!("{line}");
    }
}

fn print(report: &LoadReport, format: Format) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match format {
        Format::Json => json(&mut out, report)?,
        Format::Table => out.write_all(table(report).as_bytes())?,
    }
    out.flush()
}

fn table(report: &LoadReport) -> String {
    let titles = ["REQUESTS", "ERRORS", "MEAN ms", "p50", "p90", "p99", "p99.9", "MAX"];
    let columns: Vec<_> = std::iter::once(left("BACKEND")).chain(titles.map(right)).collect();
    let mut table = Table::new(columns);
    let row = |name: &str, s: &Summary| -> Vec<Cell> {
        let times = [s.mean_ms, s.p50_ms, s.p90_ms, s.p99_ms, s.p999_ms, s.max_ms];
        let counts = [s.requests.to_string(), s.errors.to_string()];
        let texts = counts.into_iter().chain(times.map(maybe));
        std::iter::once(name.into()).chain(texts.map(Cell::from)).collect()
    };
    for (name, summary) in &report.by_backend {
        table.row(row(name, summary));
    }
    table.row(row("(all)", &report.total));
    let mut text = table.render(&Screen::stdout());
    let target = report.target_rps.map_or(String::new(), |r| format!(" of {} aimed at", number(r)));
    text.push_str(&format!(
        "\n{} answers per second{target}, over {} s\n",
        number(report.achieved_rps),
        number(report.measured_seconds)
    ));
    for (kind, count) in &report.error_kinds {
        text.push_str(&format!("errors, {}: {count}\n", format!("{kind:?}").to_lowercase()));
    }
    if let Some(why) = &report.first_error {
        text.push_str(&format!("first error: {}\n", printable(why)));
    }
    text
}

fn write_records(file: &Path, records: &[Record]) -> io::Result<()> {
    let mut out = BufWriter::new(std::fs::File::create(file)?);
    writeln!(out, "start_ns,latency_us,ok")?;
    for r in records {
        writeln!(out, "{},{},{}", r.start_ns, r.latency_us, u8::from(r.ok))?;
    }
    out.flush()
}
