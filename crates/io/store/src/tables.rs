//! The tables of the database, and how a batch goes into them.

use std::ops::RangeInclusive;

use plimsoll_model::BackendId;
use redb::{
    Database, Durability, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition,
    TableError, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::batch::Batch;
use crate::records::{EventRecord, PlanRecord, StoredEvent};

/// The format that this code writes; the only one so far.
pub(crate) const FORMAT: u64 = 1;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Plans per service.
    pub plans: u64,
    /// Events per service.
    pub events: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { plans: 100, events: 10_000 }
    }
}

/// What makes a database ours: `format`, and `next_backend_id`.
const META: TableDefinition<&str, u64> = TableDefinition::new("plimsoll_meta");
/// Service → what its controller learned.
const MEMORY: TableDefinition<&str, &[u8]> = TableDefinition::new("memory");
/// Of earlier versions, which kept samples that nothing read.
const SAMPLES: TableDefinition<(&str, &str, u64), &[u8]> = TableDefinition::new("samples");
/// Service, number → [`PlanRecord`] in JSON.
const PLANS: TableDefinition<(&str, u64), &[u8]> = TableDefinition::new("plans");
/// Service, number → [`EventRecord`] in JSON.
const EVENTS: TableDefinition<(&str, u64), &[u8]> = TableDefinition::new("events");
/// Service, backend → identity.
const BACKENDS: TableDefinition<(&str, &str), u32> = TableDefinition::new("backends");

const FORMAT_KEY: &str = "format";
const NEXT_ID_KEY: &str = "next_backend_id";

pub(crate) type Redb<T> = Result<T, redb::Error>;

fn corrupted<T>(what: String) -> Redb<T> {
    Err(redb::Error::Corrupted(what))
}

/// Makes a new database ours: every table exists from the start.
pub(crate) fn initialise(db: &Database) -> Redb<()> {
    let transaction = begin(db, Durability::Immediate)?;
    transaction.open_table(META)?.insert(FORMAT_KEY, FORMAT)?;
    transaction.open_table(MEMORY)?;
    transaction.open_table(PLANS)?;
    transaction.open_table(EVENTS)?;
    transaction.open_table(BACKENDS)?;
    transaction.commit()?;
    Ok(())
}

/// The format of a database; `None` when it is another program's.
pub(crate) fn format(db: &Database) -> Redb<Option<u64>> {
    let transaction = db.begin_read()?;
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::Storage(error)) => return Err(error.into()),
        // Missing, or of other types.
        Err(_) => return Ok(None),
    };
    Ok(meta.get(FORMAT_KEY)?.map(|format| format.value()))
}

fn begin(db: &Database, durability: Durability) -> Redb<WriteTransaction> {
    let mut transaction = db.begin_write()?;
    transaction.set_durability(durability)?;
    Ok(transaction)
}

/// Gives back the room of what earlier versions kept and nothing reads.
pub(crate) fn discard_samples(db: &Database) -> Redb<()> {
    let transaction = begin(db, Durability::Immediate)?;
    if transaction.delete_table(SAMPLES)? {
        transaction.commit()?
    } else {
        transaction.abort()?
    }
    Ok(())
}

/// Commits nothing new: makes durable what was committed before.
pub(crate) fn flush(db: &Database) -> Redb<()> {
    begin(db, Durability::Immediate)?.commit()?;
    Ok(())
}

/// Writes a batch, all of it or nothing.
pub(crate) fn commit(
    db: &Database,
    batch: &Batch,
    durability: Durability,
    bounds: Bounds,
) -> Redb<()> {
    let transaction = begin(db, durability)?;
    {
        let mut memory = transaction.open_table(MEMORY)?;
        for (service, bytes) in &batch.memory {
            memory.insert(service.as_str(), bytes.as_slice())?;
        }
    }
    for (service, plans) in &batch.plans {
        put_numbered(&transaction, PLANS, service, plans, bounds.plans)?;
    }
    for (service, events) in &batch.events {
        put_numbered(&transaction, EVENTS, service, events, bounds.events)?;
    }
    transaction.commit()?;
    Ok(())
}

