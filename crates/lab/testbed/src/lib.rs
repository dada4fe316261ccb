//! Emulated backends and a load generator.
