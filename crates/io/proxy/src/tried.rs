//! Where a request has been already.

use plimsoll_policy::MAX_AVOID;

use crate::forward::Failed;
use crate::headers::Rejected;

/// Where a request has been already.
#[derive(Default)]
pub(crate) struct Tried {
    backends: [usize; MAX_AVOID],
    pub(crate) count: usize,
    /// How many could not be connected to.
    pub(crate) unreachable: usize,
    /// Why the last of these could not.
    pub(crate) failed: Option<Failed>,
    /// How often it was refused.
    pub(crate) refusals: u32,
    /// What was said last.
    pub(crate) rejected: Option<Rejected>,
}

impl Tried {
    pub(crate) fn add(&mut self, backend: usize) {
        if self.count < MAX_AVOID {
            self.backends[self.count] = backend;
            self.count += 1;
        }
    }

    /// It may go anywhere again; what was said last stays.
    pub(crate) fn forget(&mut self) {
        *self = Tried { rejected: self.rejected, ..Tried::default() };
    }

    /// Backends that it must not go to again.
    pub(crate) fn avoid(&self) -> &[usize] {
        &self.backends[..self.count]
    }
}
