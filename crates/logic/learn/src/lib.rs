//! Samples to curves.
