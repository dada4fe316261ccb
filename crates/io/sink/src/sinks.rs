//! All balancers in front of one pool.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_config::{Cursor, Once};
use plimsoll_model::SinkLimits;

use crate::registry::Sink;
use crate::source::{self, Sourced};
use crate::steer::{Named, start_several};
use crate::{Servers, SinkError, SinkHandle, Steered, Steering};

/// The most balancers in front of one pool.
const MOST: usize = 64;

/// The balancers of a service, at least one: all of them get the same weights, or each those of its subset of the
/// servers, and what they report is added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sinks {
    first: Sink,
    more: Vec<Sink>,
    subsets: bool,
}

impl From<Sink> for Sinks {
    fn from(first: Sink) -> Self {
        Sinks { first, more: Vec::new(), subsets: false }
    }
}

impl Sinks {
    /// Reads `sink`: one balancer, whose pool no service of `steered` steers already.
    pub fn read_one(cursor: &Cursor<'_>, steered: &mut Once<String>) -> Option<Self> {
        let sink = Sink::read(cursor)?;
        claim(&sink, cursor, steered, "no other service steers")?;
        Some(sink.into())
    }

    /// Reads `sinks`: a list of balancers, whose pools no service of `steered` steers already.
    pub fn read(cursor: &Cursor<'_>, steered: &mut Once<String>) -> Option<Self> {
        let items = cursor.items("a list of balancers")?;
        if items.is_empty() || items.len() > MOST {
            return cursor.expected(format!("1 to {MOST} balancers"));
        }
        let all: Vec<Option<Sink>> = items.iter().map(Sink::read).collect();
        let all = all.into_iter().collect::<Option<Vec<Sink>>>()?;
        // One balancer twice would be counted twice.
        let mut named = Once::default();
        for (item, sink) in items.iter().zip(&all) {
            claim(sink, item, steered, "no other service steers")?;
            claim(&sink.spelled_out(), item, &mut named, "is named once")?;
        }
        let mut all = all.into_iter();
        Some(Sinks { first: all.next()?, more: all.collect(), subsets: false })
    }

    /// Gives each of these balancers a subset of the servers, as `cursor` asks.
    pub fn give_subsets(&mut self, cursor: &Cursor<'_>) -> Option<()> {
        self.subsets = true;
        if self.more.is_empty() {
            return cursor
                .problem("expected at least two balancers in sinks, each to have a subset");
        }
        Some(())
    }

    /// Whether each of several balancers has a subset of the servers.
    pub fn have_subsets(&self) -> bool {
        self.subsets
    }

    /// The first one, of which is asked what is the same for all.
    pub fn first(&self) -> &Sink {
        &self.first
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Sink> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// How many they are.
    pub fn count(&self) -> u32 {
        1 + self.more.len() as u32
    }

    /// How many of them give requests to the same servers and do not know of each other's.
    pub fn sharing(&self) -> u32 {
        if self.subsets { 1 } else { self.count() }
    }

    /// What all of them bear.
    pub fn limits(&self) -> SinkLimits {
        let mut all = self.first.limits();
        for limits in self.more.iter().map(Sink::limits) {
            let least = *all.range.start().max(limits.range.start());
            all.range = least..=*all.range.end().min(limits.range.end());
            all.min_interval = all.min_interval.max(limits.min_interval);
            all.picks_per_weight = all.picks_per_weight.max(limits.picks_per_weight);
        }
        // Each of them takes only its part of the requests through its turns.
        all.picks_per_weight = all.picks_per_weight.saturating_mul(self.count());
        all
    }

    /// Whether the reports of all of them count requests that were lost.
    pub fn reports_losses(&self) -> bool {
        self.iter().all(Sink::reports_losses)
    }

    /// Checks the names of servers, without a look at the balancers.
    ///
    /// # Errors
    /// [`SinkError::InvalidName`] for names that one of them could not have, or that come twice.
    pub fn check(&self, servers: &Servers) -> Result<(), SinkError> {
        self.iter().try_for_each(|sink| sink.check(servers))
    }

    /// Begins to read them, and to carry out plans, on the runtime of the caller; ends when the handle is dropped.
    ///
    /// # Errors
    /// As [`Sinks::check`].
    pub fn start(&self, steering: &Steering, steered: Steered) -> Result<SinkHandle, SinkError> {
        let handle = self.start_sinks(steering, &steered)?;
        let Some((source, addresses)) = steered.source else { return Ok(handle) };
        let names = steered.servers.into_iter().map(|(id, name)| (name, id));
        let servers = names.chain(addresses).collect();
        let pools = self.iter().map(|sink| sink.pool().to_owned()).collect();
        Ok(source::start(Sourced { source, pools, servers, origin: steering.origin }, handle))
    }

    fn start_sinks(&self, steering: &Steering, steered: &Steered) -> Result<SinkHandle, SinkError> {
        if self.more.is_empty() {
            return self.first.start(steering, steered.clone());
        }
        let mut members = Vec::new();
        let mut taken = BTreeSet::new();
        for sink in self.iter() {
            let place = sink.place();
            let is_first = taken.insert(place.clone());
            let pool = (!is_first).then(|| sink.pool().to_owned());
            members.push((Named { place, pool }, sink.start(steering, steered.clone())?));
        }
        let greatest = *self.limits().range.end();
        Ok(start_several(members, &steered.servers, GONE, self.subsets.then_some(greatest)))
    }
}

/// Takes the pool of a sink, or reports that it is taken: one that two steer would have its weights undone by either.
fn claim(sink: &Sink, at: &Cursor<'_>, taken: &mut Once<String>, what: &str) -> Option<()> {
    let (kind, keys) = sink.names_pool();
    let named = keys.iter().try_fold(at.clone(), |at, key| at.value(key));
    let pool = format!("{}, {}", sink.place(), sink.pool());
    taken.take(pool, &named.unwrap_or(at.clone()), &format!("{kind} that {what}"))
}

/// A balancer that has reported nothing for so long counts as gone.
const GONE: Duration = Duration::from_secs(2);
