//! Curves to weights.
