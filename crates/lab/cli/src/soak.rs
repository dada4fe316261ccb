//! `plimsoll-lab soak`: simulated days of faults, each determined by its seed. A run that finds a
//! violation prints the command that repeats it.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use plimsoll_sim::{Fault, Level, Mutant, Order, Rule, Tally, cores, on_cores};
use plimsoll_terminal::{answer, complain};

/// Time between two lines of progress.
const EVERY: Duration = Duration::from_secs(10);

/// Simulate the real controller among faults, by seed, and check its invariants at every step
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// One seed; its scenario is printed first
    #[arg(long, value_name = "N", required_unless_present = "seeds", conflicts_with = "seeds",
          value_parser = clap::value_parser!(u64).range(..u64::MAX))]
    seed: Option<u64>,
    /// A range of seeds, the last one excluded
    #[arg(long, value_name = "FROM..TO", value_parser = seeds)]
    seeds: Option<Range<u64>>,
    /// Simulated time per seed
    #[arg(long, value_name = "D", default_value_t = 1.0, value_parser = days)]
    days: f64,
    /// Detail: readings of the balancer only, or every request
    #[arg(long, default_value = "samples", value_name = "LEVEL",
          value_parser = one_of(&Level::NAMED))]
    level: Level,
    /// Runs in parallel; by default as many as there are cores
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// A fault to leave out; may be given again
    #[arg(long, value_name = "FAULT")]
    without: Vec<Fault>,
    /// A defect put into the controller on purpose
    #[arg(long, value_name = "NAME")]
    mutant: Option<Mutant>,
    /// A rule whose violations are ignored; may be given again
    #[arg(long, value_name = "RULE")]
    beyond: Vec<Rule>,
    /// Print everything from this second on
    #[arg(long, value_name = "FROM_SECOND")]
    trace: Option<f64>,
}

/// For clap: `FROM..TO`.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range =
        text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range
        .filter(|range| !range.is_empty())
        .ok_or_else(|| "expected FROM..TO, FROM less than TO".to_owned())
}

/// For clap: a duration above 0.
fn days(text: &str) -> Result<f64, String> {
    let days = text.parse().ok().filter(|days: &f64| *days > 0.0 && days.is_finite());
    days.ok_or_else(|| "expected a number of days, more than 0".to_owned())
}

/// For clap: one of these, by its name.
fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|(name, _)| *name)).try_map(|found: String| {
        let one = all.iter().find(|(name, _)| *name == found);
        one.map(|(_, one)| *one).ok_or("not listed")
    })
}

impl Args {
    fn seeds(&self) -> Range<u64> {
        match (&self.seeds, self.seed) {
            (Some(seeds), _) => seeds.clone(),
            (None, seed) => seed.map_or(0..0, |seed| seed..seed + 1),
        }
    }

    fn order(&self, seed: u64) -> Order {
        Order {
            level: self.level,
            without: self.without.clone(),
            mutant: self.mutant,
            beyond: self.beyond.clone(),
            trace_from: self.trace,
            ..Order::days(seed, self.days)
        }
    }
}

/// The results of the runs so far.
#[derive(Default)]
struct Totals {
    tally: Tally,
    runs: u64,
    violations: u64,
    last_progress: Duration,
}

/// Runs all seeds. Exits 1 when one of them finds a violation.
pub fn run(args: &Args) -> ExitCode {
    let seeds = args.seeds();
    if seeds.end - seeds.start == 1 {
        say(&args.order(seeds.start).scenario().to_string());
    }
    let began = Instant::now();
    let totals = soak(args, &seeds, began);
    let Tally { steps, plans, faults, digest, .. } = totals.tally;
    let code = answer(&format!(
        "{} runs of {:.2} days: {steps} steps, {plans} plans, {faults} faults, {} violations, \
         {:.0} s; digest {digest}\n",
        totals.runs,
        args.days,
        totals.violations,
        began.elapsed().as_secs_f64()
    ));
    if totals.violations == 0 { code } else { ExitCode::FAILURE }
}

fn soak(args: &Args, seeds: &Range<u64>, began: Instant) -> Totals {
    let threads = args.threads.map_or_else(cores, NonZeroUsize::get);
    let totals = Mutex::new(Totals::default());
    on_cores(threads, seeds.clone(), |seed| {
        let result = args.order(seed).run();
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.runs += 1;
        match result {
            Ok(tally) => totals.tally = totals.tally + tally,
            Err(failure) => {
                totals.violations += 1;
                say(&format!("\nseed {seed}: {failure}\n"));
            }
        }
        totals.print_progress(seeds, began.elapsed());
    });
    totals.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Totals {
    /// Prints progress at intervals of [`EVERY`].
    fn print_progress(&mut self, seeds: &Range<u64>, passed: Duration) {
        if passed >= self.last_progress + EVERY {
            self.last_progress = passed;
            let (of, seconds) = (seeds.end - seeds.start, passed.as_secs());
            complain!("{} of {of} runs, {} violations, {seconds} s", self.runs, self.violations);
        }
    }
}

/// Writes to standard output. If that fails, so does the last line, which reports it.
fn say(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn read(line: &str) -> Result<Args, String> {
        let words = std::iter::once("soak").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args).map_err(|error| error.to_string())
    }

    #[test]
    fn printed_command_repeats_the_run() {
        for (_, level) in Level::NAMED {
            for mutant in Mutant::ALL.into_iter().map(Some).chain([None]) {
                let order = Order {
                    level,
                    mutant,
                    without: Fault::ALL.to_vec(),
                    beyond: Rule::ALL.to_vec(),
                    ..Order::days(93, 0.05)
                };
                let line = order.command();
                let again = read(line.strip_prefix("plimsoll-lab soak ").expect("its name"));
                let again = again.expect("it is read");
                assert_eq!(again.seeds(), 93..94);
                let again = again.order(93);
                assert!((again.seconds / order.seconds - 1.0).abs() < 1e-12);
                let seconds = order.seconds;
                assert_eq!(Order { seconds, ..again }, order);
            }
        }
    }

    #[test]
    fn invalid_arguments_are_refused_with_what_was_expected() {
        for (line, why) in [
            ("", "--seed <N>"),
            ("--seed", "--seed <N>"),
            ("--seed 18446744073709551615", "--seed <N>"),
            ("--seed 1 --seeds 1..2", "cannot be used with"),
            ("--seeds 9..3", "expected FROM..TO, FROM less than TO"),
            ("--seed 1 --days 0", "expected a number of days, more than 0"),
            ("--seed 1 --level both", "samples, requests"),
            ("--seed 1 --without rain", "crash-store-lost"),
        ] {
            let said = read(line).expect_err(line);
            assert!(said.contains(why), "{line}: {said}");
        }
        assert_eq!(read("--seeds 3..5").expect("two seeds").seeds(), 3..5);
    }
}
