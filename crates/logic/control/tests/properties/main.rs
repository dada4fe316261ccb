//! What the controller does in one situation each, made by events alone: a simulated pool, and the plans and records that
//! come of it. What it does in every situation is checked by the simulator's invariants (`docs/simulation.md`).

mod bed;
mod changes;
mod limits;
mod measuring;
mod slow_start;
mod steering;
