//! Every experiment there is.

use crate::{Experiment, Paper, bloc, cheetah, knapsack};

/// How unlike a name may be to be offered instead of an unknown one: 0 has nothing in common.
const NEAR: f64 = 0.7;
/// How many names are offered at most.
const MOST_NEAR: usize = 5;

/// Every paper and its experiments: one line each. A new experiment is a line in its paper's list.
const PAPERS: &[(&Paper, &[&Experiment])] = &[
    (&knapsack::PAPER, knapsack::EXPERIMENTS),
    (&bloc::PAPER, bloc::EXPERIMENTS),
    (&cheetah::PAPER, cheetah::EXPERIMENTS),
];

/// All papers.
pub fn papers() -> Vec<&'static Paper> {
    PAPERS.iter().map(|(paper, _)| *paper).collect()
}

/// All experiments, in the order of their papers.
pub fn experiments() -> Vec<&'static Experiment> {
    PAPERS.iter().flat_map(|(_, experiments)| experiments.iter().copied()).collect()
}

/// The experiment of this name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    experiments().into_iter().find(|experiment| experiment.name == name)
}

/// Names that could have been meant, the likeliest first.
pub fn near_names(name: &str) -> Vec<&'static str> {
    let mut near: Vec<(f64, &'static str)> = experiments()
        .into_iter()
        .map(|experiment| (likeness(name, experiment.name), experiment.name))
        .filter(|(likeness, _)| *likeness >= NEAR)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.into_iter().map(|(_, name)| name).take(MOST_NEAR).collect()
}

/// Of whole names, or of the part after the paper's key, which people leave out.
fn likeness(wanted: &str, name: &str) -> f64 {
    let figure = name.split_once('-').map_or(name, |(_, figure)| figure);
    let whole = strsim::normalized_damerau_levenshtein(wanted, name);
    whole.max(strsim::normalized_damerau_levenshtein(wanted, figure))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_begin_with_their_paper() {
        let names: BTreeSet<&str> = experiments().iter().map(|e| e.name).collect();
        assert_eq!(names.len(), experiments().len());
        for experiment in experiments() {
            assert!(papers().contains(&experiment.paper), "{}", experiment.name);
            let figure = experiment.name.strip_prefix(experiment.paper.key);
            assert!(figure.is_some_and(|rest| rest.starts_with('-')), "{}", experiment.name);
            assert!(!experiment.provenance.is_empty() && experiment.claim.ends_with('.'));
            assert_eq!(find(experiment.name).map(|e| e.name), Some(experiment.name));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_near_ones() {
        assert!(find("knapsack-fig88").is_none());
        assert_eq!(near_names("knapsack-fig88").first(), Some(&"knapsack-fig8"));
        assert_eq!(near_names("fig8").first(), Some(&"knapsack-fig8"));
        assert!(near_names("qwertyuiop").is_empty());
    }
}
