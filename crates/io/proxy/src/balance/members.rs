//! The backends of a pool while it runs: configured, listed in a file or by DNS; steered, drained, found down. All entries
//! and threads see the same; each thread takes up what has changed at its next upkeep, for which it is woken.
//!
//! **A backend keeps its index** as long as it is a member, whatever happens to others: policies keep what they have
//! learned by index, and requests under way end by it. One that has left keeps its index, with weight 0, for
//! [`REST`]; then a newcomer gets it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Backend;

/// An index rests so long after its backend has left: its last requests have mostly ended by then.
const REST: Duration = Duration::from_secs(60);

/// Why a backend gets nothing, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendState {
    /// It serves, by its weight.
    Up,
    /// Its health check fails.
    Down,
    /// An administrator has taken it out.
    Drained,
    /// It is no member any more; its last requests are under way.
    Left,
}

/// One backend at its index.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) backend: Backend,
    /// What a controller has set.
    pub(crate) steered: Option<u32>,
    pub(crate) is_drained: bool,
    pub(crate) is_down: bool,
    /// Since when it is none any more.
    left: Option<Instant>,
    /// Different for each that has its index: counts are one's own.
    pub(crate) life: u64,
}

impl Member {
    fn new(backend: Backend) -> Self {
        Member { backend, steered: None, is_drained: false, is_down: false, left: None, life: 0 }
    }

    pub(crate) fn state(&self) -> BackendState {
        match self {
            Member { left: Some(_), .. } => BackendState::Left,
            Member { is_drained: true, .. } => BackendState::Drained,
            Member { is_down: true, .. } => BackendState::Down,
            _ => BackendState::Up,
        }
    }

    /// The weight that was set, whatever its state.
    pub(crate) fn set_weight(&self) -> u32 {
        self.steered.unwrap_or(self.backend.weight)
    }

    pub(crate) fn is_member(&self) -> bool {
        self.left.is_none()
    }
}

/// All of them, at one instant.
#[derive(Clone, Debug)]
pub(crate) struct Roll {
    /// By index.
    pub(crate) members: Vec<Member>,
    /// The plan in force, if a controller steers.
    pub(crate) epoch: Option<u64>,
    /// Changes with any address: weights alone are taken up in place.
    pub(crate) places: u64,
}

impl Roll {
    /// The weights in force, by index. Where all are down, their checks are not believed: some answer is better than none.
    pub(crate) fn weights(&self) -> Vec<u32> {
        let usable = |member: &Member| member.is_member() && !member.is_drained;
        let any_up = self.members.iter().any(|m| usable(m) && !m.is_down && m.set_weight() > 0);
        let weight = |member: &Member| match usable(member) && !(member.is_down && any_up) {
            true => member.set_weight(),
            false => 0,
        };
        self.members.iter().map(weight).collect()
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.backend.address).collect()
    }

    /// The index of a member.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|member| member.is_member() && member.backend.name == name)
    }

    /// The members, each with its index.
    pub(crate) fn present(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.members.iter().enumerate().filter(|(_, member)| member.is_member())
    }
}

/// The backends of one pool.
#[derive(Debug)]
pub(crate) struct Members {
    /// Counts changes: a reader that has seen this one has seen them all.
    version: AtomicU64,
    roll: Mutex<Roll>,
    /// Why the members are not known now.
    trouble: Mutex<Option<String>>,
    /// Those that were asked for their load and did not tell it.
    silent: Mutex<BTreeSet<SocketAddr>>,
}

impl Members {
    pub(crate) fn new(backends: &[Backend]) -> Self {
        let members = backends.iter().cloned().map(Member::new).collect();
        let roll = Mutex::new(Roll { members, epoch: None, places: 0 });
        let (trouble, silent) = (Mutex::default(), Mutex::default());
        Members { version: AtomicU64::new(0), roll, trouble, silent }
    }

    fn lock(&self) -> MutexGuard<'_, Roll> {
        self.roll.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which change was the last.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// All of them, and the version that this is at least.
    pub(crate) fn read(&self) -> (Arc<Roll>, u64) {
        let version = self.version();
        (Arc::new(self.lock().clone()), version)
    }

    /// Changes them; an error changes nothing. Threads are to be woken then.
    pub(crate) fn change<T, E>(&self, how: impl FnOnce(&mut Roll) -> Result<T, E>) -> Result<T, E> {
        let mut roll = self.lock();
        let mut next = roll.clone();
        let done = how(&mut next)?;
        *roll = next;
        self.version.fetch_add(1, Ordering::Release);
        Ok(done)
    }

    /// Why the members are not known now; says whether that is new.
    pub(crate) fn set_trouble(&self, why: Option<&str>) -> bool {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = trouble.as_deref() != why;
        *trouble = why.map(str::to_owned);
        is_new
    }

    /// What [`Members::set_trouble`] was given.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the one of this address tells its load, as any thread has found; says whether that is news.
    pub(crate) fn tells_load(&self, address: SocketAddr, tells: bool) -> bool {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if tells { silent.remove(&address) } else { silent.insert(address) }
    }

