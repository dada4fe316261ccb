//! `plimsoll-lab pool`: balancing methods measured against each other on one emulated pool.
//!
//! Every lane is started once. Lanes that learn do so first, from nothing and under load; then all take
//! turns in rounds, a few at a time, so that a slow minute of the machine falls on none alone. Between
//! its turns a lane's clients pause and its daemon rests; the next one begins with what that one learned.

mod overhead;
mod report;
mod rounds;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use plimsoll_sim::{paper_pool, small_pool};
use plimsoll_terminal::{Format, Screen, complain, exit, fail, json};

use crate::duration;
use plimsoll_lanes::{
    Distribution, Interrupt, LaneError, LaneKind, Pool, plimsoll, raise_descriptor_limit, twice,
};
use report::Report;
use rounds::Bench;

/// Measure balancing methods against each other on one emulated pool, behind real HAProxys.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The part of the pool's capacity that clients ask for.
    #[arg(long, value_name = "PART", default_value_t = 0.7, value_parser = load)]
    pub load: f64,
    /// The balancers, one lane each.
    #[arg(
        long,
        value_enum,
        value_name = "LANE,…",
        value_delimiter = ',',
        default_value = "roundrobin,leastconn,static-oracle,plimsoll-roundrobin,plimsoll-leastconn"
    )]
    pub lanes: Vec<LaneKind>,
    /// The backends.
    #[arg(long, value_enum, default_value_t = PoolArg::Paper)]
    pub pool: PoolArg,
    /// What the mean request takes on a core of speed 1.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "30ms")]
    pub service: Duration,
    /// How that scatters.
    #[arg(long, value_enum, default_value_t = Distribution::Exponential)]
    pub distribution: Distribution,
    /// How long lanes with Plimsoll learn, from nothing and under load, before anything is measured.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "180s")]
    pub learn: Duration,
    /// Load at the beginning of each turn that is left out of the numbers.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "10s")]
    pub warmup: Duration,
    /// How long each lane is measured in each round.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "60s")]
    pub measure: Duration,
    /// How often each lane has its turn.
    #[arg(long, value_name = "R", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seed of the speeds of --pool paper, of arrivals and of service times.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// How many lanes run at the same time.
    #[arg(long, value_name = "K", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub concurrent: u32,
    /// Write result.json, lanes.csv, series.csv and the events of each Plimsoll here.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How to print the result.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// `--pool`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PoolArg {
    /// The 30 backends of the KnapsackLB paper: 16 of one core, 8 of two, 4 of four, 2 of eight, speeds
    /// spread by ±40 %.
    Paper,
    /// The six backends of `plimsoll-lab demo`.
    Small,
}

/// For clap: a part of the capacity.
fn load(text: &str) -> Result<f64, String> {
    let within = |part: &f64| *part > 0.0 && *part < 1.0;
    let part = text.parse().ok().filter(within);
    part.ok_or_else(|| format!("expected a number between 0 and 1, such as 0.7, found `{text}`"))
}

/// Runs the benchmark and prints what it measured. Exits 2 when the arguments do not fit, 1 when it
/// cannot run, 130 when it was interrupted.
pub fn run(args: &Args) -> ExitCode {
    let problems = problems(args);
    if !problems.is_empty() {
        problems.iter().for_each(|problem| complain!("{problem}"));
        return ExitCode::from(exit::MALFORMED);
    }
    let report = match measure(args) {
        Ok(Some(report)) => report,
        Ok(None) => return ExitCode::from(exit::INTERRUPTED),
        Err(error) => return fail(&error.to_string()),
    };
    if let Some(dir) = &args.out
        && let Err(error) = write_files(dir, &report)
    {
        return fail(&format!("{}: cannot be written: {error}", dir.display()));
    }
    let mut out = io::stdout().lock();
    let written = match args.output {
        Format::Json => json(&mut out, &report),
        Format::Table => out.write_all(report.text(&Screen::stdout()).as_bytes()),
    };
    plimsoll_terminal::written(written.and_then(|()| out.flush()))
}

fn problems(args: &Args) -> Vec<String> {
    let mut found = twice("--lanes", &args.lanes, |lane| lane.name());
    if args.measure.is_zero() {
        found.push("--measure: expected more than zero".to_owned());
    }
    if args.service.is_zero() {
        found.push("--service: expected more than zero".to_owned());
    }
    found
}

/// Everything but the words; nothing when it was interrupted.
fn measure(args: &Args) -> Result<Option<Report>, LaneError> {
    let interrupt = Interrupt::listen()?;
    raise_descriptor_limit();
    // Found out now rather than after half an hour.
    if args.lanes.iter().any(|kind| kind.is_steered()) {
        plimsoll()?;
    }
    if let Some(dir) = &args.out {
        std::fs::create_dir_all(dir)
            .map_err(LaneError::system(format!("make {}", dir.display())))?;
    }
    let models = match args.pool {
        PoolArg::Paper => paper_pool(args.seed),
        PoolArg::Small => small_pool(),
    };
    let pool = Pool::new(&models, args.service, args.distribution, args.load, args.seed);
    let overhead = overhead::measure(&pool, args.concurrent as usize, &interrupt)?;
    let Some(overhead) = overhead else { return Ok(None) };
    let ran = Bench::new(args, &pool, interrupt)?.run()?;
    Ok(ran.map(|ran| Report::new(args, &pool, &ran, overhead)))
}

fn write_files(dir: &Path, report: &Report) -> io::Result<()> {
    let mut text = Vec::new();
    json(&mut text, report)?;
    std::fs::write(dir.join("result.json"), text)?;
    std::fs::write(dir.join("lanes.csv"), report.lanes_csv())?;
    std::fs::write(dir.join("series.csv"), report.series_csv())?;
    for (name, events) in report.events() {
        let mut text = Vec::new();
        json(&mut text, &events)?;
        std::fs::write(dir.join(format!("events-{name}.json")), text)?;
    }
    Ok(())
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

    fn read(words: &[&str]) -> Result<Args, clap::Error> {
        Line::try_parse_from(["pool"].iter().chain(words)).map(|line| line.args)
    }

    #[test]
    fn lanes_come_as_a_list_and_only_once() {
        let args = read(&["--lanes", "random2,knapsack-literal"]).unwrap();
        assert_eq!(args.lanes, [LaneKind::Random2, LaneKind::KnapsackLiteral]);
        assert_eq!(problems(&args), Vec::<String>::new());
        assert_eq!(read(&[]).unwrap().lanes.len(), 5);
        let args = read(&["--lanes", "random2,leastconn,random2", "--measure", "0s"]).unwrap();
        assert_eq!(
            problems(&args),
            ["--lanes: random2 twice", "--measure: expected more than zero"]
        );
        assert!(read(&["--lanes", "fastest"]).is_err());
    }

    #[test]
    fn a_load_is_a_part_of_the_capacity() {
        assert_eq!(read(&["--load", "0.85"]).unwrap().load, 0.85);
        for wrong in ["0", "1", "85", "NaN", "x"] {
            assert!(read(&["--load", wrong]).is_err(), "{wrong}");
        }
    }
}
