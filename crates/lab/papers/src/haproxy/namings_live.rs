//! `uri` under random namings of the pages on servers that run: each page has a name of its own before its path, which
//! HAProxy hashes and the servers do not see (`/~name/page-1/`).
//!
//! Turns (`roundrobin`) are run in between: what a naming is held against.

use std::time::Instant;

use plimsoll_lanes::{Family, raise_descriptor_limit};
use rand::{Rng, RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::figure::scale_note;
use super::lane::{Lane, Seen, Task};
use super::method::{Method, named};
use super::namings::{distinct, placed, quantile, spread};
use super::pool::{Sizes, asks};
use super::servers::Bed;
use super::sweep::{Turn, rate_rps};
use crate::cells::Cells;
use crate::comparison::Bound;
use crate::lanes::wait;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot};
use crate::{Comparison, Context, Failure, ServerPool};

/// The higher of the simulated rates: tasks per 60 s.
const RATES: [(Sizes<'static>, f64); 2] =
    [(Sizes::Homogeneous, 60_000.0), (Sizes::Heterogeneous, 15_000.0)];
/// Lanes of roundrobin among those of uri.
const TURNS_EVERY: u32 = 5;

/// Namings on one pool.
struct Namings<'a> {
    context: &'a Context,
    family: &'a Family,
    pool: ServerPool,
    sizes: Sizes<'a>,
    rate_rps: f64,
    part: (f64, f64),
}

/// What came of one rate.
struct Found {
    turns: Vec<[f64; 2]>,
    names: Vec<Vec<String>>,
    uri: Vec<[f64; 2]>,
}

/// Runs them on these servers and adds what came of it.
///
/// # Errors
/// When a part does not run.
pub fn add(
    context: &Context,
    cells: &mut Cells,
    pool: ServerPool,
    outcome: &mut Outcome,
    part: (f64, f64),
) -> Result<(), Failure> {
    raise_descriptor_limit();
    let family = Family::start()?;
    let title = format!("uri over roundrobin, naming by naming, {}", pool.title());
    let mut table = Table::empty(&format!("{}-namings", pool.name()), &title);
    let title = format!("uri over roundrobin, the distribution over namings, {}", pool.title());
    let mut shown = Table::empty(&format!("{}-distribution", pool.name()), &title);
    let mut lines = Vec::new();
    for (i, (sizes, tasks)) in RATES.into_iter().enumerate() {
        let at = |x: f64| part.0 + (part.1 - part.0) * (i as f64 + x) / RATES.len() as f64;
        let mut bed = match pool {
            ServerPool::Emulated => None,
            _ => Some(Bed::start(context, &family, pool, sizes, (&[], context.seed))?),
        };
        let core_rps = match &bed {
            Some(bed) => bed.scale(context, &family, cells)?.smallest_rps,
            None => super::pool::core_rps(),
        };
        let rate_rps = rate_rps(pool, sizes, core_rps, tasks);
        let part = (at(0.0), at(1.0));
        let namings = Namings { context, family: &family, pool, sizes, rate_rps, part };
        let found = namings.run(cells, bed.as_mut())?;
        let mean = |task: usize| {
            found.turns.iter().map(|turn| turn[task]).sum::<f64>() / found.turns.len() as f64
        };
        let turns = [mean(0), mean(1)];
        // Each naming over the turns that had the same arrivals.
        let paired = found.uri.iter().enumerate();
        let paired = paired.map(|(i, uri)| (uri, found.turns[i / TURNS_EVERY as usize]));
        let ratios: Vec<[f64; 2]> =
            paired.map(|(uri, turns)| [uri[0] / turns[0], uri[1] / turns[1]]).collect();
        for (number, (names, ratio)) in (1_u32..).zip(found.names.iter().zip(&ratios)) {
            let place = placed(&paths(pool, names))?;
            row!(table, pool.provenance(), {
                servers: sizes.name();
                tasks_per_60_s: tasks, "the paper's rate";
                rate_rps: rate_rps, "requests/s here";
                number: number;
                servers_with_gets: distinct(&place[..5]);
                get_ratio: ratio[0], "× roundrobin";
                post_ratio: ratio[1], "× roundrobin";
            })?;
        }
        for (task, name) in Task::ALL.iter().map(|task| task.name()).enumerate() {
            let sorted = spread(&ratios, task);
            let at = |part: f64| quantile(&sorted, part);
            row!(shown, pool.provenance(), {
                servers: sizes.name();
                tasks_per_60_s: tasks, "the paper's rate";
                task: name;
                roundrobin_ms: turns[task], "ms";
                least: at(0.0), "× roundrobin";
                tenth: at(0.1), "× roundrobin";
                median: at(0.5), "× roundrobin";
                nine_tenths: at(0.9), "× roundrobin";
                greatest: at(1.0), "× roundrobin";
                better_than_roundrobin: sorted.iter().filter(|r| **r < 1.0).count() as f64 / sorted.len() as f64, "part of the namings";
            })?;
            let points =
                (0..).zip(&sorted).map(|(i, r)| (100.0 * f64::from(i) / sorted.len() as f64, *r));
            let label = format!("{} {name}", sizes.name());
            lines.push(Lines::new(&label, pool.provenance(), points.collect()));
        }
        outcome.comparisons.push(comparison(pool, sizes, tasks, &ratios));
        outcome.notes.push(scale_note(pool, sizes, core_rps));
    }
    let (x, y) = (Axis::linear("namings (%)"), Axis::log("× roundrobin's mean response time"));
    let title = format!("uri over roundrobin, {}", pool.title());
    outcome.plots.push(Plot::lines(&format!("namings-{}", pool.name()), &title, x, y, lines));
    outcome.tables.extend([shown, table]);
    Ok(())
}

impl<'a> Namings<'a> {
    fn run(&self, cells: &mut Cells, mut bed: Option<&mut Bed<'a>>) -> Result<Found, Failure> {
        let count: u32 = self.context.pick(2, 20);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.context.seed);
        let mut found = Found { turns: Vec::new(), names: Vec::new(), uri: Vec::new() };
        for number in 0..count {
            let names = draw(&mut rng);
            if number % TURNS_EVERY == 0 {
                let cell = self.cell(&format!("roundrobin {}", number / TURNS_EVERY));
                let method = named("roundrobin");
                let seen = cells.get_or(&cell, || {
                    self.lane(method, number, count, &names, bed.as_deref_mut())
                })?;
                found.turns.push(means(&seen));
            }
            let cell = self.cell(&format!("uri {number}"));
            let seen = cells.get_or(&cell, || {
                self.lane(named("uri"), number, count, &names, bed.as_deref_mut())
            })?;
            found.uri.push(means(&seen));
            found.names.push(names);
        }
        Ok(found)
    }

    fn cell(&self, what: &str) -> String {
        format!("{}/{}/{what}", self.pool.name(), self.sizes.name())
    }

    fn lane(
        &self,
        method: Method,
        number: u32,
        count: u32,
        names: &[String],
        shared: Option<&mut Bed<'a>>,
    ) -> Result<Vec<(Task, Seen)>, Failure> {
        // Turns and the namings beside them have the same arrivals, the next turns others.
        let seed = self.context.seed + 1_000 * u64::from(number / TURNS_EVERY);
        let mut own;
        let bed = match shared {
            Some(bed) => bed,
            None => {
                own = Bed::start(self.context, self.family, self.pool, self.sizes, (names, seed))?;
                &mut own
            }
        };
        let at =
            |n: u32| self.part.0 + (self.part.1 - self.part.0) * f64::from(n) / f64::from(count);
        let name =
            format!("naming-{}-{}-{}-{number}", self.pool.name(), self.sizes.name(), method.name);
        let (servers, cores) = (bed.addresses(), self.sizes.cores());
        let mut lane = Lane::start(self.family, method, &servers, cores, &name)?;
        lane.open(&asks(self.pool, names), self.rate_rps, seed)?;
        let turn = Turn::of(self.context, self.pool);
        let what = format!("{}: {}, naming {}", self.pool.title(), method.name, number + 1);
        let mut look = |time, part| {
            wait(self.context, time, part, &what, || {
                bed.check()?;
                lane.check()
            })
        };
        look(turn.warm_up, (at(number), at(number)))?;
        let from = Instant::now();
        look(turn.measure, (at(number), at(number + 1)))?;
        let seen = lane.finish(from, Instant::now(), self.pool.deadline())?;
        if self.pool != ServerPool::Emulated {
            Bed::settle(std::slice::from_ref(bed), self.context)?;
        }
        Ok(seen)
    }
}

