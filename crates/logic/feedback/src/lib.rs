//! Weights from load as servers report it, without a model of the servers: each correction looks at the
//! last reports and nothing else.

pub mod awrr;