    /// Makes these the members: one with the name and address of another is that one, and keeps its index. Says whether
    /// anything has changed.
    pub(crate) fn become_these(&self, backends: &[Backend]) -> bool {
        let changed: Result<(), ()> = self.change(|roll| roll.become_these(backends));
        changed.is_ok()
    }
}

impl Roll {
    /// An error where nothing changes.
    fn become_these(&mut self, backends: &[Backend]) -> Result<(), ()> {
        let (now, mut is_changed, mut has_moved) = (Instant::now(), false, false);
        let same = |member: &Member, backend: &Backend| {
            member.backend.name == backend.name && member.backend.address == backend.address
        };
        for member in &mut self.members {
            if member.is_member() && !backends.iter().any(|backend| same(member, backend)) {
                (member.left, is_changed) = (Some(now), true);
            }
        }
        for backend in backends {
            let found = self.members.iter_mut().find(|member| same(member, backend));
            if let Some(member) = found {
                if member.left.take().is_some() {
                    // It has come back: what was decided about it before is no longer known to hold.
                    let life = member.life;
                    *member = Member { life, ..Member::new(backend.clone()) };
                    is_changed = true;
                } else if member.backend.weight != backend.weight {
                    (member.backend.weight, is_changed) = (backend.weight, true);
                }
                continue;
            }
            (is_changed, has_moved) = (true, true);
            let rested = |m: &&mut Member| m.left.is_some_and(|left| now - left >= REST);
            match self.members.iter_mut().find(rested) {
                Some(place) => {
                    *place = Member { life: place.life + 1, ..Member::new(backend.clone()) };
                }
                None => self.members.push(Member::new(backend.clone())),
            }
        }
        self.places += u64::from(has_moved);
        if is_changed { Ok(()) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(name: &str, port: u16, weight: u32) -> Backend {
        Backend { name: name.to_owned(), address: ([127, 0, 0, 1], port).into(), weight }
    }

    fn weights(members: &Members) -> Vec<u32> {
        members.read().0.weights()
    }

    #[test]
    fn a_member_keeps_its_index_and_what_was_set() {
        let members = Members::new(&[backend("a", 1, 5), backend("b", 2, 6), backend("c", 3, 7)]);
        let set = |roll: &mut Roll| {
            roll.members[1].steered = Some(60);
            Ok::<_, ()>(())
        };
        members.change(set).expect("set");
        let places = members.read().0.places;
        assert!(members.become_these(&[backend("c", 3, 8), backend("b", 2, 6)]));
        assert_eq!((weights(&members), members.read().0.places), (vec![0, 60, 8], places));
        assert!(!members.become_these(&[backend("c", 3, 8), backend("b", 2, 6)]), "the same");
        // Another address is another backend, at an index of its own; a's index rests.
        assert!(members.become_these(&[backend("c", 9, 8), backend("b", 2, 6)]));
        assert_eq!(weights(&members), [0, 60, 0, 8]);
        assert_eq!(members.read().0.find("c"), Some(3));
        assert_ne!(members.read().0.places, places);
        assert!(members.become_these(&[backend("a", 1, 5), backend("b", 2, 6)]));
        assert_eq!(weights(&members), [5, 60, 0, 0], "one that returns has its index again");
    }

    #[test]
    fn an_index_that_has_rested_is_given_to_a_newcomer() {
        let members = Members::new(&[backend("a", 1, 1), backend("b", 2, 1)]);
        assert!(members.become_these(&[backend("b", 2, 1)]));
        let long_ago = |roll: &mut Roll| {
            roll.members[0].left = Instant::now().checked_sub(REST);
            Ok::<_, ()>(())
        };
        members.change(long_ago).expect("changed");
        assert!(members.become_these(&[backend("b", 2, 1), backend("new", 3, 4)]));
        assert_eq!((weights(&members), members.read().0.find("new")), (vec![4, 1], Some(0)));
    }

    #[test]
    fn one_that_tells_no_load_is_news_once() {
        let members = Members::new(&[backend("a", 1, 1)]);
        let address = members.read().0.addresses()[0];
        let told =
            [true, false, false, true, false].map(|tells| members.tells_load(address, tells));
        assert_eq!(told, [false, true, false, true, true]);
    }

    #[test]
    fn where_all_are_down_none_is_believed_to_be() {
        let members = Members::new(&[backend("a", 1, 1), backend("b", 2, 1), backend("c", 3, 1)]);
        let put = |down: [bool; 3]| {
            let how = |roll: &mut Roll| {
                roll.members[2].is_drained = true;
                for (member, is_down) in roll.members.iter_mut().zip(down) {
                    member.is_down = is_down;
                }
                Ok::<_, ()>(())
            };
            members.change(how).expect("changed");
            weights(&members)
        };
        assert_eq!(put([true, false, false]), [0, 1, 0]);
        assert_eq!(put([true, true, false]), [1, 1, 0], "but a drained one gets nothing");
    }
}
