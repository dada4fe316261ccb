//! The curve that a backend is packed with: a queue with its cores, or a fitted family where that predicts better.

use plimsoll_learn::{Family, FittedCurve};
use plimsoll_model::{Curve, Hyperbola};
use plimsoll_queueing::QueueCurve;
use serde::{Deserialize, Serialize};

/// The curve in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Shape {
    Queue(QueueCurve),
    Fitted(FittedCurve),
}

impl Shape {
    pub fn family(&self) -> &'static str {
        match self {
            Shape::Queue(_) => "queue",
            Shape::Fitted(f) => match f.family() {
                Family::Hyperbola => "hyperbola",
                Family::Pchip => "isotonic",
                Family::Poly2 => "poly2",
            },
        }
    }

    fn inner(&self) -> &dyn Curve {
        match self {
            Shape::Queue(q) => q,
            Shape::Fitted(f) => f,
        }
    }
}

impl Curve for Shape {
    fn latency_at(&self, load: f64) -> f64 {
        self.inner().latency_at(load)
    }
    fn marginal_at(&self, load: f64) -> f64 {
        self.inner().marginal_at(load)
    }
    fn capacity(&self) -> f64 {
        self.inner().capacity()
    }
    fn marginal_rises(&self) -> bool {
        self.inner().marginal_rises()
    }
    fn load_at_marginal(&self, marginal: f64) -> Option<(f64, f64)> {
        self.inner().load_at_marginal(marginal)
    }
    fn as_hyperbola(&self) -> Option<Hyperbola> {
        self.inner().as_hyperbola()
    }
}
