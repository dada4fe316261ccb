//! Curves to weights: how much of the load each backend should carry.
//!
//! Two kinds of question, each with a solver that proves its answer:
//!
//! - **Menus** ([`pack_menus`]): every backend offers a short list of weights, each with its cost; one is
//!   chosen per backend so that the weights reach a target (KnapsackLB §3.3, the multiple-choice
//!   knapsack). Linear relaxation → reduced costs → a small core searched from both ends.
//! - **Curves** ([`pack_curves`]): every backend has a latency curve and any weight is possible. One
//!   number, the level that all used backends share (of marginal cost, slope or latency), decides all
//!   weights; it is found by a safeguarded Newton iteration.
//!
//! Around them: the paper's two-step refinement ([`pack_two_step`], §4.4), the exact optimum in whole
//! units ([`pack_units`]), the rounding to what a balancer can hold ([`round_to_range`]) and the division of a pool among
//! balancers that do not know of each other ([`subsets`]).
//!
//! Every answer says its objective, a bound that no other answer can pass, and whether the two meet
//! ([`Packing`]). Nothing here knows a clock: effort is bounded by counts ([`Effort`]).

mod bounds;
mod classes;
mod continuous;
mod core;
mod core_search;
mod grid;
mod hull;
mod integer;
mod lp;
mod menu;
mod menu_max;
mod packing;
mod pareto;
mod problem;
mod root;
mod round;
mod subsets;
mod terms;
mod theta;
mod two_step;
mod waterfill;

pub use continuous::pack_curves;
pub use integer::pack_units;
pub use menu::pack_menus;
pub use packing::{Packing, Status};
pub use problem::{Choice, CurveBackend, CurveProblem, Effort, MenuProblem, PackError};
pub use round::{Rounded, round_to_range};
pub use subsets::subsets;
pub use two_step::pack_two_step;
