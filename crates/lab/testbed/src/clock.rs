//! A monotonic clock with an origin of its own, and an alarm that is exact to some tens of
//! microseconds.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use plimsoll_model::Nanos;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// Reads time as [`Nanos`] since the clock was made. Copies share the origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// CLOCK_MONOTONIC at the origin, nanoseconds.
    origin: u64,
}

impl Clock {
    /// A clock that reads zero now.
    pub(crate) fn start() -> Self {
        Clock { origin: monotonic() }
    }

    /// The time since the origin.
    pub(crate) fn now(self) -> Nanos {
        Nanos(monotonic().saturating_sub(self.origin))
    }
}

fn monotonic() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// A timer that wakes a [`mio::Poll`].
///
/// The time-out of `epoll_wait` counts whole milliseconds and lies under the thread's timer slack; a
/// timerfd does neither. It is registered edge-triggered and never read: setting it anew clears it,
/// which saves a system call per expiry.
pub(crate) struct Alarm {
    fd: OwnedFd,
    clock: Clock,
    armed: Option<Nanos>,
}

impl Alarm {
    /// An alarm that is not set, announced under `token`.
    pub(crate) fn new(clock: Clock, registry: &Registry, token: Token) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Alarm { fd, clock, armed: None })
    }

    /// Wakes the poll at `at`, at once when that has passed, never when `None`. The last call counts.
    pub(crate) fn set(&mut self, at: Option<Nanos>) -> io::Result<()> {
        if at == self.armed {
            return Ok(());
        }
        // An all-zero value would disarm the timer, so a set time is at least 1 ns.
        let value = at.map_or(0, |at| (self.clock.origin + at.0).max(1));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec {
            tv_sec: (value / 1_000_000_000) as i64,
            tv_nsec: (value % 1_000_000_000) as i64,
        };
        let spec = Itimerspec { it_interval: zero, it_value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &spec)?;
        self.armed = at;
        Ok(())
    }

    /// To be called when the alarm went off: the next [`Alarm::set`] then arms it even for the same
    /// instant.
    pub(crate) fn rang(&mut self) {
        self.armed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rings_at_the_time_and_not_before_and_again_when_set_again() {
        let clock = Clock::start();
        let mut poll = mio::Poll::new().unwrap();
        let mut alarm = Alarm::new(clock, poll.registry(), Token(1)).unwrap();
        let mut events = mio::Events::with_capacity(4);
        for span in [Duration::from_millis(3), Duration::ZERO, Duration::from_micros(200)] {
            let due = clock.now() + span;
            alarm.set(Some(due)).unwrap();
            poll.poll(&mut events, Some(Duration::from_secs(5))).unwrap();
            assert!(events.iter().any(|e| e.token() == Token(1)), "{span:?}");
            assert!(clock.now() >= due);
            alarm.rang();
        }
    }

    #[test]
    fn an_alarm_taken_back_stays_silent() {
        let clock = Clock::start();
        let mut poll = mio::Poll::new().unwrap();
        let mut alarm = Alarm::new(clock, poll.registry(), Token(1)).unwrap();
        alarm.set(Some(clock.now() + Duration::from_millis(5))).unwrap();
        alarm.set(None).unwrap();
        let mut events = mio::Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_millis(30))).unwrap();
        assert!(events.is_empty());
    }
}
