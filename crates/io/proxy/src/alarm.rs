//! When a task must look again although none of its sockets has moved: one timer for all time-outs of a client's
//! connection, instead of one armed and disarmed for each wait of each request.
//!
//! Whoever waits asks [`Alarm::is_past`] at each of its polls. The timer is set to the earliest time that was ever asked
//! for, and never moved back: a wait that ends before its time costs nothing but a comparison, and a timer that rings for
//! it in vain later, at most once per time-out.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// The alarm of one task.
#[derive(Default)]
pub(crate) struct Alarm {
    earliest: Cell<Option<Instant>>,
    /// Whether this poll comes of the timer: else no clock is read.
    is_ringing: Cell<bool>,
}

impl Alarm {
    /// Whether `when` is past; if it is not, this task is polled again when it is. To be asked at each poll that ends
    /// pending, within [`Alarm::wake`].
    pub(crate) fn is_past(&self, when: Instant) -> bool {
        if self.is_ringing.get() && Instant::now() >= when {
            return true;
        }
        if self.earliest.get().is_none_or(|earliest| when < earliest) {
            self.earliest.set(Some(when));
        }
        false
    }

    /// Waits for `what`, until a time that may move; none then.
    pub(crate) async fn by<T>(
        &self,
        deadline: impl Fn() -> Instant,
        what: impl Future<Output = T>,
    ) -> Option<T> {
        let mut what = pin!(what);
        poll_fn(|cx| match what.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.is_past(deadline()) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Polls once more whenever it rings. This is around all of a task's work, once.
    pub(crate) async fn wake<T>(&self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        let mut timer: Pin<&mut Option<Sleep>> = pin!(None);
        poll_fn(|cx| {
            loop {
                let polled = poll(cx);
                self.is_ringing.set(false);
                if polled.is_ready() {
                    return polled;
                }
                let Some(when) = self.earliest.get() else { return Poll::Pending };
                if !has_elapsed(timer.as_mut(), when, cx) {
                    return Poll::Pending;
                }
                self.earliest.set(None);
                self.is_ringing.set(true);
            }
        })
        .await
    }
}

fn has_elapsed(mut timer: Pin<&mut Option<Sleep>>, when: Instant, cx: &mut Context<'_>) -> bool {
    match timer.as_mut().as_pin_mut() {
        // It was polled when it was set, by this task: the runtime knows which task to wake.
        Some(timer) if timer.deadline() == when => return timer.is_elapsed(),
        Some(timer) => timer.reset(when),
        None => timer.set(Some(sleep_until(when))),
    }
    timer.as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready())
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use super::*;

    /// Waits of this many milliseconds each, one after the other.
    async fn waits(alarm: &Alarm, waits: &[u64]) -> Vec<Option<()>> {
        let mut ended = Vec::new();
        for wait in waits {
            let until = Instant::now() + Duration::from_millis(*wait);
            ended.push(alarm.by(|| until, pending()).await);
        }
        ended
    }

    #[tokio::test]
    async fn waits_end_at_their_time_shorter_and_longer_ones_alike() {
        let alarm = Alarm::default();
        let began = Instant::now();
        let mut work = pin!(waits(&alarm, &[40, 1, 20, 1]));
        assert_eq!(alarm.wake(|cx| work.as_mut().poll(cx)).await, [None; 4]);
        assert!(began.elapsed() >= Duration::from_millis(62));
    }

    #[tokio::test]
    async fn what_is_done_in_time_is_done() {
        let alarm = Alarm::default();
        let far = Instant::now() + Duration::from_secs(3_600);
        let mut work = pin!(alarm.by(|| far, tokio::time::sleep(Duration::from_millis(5))));
        assert_eq!(alarm.wake(|cx| work.as_mut().poll(cx)).await, Some(()));
    }

    #[tokio::test]
    async fn a_deadline_that_moves_is_kept_to() {
        let alarm = Alarm::default();
        let began = Instant::now();
        let (first, moved) = (began + Duration::from_millis(5), began + Duration::from_millis(50));
        let deadline = Cell::new(first);
        let mut work = pin!(alarm.by(|| deadline.get(), pending::<()>()));
        let ended = alarm.wake(|cx| {
            let polled = work.as_mut().poll(cx);
            deadline.set(moved);
            polled
        });
        assert_eq!(ended.await, None);
        assert!(began.elapsed() >= Duration::from_millis(50));
    }
}
