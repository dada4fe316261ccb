//! Runs that do not depend on each other, on several cores.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// How many cores there are.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Does each of these jobs once, on so many threads; what came of them, in their order.
///
/// # Panics
/// When a job does.
pub fn on_cores<T: Send>(
    threads: usize,
    jobs: Range<u64>,
    work: impl Fn(u64) -> T + Sync,
) -> Vec<T> {
    let next = AtomicU64::new(jobs.start);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs.end {
                        return;
                    }
                    let came = work(job);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((job, came));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(job, _)| *job);
    done.into_iter().map(|(_, came)| came).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_is_done_once_and_all_are_in_order() {
        assert!(on_cores(3, 5..105, |job| 2 * job).into_iter().eq((5..105).map(|job| 2 * job)));
    }
}
