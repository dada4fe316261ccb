//! The command line that repeats a run; a run that finds a violation prints it.

use crate::run::{Level, Order};

const DAY_S: f64 = 86_400.0;

impl Level {
    /// All levels, by their names on the command line.
    pub const NAMED: [(&str, Level); 2] =
        [("samples", Level::Samples), ("requests", Level::Requests)];
}

fn name_of<T: PartialEq>(one: &T, all: &[(&'static str, T)]) -> &'static str {
    all.iter().find(|(_, other)| other == one).expect("all are listed").0
}

impl Order {
    /// The command that repeats this run, without options for output.
    pub fn command(&self) -> String {
        let mut line =
            format!("plimsoll-lab soak --seed {} --days {}", self.seed, self.seconds / DAY_S);
        let standard = Order::default();
        if self.level != standard.level {
            line += &format!(" --level {}", name_of(&self.level, &Level::NAMED));
        }
        self.without.iter().for_each(|fault| line += &format!(" --without {fault}"));
        self.beyond.iter().for_each(|rule| line += &format!(" --beyond {rule}"));
        self.mutant.iter().for_each(|mutant| line += &format!(" --mutant {mutant}"));
        line
    }
}
