//! Numbers in flight, in buckets: exact below 8, then eight to the octave.

/// Buckets; numbers beyond the last count as the last.
pub(super) const LEVELS: usize = 64;

/// The bucket of this number.
pub(super) fn level(n: u32) -> usize {
    if n < 8 {
        return n as usize;
    }
    let octave = n.ilog2() as usize;
    let eighth = (n >> (octave - 3)) as usize - 8;
    (8 * (octave - 2) + eighth).min(LEVELS - 1)
}

/// The least number of this bucket.
pub(super) fn least(level: usize) -> u32 {
    if level < 8 {
        return level as u32;
    }
    let (octave, eighth) = (level / 8 + 2, level % 8);
    ((8 + eighth) as u32) << (octave - 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_in_the_bucket_that_begins_at_or_below_it() {
        for n in 0..2_000 {
            let at = level(n);
            assert!(least(at) <= n, "{n}");
            assert!(at + 1 == LEVELS || least(at + 1) > n, "{n}");
        }
        assert_eq!(
            (0..LEVELS).map(|l| level(least(l))).collect::<Vec<_>>(),
            (0..LEVELS).collect::<Vec<_>>()
        );
    }
}
