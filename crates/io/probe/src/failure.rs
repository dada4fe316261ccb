use std::borrow::Cow;
use std::io;

use plimsoll_model::FailureKind;
use rustix::io::Errno;

/// A few words for people; no allocation where the words are known beforehand.
pub type Detail = Cow<'static, str>;

/// Why a probe did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub kind: FailureKind,
    pub detail: Detail,
}

impl Failure {
    pub fn new(kind: FailureKind, detail: impl Into<Detail>) -> Self {
        Failure { kind, detail: detail.into() }
    }

    pub fn protocol(detail: impl Into<Detail>) -> Self {
        Failure::new(FailureKind::Protocol, detail)
    }

    pub fn body(detail: impl Into<Detail>) -> Self {
        Failure::new(FailureKind::Body, detail)
    }

    pub fn reset(detail: impl Into<Detail>) -> Self {
        Failure::new(FailureKind::Reset, detail)
    }

    /// It is not asked, because it owes answers to others.
    pub fn overdue() -> Self {
        Failure::new(FailureKind::Timeout, "earlier requests are not answered yet")
    }

    pub fn timeout() -> Self {
        Failure::new(FailureKind::Timeout, "no complete answer within the time-out")
    }
}

/// The machine that measures ran out of something: says nothing about the backend, and must never
/// count against it, or a full table of descriptors would look like the death of every backend.
#[derive(Debug, thiserror::Error)]
#[error("this machine cannot probe: {0}")]
pub struct LocalFault(#[source] pub io::Error);

/// What stopped a probe.
#[derive(Debug)]
pub(crate) enum Stop {
    Backend(Failure),
    Local(LocalFault),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Backend(failure)
    }
}

/// Where in a probe an IO error came up: the same error means different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Connect,
    Handshake,
    Exchange,
}

impl Stop {
    /// Says what an IO error tells of the backend, or that it tells of this machine.
    pub fn from_io(stage: Stage, error: io::Error) -> Self {
        // Of files, memory, ports, or routes.
        if let Some(
            Errno::MFILE
            | Errno::NFILE
            | Errno::NOBUFS
            | Errno::NOMEM
            | Errno::ADDRNOTAVAIL
            | Errno::NETUNREACH,
        ) = Errno::from_io_error(&error)
        {
            return Stop::Local(LocalFault(error));
        }
        let from_tls = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
        let kind = match (stage, error.kind()) {
            _ if from_tls => FailureKind::Tls,
            (_, io::ErrorKind::TimedOut) => FailureKind::Timeout,
            (Stage::Connect, _) => FailureKind::Refused,
            (_, io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => FailureKind::Reset,
            (Stage::Handshake, _) => FailureKind::Tls,
            (Stage::Exchange, _) => FailureKind::Reset,
        };
        let detail = match stage {
            Stage::Connect => format!("cannot connect: {error}"),
            Stage::Handshake => format!("TLS handshake: {error}"),
            Stage::Exchange => format!("connection cut: {error}"),
        };
        Stop::Backend(Failure::new(kind, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(stage: Stage, error: impl Into<io::Error>) -> Option<FailureKind> {
        match Stop::from_io(stage, error.into()) {
            Stop::Backend(failure) => Some(failure.kind),
            Stop::Local(_) => None,
        }
    }

    #[test]
    fn an_error_means_what_its_stage_makes_of_it() {
        use FailureKind::{Refused, Reset, Timeout, Tls};
        assert_eq!(kind(Stage::Connect, Errno::CONNREFUSED), Some(Refused));
        assert_eq!(kind(Stage::Connect, Errno::HOSTUNREACH), Some(Refused));
        assert_eq!(kind(Stage::Connect, Errno::TIMEDOUT), Some(Timeout));
        assert_eq!(kind(Stage::Handshake, Errno::CONNRESET), Some(Reset));
        assert_eq!(kind(Stage::Handshake, io::ErrorKind::UnexpectedEof), Some(Tls));
        assert_eq!(kind(Stage::Exchange, Errno::PIPE), Some(Reset));
        assert_eq!(kind(Stage::Exchange, Errno::TIMEDOUT), Some(Timeout));
        let alert = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError);
        assert_eq!(kind(Stage::Exchange, alert), Some(Tls));
    }

    #[test]
    fn a_full_table_of_descriptors_is_not_the_backends_fault() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            assert_eq!(kind(Stage::Connect, errno), None);
        }
    }
}
