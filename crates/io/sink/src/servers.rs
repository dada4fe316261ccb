//! What every sink checks of its servers and of a plan before anything is sent.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use plimsoll_model::{BackendId, Plan};

use crate::SinkError;

/// Servers in order of [`BackendId`], each with a valid name, none twice.
pub(crate) fn checked(
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
