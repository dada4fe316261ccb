//! Which HAProxys there are, and which task holds the connection to each.
//!
//! A task is found by its socket as the configuration spells it. Two spellings of one HAProxy have a task
//! each until both are connected: then the processes prove to be the same ([`Witness`]), and the younger
//! task hands its services to the older one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::task::{HaproxyTask, Subscriber};
use super::{HaproxyConnection, ProcessIdentity, SocketAddress, Witness};

/// What a task is asked by another one, or by a service that begins.
pub enum Message {
    /// To steer for these services too.
    Join(Vec<Subscriber>),
    /// Which process it is connected to.
    Testify(oneshot::Sender<Witness>),
    /// To look for an older task of the same process.
    LookForTwin,
}

/// Whether another task holds a connection to the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    /// No other one says the same of its process.
    None,
    /// One does, but did not prove it: it may be another process, or could not be asked.
    Unproven,
    /// The task of this number.
    Task(u64),
}

/// Proofs that two connections lead to one process; traffic could bring about one by chance …
const PROOFS: usize = 3;
/// … of so many attempts: HAProxy counts what it sent a little after it was sent, and later where it has no time …
const ATTEMPTS: usize = 8;
/// … so that it is given some.
const COUNTED: Duration = Duration::from_millis(1);
/// The longest wait for a proof: a task may be waiting for its HAProxy.
const PROOF: Duration = Duration::from_secs(1);

/// The tasks, shared by all services.
#[derive(Clone, Debug, Default)]
pub struct HaproxyTasks(Arc<Mutex<Registry>>);

#[derive(Debug, Default)]
struct Registry {
    next: u64,
    tasks: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    address: SocketAddress,
    messages: mpsc::UnboundedSender<Message>,
    identity: Option<ProcessIdentity>,
}

impl HaproxyTasks {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a service steered by the task of its HAProxy, which is started where there is none.
    pub fn subscribe(&self, subscriber: Subscriber, origin: Instant) {
        let mut registry = self.lock();
        let address = subscriber.address().clone();
        // A task that has died takes no messages any more.
        registry.tasks.retain(|_, entry| !entry.messages.is_closed());
        let mut joining = vec![subscriber];
        if let Some(entry) = registry.tasks.values().find(|entry| entry.address == address) {
            match entry.messages.send(Message::Join(joining)) {
                Ok(()) => return,
                Err(mpsc::error::SendError(Message::Join(back))) => joining = back,
                Err(_) => return,
            }
        }
        registry.next += 1;
        let number = registry.next;
        let (messages, inbox) = mpsc::unbounded_channel();
        let entry = Entry { address: address.clone(), messages, identity: None };
        registry.tasks.insert(number, entry);
        let task = HaproxyTask::new(number, address, joining, inbox, self.clone(), origin);
        tokio::spawn(task.run());
    }

    /// Ends a task that steers for no service. False when one has joined meanwhile.
    pub fn leave(&self, number: u64, inbox: &mpsc::UnboundedReceiver<Message>) -> bool {
        let mut registry = self.lock();
        let ends = inbox.is_empty();
        if ends {
            registry.tasks.remove(&number);
        }
        ends
    }

    /// Which process a task is connected to now. Returns older tasks that say the same of theirs; younger
    /// ones are asked to look.
    fn identify(&self, number: u64, identity: &ProcessIdentity) -> Vec<u64> {
        let mut registry = self.lock();
        if let Some(entry) = registry.tasks.get_mut(&number) {
            entry.identity = Some(identity.clone());
        }
        let mut older = Vec::new();
        for (&other, entry) in &registry.tasks {
            if other == number || entry.identity.as_ref() != Some(identity) {
                continue;
            }
            if other < number {
                older.push(other);
            } else {
                let _ = entry.messages.send(Message::LookForTwin);
            }
        }
        older
    }

    /// Looks for an older task that holds another connection to the same process.
    pub async fn twin(&self, number: u64, connection: &mut HaproxyConnection) -> Twin {
        let Ok(witness) = connection.witness().await else { return Twin::Unproven };
        let mut found = Twin::None;
        for other in self.identify(number, &witness.identity) {
            let mut proven = 0;
            for _ in 0..ATTEMPTS {
                match self.proves(other, connection).await {
                    Some(true) => proven += 1,
                    Some(false) => {}
                    None => break,
                }
                if proven == PROOFS {
                    return Twin::Task(other);
                }
            }
            found = Twin::Unproven;
        }
        found
    }

    /// Whether another task's process proves to be this one; none when it cannot be asked.
    async fn proves(&self, other: u64, connection: &mut HaproxyConnection) -> Option<bool> {
        let first = connection.witness().await.ok()?;
        sleep(COUNTED).await;
        let (sender, answer) = oneshot::channel();
        self.lock().tasks.get(&other)?.messages.send(Message::Testify(sender)).ok()?;
        let between = timeout(PROOF, answer).await.ok()?.ok()?;
        sleep(COUNTED).await;
        let last = connection.witness().await.ok()?;
        Some(Witness::is_one_process(&first, &between, &last))
    }

    /// Hands the services of one task to another, and ends the one. Gives them back when the other is gone.
    pub fn hand_over(
        &self,
        number: u64,
        to: u64,
        mut subscribers: Vec<Subscriber>,
        inbox: &mut mpsc::UnboundedReceiver<Message>,
    ) -> Result<(), Vec<Subscriber>> {
        let mut registry = self.lock();
        let Some(entry) = registry.tasks.get(&to) else { return Err(subscribers) };
        // No service can join while the registry is locked.
        while let Ok(message) = inbox.try_recv() {
            if let Message::Join(more) = message {
                subscribers.extend(more);
            }
        }
        match entry.messages.send(Message::Join(subscribers)) {
            Ok(()) => {
                registry.tasks.remove(&number);
                Ok(())
            }
            Err(mpsc::error::SendError(Message::Join(back))) => Err(back),
            Err(_) => Err(Vec::new()),
        }
    }
}
