//! CPU work by the clock of the thread's own CPU time: the same for the same request however busy the
//! machine is, and however often the kernel takes the CPU away.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Rounds of arithmetic between two looks at the clock: some microseconds.
const ROUNDS: u64 = 2_000;

/// Burns so much CPU time of this thread.
pub(super) fn burn(work: Duration) {
    let end = cpu_time() + work;
    let mut state = 1_u64;
    while cpu_time() < end {
        for _ in 0..ROUNDS {
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// CPU time that this thread has used.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The kernel counts up from zero: neither part is ever negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_what_is_burnt() {
        let before = cpu_time();
        burn(Duration::from_millis(20));
        let burnt = cpu_time() - before;
        // Nobody but this thread adds to its clock: only the last round can be too much.
        assert!(
            burnt >= Duration::from_millis(20) && burnt < Duration::from_millis(40),
            "{burnt:?}"
        );
    }
}