fn put_numbered<T: Serialize>(
    transaction: &WriteTransaction,
    definition: TableDefinition<(&str, u64), &[u8]>,
    service: &str,
    records: &[T],
    bound: u64,
) -> Redb<()> {
    let mut table = transaction.open_table(definition)?;
    let mut next = match table.range(numbered_keys(service))?.next_back() {
        Some(last) => last?.0.value().1 + 1,
        None => 1,
    };
    for record in records {
        let bytes = serde_json::to_vec(record).or_else(|error| corrupted(error.to_string()))?;
        table.insert((service, next), bytes.as_slice())?;
        next += 1;
    }
    let cut = next.saturating_sub(bound);
    table.retain_in((service, 0)..(service, cut), |_, _| false)?;
    Ok(())
}

fn numbered_keys(service: &str) -> RangeInclusive<(&str, u64)> {
    (service, 0)..=(service, u64::MAX)
}

fn decode<T: DeserializeOwned>(what: &str, number: u64, bytes: &[u8]) -> Redb<T> {
    serde_json::from_slice(bytes).or_else(|error| corrupted(format!("{what} {number}: {error}")))
}

pub(crate) fn memory(db: &Database, service: &str) -> Redb<Option<Vec<u8>>> {
    let table = db.begin_read()?.open_table(MEMORY)?;
    Ok(table.get(service)?.map(|bytes| bytes.value().to_vec()))
}

pub(crate) fn last_plans(db: &Database, service: &str, limit: usize) -> Redb<Vec<PlanRecord>> {
    let transaction = db.begin_read()?;
    last(&transaction, PLANS, service, limit)?
        .iter()
        .map(|(number, bytes)| decode("plan", *number, bytes))
        .collect()
}

pub(crate) fn last_events(db: &Database, service: &str, limit: usize) -> Redb<Vec<StoredEvent>> {
    let transaction = db.begin_read()?;
    last(&transaction, EVENTS, service, limit)?
        .iter()
        .map(|(seq, bytes)| stored_event(*seq, bytes))
        .collect()
}

pub(crate) fn events_after(
    db: &Database,
    service: &str,
    seq: u64,
    limit: usize,
) -> Redb<Vec<StoredEvent>> {
    let table = db.begin_read()?.open_table(EVENTS)?;
    let from = (service, seq.saturating_add(1));
    let mut events = Vec::new();
    for row in ReadableTable::range(&table, from..=(service, u64::MAX))?.take(limit) {
        let (key, bytes) = row?;
        events.push(stored_event(key.value().1, bytes.value())?);
    }
    Ok(events)
}

fn stored_event(seq: u64, bytes: &[u8]) -> Redb<StoredEvent> {
    let event: EventRecord = decode("event", seq, bytes)?;
    Ok(StoredEvent { seq, event })
}

/// The last rows of a service, oldest first.
fn last(
    transaction: &ReadTransaction,
    definition: TableDefinition<(&str, u64), &[u8]>,
    service: &str,
    limit: usize,
) -> Redb<Vec<(u64, Vec<u8>)>> {
    let table = transaction.open_table(definition)?;
    let mut rows = Vec::new();
    for row in ReadableTable::range(&table, numbered_keys(service))?.rev().take(limit) {
        let (key, bytes) = row?;
        rows.push((key.value().1, bytes.value().to_vec()));
    }
    rows.reverse();
    Ok(rows)
}

pub(crate) fn backend_ids(db: &Database, service: &str, names: &[&str]) -> Redb<Vec<BackendId>> {
    let transaction = begin(db, Durability::Immediate)?;
    let mut ids = Vec::with_capacity(names.len());
    {
        let mut backends = transaction.open_table(BACKENDS)?;
        let mut meta = transaction.open_table(META)?;
        let mut next = meta.get(NEXT_ID_KEY)?.map_or(0, |next| next.value());
        for name in names {
            let known = backends.get((service, *name))?.map(|id| id.value());
            let id = match known {
                Some(id) => id,
                None => {
                    let Ok(id) = u32::try_from(next) else {
                        return corrupted("all identities have been given away".to_owned());
                    };
                    backends.insert((service, *name), id)?;
                    next += 1;
                    id
                }
            };
            ids.push(BackendId(id));
        }
        meta.insert(NEXT_ID_KEY, next)?;
    }
    transaction.commit()?;
    Ok(ids)
}
