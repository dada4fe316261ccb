//! Measures backends.
