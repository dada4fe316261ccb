//! `plimsoll-lab peers`: balancers of several makes on one emulated pool, alone and as several that do not know of each
//! other.
//!
//! A cell is a make, a number of balancers and a load. Each has a pool, balancers and clients of its own, and runs alone;
//! rounds go through all cells, so that a slow minute of the machine falls on none alone. With `--out` each cell is written
//! when it is done, and a run that was interrupted goes on where it was.

mod cell;
mod report;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use plimsoll_lanes::{
    Distribution, Interrupt, LaneError, Peer, Pool, find_envoy, raise_descriptor_limit, twice,
};
use plimsoll_sim::{paper_pool, small_pool};
use plimsoll_terminal::{Format, Screen, complain, exit, fail, json};

use crate::duration;
use crate::pool::PoolArg;
use cell::{Cell, Place, Versions};
use report::Report;

/// Compare Plimsoll's proxy, HAProxy, Envoy and HAProxy under Plimsoll's weights on one emulated pool.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The balancer.
    #[arg(
        long,
        value_enum,
        value_name = "PEER,…",
        value_delimiter = ',',
        default_value = "envoy-least-request,envoy-adaptive,haproxy-leastconn,haproxy-plimsoll,peak-ewma,\
                         prequal,bloc,expected-delay,expected-delay-refusals,expected-delay-probes"
    )]
    pub peers: Vec<Peer>,
    /// How many balancers, which do not know of each other, share the clients.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,10",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub balancers: Vec<u32>,
    /// Parts of the pool's capacity that clients ask for.
    #[arg(long, value_name = "PART,…", value_delimiter = ',', default_value = "0.7,0.85,1.2",
          value_parser = load)]
    pub loads: Vec<f64>,
    /// The backends.
    #[arg(long, value_enum, default_value_t = PoolArg::Paper)]
    pub pool: PoolArg,
    /// What the mean request takes on a core of speed 1.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "150ms")]
    pub service: Duration,
    /// How that scatters.
    #[arg(long, value_enum, default_value_t = Distribution::Exponential)]
    pub distribution: Distribution,
    /// How long each cell is measured in each round.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "90s")]
    pub seconds: Duration,
    /// Load before that, left out of the numbers.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "20s")]
    pub warmup: Duration,
    /// Before that, for those that learn the pool by themselves, from nothing: at 85 % of the capacity where the load is above.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "120s")]
    pub learn: Duration,
    /// How often each cell is measured, each time with other arrivals, the same for all.
    #[arg(long, value_name = "R", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// The one that others are compared with, round by round.
    #[arg(long, value_enum, value_name = "PEER")]
    pub against: Option<Peer>,
    /// Seed of the speeds of --pool paper, of arrivals and of service times.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Envoy's program; by default `envoy` in PATH.
    #[arg(long, value_name = "PATH")]
    pub envoy: Option<PathBuf>,
    /// Write each cell, and result.json and result.txt, here; cells that the same commit has put there are not run again.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How to print the result.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// For clap: a part of the capacity, of an overload as well.
fn load(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part: &f64| *part > 0.0 && *part <= 3.0);
    part.ok_or_else(|| {
        format!("expected a number above 0 and up to 3, such as 0.85, found `{text}`")
    })
}

