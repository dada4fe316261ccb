//! Keeps what was learned.
