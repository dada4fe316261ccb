//! Configurations that are broken by chance: whatever is in the file, the place of each error is reported.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{FULL, parse};

/// What breaks YAML, and what only seems to.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "", " ", "\n", "  ", "\t", ":", ": ", "- ", "{", "}", "[", "]", ",", "\"", "'", "#", "&a ",
    "*a", "!t ", "|", ">", "%", "@", "?", "? ", "---\n", "...\n", "~", "null", "-1", "1e999",
    ".nan", "0x", "99999999999999999999", "é", "\u{feff}", "\u{0}", "\u{1f4a9}", "\r",
    "\u{2028}", "<<: ", "services:", "name: shop\n", "{{{{{{{{", "[[[[[[[[", "\\", "\\x",
    "\u{85}",
];

#[test]
fn no_mutation_panics_and_every_problem_has_a_place() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(42);
    for round in 0..6_000 {
        let mut text: Vec<char> = FULL.chars().collect();
        for _ in 0..random.random_range(1..=4) {
            let from = random.random_range(0..text.len());
            let to = (from + random.random_range(0..12)).min(text.len());
            let piece = match random.random_range(0..4) {
                // A part of the file itself, elsewhere.
                0 => {
                    let start = random.random_range(0..text.len());
                    let end = (start + random.random_range(0..80)).min(text.len());
                    text[start..end].to_vec()
                }
                _ => PIECES[random.random_range(0..PIECES.len())].chars().collect(),
            };
            text.splice(from..to, piece);
        }
        let text: String = text.into_iter().collect();
        let lines = text.split(['\n', '\r', '\u{85}', '\u{2028}']).count() + 1;
        if let Err(found) = parse("F", &text) {
            assert!(!found.is_empty(), "round {round}: {text}");
            for error in found {
                let place = (1..=lines).contains(&error.line) && error.column >= 1;
                let line = error.to_string();
                assert!(place && !error.key.is_empty(), "round {round}: {error}\n{text}");
                assert!(!line.contains(['\n', '\r']), "round {round}: {line:?}");
            }
        }
    }
}
