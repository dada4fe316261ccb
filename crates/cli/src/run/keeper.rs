//! The store's own thread: it gathers what is to be kept, writes it in batches, and flushes. Nothing
//! that decides or measures ever waits for a disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plimsoll_store::{Batch, EventRecord, PlanRecord, Store};
use tokio::sync::{oneshot, watch};

/// What waits for a disk that hangs; beyond that, entries are dropped, and that is said.
const WAITING: usize = 8_192;
/// Entries that come within this time share a batch.
const GATHER: Duration = Duration::from_millis(200);
/// How often what was written is made durable where it is due.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// One thing to keep.
#[derive(Debug)]
enum Entry {
    Memory(Arc<str>, Vec<u8>),
    Plan(Arc<str>, PlanRecord),
    Event(Arc<str>, EventRecord),
    Written(oneshot::Sender<()>),
    Stop,
}

/// Takes what is to be kept; cloning it is cheap and shares it.
#[derive(Clone, Debug)]
pub struct Keeper {
    entries: SyncSender<Entry>,
    trouble: watch::Receiver<Option<String>>,
    trouble_sender: Arc<watch::Sender<Option<String>>>,
}

/// The thread.
#[derive(Debug)]
pub struct KeeperThread {
    handle: JoinHandle<()>,
    entries: SyncSender<Entry>,
}

impl Keeper {
    /// Starts the thread that writes to this store.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(store: Arc<Store>) -> std::io::Result<(Keeper, KeeperThread)> {
        let (entries, inbox) = sync_channel(WAITING);
        let (sender, trouble) = watch::channel(None);
        let sender = Arc::new(sender);
        let writer = Writer { store, trouble: sender.clone(), flushed: Instant::now() };
        let handle = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || writer.run(&inbox))?;
        let keeper = Keeper { entries: entries.clone(), trouble, trouble_sender: sender };
        Ok((keeper, KeeperThread { handle, entries }))
    }

    /// What the controller of a service has learned.
    pub fn memory(&self, service: &Arc<str>, bytes: Vec<u8>) {
        self.put(Entry::Memory(service.clone(), bytes));
    }

    /// One more plan of a service.
    pub fn plan(&self, service: &Arc<str>, plan: PlanRecord) {
        self.put(Entry::Plan(service.clone(), plan));
    }

    /// One more event of a service.
    pub fn event(&self, service: &Arc<str>, event: EventRecord) {
        self.put(Entry::Event(service.clone(), event));
    }

    /// Waits until what was put before has been written, or could not be.
    pub async fn written(&self) {
        let (done, written) = oneshot::channel();
        self.put(Entry::Written(done));
        // An error is an end of the thread: nothing will be written any more.
        let _ = written.await;
    }

    /// Why nothing can be kept at present; none when it can. Changes are signalled.
    pub fn trouble(&self) -> watch::Receiver<Option<String>> {
        self.trouble.clone()
    }

    fn put(&self, entry: Entry) {
        let why = match self.entries.try_send(entry) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => {
                format!("the disk does not keep up: more than {WAITING} entries wait")
            }
            Err(TrySendError::Disconnected(_)) => {
                "the thread that writes the store has ended: restart Plimsoll".to_owned()
            }
        };
        set(&self.trouble_sender, Some(why));
    }
}

impl KeeperThread {
    /// Writes and flushes what was put so far, and ends.
    pub fn stop(self) {
        // A thread that has ended needs no telling, and a panic in it has been printed.
        let _ = self.entries.send(Entry::Stop);
        let _ = self.handle.join();
    }
}

struct Writer {
    store: Arc<Store>,
    trouble: Arc<watch::Sender<Option<String>>>,
    flushed: Instant,
}

impl Writer {
    fn run(mut self, inbox: &Receiver<Entry>) {
        loop {
            let Gathered { batch, ended, asked } = gather(inbox);
            let mut done = self.store.write(&batch);
            if ended {
                done = done.and(self.store.flush());
            } else if self.flushed.elapsed() >= FLUSH_EVERY {
                self.flushed = Instant::now();
                done = done.and(self.store.flush_due());
            }
            match done {
                Err(error) => set(&self.trouble, Some(error.to_string())),
                // An idle store proves nothing.
                Ok(()) if batch.is_empty() => {}
                Ok(()) => set(&self.trouble, None),
            }
            if let Some(asked) = asked {
                // The caller may have gone.
                let _ = asked.send(());
            }
            if ended {
                return;
            }
        }
    }
}

#[derive(Default)]
struct Gathered {
    batch: Batch,
    /// Nothing more will come.
    ended: bool,
    /// A caller waits until it is written.
    asked: Option<oneshot::Sender<()>>,
}

/// What comes within the time of a batch.
fn gather(inbox: &Receiver<Entry>) -> Gathered {
    let mut gathered = Gathered::default();
    let batch = &mut gathered.batch;
    let until = Instant::now() + GATHER;
    loop {
        match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Entry::Memory(service, bytes)) => batch.memory(&service, bytes),
            Ok(Entry::Plan(service, plan)) => batch.plan(&service, plan),
            Ok(Entry::Event(service, event)) => batch.event(&service, event),
            Ok(Entry::Written(asked)) => return Gathered { asked: Some(asked), ..gathered },
            Ok(Entry::Stop) | Err(RecvTimeoutError::Disconnected) => {
                return Gathered { ended: true, ..gathered };
            }
            Err(RecvTimeoutError::Timeout) => return gathered,
        }
    }
}

fn set(trouble: &watch::Sender<Option<String>>, now: Option<String>) {
    trouble.send_if_modified(|held| {
        let changed = *held != now;
        *held = now;
        changed
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_store::Holder;

    fn event(reason: &str) -> EventRecord {
        EventRecord {
            unix_ms: 1,
            backend: None,
            kind: "warning".to_owned(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn what_was_put_is_there_after_a_stop() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        let holder = Holder::this_process("");
        let store = Arc::new(Store::open(&path, &holder).expect("a new store"));
        let (keeper, thread) = Keeper::start(store.clone()).expect("a thread");
        let shop: Arc<str> = "shop".into();
        keeper.memory(&shop, b"known".to_vec());
        keeper.event(&shop, event("one"));
        keeper.event(&shop, event("two"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(keeper.written());
        assert_eq!(store.last_events("shop", 9).expect("readable").len(), 2);
        keeper.event(&shop, event("three"));
        thread.stop();
        drop(store);
        let store = Store::open(&path, &holder).expect("the same store");
        assert_eq!(store.load_memory("shop").expect("readable").as_deref(), Some(&b"known"[..]));
        let events = store.last_events("shop", 9).expect("readable");
        assert_eq!(
            events.iter().map(|e| e.event.reason.as_str()).collect::<Vec<_>>(),
            ["one", "two", "three"]
        );
        assert_eq!(*keeper.trouble().borrow(), None);
    }

    #[test]
    fn a_thread_that_does_not_keep_up_is_a_trouble_and_no_wait() {
        let (entries, _inbox) = sync_channel(1);
        let (sender, trouble) = watch::channel(None);
        let keeper = Keeper { entries, trouble, trouble_sender: Arc::new(sender) };
        keeper.event(&"shop".into(), event("taken"));
        assert_eq!(*keeper.trouble().borrow(), None);
        keeper.event(&"shop".into(), event("dropped"));
        assert!(keeper.trouble().borrow().as_ref().is_some_and(|why| why.contains("keep up")));
    }
}
