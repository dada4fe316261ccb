//! What the law says of a poll, kept: the same few polls come again and again, and the law costs
//! microseconds. Rates are rounded to a quarter of a percent, far below what they are known to.

use super::charts::TUNED;
use super::polled::Poll;

/// Entries; a power of two. 20 KB a backend.
const ENTRIES: usize = 256;
/// Rates are rounded to this part of themselves, their doubt to a fifth of that.
const STEP: f64 = 0.0025;

/// What the law says of one poll.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Said {
    /// Mean and variance of the completions.
    pub mean: f64,
    pub variance: f64,
    /// What the charts gain, nats.
    pub gains: [f64; TUNED.len()],
}

/// Answers by what they are answers to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Memo {
    entries: Vec<Option<(Key, Said)>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Key {
    before: u32,
    arrivals: u32,
    completions: u32,
    events: i32,
    doubt: i32,
}

impl Memo {
    /// What the law says at this rate of a core, doubted by this relative error.
    pub fn ask(&mut self, poll: &Poll, rate: f64, doubt: f64) -> Said {
        if self.entries.is_empty() {
            self.entries.resize(ENTRIES, None);
        }
        let Poll { before, arrivals, completions, .. } = *poll;
        let events = ((rate * poll.seconds).ln() / STEP).round() as i32;
        let doubt = (doubt * 5.0 / STEP).round() as i32;
        let key = Key { before, arrivals, completions, events, doubt };
        let entry = &mut self.entries[key.slot()];
        if let Some((held, said)) = entry
            && *held == key
        {
            return *said;
        }
        let rate = (f64::from(events) * STEP).exp() / poll.seconds;
        let said = work_out(poll, rate, f64::from(doubt) * STEP / 5.0);
        *entry = Some((key, said));
        said
    }
}

impl Key {
    fn slot(&self) -> usize {
        // Small numbers side by side: rates that drift need no new places for all.
        let mixed = self.before.wrapping_mul(0x9E37_79B1)
            ^ self.arrivals.wrapping_mul(0x85EB_CA77)
            ^ self.completions.wrapping_mul(0xC2B2_AE3D);
        (mixed >> 16) as usize % ENTRIES
    }
}

/// The reference is given the benefit of its doubt, against every chart.
fn work_out(poll: &Poll, rate: f64, doubt: f64) -> Said {
    let (mean, variance) = poll.moments(rate);
    let fair = [rate * (1.0 - doubt), rate * (1.0 + doubt)];
    let as_is = fair.map(|rate| poll.likelihood(rate).ln());
    let gains = TUNED.map(|theta| {
        let side = usize::from(theta > 1.0);
        poll.likelihood(theta * fair[side]).ln() - as_is[side]
    });
    Said { mean, variance, gains }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_what_is_worked_out() {
        let mut memo = Memo::default();
        for round in 0..3 {
            for before in 0..20 {
                let poll = Poll { seconds: 0.1, before, arrivals: 2, completions: 1, cores: 2.0 };
                let said = memo.ask(&poll, 30.0 + 0.001 * f64::from(round), 0.02);
                let exact = work_out(&poll, 30.0, 0.02);
                assert!((said.mean - exact.mean).abs() < 0.01, "{said:?} {exact:?}");
                for (a, b) in said.gains.iter().zip(exact.gains) {
                    assert!((a - b).abs() < 0.02, "{said:?} {exact:?}");
                }
            }
        }
    }
}
