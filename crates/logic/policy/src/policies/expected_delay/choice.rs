//! Which sight, chosen by what backends show.
//!
//! A balancer alone knows best by its own counts; one of many must ask. Whether others send to the same backends these
//! tell themselves: once one has shown that it has an ingress (a chip, or a refusal), a few requests ask for its load
//! beside them, and what it has in flight is held against what this balancer has there. Where it has more, the sight is
//! fresh probes; their answers go on to tell, so that the last of many returns to its own counts. An ingress that
//! refuses and does not answer probes leaves refusals.

use super::Sight;

/// One request of so many asks, where requests do not ask by themselves.
const ASKING: u32 = 16;
/// What is left of the counts after an answer: they are of about fifty.
const KEPT: f64 = 0.98;
/// Requests in flight in all answers, before which nothing is inferred: three standard deviations of a Poisson count are
/// then 0.6 of it.
const ENOUGH: f64 = 25.0;
/// Others send there, when so many times as many are in flight as are this balancer's …
const OTHERS: f64 = 1.6;
/// … and no longer, when no more than so many are.
const ALONE: f64 = 1.25;
/// So many questions in a row without an answer: they are not answered.
const MUTE: u32 = 64;

/// What backends have shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// The last backend that showed that it has an ingress.
    shown: Option<usize>,
    refuses: bool,
    requests: u32,
    unanswered: u32,
    own: f64,
    told: f64,
}

impl Choice {
    /// A backend's response came with a chip, or was a refusal.
    pub(super) fn saw_ingress(&mut self, backend: usize, refused: bool) {
        self.shown = Some(backend);
        self.refuses |= refused;
    }

    /// The backend that this request asks, if any.
    pub(super) fn target(&mut self) -> Option<usize> {
        self.requests = (self.requests + 1) % ASKING;
        self.shown.filter(|_| self.requests == 0)
    }

    /// A backend was asked: the sight from now on, where the question shows it.
    pub(super) fn asked(&mut self) -> Option<Sight> {
        self.unanswered = (self.unanswered + 1).min(MUTE);
        (self.refuses && self.unanswered == MUTE).then_some(Sight::Refusals)
    }

    /// A backend has so many in flight, of which so many are this balancer's: the sight from now on, where that shows it.
    pub(super) fn answered(&mut self, own: u32, told: u32) -> Option<Sight> {
        self.unanswered = 0;
        self.own = KEPT * self.own + f64::from(own);
        self.told = KEPT * self.told + f64::from(told);
        match self.told {
            told if told < ENOUGH => None,
            told if told > OTHERS * self.own => Some(Sight::Probes),
            told if told < ALONE * self.own => Some(Sight::Own),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(choice: &mut Choice, answers: u32, own: u32, told: u32) -> Option<Sight> {
        (0..answers).fold(None, |_, _| choice.answered(own, told))
    }

    #[test]
    fn backends_with_more_in_flight_than_this_balancer_has_there_are_shared() {
        let mut choice = Choice::default();
        assert_eq!(last(&mut choice, 4, 1, 5), None, "too few to tell");
        assert_eq!(last(&mut choice, 40, 1, 5), Some(Sight::Probes));
        assert_eq!(last(&mut choice, 200, 3, 4), None, "one that sends a little does not count");
        assert_eq!(last(&mut choice, 200, 4, 4), Some(Sight::Own), "the last of many");
    }

    #[test]
    fn nobody_is_asked_before_an_ingress_is_seen_and_then_by_few_requests() {
        let mut choice = Choice::default();
        assert!((0..1_000).all(|_| choice.target().is_none()));
        choice.saw_ingress(7, false);
        let asked: Vec<usize> = (0..1_600).filter_map(|_| choice.target()).collect();
        assert_eq!(asked, [7; 100]);
    }

    #[test]
    fn an_ingress_that_refuses_and_answers_no_probe_leaves_refusals() {
        let mut choice = Choice::default();
        choice.saw_ingress(0, false);
        assert!((0..1_000).all(|_| choice.asked().is_none()), "none has refused");
        choice.saw_ingress(0, true);
        assert_eq!(choice.asked(), Some(Sight::Refusals));
        choice.answered(1, 1);
        assert_eq!(choice.asked(), None, "it answers");
    }
}
