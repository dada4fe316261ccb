//! Admin API and metrics.
