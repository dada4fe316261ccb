//! Liveness rounds in the order in which they matter.

use std::collections::VecDeque;

use plimsoll_probe::LivenessEvent;
use tokio::sync::mpsc::Receiver;

/// Gives failed rounds before good ones: of thirty backends with ten rounds a second each, the one
/// that died must not stand behind all that live.
#[derive(Debug)]
pub struct Rounds {
    inbox: Receiver<LivenessEvent>,
    failed: VecDeque<LivenessEvent>,
    good: VecDeque<LivenessEvent>,
}

impl Rounds {
    /// The rounds that come through this channel.
    pub fn new(inbox: Receiver<LivenessEvent>) -> Self {
        Rounds { inbox, failed: VecDeque::new(), good: VecDeque::new() }
    }

    /// The next round; none when no more will come. Dropping it while it waits loses nothing.
    pub async fn next(&mut self) -> Option<LivenessEvent> {
        while let Ok(round) = self.inbox.try_recv() {
            self.sort(round);
        }
        if let Some(round) = self.failed.pop_front().or_else(|| self.good.pop_front()) {
            return Some(round);
        }
        self.inbox.recv().await
    }

    fn sort(&mut self, round: LivenessEvent) {
        if round.successes == 0 {
            self.failed.push_back(round);
        } else {
            self.good.push_back(round);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::{BackendId, Nanos};
    use tokio::sync::mpsc::channel;

    fn round(backend: u32, successes: u32) -> LivenessEvent {
        LivenessEvent {
            backend: BackendId(backend),
            successes,
            failures: 1,
            first_failure: None,
            detail: "".into(),
            started: Nanos::ZERO,
            at: Nanos::ZERO,
        }
    }

    #[tokio::test]
    async fn failed_rounds_come_first_and_none_is_lost() {
        let (sender, inbox) = channel(8);
        let mut rounds = Rounds::new(inbox);
        for (backend, successes) in [(1, 3), (2, 0), (3, 1), (4, 0)] {
            sender.send(round(backend, successes)).await.expect("room");
        }
        let mut order = vec![rounds.next().await.expect("a round").backend.0];
        sender.send(round(5, 0)).await.expect("room");
        drop(sender);
        while let Some(round) = rounds.next().await {
            order.push(round.backend.0);
        }
        assert_eq!(order, [2, 4, 5, 1, 3]);
    }
}
