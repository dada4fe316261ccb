use std::fmt::Write as _;

use plimsoll_model::{Applied, MethodKind, Plan, SinkLimits};

use super::link::LinkError;
use super::{HaproxyConnection, SteeredBackend, method};
use crate::SinkError;
use crate::servers::planned;

/// One weight to change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    server: String,
    from: u32,
    to: u32,
}

/// A batch that HAProxy answered.
enum Sent {
    /// All commands were taken.
    All,
    /// The first that was refused (by position), with the answer.
    Refused(usize, String),
}

/// A batch that was sent, and in which life of HAProxy.
struct Begun {
    life: u64,
    changes: Vec<Change>,
    retried: bool,
}

impl SteeredBackend {
    /// See [`crate::WeightSink::apply`].
    ///
    /// # Errors
    /// As there.
    pub async fn apply(
        &mut self,
        connection: &mut HaproxyConnection,
        plan: &Plan,
    ) -> Result<Applied, SinkError> {
        Programming { connection, backend: self }.apply(plan).await
    }
}

/// A backend that is programmed, and the connection to its HAProxy.
struct Programming<'a> {
    connection: &'a mut HaproxyConnection,
    backend: &'a mut SteeredBackend,
}

impl Programming<'_> {
    async fn apply(&mut self, plan: &Plan) -> Result<Applied, SinkError> {
        let wanted = planned(
            plan,
            self.backend.roster.servers(),
            &SinkLimits::haproxy().range,
            "HAProxy's",
        )?;
        let mut begun: Option<Begun> = None;
        loop {
            let changes = match self.prepare(plan.epoch, &wanted).await {
                Ok(changes) => changes,
                Err(error) => return Err(self.interrupted(error, begun).await),
            };
            if changes.is_empty() {
                return Ok(self.applied(plan.epoch, 0));
            }
            let sent = self.send(&changes).await;
            // What was there before the first attempt is what an undo goes back to.
            let whole = match begun.take().filter(|begun| begun.life == self.backend.generation()) {
                Some(first) => Begun { retried: true, ..first },
                None => Begun {
                    life: self.backend.generation(),
                    changes: changes.clone(),
                    retried: false,
                },
            };
            match sent {
                Ok(Sent::All) => return Ok(self.applied(plan.epoch, changes.len())),
                Ok(Sent::Refused(at, answer)) => {
                    return Err(self.refused(whole, changes[at].clone(), answer).await);
                }
                // Weights are absolute: sending them again on a new connection does no harm.
                Err(LinkError::Cut(_)) if !whole.retried => begun = Some(whole),
                Err(error) => {
                    let error = self.connection.link.error(error);
                    return Err(self.interrupted(error, Some(whole)).await);
                }
            }
        }
    }

    /// Reads what HAProxy holds, refuses what must not be done, and returns what is to be changed.
    async fn prepare(
        &mut self,
        epoch: u64,
        wanted: &[(String, u32)],
    ) -> Result<Vec<Change>, SinkError> {
        self.read_states().await?;
        self.connection.check(self.backend)?;
        if let Some(refusal) = self.connection.refusal(self.backend) {
            return Err(refusal);
        }
        let method = self.connection.learn_method(self.backend).await?;
        if method.kind == MethodKind::NoLiveWeights {
            let backend = self.backend.name.clone();
            return Err(SinkError::NoLiveWeights { backend, method: method.name });
        }
        let changes = self.changes(wanted);
        self.refuse_all_zero(epoch, &changes)?;
        Ok(changes)
    }

    async fn read_states(&mut self) -> Result<(), SinkError> {
        self.connection.poll(&mut [&mut *self.backend], false).await
    }

    /// What differs, what grows before what shrinks: at no instant are all weights 0.
    fn changes(&self, wanted: &[(String, u32)]) -> Vec<Change> {
        let mut changes: Vec<Change> = wanted
            .iter()
            .enumerate()
            .filter_map(|(hint, (name, to))| {
                let from = self.backend.snapshot.row(hint, name)?.state.weight;
                let change = Change { server: name.clone(), from, to: *to };
                (from != *to).then_some(change)
            })
            .collect();
        changes.sort_by_key(|change| change.to < change.from);
        changes
    }

    /// With every weight at 0 HAProxy answers 503 to all: no plan may do that.
    fn refuse_all_zero(&self, epoch: u64, changes: &[Change]) -> Result<(), SinkError> {
        let after = |name: &str, held: u32| {
            changes.iter().find(|change| change.server == name).map_or(held, |change| change.to)
        };
        let rows = &self.backend.snapshot.rows;
        if changes.is_empty() || rows.iter().any(|row| after(&row.name, row.state.weight) > 0) {
            return Ok(());
        }
        let reason = format!("it would leave every server of {:?} at weight 0", self.backend.name);
        Err(SinkError::InvalidPlan { epoch, reason })
    }

    /// Sends a batch in one write, and reads back in the same exchange what HAProxy holds then.
    async fn send(&mut self, changes: &[Change]) -> Result<Sent, LinkError> {
        let mut lines = String::with_capacity(changes.len() * 48);
        for Change { server, to, .. } in changes {
            let _ = writeln!(lines, "set server {}/{server} weight {to}", self.backend.name);
        }
        let _ = writeln!(lines, "show servers state {}", self.backend.name);
        let answers = self.connection.link.exchange(&lines).await?;
        let refused = (0..changes.len())
            .find(|at| !answers.get(*at).is_empty())
            .map(|at| Sent::Refused(at, answers.text(at)));
        self.connection.take_states(self.backend, changes.len())?;
        Ok(refused.unwrap_or(Sent::All))
    }

    /// What all steered servers hold, as read after the batch.
    fn applied(&self, epoch: u64, commands: usize) -> Applied {
        let weights =
            self.backend.roster.servers().iter().enumerate().filter_map(|(hint, (id, name))| {
                self.backend.snapshot.row(hint, name).map(|row| (*id, row.state.weight))
            });
        let commands = u32::try_from(commands).unwrap_or(u32::MAX);
        Applied { epoch, weights: weights.collect(), commands }
    }

    /// Puts back what a refused batch changed, and makes the error.
    async fn refused(&mut self, batch: Begun, first: Change, answer: String) -> SinkError {
        let done = self.held(batch.changes);
        if done.is_empty() && answer.contains("Permission denied") {
            return self.connection.too_low("below admin", "admin to steer");
        }
        if done.is_empty() && method::is_static(&answer) {
            return self.static_after_all();
        }
        let (restored, unrestored) = self.put_back(&done).await;
        SinkError::Rejected {
            backend: self.backend.name.clone(),
            server: first.server,
            weight: first.to,
            answer,
            restored,
            unrestored,
        }
    }

    /// Those changes that HAProxy now holds.
    fn held(&self, changes: Vec<Change>) -> Vec<Change> {
        let row = |change: &Change| self.backend.snapshot.row(0, &change.server);
        let held = |change: &Change| row(change).is_some_and(|row| row.state.weight == change.to);
        changes.into_iter().filter(held).collect()
    }

    /// HAProxy says by its refusal that the method takes no weights: remembered for this connection.
    fn static_after_all(&mut self) -> SinkError {
        let mut name = String::new();
        if let Some(method) = &mut self.backend.method {
            method.kind = MethodKind::NoLiveWeights;
            name.clone_from(&method.name);
        }
        SinkError::NoLiveWeights { backend: self.backend.name.clone(), method: name }
    }

    /// Gives back their former weights. Returns which servers have it again, and which may not.
    async fn put_back(&mut self, done: &[Change]) -> (Vec<(String, u32)>, Vec<(String, u32)>) {
        let mut undo: Vec<Change> = done
            .iter()
            .map(|change| Change { from: change.to, to: change.from, ..change.clone() })
            .collect();
        undo.sort_by_key(|change| change.to < change.from);
        let sent = !undo.is_empty() && self.send(&undo).await.is_ok();
        undo.into_iter().map(|change| (change.server, change.to)).partition(|(server, weight)| {
            sent && self
                .backend
                .snapshot
                .row(0, server)
                .is_some_and(|row| row.state.weight == *weight)
        })
    }

    /// A batch was sent and its fate is not known: looks what HAProxy holds, puts back what the batch
    /// changed, and makes the error. A restarted HAProxy holds nothing of it.
    async fn interrupted(&mut self, error: SinkError, begun: Option<Begun>) -> SinkError {
        let Some(Begun { life, changes, .. }) = begun else {
            return error;
        };
        let (restored, unrestored) = if self.read_states().await.is_err() {
            (Vec::new(), changes.into_iter().map(|change| (change.server, change.from)).collect())
        } else if self.backend.generation() == life {
            let changed = self.held(changes);
            self.put_back(&changed).await
        } else {
            (Vec::new(), Vec::new())
        };
        let (backend, source) = (self.backend.name.clone(), Box::new(error));
        SinkError::Interrupted { backend, source, restored, unrestored }
    }
}
