//! Stands between a sink's task and its service: passes on what the service wants, and puts what a source tells in the
//! place of the balancer's own counters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_model::BalancerReport;
use tokio::sync::Notify;

use crate::steer::{Loss, SinkEnd, SinkHandle, SinkReport};

/// What is known from a source, which learns at its start what its servers are called.
pub(super) trait Feed: Send + 'static {
    /// Puts what is known in the place of the balancer's own counters, this long after the daemon's start; false where
    /// there is nothing to report yet.
    fn fill(&mut self, report: &mut BalancerReport, now: Duration) -> bool;
    /// What people should know of the source, when that is news.
    fn note(&mut self) -> Option<String>;
    /// Why nothing can be learned from it now, if so.
    fn trouble(&self) -> Option<String> {
        None
    }
}

/// What is behind it is whole, whoever panicked: no invariant spans two statements.
pub(super) fn lock<T>(known: &Mutex<T>) -> MutexGuard<'_, T> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until the service or the sink ends.
pub(super) async fn pass<F: Feed>(
    known: Arc<Mutex<F>>,
    mut sink: SinkHandle,
    end: SinkEnd,
    origin: Instant,
) {
    let bell = Arc::new(Notify::new());
    end.mailbox.ring(&bell);
    let (mut balancers, mut told) = (None, None);
    loop {
        tokio::select! {
            biased;
            () = bell.notified() => {
                let Some(orders) = end.mailbox.take() else { continue };
                if orders.closed {
                    return;
                }
                if let Some(servers) = orders.servers {
                    sink.set_servers(servers);
                }
                if let Some(plan) = orders.plan {
                    sink.program(plan);
                }
            }
            report = sink.reports.recv() => match report {
                None => return,
                Some(SinkReport::Read(mut report, took)) => {
                    let mut known = lock(&known);
                    let is_told = known.fill(&mut report, origin.elapsed());
                    let (note, trouble) = (known.note(), known.trouble());
                    drop(known);
                    if let Some(note) = note {
                        end.tell(SinkReport::Note(note));
                    }
                    let degraded = both(balancers.as_ref(), trouble);
                    if degraded != told && end.offer(SinkReport::Degraded(degraded.clone())) {
                        told = degraded;
                    }
                    if is_told {
                        end.tell(SinkReport::Read(report, took));
                    }
                }
                Some(SinkReport::Degraded(loss)) => {
                    let degraded = both(loss.as_ref(), lock(&known).trouble());
                    balancers = loss;
                    if end.offer(SinkReport::Degraded(degraded.clone())) {
                        told = degraded;
                    }
                }
                Some(other) => end.tell(other),
            },
        }
    }
}

/// What ails some of several balancers, and the source.
fn both(balancers: Option<&Loss>, source: Option<String>) -> Option<Loss> {
    let source = source.map(|reason| Loss { reason, retryable: true, absent: false });
    match (balancers, source) {
        (Some(balancers), Some(source)) => {
            Some(Loss { reason: format!("{}; {}", balancers.reason, source.reason), ..source })
        }
        (balancers, source) => balancers.cloned().or(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ails_balancers_and_their_source_is_told_together() {
        let gone = Loss { reason: "A is gone".to_owned(), retryable: false, absent: true };
        assert_eq!(both(None, None), None);
        assert_eq!(both(Some(&gone), None), Some(gone.clone()));
        let told = both(Some(&gone), Some("B tells nothing".to_owned())).expect("a loss");
        assert_eq!(told.reason, "A is gone; B tells nothing");
        // A server may have left on purpose, which would hide the source.
        assert!(!told.absent);
        assert_eq!(
            both(None, Some("B tells nothing".to_owned())).expect("a loss").reason,
            "B tells nothing"
        );
    }
}
