//! Timestamps that this machine's TCP refused, by the kernel's own counters of the caller's network namespace
//! (Documentation/networking/snmp_counter.rst): they count from its beginning, so that what was wrong once
//! weighs less with all that went well since.

use std::fs;

use super::{Finding, Role};

const CHECK: &str = "timestamps_refused";
/// A refused echo is a handshake that does not end: one in so many is reported.
const CONNECTIONS_TO_ONE_ECHO: u64 = 10_000;
/// A segment with an old timestamp is sent again: one in so many is reported. Networks deliver a few twice.
const SEGMENTS_TO_ONE_OLD: u64 = 1_000;

/// What the kernel counted; `None` where it does not count that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    /// Ends of handshakes with an echo that was never sent (Linux 6.14 and later).
    echoes: Option<u64>,
    /// Connections that were accepted.
    accepted: Option<u64>,
    /// Segments with an older timestamp than their connection had.
    old: Option<u64>,
    /// All segments that came.
    segments: Option<u64>,
    /// Seconds since the machine was started; a namespace is younger.
    up_s: Option<u64>,
}

pub fn examine(role: Role) -> [Finding; 2] {
    // The process's own would be those of its first thread's namespace.
    let read = |name| fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
    let counted = Counted::from_texts(
        &read("thread-self/net/netstat"),
        &read("thread-self/net/snmp"),
        &read("uptime"),
    );
    [counted.echoes(), counted.old(role)]
}

impl Counted {
    fn from_texts(netstat: &str, snmp: &str, uptime: &str) -> Counted {
        let seconds = uptime.split(['.', ' ']).next();
        Counted {
            echoes: counter(netstat, "TcpExt", "TSEcrRejected"),
            accepted: counter(snmp, "Tcp", "PassiveOpens"),
            old: counter(netstat, "TcpExt", "PAWSEstab"),
            segments: counter(snmp, "Tcp", "InSegs"),
            up_s: seconds.and_then(|text| text.parse().ok()),
        }
    }

    fn echoes(&self) -> Finding {
        let why = "the end of a handshake is refused unless it echoes what the server sent, and the connection \
                   with it: the echo was not restored";
        let finding = Finding::new(CHECK, "TSEcrRejected", why);
        let Some(echoes) = self.echoes else {
            return finding.ok("not counted by this kernel (Linux 6.14 or later does)");
        };
        let found = self.beside(echoes, self.accepted, "connections accepted");
        if is_rare(echoes, self.accepted, CONNECTIONS_TO_ONE_ECHO) {
            return finding.ok(found);
        }
        finding.warn(
            found,
            "while `nstat -az TcpExtTSEcrRejected` grows: net.ipv4.tcp_timestamps=2 on the server, or its \
             agent; one key file on all balancers and agents; clock_moved in `plimsoll l4 status`",
        )
    }

    fn old(&self, role: Role) -> Finding {
        let why = "a segment with an older timestamp than its connection had is dropped (PAWS)";
        let finding = Finding::new(CHECK, "PAWSEstab", why);
        let Some(old) = self.old else {
            return finding.ok("not counted by this kernel");
        };
        let found = self.beside(old, self.segments, "segments received");
        if is_rare(old, self.segments, SEGMENTS_TO_ONE_OLD) {
            return finding.ok(found);
        }
        finding.warn(
            found,
            match role {
                Role::Server { .. } => {
                    "clients' own timestamps, which no balancer touches: look for segments that come \
                     twice, and for clients that share an address"
                }
                Role::Balancer => {
                    "on a client of the service: connections that were silent for too long (keep-alives, or \
                     more l4.cookie.version_bits), or balancers whose key files differ"
                }
            },
        )
    }

    fn beside(&self, count: u64, all: Option<u64>, of: &str) -> String {
        let all = all.map_or("an unknown number of".to_owned(), |all| all.to_string());
        let up = self.up_s.map(|seconds| format!(" (up for {:.1} h)", seconds as f64 / 3600.0));
        format!("{count}, beside {all} {of}{}", up.unwrap_or_default())
    }
}

fn is_rare(count: u64, all: Option<u64>, to_one: u64) -> bool {
    count == 0 || all.is_some_and(|all| count.saturating_mul(to_one) <= all)
}

/// A counter of a group: a line `Group: names` is followed by a line `Group: counts`.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group)?.strip_prefix(':'));
    let (names, counts) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|one| one == name)?;
    counts.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    const NETSTAT: &str = "TcpExt: SyncookiesSent PAWSActive PAWSEstab TSEcrRejected PAWSOldAck\n\
                           TcpExt: 0 4 200 12 3\nIpExt: InNoRoutes PAWSEstab\nIpExt: 1 9\n";
    /// As Linux 6.1 has it.
    const OLDER: &str =
        "TcpExt: SyncookiesSent PAWSActive PAWSEstab DelayedACKs\nTcpExt: 0 0 0 7\n";
    const SNMP: &str =
        "Ip: InSegs\nIp: 9\nTcp: MaxConn PassiveOpens InSegs\nTcp: -1 119999 200000\n";

    fn server(counted: &Counted) -> [(Level, String); 2] {
        [counted.echoes(), counted.old(Role::Server { agent: false })]
            .map(|finding| (finding.level, finding.found))
    }

    #[test]
    fn counters_are_read_by_group_and_name_and_weighed_by_what_passed() {
        let counted = Counted::from_texts(NETSTAT, SNMP, "12600.53 24000.00\n");
        let expected = Counted {
            echoes: Some(12),
            accepted: Some(119_999),
            old: Some(200),
            segments: Some(200_000),
            up_s: Some(12_600),
        };
        assert_eq!(counted, expected);
        let [echoes, old] = server(&counted);
        let words = "12, beside 119999 connections accepted (up for 3.5 h)".to_owned();
        assert_eq!(echoes, (Level::Warn, words));
        assert_eq!(old, (Level::Ok, "200, beside 200000 segments received (up for 3.5 h)".into()));
        let later = Counted { accepted: Some(120_000), old: Some(201), ..counted };
        assert_eq!(server(&later).map(|(level, _)| level), [Level::Ok, Level::Warn]);
    }

    #[test]
    fn what_a_kernel_does_not_count_is_reported_as_ok() {
        let counted = Counted::from_texts(OLDER, SNMP, "1.0 1.0");
        let [echoes, old] = server(&counted);
        assert_eq!(echoes.0, Level::Ok);
        assert!(echoes.1.starts_with("not counted"), "{}", echoes.1);
        assert_eq!(old, (Level::Ok, "0, beside 200000 segments received (up for 0.0 h)".into()));
        // Lines that are cut off, a name without a count, a count that is none.
        for text in [
            "",
            "TcpExt: PAWSEstab",
            "TcpExt: A PAWSEstab\nTcpExt: 1",
            "TcpExt: PAWSEstab\nTcpExt: x",
        ] {
            let counted = Counted::from_texts(text, text, text);
            let none =
                Counted { echoes: None, accepted: None, old: None, segments: None, up_s: None };
            assert_eq!(counted, none, "{text}");
            assert_eq!(server(&counted).map(|(level, _)| level), [Level::Ok; 2]);
        }
    }

    #[test]
    fn without_a_total_a_single_refusal_is_reported() {
        let counted =
            Counted { echoes: Some(1), accepted: None, old: Some(1), segments: None, up_s: None };
        let [echoes, _] = server(&counted);
        let words = "1, beside an unknown number of connections accepted".to_owned();
        assert_eq!(echoes, (Level::Warn, words));
    }
}
