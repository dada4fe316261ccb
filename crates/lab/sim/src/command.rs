//! The command line of a soak: what the example `soak` reads is what a run that finds something prints, so that
//! the one repeats the other.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::str::FromStr;

use plimsoll_control::Exploration;

use crate::run::{Level, Order};

const DAY_S: f64 = 86_400.0;
const LEVELS: [(&str, Level); 2] = [("samples", Level::Samples), ("requests", Level::Requests)];
const EXPLORATIONS: [(&str, Exploration); 3] = [
    ("packed", Exploration::Packed),
    ("bisect", Exploration::Bisect),
    ("literal", Exploration::Literal),
];

/// What a soak is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Which seeds.
    pub seeds: Range<u64>,
    /// How many at once; by default as many as there are cores.
    pub threads: Option<NonZeroUsize>,
    /// All else of each run.
    pub order: Order,
}

impl Command {
    /// How it is called.
    pub const USAGE: &str = "usage: soak (--seed N | --seeds FROM..TO) [--days D] [--level samples|requests] [--threads N] \
                             [--exploration packed|bisect|literal] [--without FAULT]... [--sabotage WAY] [--beyond RULE]... \
                             [--trace FROM_SECOND]";

    /// Reads what stands after the command's name.
    ///
    /// # Errors
    /// A line that names the option, what it was given and what was expected.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command, String> {
        let (mut seeds, mut threads) = (None, None);
        let mut order = Order::days(0, 1.0);
        let mut given = arguments.into_iter();
        while let Some(option) = given.next() {
            let value = given.next().ok_or_else(|| format!("{option}: a value was expected"))?;
            match option.as_str() {
                "--seed" => {
                    let seed: u64 = parsed(&option, &value)?;
                    let end =
                        seed.checked_add(1).ok_or_else(|| format!("--seed {value}: too great"))?;
                    seeds = Some(seed..end);
                }
                "--seeds" => {
                    let expected =
                        || format!("--seeds {value}: expected FROM..TO, FROM less than TO");
                    let (from, to) = value.split_once("..").ok_or_else(expected)?;
                    let range = parsed(&option, from)?..parsed(&option, to)?;
                    seeds = Some(Some(range).filter(|r| !r.is_empty()).ok_or_else(expected)?);
                }
                "--days" => {
                    let days: f64 = parsed(&option, &value)?;
                    if !(days > 0.0 && days.is_finite()) {
                        return Err(format!("--days {value}: expected more than 0"));
                    }
                    order.seconds = days * DAY_S;
                }
                "--level" => order.level = chosen(&option, &value, &LEVELS)?,
                "--exploration" => order.exploration = chosen(&option, &value, &EXPLORATIONS)?,
                "--threads" => threads = Some(parsed(&option, &value)?),
                "--without" => order.without.push(parsed(&option, &value)?),
                "--sabotage" => order.sabotage = Some(parsed(&option, &value)?),
                "--beyond" => order.beyond.push(parsed(&option, &value)?),
                "--trace" => order.trace_from = Some(parsed(&option, &value)?),
                _ => return Err(format!("{option}: not known")),
            }
        }
        Ok(Command { seeds: seeds.ok_or("which seeds?")?, threads, order })
    }
}

fn parsed<T: FromStr<Err: Display>>(option: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|e| format!("{option} {value}: {e}"))
}

fn chosen<T: Copy>(option: &str, value: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == value);
    found.map(|(_, one)| *one).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("{option} {value}: expected one of {}", names.join(", "))
    })
}

fn name_of<T: PartialEq>(one: &T, all: &[(&'static str, T)]) -> &'static str {
    all.iter().find(|(_, other)| other == one).expect("all are listed").0
}

impl Order {
    /// The command that makes this run, but for what it prints.
    pub fn command(&self) -> String {
        let mut line = format!(
            "cargo run --release -p plimsoll-sim --example soak -- --seed {} --days {}",
            self.seed,
            self.seconds / DAY_S
        );
        let standard = Order::default();
        if self.level != standard.level {
            line += &format!(" --level {}", name_of(&self.level, &LEVELS));
        }
        if self.exploration != standard.exploration {
            line += &format!(" --exploration {}", name_of(&self.exploration, &EXPLORATIONS));
        }
        self.without.iter().for_each(|fault| line += &format!(" --without {fault}"));
        self.beyond.iter().for_each(|rule| line += &format!(" --beyond {rule}"));
        self.sabotage.iter().for_each(|way| line += &format!(" --sabotage {way}"));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, Rule, Sabotage};

    fn read(line: &str) -> Result<Command, String> {
        Command::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn what_is_printed_repeats_the_run() {
        for (_, level) in LEVELS {
            for (_, exploration) in EXPLORATIONS {
                for sabotage in Sabotage::ALL.into_iter().map(Some).chain([None]) {
                    let order = Order {
                        level,
                        exploration,
                        sabotage,
                        without: Fault::ALL.to_vec(),
                        beyond: Rule::ALL.to_vec(),
                        ..Order::days(93, 0.05)
                    };
                    let line = order.command();
                    let (_, arguments) = line.split_once(" -- ").expect("arguments");
                    let again = read(arguments).expect("they are read");
                    assert_eq!(again.seeds, 93..94);
                    assert!((again.order.seconds / order.seconds - 1.0).abs() < 1e-12);
                    let seconds = order.seconds;
                    assert_eq!(Order { seed: 93, seconds, ..again.order }, order);
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (line, why) in [
            ("", "which seeds?"),
            ("--seed", "--seed: a value was expected"),
            ("--seed -1", "--seed -1: invalid digit found in string"),
            ("--seeds 9..3", "--seeds 9..3: expected FROM..TO, FROM less than TO"),
            ("--seed 1 --days 0", "--days 0: expected more than 0"),
            ("--seed 1 --level both", "--level both: expected one of samples, requests"),
            ("--seed 1 --speed 3", "--speed: not known"),
        ] {
            assert_eq!(read(line).expect_err(line), why);
        }
        let why = read("--seed 1 --without rain").expect_err("no such fault");
        assert!(why.starts_with("--without rain: ") && why.contains("crash-store-lost"), "{why}");
    }
}
