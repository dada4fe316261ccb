//! Controllers broken on purpose, one way at a time.

use plimsoll_control::{Action, Event, Memory};
use plimsoll_model::Nanos;

/// One way to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {}

/// The seam between the controller and everything around it.
#[allow(dead_code)]
pub struct Seam {
    sabotage: Option<Sabotage>,
}

impl Seam {
    /// A seam that breaks the controller in this way.
    pub fn new(sabotage: Option<Sabotage>, _seed: u64) -> Self {
        Seam { sabotage }
    }
    /// A controller begins.
    pub fn born(&mut self) {}
    /// The memory it gets.
    pub fn memory(&mut self, memory: Option<Memory>) -> Option<Memory> {
        memory
    }
    /// What the controller is told.
    pub fn events(&mut self, _clock: Nanos, event: Event) -> Vec<Event> {
        vec![event]
    }
    /// What it asks.
    pub fn actions(&mut self, _clock: Nanos, actions: Vec<Action>) -> Vec<Action> {
        actions
    }
}
