//! What threads tell each other: a request was sent, or has ended. Two machine words.

use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{Ending, Finish};

/// A latency is kept in sixteenths of a microsecond: exact enough for backends that answer in 50 µs, and up to
/// 268 s in 32 bits. Longer ones are kept as that.
const LATENCY_UNIT_NS: u128 = 1_000 / 16;
const BACKEND_BITS: u32 = 24;
/// Most backends of a pool; a configuration file holds fewer.
#[cfg(test)]
const MOST_BACKENDS: usize = 1 << BACKEND_BITS;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    Started,
    Finished(Finish),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) backend: usize,
    pub(crate) at: Nanos,
    pub(crate) change: Change,
}

impl Event {
    /// `latency:32 | backend:24 | chip:2 | ending:3`, the ending 0 for a start; and the time.
    pub(crate) fn pack(self) -> [u64; 2] {
        let (latency, chip, ending) = match self.change {
            Change::Started => (0, 0, 0),
            Change::Finished(finish) => {
                let latency = finish.latency.as_nanos() / LATENCY_UNIT_NS;
                let chip = finish.chip.map_or(0, |chip| 1 + u64::from(chip));
                let ending = match finish.ending {
                    Ending::Success => 1,
                    Ending::Failure => 2,
                    Ending::Abandoned => 3,
                    Ending::Rejected => 4,
                    Ending::TooLate => 5,
                };
                (latency.min(u128::from(u32::MAX)) as u64, chip, ending)
            }
        };
        let backend = self.backend as u64 & ((1 << BACKEND_BITS) - 1);
        [latency << 32 | backend << 8 | chip << 4 | ending, self.at.0]
    }

    pub(crate) fn unpack([word, at]: [u64; 2]) -> Self {
        let ending = match word & 0xf {
            1 => Some(Ending::Success),
            2 => Some(Ending::Failure),
            3 => Some(Ending::Abandoned),
            4 => Some(Ending::Rejected),
            5 => Some(Ending::TooLate),
            _ => None,
        };
        let change = match ending {
            None => Change::Started,
            Some(ending) => {
                let latency = Duration::from_nanos((word >> 32) * LATENCY_UNIT_NS as u64);
                let chip = match word >> 4 & 0xf {
                    0 => None,
                    chip => Some(chip == 2),
                };
                Change::Finished(Finish { chip, ..Finish::new(latency, ending) })
            }
        };
        let backend = (word >> 8 & ((1 << BACKEND_BITS) - 1)) as usize;
        Event { backend, at: Nanos(at), change }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let start = Event { backend: MOST_BACKENDS - 1, at: Nanos(7), change: Change::Started };
        assert_eq!(Event::unpack(start.pack()), start);
        let endings = [
            Ending::Success,
            Ending::Failure,
            Ending::Abandoned,
            Ending::Rejected,
            Ending::TooLate,
        ];
        for ending in endings {
            for chip in [None, Some(false), Some(true)] {
                let finish = Finish { chip, ..Finish::new(Duration::from_micros(1_234), ending) };
                let change = Change::Finished(finish);
                let event = Event { backend: 3, at: Nanos(u64::MAX), change };
                let Change::Finished(read) = Event::unpack(event.pack()).change else { panic!() };
                assert_eq!((read.ending, read.chip), (ending, chip));
                let off = finish.latency.saturating_sub(read.latency);
                assert!(off < Duration::from_nanos(1_000), "{off:?}");
            }
        }
    }

    #[test]
    fn a_latency_beyond_the_range_is_the_longest() {
        let finish = Finish::success(Duration::from_secs(100_000));
        let event = Event { backend: 0, at: Nanos(1), change: Change::Finished(finish) };
        let Change::Finished(read) = Event::unpack(event.pack()).change else { panic!() };
        assert!(read.latency > Duration::from_secs(260) && read.ending == Ending::Success);
    }
}
