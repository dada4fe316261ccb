//! Backends that had room when this balancer last heard of them: where one of its requests has just ended, or a probe
//! was answered and another backend picked.
//!
//! Of the backends to be probed before a pick some come from here and the others are drawn: a draw finds an idle one of
//! a hundred at 85 % load with a chance of 0.15, while where a request of ours has just ended it has left one core free
//! at least. A sample with memory does what a much larger one without does (Mitzenmacher, Prabhakar and Shah, 2002,
//! Load balancing with memory); a list of those that have become idle is JIQ's (Lu and others, 2011), by what a balancer
//! sees anyhow. The probe tells whether others were faster.

/// Kept at most, the newest.
const KEPT: usize = 16;

/// The newest last, each once.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    backends: Vec<usize>,
}

impl Default for Heard {
    fn default() -> Self {
        Heard { backends: Vec::with_capacity(KEPT) }
    }
}

impl Heard {
    /// This backend has room.
    pub(super) fn has_room(&mut self, backend: usize) {
        self.forget(backend);
        if self.backends.len() == KEPT {
            self.backends.remove(0);
        }
        self.backends.push(backend);
    }

    /// It may have none.
    pub(super) fn forget(&mut self, backend: usize) {
        self.backends.retain(|&kept| kept != backend);
    }

    /// Takes the one of the least key; of equal ones the newest. `None` for a key keeps the backend out.
    pub(super) fn take(&mut self, key: impl Fn(usize) -> Option<f32>) -> Option<usize> {
        let keyed = self.backends.iter().enumerate().rev();
        let keyed = keyed.filter_map(|(at, &backend)| Some((at, key(backend)?)));
        let (at, _) = keyed.min_by(|one, other| one.1.total_cmp(&other.1))?;
        Some(self.backends.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_comes_first_and_of_equal_ones_the_newest() {
        let mut heard = Heard::default();
        [3, 5, 4, 3].into_iter().for_each(|backend| heard.has_room(backend));
        let equal = |_: usize| Some(1.0);
        assert_eq!(heard.take(|b| (b != 3).then_some(1.0)), Some(4));
        assert_eq!(heard.take(|b| Some(b as f32)), Some(3), "it is here once");
        assert_eq!(heard.take(|_| None), None);
        assert_eq!((heard.take(equal), heard.take(equal)), (Some(5), None));
        (0..100).for_each(|backend| heard.has_room(backend));
        heard.forget(99);
        let all: Vec<usize> = std::iter::from_fn(|| heard.take(equal)).collect();
        assert_eq!(all, (84..99).rev().collect::<Vec<_>>(), "the newest are kept");
    }
}
