use serde::{Deserialize, Serialize};

/// Why a probe did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The connection was refused, or the address cannot be reached.
    Refused,
    /// The connection was cut before the answer was complete.
    Reset,
    /// No complete answer within the time-out.
    Timeout,
    /// An answer with a status that was not expected.
    Status,
    /// An answer whose body was not the expected one, or was longer than is read.
    Body,
    /// The answer is not HTTP, or breaks its rules.
    Protocol,
    /// The TLS handshake failed.
    Tls,
}

/// What became of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The expected answer came; only such probes count as latency.
    Success,
    /// Counted as a drop, never as latency: a backend that fails fast is not fast.
    Failure(FailureKind),
}
