//! What every sink checks of its servers and of a plan before anything is sent.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use plimsoll_model::{BackendId, Plan, ServerReport, ServerStatus};

use crate::{Servers, SinkError};

/// Says whether a balancer of this kind could have a server of this name.
type NameCheck = fn(&'static str, &str) -> Result<(), SinkError>;

/// The servers that are steered, and what was last read of each.
#[derive(Debug)]
pub(crate) struct Roster {
    /// In order of [`BackendId`].
    servers: Servers,
    check: NameCheck,
    /// Of every server that was ever found.
    last: Vec<ServerReport>,
}

impl Roster {
    /// # Errors
    /// [`SinkError::InvalidName`] for names that `check` refuses, or that come twice.
    pub(crate) fn new(servers: Servers, check: NameCheck) -> Result<Self, SinkError> {
        Ok(Roster { servers: checked(servers, check)?, check, last: Vec::new() })
    }

    /// Replaces them.
    ///
    /// # Errors
    /// As [`Roster::new`]; the present ones then stay.
    pub(crate) fn set(&mut self, servers: Servers) -> Result<(), SinkError> {
        let servers = checked(servers, self.check)?;
        let before = std::mem::replace(&mut self.servers, servers);
        let is_same = |id: BackendId| {
            let place = |all: &Servers| all.binary_search_by_key(&id, |(id, _)| *id).ok();
            let (now, then) = (place(&self.servers), place(&before));
            now.zip(then).is_some_and(|(now, then)| self.servers[now].1 == before[then].1)
        };
        self.last.retain(|last| is_same(last.backend));
        Ok(())
    }

    pub(crate) fn servers(&self) -> &[(BackendId, String)] {
        &self.servers
    }

    /// All must be there, or have been there and left since; and one must be there.
    ///
    /// # Errors
    /// The names that are missing.
    pub(crate) fn require(
        &self,
        is_there: impl Fn(usize, &str) -> bool,
    ) -> Result<(), Vec<String>> {
        let all = || self.servers.iter().enumerate();
        let none_left = !all().any(|(at, (_, name))| is_there(at, name));
        let was_there = |id: BackendId| self.last.iter().any(|last| last.backend == id);
        let missing: Vec<String> = all()
            .filter(|(at, (_, name))| !is_there(*at, name))
            .filter(|(_, (id, _))| none_left || !was_there(*id))
            .map(|(_, (_, name))| name.clone())
            .collect();
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }

    /// What was read of each. One that has left gets no traffic: as one in maintenance.
    pub(crate) fn report(
        &mut self,
        mut found: impl FnMut(usize, BackendId, &str) -> Option<ServerReport>,
    ) -> Vec<ServerReport> {
        let last = &self.last;
        let left = |id: BackendId| {
            let last = last.iter().find(|last| last.backend == id)?;
            let status = ServerStatus::Maintenance;
            Some(ServerReport { status, in_flight: 0, queued: 0, ..*last })
        };
        let servers = self.servers.iter().enumerate();
        let read: Vec<ServerReport> = servers
            .filter_map(|(at, (id, name))| found(at, *id, name).or_else(|| left(*id)))
            .collect();
        self.last.clear();
        self.last.extend(&read);
        read
    }
}

/// Servers in order of [`BackendId`], each with a valid name, none twice.
fn checked(
    mut servers: Vec<(BackendId, String)>,
    check: impl Fn(&'static str, &str) -> Result<(), SinkError>,
) -> Result<Vec<(BackendId, String)>, SinkError> {
    servers.sort();
    let (mut ids, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for (id, name) in &servers {
        check("server name", name)?;
        if !seen.insert(name) || !ids.insert(id) {
            return Err(SinkError::InvalidName {
                name: name.clone(),
                what: "server name",
                reason: format!("it or its identity ({id}) is given twice"),
            });
        }
    }
    Ok(servers)
}

/// The weights of a plan by the servers' names, as [`checked`] has them; refused when one is of no server, out
/// of `whose` range, or given twice.
pub(crate) fn planned(
    plan: &Plan,
    servers: &[(BackendId, String)],
    range: &RangeInclusive<u32>,
    whose: &str,
) -> Result<Vec<(String, u32)>, SinkError> {
    let refuse = |reason: String| Err(SinkError::InvalidPlan { epoch: plan.epoch, reason });
    let mut wanted: Vec<(BackendId, String, u32)> = Vec::with_capacity(plan.entries.len());
    for entry in &plan.entries {
        let Ok(at) = servers.binary_search_by_key(&entry.backend, |(id, _)| *id) else {
            return refuse(format!("{} is not among the servers that are steered", entry.backend));
        };
        let name = &servers[at].1;
        if !range.contains(&entry.weight) {
            return refuse(format!(
                "weight {} of {name:?} is out of {whose} range {}…{}",
                entry.weight,
                range.start(),
                range.end()
            ));
        }
        wanted.push((entry.backend, name.clone(), entry.weight));
    }
    wanted.sort_by_key(|(id, ..)| *id);
    if let Some(pair) = wanted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return refuse(format!("{:?} has two weights", pair[0].1));
    }
    Ok(wanted.into_iter().map(|(_, name, weight)| (name, weight)).collect())
}
