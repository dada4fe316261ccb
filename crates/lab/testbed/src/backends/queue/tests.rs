//! The disciplines against theory, driven in virtual time.

use super::*;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const MS: f64 = 1e6;

/// After everything.
const END: Nanos = Nanos(u64::MAX / 4);

fn exponential(rng: &mut Xoshiro256PlusPlus, mean: f64) -> f64 {
    -(1.0 - rng.random::<f64>()).ln() * mean
}

/// Mean sojourn time in nanoseconds of a queue fed with Poisson arrivals at `load` of its capacity and
/// exponential work of mean 1 ms. `slack` is how late every finish is noticed.
fn mean_sojourn(queue: &mut Queue, cores: u32, load: f64, n: u64, slack: u64) -> f64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
    let (mut now, mut total) = (0.0, 0.0);
    let mut arrived = Vec::new();
    let take = |queue: &mut Queue, by: Nanos, arrived: &[f64], total: &mut f64| {
        while let Some(done) = queue.pop_finished(by) {
            *total += done.at.0 as f64 - arrived[done.id as usize];
        }
    };
    for id in 0..n {
        now += exponential(&mut rng, MS / (load * f64::from(cores)));
        let at = Nanos(now as u64);
        take(queue, Nanos(at.0.saturating_sub(slack)), &arrived, &mut total);
        arrived.push(at.0 as f64);
        queue.arrive(at, Job { id, work: exponential(&mut rng, MS) });
    }
    take(queue, END, &arrived, &mut total);
    assert_eq!(queue.len(), 0);
    total / n as f64
}

/// Mean sojourn time of M/M/c in units of the mean service time (Erlang C).
fn erlang_c_sojourn(cores: u32, load: f64) -> f64 {
    let a = load * f64::from(cores);
    let mut b = 1.0; // Erlang B by its recursion.
    for k in 1..=cores {
        b = a * b / (f64::from(k) + a * b);
    }
    let wait_probability = b / (1.0 - load * (1.0 - b));
    1.0 + wait_probability / (f64::from(cores) * (1.0 - load))
}

#[test]
fn fifo_waits_as_erlang_says() {
    for (cores, load) in [(1, 0.5), (1, 0.8), (4, 0.7), (8, 0.85)] {
        let mut queue = Queue::new(Discipline::Fifo, cores, 1.0, Nanos::ZERO);
        let mean = mean_sojourn(&mut queue, cores, load, 400_000, 0) / MS;
        let theory = erlang_c_sojourn(cores, load);
        assert!((mean / theory - 1.0).abs() < 0.04, "M/M/{cores} at {load}: {mean} vs {theory}");
    }
}

#[test]
fn sharing_one_core_takes_as_long_as_theory_says() {
    for load in [0.5, 0.8] {
        let mut queue = Queue::new(Discipline::Ps, 1, 1.0, Nanos::ZERO);
        let mean = mean_sojourn(&mut queue, 1, load, 400_000, 0) / MS;
        let theory = 1.0 / (1.0 - load);
        assert!((mean / theory - 1.0).abs() < 0.04, "at {load}: {mean} vs {theory}");
    }
}

#[test]
fn noticing_finishes_late_costs_no_capacity() {
    for discipline in [Discipline::Fifo, Discipline::Ps] {
        let mut prompt = Queue::new(discipline, 2, 1.0, Nanos::ZERO);
        let mut sloppy = Queue::new(discipline, 2, 1.0, Nanos::ZERO);
        let on_time = mean_sojourn(&mut prompt, 2, 0.9, 100_000, 0);
        let late = mean_sojourn(&mut sloppy, 2, 0.9, 100_000, 2_000_000);
        assert!((late / on_time - 1.0).abs() < 1e-6, "{discipline:?}: {late} vs {on_time}");
        assert!((sloppy.busy(END) / prompt.busy(END) - 1.0).abs() < 1e-6);
    }
}

#[test]
fn cores_work_in_parallel_and_speed_divides_the_work() {
    let mut queue = Queue::new(Discipline::Fifo, 2, 2.0, Nanos::ZERO);
    for id in 0..3 {
        queue.arrive(Nanos(100), Job { id, work: 1000.0 });
    }
    assert_eq!(queue.next_finish(), Some(Nanos(600)));
    assert_eq!(queue.pop_finished(Nanos(599)), None);
    assert_eq!(queue.pop_finished(Nanos(5000)), Some(Finished { id: 0, at: Nanos(600) }));
    assert_eq!(queue.pop_finished(Nanos(5000)), Some(Finished { id: 1, at: Nanos(600) }));
    // The third began at 600 and not when the queue was looked at.
    assert_eq!(queue.pop_finished(Nanos(5000)), Some(Finished { id: 2, at: Nanos(1100) }));
    assert_eq!(queue.busy(END), 1500.0);
}

#[test]
fn sharing_splits_the_cores_evenly() {
    let mut queue = Queue::new(Discipline::Ps, 2, 1.0, Nanos::ZERO);
    for (id, work) in [(0, 100.0), (1, 200.0), (2, 200.0)] {
        queue.arrive(Nanos(0), Job { id, work });
    }
    // Three on two cores: 2/3 each, so 100 take 150; then two on two cores: 100 more take 100.
    assert_eq!(queue.pop_finished(Nanos(1000)), Some(Finished { id: 0, at: Nanos(150) }));
    assert_eq!(queue.pop_finished(Nanos(1000)), Some(Finished { id: 1, at: Nanos(250) }));
    assert_eq!(queue.pop_finished(Nanos(1000)), Some(Finished { id: 2, at: Nanos(250) }));
    assert!((queue.busy(END) - 500.0).abs() < 1e-6);
}

#[test]
fn work_taken_out_half_done_is_what_is_left() {
    for discipline in [Discipline::Fifo, Discipline::Ps] {
        let mut queue = Queue::new(discipline, 1, 2.0, Nanos::ZERO);
        queue.arrive(Nanos(0), Job { id: 0, work: 1000.0 });
        queue.arrive(Nanos(0), Job { id: 1, work: 1000.0 });
        let left = queue.take_jobs(Nanos(250));
        assert_eq!(left.iter().map(|j| j.id).collect::<Vec<_>>(), [0, 1]);
        let total: f64 = left.iter().map(|j| j.work).sum();
        assert!((total - 1500.0).abs() < 1e-6, "{discipline:?}: {total}");
        assert_eq!(queue.len(), 0);
        assert!((queue.busy(Nanos(250)) - 250.0).abs() < 1e-6);
    }
}
