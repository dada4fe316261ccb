//! `plimsoll-lab real`: its arguments, and what is wrong with them.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_lanes::{Distribution, twice};
use plimsoll_terminal::Format;
use plimsoll_testbed::{Service, parse_duration};

use crate::cgroup::Quota;
use crate::event::{Event, What};
use crate::make::Make;
use crate::server::Model;
use crate::{LaneKind, Pool};

/// Measure ways of balancing on real servers that burn real CPU in control groups. Needs root.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The balancers, one lane each.
    #[arg(
        long,
        value_enum,
        value_name = "LANE,…",
        value_delimiter = ',',
        default_value = "roundrobin-oracle,roundrobin-equal,plimsoll-roundrobin,\
                         leastconn-oracle,leastconn-equal,plimsoll-leastconn"
    )]
    pub lanes: Vec<LaneKind>,
    /// Parts of the true capacity that clients ask for, one after the other.
    #[arg(long, value_name = "PART,…", value_delimiter = ',', default_value = "0.5,0.7,0.85",
          value_parser = load)]
    pub loads: Vec<f64>,
    /// How long before anything counts as learned, from the first request on.
    #[arg(long, value_name = "D", value_parser = parse_duration, default_value = "180s")]
    pub learn: Duration,
    /// How long is measured after that.
    #[arg(long, value_name = "D", value_parser = parse_duration, default_value = "300s")]
    pub measure: Duration,
    /// How often everything is repeated, with other arrivals.
    #[arg(long, value_name = "R", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// How many lanes run at the same time; each runs beside its oracle.
    #[arg(long, value_name = "K", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=16))]
    pub concurrent: u32,
    /// What befalls the servers of every lane, from the first request on:
    /// WHAT@START[+DURATION][/EVERY][:WHICH][:VALUE]. WHAT is neighbour (VALUE: its part of the quota),
    /// stop, pause (all at once), kill, hang, unhealthy, errors, or load@START:PART; WHICH is largest,
    /// smallest, all or a server's name. May be given several times.
    #[arg(long = "event", value_name = "EVENT")]
    pub events: Vec<Event>,
    /// Quotas of the servers in relation to each other.
    #[arg(long, value_name = "Q,…", value_delimiter = ',', default_value = "4,4,6.4,9.6,16,28")]
    pub quotas: Vec<f64>,
    /// Cores that the servers of one lane have together.
    #[arg(long, value_name = "CORES", default_value_t = 0.45)]
    pub total: f64,
    /// How often a server gets its quota anew.
    #[arg(long, value_name = "D", value_parser = parse_duration, default_value = "100ms")]
    pub period: Duration,
    /// The CPUs that servers run on, such as 0-1,3; all of them by default.
    #[arg(long, value_name = "CPUS")]
    pub cpus: Option<String>,
    /// What the servers are.
    #[arg(long, value_enum, default_value_t)]
    pub make: Make,
    /// How the lab's own server works.
    #[arg(long, value_enum, default_value_t)]
    pub model: Model,
    /// How many threads or processes a server has, where it can have several.
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// CPU time of the mean request.
    #[arg(long, value_name = "D", value_parser = parse_duration, default_value = "5.5ms")]
    pub work: Duration,
    /// How that scatters.
    #[arg(long, value_enum, default_value_t = Distribution::Exponential)]
    pub distribution: Distribution,
    /// CPU time of a health check, which waits in the queue of the same threads or processes.
    #[arg(long, value_name = "D", value_parser = parse_duration, default_value = "0s")]
    pub health_work: Duration,
    /// How long true capacities are measured, before any lane runs.
    #[arg(long, value_name = "D", value_parser = parse_duration, default_value = "15s")]
    pub calibrate: Duration,
    /// Seed of arrivals and work: the same in every lane.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Write result.json, and the requests and events of each lane, here.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How to print the result.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

fn load(text: &str) -> Result<f64, String> {
    let within = |part: &f64| *part > 0.0 && *part <= 2.0;
    let part = text.parse().ok().filter(within);
    part.ok_or_else(|| {
        format!("expected a number above 0 and at most 2, such as 0.7, found `{text}`")
    })
}

impl Args {
    /// The servers and requests of every lane.
    pub fn pool(&self) -> Pool {
        Pool {
            sizes: Pool::sizes(&self.quotas, self.total),
            period: self.period,
            cpus: self.cpus.clone(),
            make: self.make,
            model: self.model,
            threads: self.threads as usize,
            work: Service { mean: self.work, kind: self.distribution.kind() },
            health_work: self.health_work,
        }
    }

    /// How long each lane runs.
    pub fn span(&self) -> Duration {
        self.learn + self.measure
    }

