/// Backends that take no request now, whatever their weight: full or ejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    words: Vec<u64>,
    count: usize,
}

impl Closed {
    /// Makes room for so many backends; those that join are open.
    pub(crate) fn grow(&mut self, backends: usize) {
        if backends > self.words.len() * 64 {
            self.words.resize(backends.div_ceil(64), 0);
        }
    }

    /// Closes one, or opens it.
    pub(crate) fn set(&mut self, backend: usize, closed: bool) {
        let bit = 1 << (backend % 64);
        let word = &mut self.words[backend / 64];
        if (*word & bit != 0) != closed {
            *word ^= bit;
            if closed {
                self.count += 1;
            } else {
                self.count -= 1;
            }
        }
    }

    pub(crate) fn contains(&self, backend: usize) -> bool {
        self.words.get(backend / 64).is_some_and(|word| word >> (backend % 64) & 1 != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// In order of index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self.words.iter().enumerate().filter(|(_, word)| **word != 0);
        words.flat_map(|(k, &word)| {
            (0..64).filter(move |b| word >> b & 1 != 0).map(move |b| 64 * k + b)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_backends_are_listed() {
        let mut closed = Closed::default();
        closed.grow(70);
        for backend in [3, 69, 3] {
            closed.set(backend, true);
        }
        assert!(closed.contains(3) && closed.contains(69) && !closed.contains(4));
        assert!(!closed.contains(1_000), "whom nobody knows is not closed");
        assert_eq!(closed.iter().collect::<Vec<_>>(), [3, 69]);
        closed.set(3, false);
        closed.set(3, false);
        closed.set(69, false);
        assert!(closed.is_empty());
    }
}
