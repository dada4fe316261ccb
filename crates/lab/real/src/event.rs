//! What befalls the servers of every lane at stated times: `neighbour@100s+75s:largest:0.5`.

use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use plimsoll_testbed::parse_duration;

use crate::Pool;
use crate::server::Mode;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// Somebody inside the server's quota burns this part of it.
    Neighbour(f64),
    /// Its processes stand still (SIGSTOP), then go on.
    Stop,
    /// All servers stand still at once, then go on.
    Pause,
    /// It is killed, and started again at the end if there is one.
    Kill,
    /// It behaves so, then well again.
    Mode(Mode),
    /// Clients ask for this part of the true capacity from now on.
    Load(f64),
}

/// What of a server an event takes hold of: one at a time.
#[derive(PartialEq)]
enum Hold {
    Processes,
    Neighbour,
}

impl What {
    fn hold(self) -> Option<Hold> {
        match self {
            What::Stop | What::Kill | What::Mode(_) => Some(Hold::Processes),
            What::Neighbour(_) => Some(Hold::Neighbour),
            What::Pause | What::Load(_) => None,
        }
    }
}

/// The servers it affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The largest server.
    Largest,
    /// The smallest.
    Smallest,
    /// All of them.
    All,
    /// The server of this name.
    Named(String),
}

impl Which {
    /// Positions in the pool; empty when it has no server of that name.
    pub fn positions(&self, pool: &Pool) -> Vec<usize> {
        match self {
            Which::Largest => vec![pool.largest()],
            Which::Smallest => vec![pool.smallest()],
            Which::All => (0..pool.sizes.len()).collect(),
            Which::Named(name) => {
                (0..pool.sizes.len()).filter(|&i| pool.sizes[i].name == *name).collect()
            }
        }
    }
}

/// One event, which may come again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// As it was written.
    pub text: String,
    /// What happens.
    pub what: What,
    /// The servers it affects.
    pub which: Which,
    /// When it begins, from the first request on.
    pub at: Duration,
    /// How long it lasts; none for a change that stays.
    pub lasts: Option<Duration>,
    /// How often it comes again; none for once.
    pub every: Option<Duration>,
}

impl Event {
    /// When it is on, up to this end of the run.
    pub fn stretches(&self, end: Duration) -> Vec<Range<Duration>> {
        let mut found = Vec::new();
        let mut at = self.at;
        while at < end {
            let until = self.lasts.map_or(end, |lasts| (at + lasts).min(end));
            found.push(at..until);
            match self.every {
                Some(every) => at += every,
                None => break,
            }
        }
        found
    }

    /// Whether both befall the same server at the same time, and one would end or hinder the other.
    pub fn conflicts_with(&self, other: &Event, pool: &Pool, end: Duration) -> bool {
        let theirs = other.which.positions(pool);
        let others = other.stretches(end);
        let overlaps = |own: &Range<Duration>| {
            others.iter().any(|other| own.start < other.end && other.start < own.end)
        };
        self.what.hold().is_some_and(|hold| other.what.hold() == Some(hold))
            && self.which.positions(pool).iter().any(|i| theirs.contains(i))
            && self.stretches(end).iter().any(overlaps)
    }

    /// Whether an affected server does no work, so that calling it failed is right.
    pub fn takes_down(&self) -> bool {
        matches!(self.what, What::Stop | What::Kill | What::Mode(Mode::HangWork | Mode::FailWork))
    }
}

/// What a run must do, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// From the first request on.
    pub at: Duration,
    /// Which event.
    pub event: usize,
    /// Whether it begins, or ends.
    pub begins: bool,
}

/// All steps of these events before the end of the run, in order.
pub fn steps(events: &[Event], end: Duration) -> Vec<Step> {
    let mut steps = Vec::new();
    for (event, one) in events.iter().enumerate() {
        for stretch in one.stretches(end) {
            steps.push(Step { at: stretch.start, event, begins: true });
            if one.lasts.is_some() && stretch.end < end {
                steps.push(Step { at: stretch.end, event, begins: false });
            }
        }
    }
    steps.sort_by_key(|step| (step.at, step.begins));
    steps
}

