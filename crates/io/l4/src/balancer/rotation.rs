//! When a salt takes over from the one before, and when the one before may be written over.
//!
//! The key file says when, by the clock on the wall, hours ahead; the program has its own clock, which is never set and
//! which drifts. Two balancers that change some seconds apart may do so at different boundaries of a server's clock,
//! and a connection that goes by both stalls meanwhile. So while the time is to come it is worked out again and again.

use std::path::Path;
use std::time::Duration;

use plimsoll_cookie::Layout;

use super::VERSION_MS;
use crate::error::L4Error;
use crate::keys::Keys;
use crate::layout::ConfigValue;
use crate::maps::Maps;
use crate::program::Program;

/// Clocks that are less apart are left so: to follow means to write the tables.
const APART_MS: u64 = 500;

/// The time of a change that is `ahead_ms` away by the clock on the wall. One that has come stays where it was. One that
/// should have come already comes now, at all servers: no sooner, for until now the salt before was in use, and is held
/// from then on.
pub(crate) fn follow(switch_ms: u64, clock_ms: u64, ahead_ms: i64) -> u64 {
    let planned = clock_ms.wrapping_add_signed(ahead_ms.max(-(VERSION_MS as i64)));
    let is_to_come = (switch_ms.wrapping_sub(clock_ms) as i64) > 0;
    let apart = (planned.wrapping_sub(switch_ms) as i64).unsigned_abs();
    if is_to_come && apart > APART_MS { planned } else { switch_ms }
}

/// For how long connections may still carry cookies of the salt before. They change at a version boundary of their
/// server's clock after the epoch took over, and may have been silent since. By the program's clock.
pub(super) fn held(settings: &ConfigValue, clock_ms: u64, layout: Layout) -> Duration {
    if settings.salts.count_ones() < 2 {
        return Duration::ZERO;
    }
    let held_ms = (VERSION_MS + layout.silence_limit_ms()) as i64;
    // Before the epoch takes over it is negative.
    let since_ms = clock_ms.wrapping_sub(settings.switch_ms) as i64;
    Duration::from_millis(held_ms.saturating_sub(since_ms).max(0) as u64)
}

/// The keys that make an epoch take over `after` from now, by hand: the one that the file names already, if that is
/// still to come, with its salt (or with a new one: `fresh`), else the other one with a new salt.
///
/// # Errors
/// When nothing is pinned in the directory, when its balancer has not taken up these keys, or while connections may
/// carry cookies of the salt that would be written over.
pub fn rotate(
    dir: &Path,
    layout: Layout,
    keys: &Keys,
    now_unix_ms: u64,
    after: Duration,
    fresh: bool,
) -> Result<Keys, L4Error> {
    let at = now_unix_ms + after.as_millis() as u64;
    let settings = Maps::open(dir)?.config()?;
    let clock_ms = Program::load_dry(dir)?.clock_ms()?;
    if u32::from(settings.epoch) != keys.epoch.bit() || settings.salts == 0 {
        let expected = "the balancer has not taken up the key file; expected `plimsoll l4 run` to do so within a second";
        return Err(L4Error::Rotation(expected.to_owned()));
    }
    let is_to_come = (settings.switch_ms.wrapping_sub(clock_ms) as i64) > 0;
    if is_to_come {
        let keys = if fresh { keys.with_new_salt()? } else { keys.clone() };
        return Ok(Keys { since_unix_ms: at, ..keys });
    }
    let held = held(&settings, clock_ms, layout);
    if !held.is_zero() {
        return Err(L4Error::Rotation(format!(
            "connections may still carry cookies of the salt before; expected another {} s to pass",
            held.as_secs() + 1
        )));
    }
    Ok(keys.rotated(at)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_to_come_is_followed_and_one_that_has_come_stays() {
        // A day ahead, by a clock that lost four seconds meanwhile.
        assert_eq!(follow(90_000_000, 50_000_000, 39_996_000), 89_996_000);
        assert_eq!(follow(90_000_000, 50_000_000, 40_000_300), 90_000_000, "near enough");
        assert_eq!(follow(90_000_000, 50_000_000, 30_000), 50_030_000, "brought forward");
        assert_eq!(follow(90_000_000, 50_000_000, -5_000), 49_995_000, "read late");
        let late = 50_000_000 - VERSION_MS;
        assert_eq!(
            follow(90_000_000, 50_000_000, -3_600_000),
            late,
            "the wall clock was set forward"
        );
        assert_eq!(follow(90_000_000, 90_000_000, 30_000), 90_000_000, "it has come");
        // From before the clock began.
        let early = 0u64.wrapping_sub(900_000);
        assert_eq!(follow(early, 5, 30_000), early);
    }

    #[test]
    fn a_salt_is_held_for_a_version_and_the_longest_silence() {
        let layout = Layout::default();
        let all = Duration::from_millis(VERSION_MS + layout.silence_limit_ms());
        let two = ConfigValue { salts: 3, switch_ms: 1_000_000, ..ConfigValue::default() };
        assert_eq!(held(&two, 1_000_000, layout), all);
        assert_eq!(held(&two, 1_010_000, layout), all - Duration::from_secs(10));
        assert_eq!(held(&two, 990_000, layout), all + Duration::from_secs(10), "to come");
        assert_eq!(held(&two, 9_000_000, layout), Duration::ZERO);
        assert_eq!(held(&ConfigValue { salts: 1, ..two }, 1_000_000, layout), Duration::ZERO);
    }
}
