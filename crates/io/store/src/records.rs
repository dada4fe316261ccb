//! What is kept, without anything that means nothing after a restart: backends by name, wall time.

use plimsoll_model::{BackendId, FailureKind, Nanos, Outcome, Sample, Source};
use serde::{Deserialize, Serialize};

/// A measurement as it is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredSample {
    /// When it ended, milliseconds since 1970 by the wall clock of the time.
    pub unix_ms: u64,
    /// The backend's share of the service's traffic at the time, 0…1.
    pub weight: f64,
    /// Requests per second that the backend served at the time, where known.
    pub rate_rps: Option<f64>,
    /// Mean response time, microseconds.
    pub latency_us: f64,
    /// How many requests the mean is over.
    pub requests: u32,
    /// Whether it counts as latency or as a drop.
    pub outcome: Outcome,
    /// What measured it.
    pub source: Source,
}

impl StoredSample {
    /// Bytes of one record.
    pub(crate) const LEN: usize = 38;

    /// A sample to keep; `unix_ms` stands for its instant, whose origin dies with the process.
    pub fn new(sample: &Sample, unix_ms: u64) -> Self {
        StoredSample {
            unix_ms,
            weight: sample.weight,
            rate_rps: sample.rate_rps,
            latency_us: sample.latency_us,
            requests: sample.requests,
            outcome: sample.outcome,
            source: sample.source,
        }
    }

    /// The sample again, under the identity and at the instant that this process gives it.
    pub fn sample(&self, backend: BackendId, at: Nanos) -> Sample {
        Sample {
            backend,
            weight: self.weight,
            rate_rps: self.rate_rps,
            latency_us: self.latency_us,
            requests: self.requests,
            outcome: self.outcome,
            source: self.source,
            at,
        }
    }

    /// Little endian, in the order of the fields; a rate of NaN is none.
    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..8].copy_from_slice(&self.unix_ms.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.weight.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.rate_rps.unwrap_or(f64::NAN).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.latency_us.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.requests.to_le_bytes());
        bytes[36] = outcome_code(self.outcome);
        bytes[37] = match self.source {
            Source::Probe => 0,
            Source::Passive => 1,
        };
        bytes
    }

    /// `None` when the bytes are no sample.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let eight = |at: usize| bytes[at..at + 8].try_into().ok();
        let rate = f64::from_le_bytes(eight(16)?);
        Some(StoredSample {
            unix_ms: u64::from_le_bytes(eight(0)?),
            weight: f64::from_le_bytes(eight(8)?),
            rate_rps: (!rate.is_nan()).then_some(rate),
            latency_us: f64::from_le_bytes(eight(24)?),
            requests: u32::from_le_bytes(bytes[32..36].try_into().ok()?),
            outcome: outcome_of(bytes[36])?,
            source: match bytes[37] {
                0 => Source::Probe,
                1 => Source::Passive,
                _ => return None,
            },
        })
    }
}

/// The codes are part of the file's format: they may be added to, and never change.
const OUTCOMES: [Outcome; 8] = [
    Outcome::Success,
    Outcome::Failure(FailureKind::Refused),
    Outcome::Failure(FailureKind::Reset),
    Outcome::Failure(FailureKind::Timeout),
    Outcome::Failure(FailureKind::Status),
    Outcome::Failure(FailureKind::Body),
    Outcome::Failure(FailureKind::Protocol),
    Outcome::Failure(FailureKind::Tls),
];

fn outcome_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Success => 0,
        Outcome::Failure(FailureKind::Refused) => 1,
        Outcome::Failure(FailureKind::Reset) => 2,
        Outcome::Failure(FailureKind::Timeout) => 3,
        Outcome::Failure(FailureKind::Status) => 4,
        Outcome::Failure(FailureKind::Body) => 5,
        Outcome::Failure(FailureKind::Protocol) => 6,
        Outcome::Failure(FailureKind::Tls) => 7,
    }
}

fn outcome_of(code: u8) -> Option<Outcome> {
    OUTCOMES.get(usize::from(code)).copied()
}

/// One backend's part of a [`PlanRecord`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRecordEntry {
    /// Whose weight.
    pub backend: String,
    /// The share of the traffic it was meant to get, 0…1.
    pub share: f64,
    /// The weight that was to be programmed.
    pub weight: u32,
}

/// A plan as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// When it was made, milliseconds since 1970.
    pub unix_ms: u64,
    /// Its epoch within the service.
    pub epoch: u64,
    /// Why it was made.
    pub reason: String,
    /// Its weights.
    pub entries: Vec<PlanRecordEntry>,
}

/// Something that happened or was decided, to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// When, milliseconds since 1970; not what orders events, for the wall clock may step back.
    pub unix_ms: u64,
    /// The backend it concerns, if one alone.
    pub backend: Option<String>,
    /// One word of a fixed set, such as `failed`.
    pub kind: String,
    /// Why, for people.
    pub reason: String,
}

/// An event that was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// Its number within the service, in the order of writing, from 1.
    pub seq: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: EventRecord,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_survive_their_encoding() {
        for (code, outcome) in OUTCOMES.into_iter().enumerate() {
            assert_eq!(usize::from(outcome_code(outcome)), code);
            for (rate_rps, source) in [(None, Source::Probe), (Some(12.5), Source::Passive)] {
                let sample = StoredSample {
                    unix_ms: 1_790_000_000_123,
                    weight: 0.25,
                    rate_rps,
                    latency_us: 31_415.9,
                    requests: 7,
                    outcome,
                    source,
                };
                assert_eq!(StoredSample::decode(&sample.encode()), Some(sample));
                let model = sample.sample(BackendId(3), Nanos(9));
                assert_eq!(StoredSample::new(&model, sample.unix_ms), sample);
            }
        }
    }

    #[test]
    fn other_bytes_are_no_sample() {
        let good = StoredSample {
            unix_ms: 1,
            weight: 1.0,
            rate_rps: None,
            latency_us: 1.0,
            requests: 1,
            outcome: Outcome::Success,
            source: Source::Probe,
        }
        .encode();
        assert_eq!(StoredSample::decode(&good[1..]), None);
        for at in [36, 37] {
            let mut bad = good;
            bad[at] = 200;
            assert_eq!(StoredSample::decode(&bad), None);
        }
    }
}