impl FromStr for Event {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected WHAT@START[+DURATION][/EVERY][:WHICH][:VALUE], such as \
                 neighbour@100s+75s:largest:0.5, found `{text}`"
            )
        };
        let (name, rest) = text.split_once('@').ok_or_else(expected)?;
        let mut parts = rest.split(':');
        let times = parts.next().ok_or_else(expected)?;
        let parts: Vec<&str> = parts.collect();
        let (times, every) = match times.split_once('/') {
            Some((times, every)) => (times, Some(parse_duration(every)?)),
            None => (times, None),
        };
        let (at, lasts) = match times.split_once('+') {
            Some((at, lasts)) => (parse_duration(at)?, Some(parse_duration(lasts)?)),
            None => (parse_duration(times)?, None),
        };
        if every.is_some_and(|every| lasts.is_none_or(|lasts| lasts >= every)) {
            return Err(format!("`{text}`: what comes again must end before it does"));
        }
        let part = |text: &str, most: f64| {
            let value: Option<f64> = text.parse().ok();
            value.filter(|v| *v > 0.0 && *v <= most).ok_or_else(|| {
                format!("expected a number above 0 and at most {most}, found `{text}`")
            })
        };
        let needs_end = |what: What| match lasts {
            Some(_) => Ok(what),
            None => Err(format!("`{text}`: how long does it last? {name}@START+DURATION")),
        };
        let (what, values) = match name {
            "neighbour" => {
                let value = parts.get(1).copied().unwrap_or("0.5");
                (needs_end(What::Neighbour(part(value, 1.0)?))?, 2)
            }
            "stop" => (needs_end(What::Stop)?, 1),
            "pause" => (needs_end(What::Pause)?, 0),
            "kill" => (What::Kill, 1),
            "hang" => (needs_end(What::Mode(Mode::HangWork))?, 1),
            "unhealthy" => (needs_end(What::Mode(Mode::FailHealth))?, 1),
            "errors" => (needs_end(What::Mode(Mode::FailWork))?, 1),
            "load" => {
                let value = parts.first().copied().ok_or_else(expected)?;
                let what = What::Load(part(value, 2.0)?);
                if lasts.is_some() {
                    return Err(format!("`{text}`: a load stays until the next; leave `+` out"));
                }
                (what, 1)
            }
            _ => {
                return Err(format!(
                    "expected neighbour, stop, pause, kill, hang, unhealthy, errors or load, found \
                     `{name}`"
                ));
            }
        };
        if parts.len() > values {
            return Err(expected());
        }
        let which = match (what, parts.first().copied()) {
            (What::Pause | What::Load(_), _) | (_, Some("all")) => Which::All,
            (_, None | Some("largest")) => Which::Largest,
            (_, Some("smallest")) => Which::Smallest,
            (_, Some(name)) => Which::Named(name.to_owned()),
        };
        Ok(Event { text: text.to_owned(), what, which, at, lasts, every })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    #[test]
    fn events_are_read() {
        let event: Event = "neighbour@100s+75s:s3:0.25".parse().unwrap();
        assert_eq!((event.what, event.at), (What::Neighbour(0.25), seconds(100.0)));
        assert_eq!((event.lasts, event.every), (Some(seconds(75.0)), None));
        assert_eq!(event.which, Which::Named("s3".into()));
        let event: Event = "neighbour@1m+75s".parse().unwrap();
        assert_eq!((event.what, event.which), (What::Neighbour(0.5), Which::Largest));
        let event: Event = "pause@10s+500ms/1m".parse().unwrap();
        assert_eq!((event.which.clone(), event.every), (Which::All, Some(seconds(60.0))));
        let event: Event = "load@60s:0.6".parse().unwrap();
        assert_eq!(event.what, What::Load(0.6));
        let event: Event = "kill@5s:smallest".parse().unwrap();
        assert_eq!((event.what, event.which, event.lasts), (What::Kill, Which::Smallest, None));
        for wrong in [
            "neighbour",
            "neighbour@5s",
            "neighbour@5s+5s:s1:1.5",
            "stop@5s:s1",
            "stop@5s+1s:s1:2",
            "pause@1s+5s/2s",
            "load@5s",
            "load@5s+5s:0.5",
            "sulk@5s",
            "kill@soon",
        ] {
            assert!(wrong.parse::<Event>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn steps_come_in_order_and_end_before_they_begin_again() {
        let events =
            ["pause@10s+1s/20s", "load@31s:0.5"].map(|text| text.parse::<Event>().unwrap());
        let found: Vec<(f64, usize, bool)> = steps(&events, seconds(50.0))
            .iter()
            .map(|step| (step.at.as_secs_f64(), step.event, step.begins))
            .collect();
        assert_eq!(
            found,
            [(10.0, 0, true), (11.0, 0, false), (30.0, 0, true), (31.0, 0, false), (31.0, 1, true)]
        );
    }
}
