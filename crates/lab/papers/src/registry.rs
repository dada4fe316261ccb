//! Every experiment there is.

use crate::{Experiment, Missing, Paper, bloc, cheetah, edge, haproxy, knapsack};

/// How unlike a name may be to be offered instead of an unknown one: 0 has nothing in common.
const NEAR: f64 = 0.7;
/// How many names are offered at most.
const MOST_NEAR: usize = 5;

/// Every paper, its experiments and what has none: one line each. A new experiment is a line in its paper's
/// list.
const PAPERS: &[(&Paper, &[&Experiment], &[Missing])] = &[
    (&knapsack::PAPER, knapsack::EXPERIMENTS, knapsack::MISSING),
    (&bloc::PAPER, bloc::EXPERIMENTS, bloc::MISSING),
    (&cheetah::PAPER, cheetah::EXPERIMENTS, cheetah::MISSING),
    (&haproxy::PAPER, haproxy::EXPERIMENTS, haproxy::MISSING),
    (&edge::PAPER, edge::EXPERIMENTS, edge::MISSING),
];

/// All papers.
pub fn papers() -> Vec<&'static Paper> {
    PAPERS.iter().map(|(paper, ..)| *paper).collect()
}

/// All experiments, in the order of their papers.
pub fn experiments() -> Vec<&'static Experiment> {
    PAPERS.iter().flat_map(|(_, experiments, _)| experiments.iter().copied()).collect()
}

/// What the papers show and no experiment repeats, in the order of their papers.
pub fn missing() -> Vec<&'static Missing> {
    PAPERS.iter().flat_map(|(.., missing)| missing.iter()).collect()
}

/// The missing one of this name.
pub fn find_missing(name: &str) -> Option<&'static Missing> {
    missing().into_iter().find(|one| one.name == name)
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
    fn what_is_missing_says_why_and_is_no_experiment() {
        let names: BTreeSet<&str> = missing().iter().map(|one| one.name).collect();
        assert_eq!(names.len(), missing().len());
        for one in missing() {
            assert!(
                one.name.starts_with(one.paper.key) && find(one.name).is_none(),
                "{}",
                one.name
            );
            assert!(one.why.ends_with('.') && !one.title.is_empty(), "{}", one.name);
        }
        assert_eq!(find_missing("knapsack-fig18").map(|one| one.figure), Some("Figure 18"));
    }

    #[test]
    fn an_unknown_name_is_answered_with_near_ones() {
        assert!(find("knapsack-fig88").is_none());
        assert_eq!(near_names("knapsack-fig88").first(), Some(&"knapsack-fig8"));
        assert_eq!(near_names("fig8").first(), Some(&"knapsack-fig8"));
        assert!(near_names("qwertyuiop").is_empty());
    }
}
