//! What an experiment is given to run with, and why it may not come to an end.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use plimsoll_lanes::{Interrupt, LaneError};
use plimsoll_testbed::format_duration;
use serde::Serialize;

use crate::haproxy::can_share;

/// What serves in an experiment of the HAProxy study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ServerPool {
    /// Emulated servers: what they serve is time that passes.
    Emulated,
    /// The lab's own servers, which burn CPU in control groups with quotas.
    Real,
    /// WordPress on php-fpm in control groups with quotas, and its MariaDB.
    Wordpress,
}

impl ServerPool {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ServerPool::Emulated => "emulated",
            ServerPool::Real => "real",
            ServerPool::Wordpress => "wordpress",
        }
    }
}

/// How many servers a person may choose.
const SERVERS: std::ops::RangeInclusive<usize> = 2..=16;
/// The study's least and greatest rate, tasks per 60 s.
const TASKS: std::ops::RangeInclusive<f64> = 1_000.0..=80_000.0;
/// How often a person may have everything run.
const REPETITIONS: std::ops::RangeInclusive<u32> = 2..=100;
/// Emulated cores whose requests two real ones carry, the balancer's and the clients' among it.
const EMULATED_CORES: u64 = 40;

/// What a person may choose of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Options {
    /// What serves; none for the experiment's own choice.
    pub pools: Vec<ServerPool>,
    /// Where the WordPress site is.
    pub site: Option<PathBuf>,
    /// How long each lane is measured; none for the experiment's own choice.
    pub lane: Option<Duration>,
    /// Parts of what the servers can do; none for the experiment's own choice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<f64>,
    /// Rates of the HAProxy study, tasks per 60 s; none for the experiment's own choice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<f64>,
    /// How often everything is run; none for the experiment's own choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetitions: Option<u32>,
    /// Cores of each server, or their proportions where servers are real; none for the experiment's own choice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<u32>,
    /// How long each point of a live experiment of network functions is measured; none for its own choice.
    pub window: Option<Duration>,
}

impl Options {
    /// What is wrong with them.
    pub fn problems(&self) -> Vec<&'static str> {
        let on_wordpress = self.pools.contains(&ServerPool::Wordpress);
        let mut found = Vec::new();
        if on_wordpress && self.site.is_none() {
            found.push("--pool wordpress: needs --site DIR; it is made where there is none");
        }
        if !on_wordpress && self.site.is_some() {
            found.push("--site: is for --pool wordpress");
        }
        if self.lane.is_some_and(|lane| lane < Duration::from_secs(1)) {
            found.push("--lane: expected at least 1s");
        }
        if self.loads.iter().any(|load| !(0.01..=2.0).contains(load)) {
            found.push("--loads: expected parts of the capacity from 0.01 to 2, such as 0.7");
        }
        let is_rate = |tasks: &f64| TASKS.contains(tasks) && tasks.fract() == 0.0;
        if !self.tasks.iter().all(is_rate) {
            found
                .push("--tasks: expected the study's tasks per 60 s, 1000 to 80000, such as 60000");
        }
        if self.repetitions.is_some_and(|n| !REPETITIONS.contains(&n)) {
            found.push("--repetitions: expected 2 to 100; one decides nothing");
        }
        if !self.sizes.is_empty() {
            if !SERVERS.contains(&self.sizes.len())
                || self.sizes.iter().any(|n| !(1..=256).contains(n))
            {
                found.push("--sizes: expected 2 to 16 servers of 1 to 256 cores, such as 2,2,4");
            }
            let is_emulated = self.pools.is_empty() || self.pools.contains(&ServerPool::Emulated);
            if is_emulated && self.sizes.iter().map(|&n| u64::from(n)).sum::<u64>() > EMULATED_CORES
            {
                found.push(
                    "--sizes: expected at most 40 cores together where servers are emulated; real ones and WordPress \
                     share the machine's in these proportions",
                );
            }
            if !self.pools.iter().all(|pool| can_share(*pool, &self.sizes)) {
                found.push(
                    "--sizes: expected no server smaller than an 80th of all (WordPress: 120th) where servers are real: \
                     the kernel gives none less than 1 ms of CPU in 100 ms",
                );
            }
        }
        if self.window.is_some_and(|window| window < Duration::from_secs(1)) {
            found.push("--window: expected at least 1s");
        }
        found
    }

    /// As they are written on the command line, with a blank before.
    pub(crate) fn text(&self) -> String {
        let names: Vec<&str> = self.pools.iter().map(|pool| pool.name()).collect();
        let pools = list("--pool", &names);
        let site = self.site.as_ref().map(|site| format!(" --site {}", site.display()));
        let lane = self.lane.map(|lane| format!(" --lane {}", format_duration(lane)));
        let loads = list("--loads", &self.loads);
        let tasks = list("--tasks", &self.tasks);
        let repetitions = self.repetitions.map(|n| format!(" --repetitions {n}"));
        let sizes = list("--sizes", &self.sizes);
        let window = self.window.map(|window| format!(" --window {}", format_duration(window)));
        let all = [pools, site, lane, loads, tasks, repetitions, sizes, window];
        all.into_iter().flatten().collect()
    }
}