/// Runs all cells and prints the table. Exits 2 when the arguments do not fit, 1 when it cannot run, 130 when it was
/// interrupted.
pub fn run(args: &Args) -> ExitCode {
    let problems = problems(args);
    if !problems.is_empty() {
        problems.iter().for_each(|problem| complain!("{problem}"));
        return ExitCode::from(exit::MALFORMED);
    }
    let envoy = find_envoy(args.envoy.as_deref());
    let is_here = |peer: &&Peer| match peer.missing(envoy.as_deref()) {
        Some(why) => {
            complain!("skipped: {}: {why}", peer.name());
            false
        }
        None => true,
    };
    let peers: Vec<Peer> = args.peers.iter().filter(is_here).copied().collect();
    if peers.is_empty() {
        return fail("nothing is left to compare");
    }
    if let Some(other) = args.against.filter(|other| !peers.contains(other)) {
        return fail(&format!("--against {}: it cannot run here", other.name()));
    }
    let report = match measure(args, &peers, envoy.as_deref()) {
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
    let mut found = twice("--peers", &args.peers, |peer| peer.name());
    found.extend(twice("--balancers", &args.balancers, |count| *count));
    found.extend(twice("--loads", &args.loads, |load| *load));
    if let Some(other) = args.against.filter(|other| !args.peers.contains(other)) {
        found.push(format!("--against {}: expected one of --peers", other.name()));
    }
    if args.seconds.is_zero() || args.service.is_zero() {
        found.push("--seconds and --service: expected more than zero".to_owned());
    }
    found
}

fn write_files(dir: &Path, report: &Report) -> io::Result<()> {
    let mut text = Vec::new();
    json(&mut text, report)?;
    std::fs::write(dir.join("result.json"), text)?;
    std::fs::write(dir.join("result.txt"), report.text(&Screen::PLAIN))
}

/// The pool under this load, in this round.
fn pool(args: &Args, load: f64, round: u32) -> Pool {
    let models = match args.pool {
        PoolArg::Paper => paper_pool(args.seed),
        PoolArg::Small => small_pool(),
    };
    let seed = args.seed.wrapping_mul(1_000).wrapping_add(u64::from(round));
    Pool::new(&models, args.service, args.distribution, load, seed)
}

/// Nothing when it was interrupted.
fn measure(args: &Args, peers: &[Peer], envoy: Option<&Path>) -> Result<Option<Report>, LaneError> {
    let interrupt = Interrupt::listen()?;
    raise_descriptor_limit();
    let cells_dir = args.out.as_ref().map(|dir| dir.join("cells"));
    if let Some(dir) = &cells_dir {
        std::fs::create_dir_all(dir)
            .map_err(LaneError::system(format!("make {}", dir.display())))?;
    }
    let mut places = Vec::new();
    for round in 1..=args.rounds {
        for &load in &args.loads {
            for &balancers in &args.balancers {
                places.extend(peers.iter().map(|&peer| Place { peer, balancers, load, round }));
            }
        }
    }
    let mut limits = Vec::new();
    for &load in args.loads.iter().filter(|load| **load < 1.0) {
        limits.push((load, pool(args, load, 1).limit_ms()));
    }
    // All are read before one is run: a cell of another run is found out now rather than after hours.
    let versions = Versions::found(envoy);
    let file =
        |place: &Place| cells_dir.as_ref().map(|dir| dir.join(format!("{}.json", place.name())));
    let settings = |place: &Place| cell::settings(args, place.peer, &versions);
    let kept = |place: &Place| match file(place) {
        Some(file) => cell::read(&file, &settings(place)).map_err(LaneError::Kept),
        None => Ok(None),
    };
    let kept = places.iter().map(kept).collect::<Result<Vec<Option<Cell>>, _>>()?;
    let mut cells = Vec::new();
    for (i, (place, kept)) in places.iter().zip(kept).enumerate() {
        if let Some(done) = kept {
            cells.push(done);
            continue;
        }
        let pool = pool(args, place.load, place.round);
        let what = (*place, settings(place));
        let Some(cell) = cell::run(args, &pool, what, envoy, &interrupt)? else {
            return Ok(None);
        };
        complain!("{} of {}: {}", i + 1, places.len(), cell.line());
        if let Some(file) = file(place) {
            cell::write(&file, &cell).map_err(LaneError::system("write a cell"))?;
        }
        cells.push(cell);
    }
    Ok(Some(Report::new(args, cells, limits)))
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
        Line::try_parse_from(["peers"].iter().chain(words)).map(|line| line.args)
    }

    #[test]
    fn the_default_is_the_whole_table() {
        let args = read(&[]).unwrap();
        assert_eq!((args.peers.len(), args.balancers.as_slice()), (10, &[1, 10][..]));
        assert_eq!((args.loads.as_slice(), args.seconds.as_secs()), (&[0.7, 0.85, 1.2][..], 90));
    }

    #[test]
    fn loads_may_be_overloads() {
        assert_eq!(read(&["--loads", "0.5,1.2"]).unwrap().loads, [0.5, 1.2]);
        for wrong in ["0", "-1", "85", "NaN", "x"] {
            assert!(read(&["--loads", wrong]).is_err(), "{wrong}");
        }
        assert_eq!(problems(&read(&[]).unwrap()), [""; 0]);
        assert!(read(&["--balancers", "0"]).is_err() && read(&["--peers", "fastest"]).is_err());
    }

    #[test]
    fn lists_name_each_once_and_what_is_compared_with_is_among_the_peers() {
        let found = |words: &[&str]| problems(&read(words).unwrap());
        let apart = ["--peers", "bloc,prequal,bloc", "--balancers", "2,1,2", "--loads", "0.5,0.5"];
        assert_eq!(
            found(&apart),
            ["--peers: bloc twice", "--balancers: 2 twice", "--loads: 0.5 twice"]
        );
        let against = ["--peers", "bloc", "--against"];
        assert_eq!(found(&[&against[..], &["bloc"]].concat()), [""; 0]);
        let other = found(&[&against[..], &["prequal"]].concat());
        assert_eq!(other, ["--against prequal: expected one of --peers"]);
    }
}
