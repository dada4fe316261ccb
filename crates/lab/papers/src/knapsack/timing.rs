//! CPU time of a call on this thread: what others run on the machine does not count, but for the caches
//! it takes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The most repetitions of one call.
const MOST_RUNS: usize = 101;

/// The median of the CPU time that a call takes, milliseconds, over at least three calls and at most as
/// many as fit into `budget`; and its last result.
pub fn cpu_ms<T>(budget: Duration, mut call: impl FnMut() -> T) -> (f64, T) {
    let begin = thread_cpu();
    let mut result = call();
    let mut times = vec![thread_cpu() - begin];
    while times.len() < 3 || (times.len() < MOST_RUNS && thread_cpu() - begin < budget) {
        let before = thread_cpu();
        result = call();
        times.push(thread_cpu() - before);
    }
    times.sort();
    (times[times.len() / 2].as_secs_f64() * 1e3, result)
}

/// CPU time that this thread has used.
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_costs_no_cpu_time_and_work_is_repeated() {
        let mut calls = 0;
        let (ms, last) = cpu_ms(Duration::ZERO, || {
            calls += 1;
            std::thread::sleep(Duration::from_millis(20));
            calls
        });
        assert_eq!(last, 3);
        assert!(ms < 20.0, "{ms}");
    }
}
