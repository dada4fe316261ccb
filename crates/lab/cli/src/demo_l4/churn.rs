//! How servers come and go: the same in all lanes, at the same moments.

use std::time::Duration;

/// Servers in all.
pub const SERVERS: usize = 8;
/// Of these, those that serve from the beginning.
const AT_FIRST: usize = 6;

/// Where a server stands in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not in it. It may still serve connections that it has.
    Away,
    /// It takes new connections.
    Up,
    /// It is to take no new ones and to keep those that it has.
    Draining,
}

/// One change. Servers are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A server is no longer named.
    Remove(usize),
    /// A server's state is `draining`.
    Drain(usize),
    /// A server is named, and up.
    Add(usize),
    /// The balancer's daemon is killed (SIGKILL).
    KillDaemon,
    /// And started again.
    StartDaemon,
}

impl Change {
    /// In words.
    pub fn text(self) -> String {
        match self {
            Change::Remove(server) => format!("{} is removed", name(server)),
            Change::Drain(server) => format!("{} drains", name(server)),
            Change::Add(server) => format!("{} is added", name(server)),
            Change::KillDaemon => "Plimsoll's daemon is killed".to_owned(),
            Change::StartDaemon => "Plimsoll's daemon starts again".to_owned(),
        }
    }

    /// What becomes of the servers.
    pub fn apply(self, places: &mut [Place; SERVERS]) {
        match self {
            Change::Remove(server) => places[server] = Place::Away,
            Change::Drain(server) => places[server] = Place::Draining,
            Change::Add(server) => places[server] = Place::Up,
            Change::KillDaemon | Change::StartDaemon => {}
        }
    }
}

/// A server's name, as in [`plimsoll_testbed::net::Site::servers`].
pub fn name(server: usize) -> String {
    format!("s{}", server + 1)
}

/// The servers at first.
pub fn at_first() -> [Place; SERVERS] {
    std::array::from_fn(|server| if server < AT_FIRST { Place::Up } else { Place::Away })
}

/// What changes when, over so long a time: first all connections begin, at the end the last change shows.
pub fn plan(whole: Duration) -> Vec<(Duration, Change)> {
    let changes = [
        Change::Remove(0),
        Change::Add(6),
        Change::Drain(1),
        Change::Remove(2),
        Change::KillDaemon,
        Change::StartDaemon,
        Change::Add(7),
        Change::Add(1),
        Change::Remove(3),
        Change::Add(0),
    ];
    let share = |i: usize| whole.mul_f64((i + 1) as f64 / (changes.len() + 1) as f64);
    changes.iter().enumerate().map(|(i, change)| (share(i), *change)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_leave_drain_come_and_return_and_some_always_serve() {
        let mut places = at_first();
        let plan = plan(Duration::from_secs(110));
        assert!(plan.is_sorted_by_key(|(at, _)| *at));
        assert_eq!((plan[0].0, plan[9].0), (Duration::from_secs(10), Duration::from_secs(100)));
        for (_, change) in plan {
            let before = places;
            change.apply(&mut places);
            let up = places.iter().filter(|place| **place == Place::Up).count();
            assert!(up >= 4, "{places:?}");
            // Every change changes something, but for those of the daemon.
            let daemon = matches!(change, Change::KillDaemon | Change::StartDaemon);
            assert_eq!(before == places, daemon, "{change:?}");
        }
        assert_eq!(places[0], Place::Up, "one that was removed is back");
    }

    #[test]
    fn a_change_is_described_in_words() {
        assert_eq!(Change::Drain(1).text(), "s2 drains");
    }
}
