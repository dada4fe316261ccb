//! Decisions and observations, on their way to people: to the log, to the API and into the store, and
//! back from the store after a restart.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_api::Publisher;
use plimsoll_api::wire::Event;
use plimsoll_control::{Record, RecordKind};
use plimsoll_store::{EventRecord, StoredEvent};

use super::keeper::Keeper;
use super::log;

/// Tells all receivers.
pub fn note(service: &Arc<str>, publisher: &Publisher, keeper: &Keeper, record: Record) {
    log::record(service, &record);
    let now = SystemTime::now();
    let kept = EventRecord {
        unix_ms: unix_ms(now),
        backend: record.backend.clone(),
        kind: word(record.kind),
        reason: record.reason.clone(),
    };
    publisher.record(now, record);
    keeper.event(service, kept);
}

/// Events of earlier runs as the API shows them; one of a kind that is no longer known is left out.
pub fn restored(events: Vec<StoredEvent>) -> impl Iterator<Item = Event> {
    events.into_iter().filter_map(|StoredEvent { seq, event }| {
        Some(Event {
            seq,
            unix_ms: i64::try_from(event.unix_ms).ok()?,
            kind: kind(&event.kind)?,
            backend: event.backend,
            reason: event.reason,
        })
    })
}

/// Milliseconds since 1970 by the wall clock; 0 before that.
pub fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A kind as JSON names it.
pub fn word(kind: RecordKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(word)) => word,
        // A plain enum is a word.
        _ => String::new(),
    }
}

fn kind(word: &str) -> Option<RecordKind> {
    serde_json::from_value(word.into()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back_from_the_store_as_they_were() {
        let stored = |seq, kind: String| StoredEvent {
            seq,
            event: EventRecord {
                unix_ms: 7,
                backend: Some("s1".to_owned()),
                kind,
                reason: "why".to_owned(),
            },
        };
        let events: Vec<Event> = restored(vec![
            stored(3, word(RecordKind::Rollback)),
            stored(4, "of another version".to_owned()),
        ])
        .collect();
        let expected = Event {
            seq: 3,
            unix_ms: 7,
            kind: RecordKind::Rollback,
            backend: Some("s1".to_owned()),
            reason: "why".to_owned(),
        };
        assert_eq!(events, [expected]);
    }
}
