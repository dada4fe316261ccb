//! Which pools there are, and which are sent to, as far as either is known: a mistake elsewhere neither hides one here, nor
//! is said again as another.

use plimsoll_config::{Cursor, Once, quoted};

use super::name;

/// Pools by name, in their order.
#[derive(Default)]
pub(super) struct Named {
    taken: Once<String>,
    /// None of one whose name could not be read.
    pools: Vec<Option<String>>,
    /// Pools could not be told from each other.
    is_list_wrong: bool,
    used: Vec<usize>,
    /// An entry's pools could not be read.
    is_use_unknown: bool,
}

impl Named {
    /// `pools` is no list of at least one pool.
    pub(super) fn list_is_wrong(&mut self) {
        self.is_list_wrong = true;
    }

    /// One more pool.
    pub(super) fn pool(&mut self) {
        self.pools.push(None);
    }

    /// The name of the pool that came last.
    pub(super) fn name(&mut self, cursor: &Cursor<'_>) -> Option<String> {
        let name = name(cursor)?;
        self.taken.take(name.clone(), cursor, "a name that no other pool has")?;
        *self.pools.last_mut()? = Some(name.clone());
        Some(name)
    }

    /// How many there are, if that is known.
    pub(super) fn count(&self) -> Option<usize> {
        (!self.is_list_wrong).then_some(self.pools.len())
    }

    /// It is sent to.
    pub(super) fn uses(&mut self, pool: usize) {
        self.used.push(pool);
    }

    /// Somebody may send to any.
    pub(super) fn may_use_any(&mut self) {
        self.is_use_unknown = true;
    }

    /// The pool that is called so here.
    pub(super) fn find(&mut self, cursor: &Cursor<'_>) -> Option<usize> {
        let Some(wanted) = name(cursor) else {
            self.may_use_any();
            return None;
        };
        let found = self.pools.iter().position(|pool| pool.as_ref() == Some(&wanted));
        let Some(index) = found else {
            // It may be one whose name could not be read.
            if self.is_list_wrong || self.pools.contains(&None) {
                return None;
            }
            return cursor.problem(format!("no pool is called {}", quoted(&wanted)));
        };
        self.uses(index);
        Some(index)
    }

    /// Reports each pool that no entry sends to; whether there is none.
    pub(super) fn all_are_used(&self, cursor: &Cursor<'_>) -> bool {
        let is_unused = |index: &usize| !self.is_use_unknown && !self.used.contains(index);
        let unused: Vec<usize> = (0..self.pools.len()).filter(is_unused).collect();
        for name in unused.iter().filter_map(|index| self.pools[*index].as_ref()) {
            cursor.problem::<()>(format!("no egress entry sends to the pool {name:?}"));
        }
        unused.is_empty()
    }
}
