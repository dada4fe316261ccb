//! The search for weights under an in-flight method, and what the last one has found.

use crate::propose::search::{Member, Question, Search, Searched};

/// Searches, and the rounds of learning that come before them.
#[derive(Clone, Debug)]
pub(crate) struct Proposals {
    seed: u64,
    search: Option<Search>,
    /// The last search that was completed.
    searched: Option<Searched>,
    /// Rounds of learning under an in-flight method.
    rounds: u64,
}

impl Proposals {
    /// `seed` seeds the model's random numbers.
    pub fn new(seed: u64) -> Self {
        Proposals { seed, search: None, searched: None, rounds: 0 }
    }

    /// Counts a round of learning.
    pub fn next_round(&mut self) -> u64 {
        self.rounds += 1;
        self.rounds
    }

    pub fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// The pool is another one than that of the search.
    pub fn abandon(&mut self) {
        self.search = None;
    }

    /// The last search that answers this question.
    pub fn answer_to(&self, asked: &Question) -> Option<&Searched> {
        self.searched.as_ref().filter(|s| s.question.is_like(asked))
    }

    /// Begins a search, from the weights in force.
    pub fn begin(
        &mut self,
        members: Vec<Member>,
        rate_rps: f64,
        present: Option<Vec<u32>>,
        balancers: u32,
    ) {
        self.search = Some(Search::new(members, rate_rps, self.seed, present, balancers));
    }

    /// Tries one more candidate; returns the search once it is complete.
    pub fn advance(&mut self) -> Option<Searched> {
        let search = self.search.as_mut()?;
        let found = search.advance()?;
        let searched = Searched { question: search.question(), in_force: search.in_force(), found };
        self.search = None;
        self.searched = Some(searched.clone());
        Some(searched)
    }
}
