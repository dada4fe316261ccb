//! The layer-7 part: of a configuration with a `proxy` section.

use plimsoll_proxy::{OpenFiles, ProxyConfig};

use super::finding::{Finding, Findings};
use crate::run::descriptors::Limits;

/// What was found.
pub fn findings(config: &ProxyConfig) -> Findings {
    let mut findings = Findings::default();
    // A proxy that runs knows its own limit, which a service manager may have set.
    let told = config.socket.as_deref().and_then(|socket| plimsoll_proxy::ask(socket).ok());
    let running = told.map(|status| status.most_connections);
    findings.add(files(OpenFiles::of(config), running, Limits::now()));
    findings
}

/// Whether a proxy may have as many connections of clients as it is configured for.
fn files(files: OpenFiles, running: Option<u64>, limits: Limits) -> Finding {
    let (wanted, needed) = (files.connections, files.needed());
    let (most, limit) = match running {
        Some(most) => (most, "the limit of open files of the running proxy".to_owned()),
        None => {
            let limit = limits.hard;
            let here = format!("the hard limit of open files here, {limit},");
            (files.room(limit) as u64, here)
        }
    };
    let room = format!("{limit} leaves room for {most} connections of clients");
    if most >= wanted as u64 {
        let all = format!("{room}; limits.connections allow {wanted}");
        return Finding::ok("proxy files", all);
    }
    Finding::warning(
        "proxy files",
        format!(
            "{room}, fewer than the {wanted} of limits.connections together: more are answered 503"
        ),
        format!(
            "raise the hard limit to {needed} (`LimitNOFILE={needed}` in systemd's unit, `ulimit -Hn` in a shell, \
             `--ulimit nofile` for a container), or lower limits.connections"
        ),
    )
}

#[cfg(test)]
mod tests {
    use plimsoll_config::Document;

    use super::*;
    use crate::doctor::finding::Severity;

    fn of(connections: usize) -> OpenFiles {
        let text = format!(
            "proxy:
  threads: 1
  egress: [ {{ name: out, listen: \"127.0.0.1:80\", limits: {{ connections: {connections} }} }} ]
  ingress: [ {{ listen: \"127.0.0.1:81\", upstream: \"127.0.0.1:82\", limits: {{ connections: 500 }} }} ]
  pools: [ {{ name: pool, backends: [ {{ name: b, address: \"127.0.0.1:83\" }} ] }} ]
"
        );
        let document = Document::parse("F", &text).expect("YAML");
        OpenFiles::of(&document.read(crate::proxy::config::document).expect("a section"))
    }

    #[test]
    fn too_low_a_limit_of_open_files_is_said_with_what_it_allows_and_what_would_do() {
        let limits = |hard| Limits { soft: 1_024, hard };
        let low = files(of(10_000), None, limits(4_096));
        assert_eq!(low.severity, Severity::Warning);
        let advice = low.advice.expect("what to do");
        assert!(low.message.contains("here, 4096, leaves room for 20"), "{}", low.message);
        assert!(low.message.contains("fewer than the 10500"), "{}", low.message);
        let needed = of(10_000).needed();
        assert!(needed > 21_000 && advice.contains(&format!("LimitNOFILE={needed}")), "{advice}");
        assert_eq!(files(of(10_000), None, limits(needed)).severity, Severity::Ok);
        // What runs may have another limit than a shell.
        assert_eq!(files(of(10_000), Some(10_500), limits(4_096)).severity, Severity::Ok);
        let low = files(of(10_000), Some(480), limits(1 << 20));
        assert!(low.message.contains("running proxy leaves room for 480"), "{}", low.message);
        assert_eq!(low.severity, Severity::Warning);
    }
}