    /// Everything that makes the run impossible; empty when it is possible.
    pub fn problems(&self) -> Vec<String> {
        let mut found = twice("--lanes", &self.lanes, |lane| lane.name());
        found.extend(twice("--loads", &self.loads, |load| *load));
        if self.measure.is_zero() || self.work.is_zero() {
            found.push("--measure and --work: expected more than zero".to_owned());
        }
        if self.calibrate < Duration::from_secs(2) {
            found.push("--calibrate: expected at least 2s".to_owned());
        }
        if self.quotas.iter().any(|q| !(q.is_finite() && *q > 0.0)) || self.quotas.len() > 250 {
            found.push("--quotas: expected 1 to 250 numbers above 0".to_owned());
            return found;
        }
        if !(self.total.is_finite() && self.total > 0.0) {
            found.push("--total: expected more than 0 cores".to_owned());
            return found;
        }
        let pool = self.pool();
        for size in &pool.sizes {
            let quota = Quota { cores: size.cores, period: self.period };
            if !quota.is_possible() {
                found.push(format!(
                    "the quota of {} is {:.2} ms of CPU in {} ms; expected a period of 1 ms to 1 s and a \
                     quota of at least 1 ms",
                    size.name,
                    size.cores * self.period.as_secs_f64() * 1e3,
                    self.period.as_millis()
                ));
            }
        }
        for event in &self.events {
            let positions = event.which.positions(&pool);
            if positions.is_empty() {
                found.push(format!("--event {}: no server of that name", event.text));
            }
            if event.at >= self.span() {
                found.push(format!("--event {}: begins after the end of the run", event.text));
            }
            if let What::Neighbour(part) = event.what {
                let possible = |i: usize| {
                    Quota { cores: pool.sizes[i].cores * part, period: self.period }.is_possible()
                };
                if !positions.into_iter().all(possible) {
                    found.push(format!(
                        "--event {}: less than the 1 ms per period that the kernel can give",
                        event.text
                    ));
                }
            }
            if matches!(event.what, What::Mode(_)) && self.make != Make::Own {
                found.push(format!("--event {}: needs --make own", event.text));
            }
        }
        found.extend(self.conflicts(&pool));
        found
    }

    /// Events that cannot befall the same server at the same time: one would end or hinder the other.
    fn conflicts(&self, pool: &Pool) -> Vec<String> {
        let mut found = Vec::new();
        for (i, one) in self.events.iter().enumerate() {
            for other in &self.events[..i] {
                if one.conflicts_with(other, pool, self.span()) {
                    found.push(format!(
                        "--event {}: the same server at the same time as {}",
                        one.text, other.text
                    ));
                }
            }
        }
        found
    }

    /// What makes the numbers doubtful on a machine of so many cores.
    pub fn doubts(&self, cores: usize) -> Vec<String> {
        let lanes = self.concurrent.min(self.lanes.len() as u32);
        let (used, bound) = (f64::from(lanes) * self.total, 0.45 * cores as f64);
        let mut found = Vec::new();
        if used > bound + 1e-9 {
            found.push(format!(
                "{lanes} lanes at once have {used:.2} cores of {cores}: beyond {bound:.2} the machine's \
                 own lack of CPU is what is measured; lower --total or --concurrent"
            ));
        }
        found
    }
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

    fn read(words: &[&str]) -> Args {
        Line::try_parse_from(["real"].iter().chain(words)).unwrap().args
    }

    #[test]
    fn defaults_are_possible_and_what_is_not_is_named() {
        let args = read(&[]);
        assert_eq!((args.problems(), args.doubts(2)), (vec![], vec![]));
        assert_eq!((args.lanes.len(), args.loads.len()), (6, 3));
        assert_eq!(args.doubts(1).len(), 1);
        assert_eq!(read(&["--total", "0.9"]).doubts(2).len(), 1);
        let wrong = read(&[
            "--lanes",
            "random2,leastconn-equal,random2",
            "--loads",
            "0.5,0.5",
            "--total",
            "0.15",
            "--event",
            "stop@5s+1s:s9",
            "--event",
            "hang@1h+1s:s1",
        ]);
        // Twice the same lane and load, two servers below 1 ms, no such server, an event after the end.
        assert_eq!(wrong.problems().len(), 6, "{:?}", wrong.problems());
        assert!(Line::try_parse_from(["real", "--loads", "85"]).is_err());
    }

    #[test]
    fn only_the_lab_s_own_server_takes_events_that_misbehave() {
        for event in ["hang@1s+1s", "unhealthy@1s+1s:s2", "errors@1s+1s:all"] {
            assert_eq!(read(&["--event", event]).problems(), [""; 0]);
            for make in ["node", "php"] {
                let problems = read(&["--make", make, "--event", event]).problems();
                assert_eq!(problems, [format!("--event {event}: needs --make own")]);
            }
        }
        assert_eq!(read(&["--make", "php", "--event", "stop@1s+1s"]).problems(), [""; 0]);
    }

    #[test]
    fn events_that_hinder_each_other_are_named() {
        let problems =
            |one: &str, other: &str| read(&["--event", one, "--event", other]).problems().len();
        assert_eq!(problems("hang@10s+20s:s1", "errors@15s+30s:s1"), 1);
        assert_eq!(problems("kill@10s:s1", "unhealthy@100s+1s:all"), 1);
        assert_eq!(problems("neighbour@10s+60s", "neighbour@30s+60s:s6"), 1);
        assert_eq!(problems("stop@10s+5s/1m:s1", "kill@70s+1s:s1"), 1);
        assert_eq!(problems("hang@10s+20s:s1", "errors@15s+30s:s2"), 0);
        assert_eq!(problems("hang@10s+5s:s1", "errors@15s+30s:s1"), 0);
        assert_eq!(problems("neighbour@10s+60s", "kill@30s+1s"), 0);
        assert_eq!(problems("load@10s:0.5", "pause@10s+1s"), 0);
    }
}