/// An option with these values; nothing where there are none.
fn list<T: fmt::Display>(option: &str, values: &[T]) -> Option<String> {
    let values: Vec<String> = values.iter().map(T::to_string).collect();
    (!values.is_empty()).then(|| format!(" {option} {}", values.join(",")))
}

type Progress = Box<dyn Fn(f64, &str) + Send + Sync>;

/// What one run is given.
pub struct Context {
    /// The only source of randomness: the same seed, the same draws.
    pub seed: u64,
    /// Whether to be done within seconds, at the price of what the numbers are worth.
    pub quick: bool,
    /// What a person has chosen.
    pub options: Options,
    /// Where finished parts of the run are kept, if they are.
    pub(crate) cells: Option<PathBuf>,
    interrupt: Interrupt,
    progress: Progress,
    /// The part that was done when progress was last told, thousandths.
    done: AtomicU32,
}

impl Context {
    /// A run with this seed; its progress is not reported.
    pub fn new(seed: u64, quick: bool, interrupt: Interrupt) -> Self {
        let (options, cells, progress) = (Options::default(), None, Box::new(|_: f64, _: &str| ()));
        Context { seed, quick, options, cells, interrupt, progress, done: AtomicU32::new(0) }
    }

    /// The same run with these choices.
    pub fn with(self, options: Options) -> Self {
        Context { options, ..self }
    }

    /// The same run, whose finished parts are kept in this directory until it has a result.
    pub fn keeping_cells(self, out: &Path) -> Self {
        Context { cells: Some(out.to_owned()), ..self }
    }

    /// The same run, whose progress is reported to `tell`: the part that is done (0…1), and what is under way.
    pub fn telling(self, tell: impl Fn(f64, &str) + Send + Sync + 'static) -> Self {
        Context { progress: Box::new(tell), ..self }
    }

    /// Tells whoever waits how far the run is: the part that is done, 0…1, and what is under way. Also
    /// the place where an interrupted run ends, so call it often.
    ///
    /// # Errors
    /// [`Failure::Interrupted`].
    pub fn progress(&self, done: f64, what: &str) -> Result<(), Failure> {
        let done = done.clamp(0.0, 1.0);
        self.done.store((1e3 * done) as u32, Ordering::Relaxed);
        (self.progress)(done, what);
        self.check()
    }

    /// The same of what is under way without a part of its own.
    ///
    /// # Errors
    /// [`Failure::Interrupted`].
    pub fn under_way(&self, what: &str) -> Result<(), Failure> {
        self.progress(f64::from(self.done.load(Ordering::Relaxed)) / 1e3, what)
    }