/// Ten names; POSTs share theirs, as WordPress takes all comments at one path.
fn draw(rng: &mut Xoshiro256PlusPlus) -> Vec<String> {
    let mut word = || {
        let letters = 3 + rng.next_u32() % 10;
        (0..letters).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect::<String>()
    };
    let form = word();
    (0..10).map(|i| if i < 5 { word() } else { form.clone() }).collect()
}

/// What HAProxy hashes: the path without its query.
fn paths(pool: ServerPool, names: &[String]) -> Vec<String> {
    let asks = asks(pool, names);
    let all = asks.gets.into_iter().chain(asks.posts);
    all.map(|asked| asked.path.split('?').next().unwrap_or_default().to_owned()).collect()
}

/// Mean response times of GETs and POSTs.
fn means(seen: &[(Task, Seen)]) -> [f64; 2] {
    let of =
        |task| seen.iter().find(|(of, _)| *of == task).map_or(f64::NAN, |(_, seen)| seen.mean_ms);
    Task::ALL.map(of)
}

fn comparison(pool: ServerPool, sizes: Sizes, tasks: f64, ratios: &[[f64; 2]]) -> Comparison {
    let both = ratios.iter().filter(|r| r[0] < 1.0 && r[1] > 1.0).count();
    let what = format!(
        "{}, {}, {tasks:.0} tasks per 60 s: namings in which uri beats roundrobin on GET and loses on POST",
        pool.title(),
        sizes.name()
    );
    let part = 100.0 * both as f64 / ratios.len() as f64;
    let paper = ("uri is best on GET and worst on POST", Bound::AtLeast(50.0));
    Comparison::bound(pool.provenance(), what, paper, part, "%").why(
        "More than half of the namings would make it the method's doing and not the names'. Five pages on five servers \
         all differ in 4 of 100 namings; a server with two is twice as busy.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_names_of_their_own_and_comments_share_one() {
        let names = draw(&mut Xoshiro256PlusPlus::seed_from_u64(1));
        let paths = paths(ServerPool::Wordpress, &names);
        assert_eq!(paths.len(), 10);
        let mut gets = paths[..5].to_vec();
        gets.sort();
        gets.dedup();
        assert_eq!(gets.len(), 5);
        assert!(paths[5..].iter().all(|path| *path == paths[5]), "{paths:?}");
        assert!(paths.iter().all(|path| path.starts_with("/~") && !path.contains('?')));
    }
}
