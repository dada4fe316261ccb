use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_model::BackendId;
use redb::{Database, Durability};

use crate::batch::Batch;
use crate::lock::{Holder, Lock};
use crate::records::{PlanRecord, StoredEvent};
use crate::tables::{self, Bounds, Redb};
use crate::{StoreError, open};

/// Plans and memory reach the disk this long after they were written, at the latest, as long as
/// [`Store::write`] or [`Store::flush`] is called.
const PRESSING: Duration = Duration::from_secs(1);
/// The same for events alone: each durable commit costs two waits for the disk.
const AT_EASE: Duration = Duration::from_secs(10);

/// What was learned, kept in one file. All calls block for the time of a disk access: use it from a
/// thread of its own, or from one that may block.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    bounds: Bounds,
    inner: Mutex<Inner>,
    /// Released last: fields are dropped in order.
    _lock: Lock,
}

#[derive(Debug)]
struct Inner {
    /// `None` after the database failed: it wants to be opened again.
    db: Option<Database>,
    durable_at: Option<Instant>,
    waiting: Waiting,
}

/// What was committed and may not have reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waiting {
    Nothing,
    AtEase,
    Pressing,
}

impl Store {
    /// Opens the store at `path`, or makes a new one if nothing is there. The whole of it is checked
    /// before anything is written to it.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another controller holds it; what is damaged, foreign or newer is
    /// named so, and left as it is.
    pub fn open(path: &Path, holder: &Holder) -> Result<Store, StoreError> {
        Store::open_with(path, holder, Bounds::default())
    }

    /// The same with bounds other than the default ones.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(path: &Path, holder: &Holder, bounds: Bounds) -> Result<Store, StoreError> {
        let path = open::resolve(path)?;
        // Before the lock as well, so that a mistaken path leaves no lock file behind.
        open::inspect(&path)?;
        let lock = Lock::take(&path, holder)?;
        if open::inspect(&path)? {
            open::verify(&path)?;
            let file = File::open(&path).map_err(|error| StoreError::io(&path, error))?;
            open::make_private(&file).map_err(|error| StoreError::io(&path, error))?;
        } else {
            open::create(&path)?;
        }
        let db = open::open(&path)?;
        tables::discard_samples(&db).map_err(|error| StoreError::database(&path, error))?;
        let db = Some(db);
        let inner = Mutex::new(Inner { db, durable_at: None, waiting: Waiting::Nothing });
        Ok(Store { path, bounds, inner, _lock: lock })
    }

    /// The file, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a batch, all of it or nothing. It can be read back at once; it has reached the disk when
    /// a second has passed and the store was written to or flushed again (ten seconds if it holds
    /// only events).
    ///
    /// # Errors
    /// [`StoreError::Full`] when there is no room: the batch is lost, as may be what had not reached
    /// the disk; the rest stays readable, and later writes succeed once there is room.
    pub fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut inner = self.inner();
        let now = if batch.is_pressing() { Waiting::Pressing } else { Waiting::AtEase };
        let waiting = inner.waiting.max(now);
        let durable = inner.is_due(waiting);
        let durability = if durable { Durability::Immediate } else { Durability::None };
        let bounds = self.bounds;
        self.with(&mut inner, |db| tables::commit(db, batch, durability, bounds))?;
        inner.committed(durable, waiting);
        Ok(())
    }

    /// Makes durable what is due; to be called about once a second.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn flush_due(&self) -> Result<(), StoreError> {
        let due = {
            let inner = self.inner();
            inner.is_due(inner.waiting)
        };
        if due { self.flush() } else { Ok(()) }
    }

    /// Makes durable all that was written.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn flush(&self) -> Result<(), StoreError> {
        let mut inner = self.inner();
        if inner.waiting == Waiting::Nothing {
            return Ok(());
        }
        self.with(&mut inner, tables::flush)?;
        inner.committed(true, Waiting::Nothing);
        Ok(())
    }

    /// Keeps what the controller of a service has learned: a batch of its own.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn save_memory(&self, service: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        batch.memory(service, bytes.to_vec());
        self.write(&batch)
    }

    /// What the controller of a service had learned.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn load_memory(&self, service: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|db| tables::memory(db, service))
    }

    /// The last `limit` plans of a service, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn last_plans(&self, service: &str, limit: usize) -> Result<Vec<PlanRecord>, StoreError> {
        self.read(|db| tables::last_plans(db, service, limit))
    }

    /// The last `limit` events of a service, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn last_events(&self, service: &str, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        self.read(|db| tables::last_events(db, service, limit))
    }

    /// The first `limit` events of a service after number `seq`, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn events_after(
        &self,
        service: &str,
        seq: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        self.read(|db| tables::events_after(db, service, seq, limit))
    }

    /// The identities of a service's backends, in the order of their names: the ones they had before,
    /// or new ones that no backend of this store ever had. Durable when it returns.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn backend_ids(&self, service: &str, names: &[&str]) -> Result<Vec<BackendId>, StoreError> {
        self.write_durably(|db| tables::backend_ids(db, service, names))
    }

    fn write_durably<T>(&self, op: impl FnOnce(&Database) -> Redb<T>) -> Result<T, StoreError> {
        let mut inner = self.inner();
        let done = self.with(&mut inner, op)?;
        inner.committed(true, Waiting::Nothing);
        Ok(done)
    }

    fn read<T>(&self, op: impl FnOnce(&Database) -> Redb<T>) -> Result<T, StoreError> {
        self.with(&mut self.inner(), op)
    }

    /// Runs one operation. A database that failed once takes nothing more until it is opened again.
    fn with<T>(
        &self,
        inner: &mut Inner,
        op: impl FnOnce(&Database) -> Redb<T>,
    ) -> Result<T, StoreError> {
        let db = match inner.db.take() {
            Some(db) => db,
            None => open::open(&self.path)?,
        };
        match op(&db) {
            Ok(done) => {
                inner.db = Some(db);
                Ok(done)
            }
            Err(error) => {
                inner.waiting = Waiting::Nothing;
                Err(StoreError::database(&self.path, error))
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn is_due(&self, waiting: Waiting) -> bool {
        let after = match waiting {
            Waiting::Nothing => return false,
            Waiting::AtEase => AT_EASE,
            Waiting::Pressing => PRESSING,
        };
        self.durable_at.is_none_or(|at| at.elapsed() >= after)
    }

    fn committed(&mut self, durable: bool, waiting: Waiting) {
        if durable {
            self.durable_at = Some(Instant::now());
            self.waiting = Waiting::Nothing;
        } else {
            self.waiting = waiting;
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // No caller is left; what had reached the disk before stays.
        self.flush().ok();
    }
}