    /// Ends an interrupted run; long loops call it.
    ///
    /// # Errors
    /// [`Failure::Interrupted`].
    pub fn check(&self) -> Result<(), Failure> {
        if self.interrupt.came() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// What ends the run, for whoever waits for long elsewhere.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// The chosen ones; where none are, `quick` or `full`.
    pub(crate) fn chosen<'a>(
        &self,
        chosen: &'a [f64],
        quick: &'a [f64],
        full: &'a [f64],
    ) -> &'a [f64] {
        if chosen.is_empty() { self.pick(quick, full) } else { chosen }
    }

    /// How often everything is run: as often as chosen, or once in a quick run, `full` times in another.
    pub(crate) fn repetitions(&self, full: u32) -> u32 {
        self.options.repetitions.unwrap_or(self.pick(1, full))
    }

    /// `quick` when the run is to be quick, `full` when it is not.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("seed", &self.seed)
            .field("quick", &self.quick)
            .finish_non_exhaustive()
    }
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A person or a supervisor wished it to end.
    #[error("interrupted")]
    Interrupted,
    /// Lanes do not run.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// Namespaces, or servers and clients in them.
    #[error(transparent)]
    Net(#[from] plimsoll_testbed::net::NetError),
    /// The data plane.
    #[error(transparent)]
    L4(#[from] plimsoll_l4::L4Error),
    /// Measurements of the data plane.
    #[error(transparent)]
    Bench(#[from] plimsoll_l4bench::BenchError),
    /// Weights cannot be computed.
    #[error("no packing: {0}")]
    Pack(#[from] plimsoll_pack::PackError),
    /// Results cannot be written or read.
    #[error("cannot {what}: {source}")]
    File {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// Anything else, said in full.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// For `map_err`: what was tried when the system refused.
    pub fn file(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
        let what = what.into();
        move |source| Failure::File { what, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sizes: &[u32], pools: &[ServerPool]) -> Options {
        Options { sizes: sizes.to_vec(), pools: pools.to_vec(), ..Options::default() }
    }

    #[test]
    fn sizes_out_of_range_are_refused_and_others_are_written_as_they_were_given() {
        for (wrong, said) in
            [(&[4][..], 1), (&[2, 0], 1), (&[1; 17], 1), (&[20, 21], 1), (&[2, 257], 2)]
        {
            assert_eq!(of(wrong, &[]).problems().len(), said, "{wrong:?}");
        }
        for (of_all, said) in [(79, 0), (80, 1)] {
            let least = of(&[1, of_all], &[ServerPool::Real]);
            assert_eq!(least.problems().len(), said, "1 ms of 100 are an 80th of 0.8 cores");
        }
        let good = of(&[20, 21], &[ServerPool::Real]);
        assert_eq!(good.problems(), Vec::<&str>::new());
        assert_eq!(good.text(), " --pool real --sizes 20,21");
        assert_eq!(of(&[], &[]).text(), "");
    }

    #[test]
    fn rates_and_repetitions_out_of_range_are_refused_and_others_replace_the_experiments_own() {
        let of = |tasks: &[f64], repetitions| Options {
            tasks: tasks.to_vec(),
            repetitions: Some(repetitions),
            ..Options::default()
        };
        for (options, said) in
            [(of(&[999.0], 2), 1), (of(&[80_001.0], 1), 2), (of(&[1e4 + 0.5], 101), 2)]
        {
            assert_eq!(options.problems().len(), said, "{options:?}");
        }
        let good = of(&[1_000.0, 60_000.0], 10);
        assert_eq!(good.problems(), Vec::<&str>::new());
        assert_eq!(good.text(), " --tasks 1000,60000 --repetitions 10");
        let run = |quick, options| {
            let interrupt = Interrupt::never();
            let context = Context::new(1, quick, interrupt).with(options);
            let tasks = context.chosen(&context.options.tasks, &[1.0], &[2.0, 3.0]).to_vec();
            (tasks, context.repetitions(3))
        };
        assert_eq!(run(false, Options::default()), (vec![2.0, 3.0], 3));
        assert_eq!(run(true, Options::default()), (vec![1.0], 1));
        assert_eq!(run(true, good), (vec![1_000.0, 60_000.0], 10));
    }
}
