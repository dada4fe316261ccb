//! The edge part: of a configuration with an `edge` section, for the forwarder or a node, whichever this machine is.

use plimsoll_edge::config::EdgeConfig;
use plimsoll_edge::doctor::{Level, examine};

use super::finding::{Finding, Findings};

/// What was found.
pub fn findings(config: &EdgeConfig) -> Findings {
    let mut findings = Findings::default();
    for one in examine(config) {
        let about = format!("edge {}", one.about);
        findings.add(match one.level {
            Level::Ok => Finding::ok(about, one.found),
            Level::Note => Finding::note(about, one.found),
            Level::Warning => Finding::warning(about, one.found, one.advice),
            Level::Error => Finding::error(about, one.found, one.advice),
        });
    }
    findings
}
