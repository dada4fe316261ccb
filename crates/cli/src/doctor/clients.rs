//! What the clients of a service feel, as its daemon shows it.

use plimsoll_control::ServiceView;

use super::finding::{Finding, Findings};
use crate::client::complaints;

/// Says what clients suffer from, or that they do not.
pub fn examine(view: &ServiceView, findings: &mut Findings) {
    let found = complaints::of(view);
    if found.is_empty() && view.trouble.is_none() {
        findings.add(Finding::ok(&view.service, calm(view)));
    }
    for complaint in found {
        let make = if complaint.is_outage { Finding::error } else { Finding::warning };
        findings.add(make(complaint.about, complaint.message, complaint.advice));
    }
}

fn calm(view: &ServiceView) -> String {
    let serving = view.backends.iter().filter(|b| complaints::serves(b)).count();
    let serving = format!("{serving} of {} backends serve", view.backends.len());
    match complaints::wait(view) {
        Some((waits_ms, rest_ms)) => format!(
            "{serving}; clients wait {waits_ms:.1} ms in the mean, an unloaded backend takes {rest_ms:.1} ms"
        ),
        None => match view.latency_ms {
            Some(waits_ms) => format!(
                "{serving}; clients wait {waits_ms:.1} ms in the mean, what an unloaded backend takes is not known yet"
            ),
            None => format!(
                "{serving}; how long clients wait is not known, for there is next to no traffic"
            ),
        },
    }
}
