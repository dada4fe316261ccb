//! What `plimsoll solve` prints.

use std::fmt::Write;
use std::time::Duration;

use plimsoll_pack::{Packing, Status};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// A weight in the unit of its problem.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Weight {
    /// Out of a menu.
    Whole(i64),
    /// A share of the traffic.
    Share(f64),
}

impl std::fmt::Display for Weight {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Weight::Whole(weight) => write!(formatter, "{weight}"),
            Weight::Share(share) => write!(formatter, "{share:.6}"),
        }
    }
}

/// A solution, or why there is none.
#[derive(Debug, Serialize)]
pub struct Answer {
    status: &'static str,
    objective: Option<f64>,
    bound: Option<f64>,
    gap: Option<f64>,
    #[serde(serialize_with = "as_object")]
    weights: Vec<(String, Option<Weight>)>,
    elapsed_us: f64,
    /// What the weights lack of the target, or θ of the least possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<f64>,
    #[serde(skip)]
    reason: Option<String>,
}

/// An object with its keys in the backends' order.
fn as_object<S: Serializer>(
    weights: &[(String, Option<Weight>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut object = serializer.serialize_map(Some(weights.len()))?;
    for (name, weight) in weights {
        object.serialize_entry(name, weight)?;
    }
    object.end()
}

fn microseconds(elapsed: Duration) -> f64 {
    elapsed.as_nanos() as f64 / 1e3
}

impl Answer {
    /// A packing with its backends' names. Of a pool short of capacity the weights are shown as well: in
    /// proportion to capacity, the least bad.
    pub fn from_packing<W: Copy>(
        names: &[String],
        packing: &Packing<W>,
        elapsed: Duration,
        weight: impl Fn(W) -> Weight,
    ) -> Answer {
        let weights = packing.weights.iter().map(|&value| Some(weight(value)));
        if let Some(missing) = packing.short_of_capacity {
            let reason = format!("the pool is short of capacity: {missing} missing");
            let mut answer = Answer::infeasible(names, elapsed, missing, reason);
            answer.weights = names.iter().cloned().zip(weights).collect();
            return answer;
        }
        Answer {
            status: match packing.status {
                Status::Optimal => "optimal",
                Status::Feasible => "feasible",
            },
            objective: Some(packing.objective),
            bound: Some(packing.bound),
            gap: Some(packing.gap),
            weights: names.iter().cloned().zip(weights).collect(),
            elapsed_us: microseconds(elapsed),
            missing: None,
            reason: None,
        }
    }

    /// No solution: how much is missing, and of what. No backend has a weight.
    pub fn infeasible(names: &[String], elapsed: Duration, missing: f64, reason: String) -> Answer {
        Answer {
            status: "infeasible",
            objective: None,
            bound: None,
            gap: None,
            weights: names.iter().map(|name| (name.clone(), None)).collect(),
            elapsed_us: microseconds(elapsed),
            missing: Some(missing),
            reason: Some(reason),
        }
    }

    /// Why there is no solution, if there is none.
    pub fn infeasible_because(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// One line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| unreachable!("plain data: {error}"))
    }

    /// A table for people.
    pub fn to_table(&self) -> String {
        let mut text = format!("status     {}\n", self.status);
        let numbers = [("objective", self.objective), ("bound", self.bound), ("gap", self.gap)];
        for (name, number) in numbers {
            if let Some(number) = number {
                let _ = writeln!(text, "{name:<10} {number}");
            }
        }
        let _ = write!(text, "time       {} µs", self.elapsed_us);
        let width = self.weights.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let width = width.max("backend".len());
        if !self.weights.is_empty() {
            let _ = write!(text, "\n\n{:<width$}  {:>12}", "backend", "weight");
        }
        for (name, weight) in &self.weights {
            let weight = weight.map_or_else(|| "-".to_owned(), |weight| weight.to_string());
            let _ = write!(text, "\n{name:<width$}  {weight:>12}");
        }
        text
    }
}
