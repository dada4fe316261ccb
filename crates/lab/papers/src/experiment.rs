use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Context, Failure, Outcome};

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Real processes on a real kernel, nothing stood in for.
    Measured,
    /// The backends are emulated; balancer, clients, controller and network stack are real.
    Emulated,
    /// Everything is simulated, in simulated time.
    Simulated,
    /// The paper's own number.
    Reported,
}

impl Provenance {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Provenance::Measured => "measured",
            Provenance::Emulated => "emulated",
            Provenance::Simulated => "simulated",
            Provenance::Reported => "reported",
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A paper whose experiments are repeated here.
#[derive(Debug, PartialEq, Eq)]
pub struct Paper {
    /// What names of its experiments begin with.
    pub key: &'static str,
    /// What it is called for short.
    pub name: &'static str,
    /// Where to find it.
    pub citation: &'static str,
}

impl Paper {
    /// A figure of it that no experiment repeats.
    pub const fn missing(
        &'static self,
        name: &'static str,
        figure: &'static str,
        title: &'static str,
        why: &'static str,
    ) -> Missing {
        Missing { name, paper: self, figure, title, why }
    }
}

/// One figure, table or section of a paper, as something that can be run.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line: the paper's key, then the figure.
    pub name: &'static str,
    /// The paper.
    pub paper: &'static Paper,
    /// "Figure 8", "Table 4", "§6.5".
    pub figure: &'static str,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// What the paper says there, in one sentence.
    pub claim: &'static str,
    /// Where our numbers come from.
    pub provenance: &'static [Provenance],
    /// About how long it takes on two cores.
    pub takes: Duration,
    /// The same with `--quick`, which shows that it works and no more.
    pub takes_quick: Duration,
    /// Runs it.
    pub run: fn(&Context) -> Result<Outcome, Failure>,
}

/// A figure, table or section of a paper that no experiment repeats.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    /// The name that its experiment would have.
    pub name: &'static str,
    /// The paper.
    pub paper: &'static Paper,
    /// "Figure 18".
    pub figure: &'static str,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// Why there is none, in a sentence.
    pub why: &'static str,
}
