//! Why a measurement cannot be made.

use thiserror::Error;

use plimsoll_l4::L4Error;

/// Why a measurement cannot be made.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The balancer.
    #[error(transparent)]
    L4(#[from] L4Error),
    /// A program, a map or an interface of the measurement.
    #[error("{what}: {error}")]
    Kernel {
        /// What was tried.
        what: String,
        /// What the kernel said.
        error: String,
    },
}

impl BenchError {
    /// For `map_err`: what was tried when the kernel refused.
    pub(crate) fn kernel<E: std::fmt::Display>(
        what: impl Into<String>,
    ) -> impl FnOnce(E) -> BenchError {
        let what = what.into();
        move |error| BenchError::Kernel { what, error: error.to_string() }
    }
}
