//! The controller: one state machine.
