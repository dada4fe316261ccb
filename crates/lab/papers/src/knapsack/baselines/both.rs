use super::emulated::emulated;
use super::method::lanes;
use super::show::{bars, compare_cuts, compare_means, table};
use super::simulated::{Simulated, Size, simulated};
use super::{Clients, Coming, Ran, Setting};
use crate::outcome::Outcome;
use crate::plot::Plot;
use crate::{Comparison, Context, Failure, Provenance};

/// The part of the time that simulations take.
const SIMULATED: f64 = 0.15;

/// A pool under all methods in simulation, and under those that HAProxy has behind real ones.
pub struct Both {
    setting: Setting,
    /// First the simulated, then the emulated.
    pub rows: Vec<Ran>,
    clients: u32,
    steps: f64,
}

impl Both {
    /// Runs all: the emulated ones with closed clients. Progress goes from `part.0` to `part.1`.
    pub fn run(context: &Context, setting: Setting, part: (f64, f64)) -> Result<Both, Failure> {
        let between = part.0 + SIMULATED * (part.1 - part.0);
        let Simulated { mut rows, weights, clients } =
            simulated(context, &setting, Size::of(context), (part.0, between))?;
        let methods = lanes(context.quick);
        let closed = Clients::Closed(clients);
        let part = (between, part.1);
        rows.extend(emulated(context, &setting, &methods, &weights, closed, part)?);
        Ok(Both { setting, rows, clients, steps: weights.steps })
    }

    /// What it was run on.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// The simulated row of this method.
    ///
    /// # Panics
    /// When there is no such method, or there are no such clients: both are literals of the figures.
    pub fn sim(&self, name: &str, open: bool) -> &Ran {
        self.simulated(name, open).unwrap_or_else(|| panic!("no method is called {name:?}"))
    }

    fn simulated(&self, name: &str, open: bool) -> Option<&Ran> {
        self.rows.iter().find(|r| {
            r.method.name == name
                && r.provenance == Provenance::Simulated
                && (r.clients == Clients::Open) == open
        })
    }

    /// The emulated row of this method; none where it was not run.
    pub fn lane(&self, name: &str) -> Option<&Ran> {
        let is = |r: &&Ran| r.method.name == name && r.provenance == Provenance::Emulated;
        self.rows.iter().find(is)
    }

    /// Both methods as they ran side by side: emulated where both were, simulated with closed clients, and
    /// simulated with open ones.
    pub fn pairs(&self, from: &str, to: &str) -> Vec<(&Ran, &Ran)> {
        let emulated = self.lane(from).zip(self.lane(to));
        let simulated = [false, true]
            .into_iter()
            .filter_map(|open| self.simulated(from, open).zip(self.simulated(to, open)));
        emulated.into_iter().chain(simulated).collect()
    }

    /// What one method cuts off another's latency beside what it does in the paper (percent), of all types
    /// or of one, and of all clients.
    pub fn cuts(
        &self,
        pairs: &[(&str, &str, f64)],
        only: Option<usize>,
        why: &str,
    ) -> Vec<Comparison> {
        let kinds = &self.setting.kinds;
        let mut found = Vec::new();
        for &(from, to, paper) in pairs {
            for (from, to) in self.pairs(from, to) {
                let klb = self.rows.iter().find(|r| {
                    let alike = (r.provenance, r.clients) == (to.provenance, to.clients);
                    r.method.name == "KLB" && alike
                });
                found.push(compare_cuts(kinds, (from, to, klb), only, paper, why));
                found.push(compare_means((from, to)));
            }
        }
        found
    }

    /// These methods: emulated or, where HAProxy lacks them, simulated with closed clients; and all with
    /// open clients where there are such.
    pub fn plots(&self, title: &str, shown: &[&str]) -> Vec<Plot> {
        let kinds = &self.setting.kinds;
        let nearest = |name: &&str| self.lane(name).unwrap_or_else(|| self.sim(name, false));
        let real: Vec<&Ran> = shown.iter().map(nearest).collect();
        let mut plots = bars("emulated", title, kinds, &real);
        if self.setting.clients == Coming::Both {
            let open: Vec<&Ran> = shown.iter().map(|name| self.sim(name, true)).collect();
            plots.extend(bars("simulated", &format!("{title}, open clients"), kinds, &open));
        }
        plots
    }

    /// Everything but what is compared with the paper.
    pub fn outcome(&self, title: &str, shown: &[&str]) -> Result<Outcome, Failure> {
        Ok(Outcome {
            tables: vec![table(&self.setting.kinds, &self.rows)?],
            plots: self.plots(title, shown),
            comparisons: Vec::new(),
            notes: self.notes(),
        })
    }

    fn overloads(&self) -> String {
        let names: Vec<&str> =
            self.rows.iter().filter(|r| r.overload).map(|r| r.method.name).collect();
        if names.is_empty() {
            return "No method overloads a backend when clients are open.".to_owned();
        }
        format!(
            "With open clients these ask more of some backend than it can serve, so their latencies there say \
             nothing but that: {}. An exploration can do that, too: a backend of many cores that is a \
             little beyond its capacity does not reach five times its idle latency within a round.",
            names.join(", ")
        )
    }

    /// What a reader of any of these figures must know.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "CPU utilisation is busy cores over cores: emulated and simulated backends burn no CPU."
                .to_owned(),
            self.load(),
            format!(
                "KLB is the paper's method: {:.1} measurements per backend by Algorithm 1 with its stopping \
                 rule mended, a polynomial of degree two, ten weights per backend, least unweighted sum of \
                 latencies, programmed under roundrobin. The ILPs on connections and on CPU minimise the \
                 greatest over the same weights. They and KLB learn in simulation, and their weights are what \
                 the emulated HAProxy is given; the emulated Plimsoll is a real daemon that learns behind its \
                 own HAProxy from nothing for 40 s (2 s with --quick), which is short for a pool of \
                 thirty: what it still tries out then shows in its numbers.",
                self.steps
            ),
            "Weighted methods have the weights that an administrator would set. Methods that HAProxy lacks \
             (P2 by latency, peak EWMA, least_time, Prequal, expected delay, the central queue) are simulated only; every row says \
             where it comes from. Prequal's probes are answered at once and cost nothing there."
                .to_owned(),
        ];
        if self.setting.clients == Coming::Both {
            notes.push(self.overloads());
        }
        notes
    }

    fn load(&self) -> String {
        let Setting { service_us, load, .. } = self.setting;
        let service = format!(
            "Service is exponential, {:.0} ms in the mean on a core of speed 1.",
            service_us / 1e3
        );
        match self.setting.clients {
            Coming::Both => format!(
                "{service} Open clients: Poisson arrivals at {:.0} % of the capacity, {:.0} requests/s. \
                 Closed clients: {}, each of which sends again when it is answered; as many as are in the \
                 pool in the mean when open ones are split as well as a static split can. The paper does \
                 not say how its clients send; that it reports a latency in Figure 12 for an equal split, \
                 by which 16 of 30 backends are asked for 1.5 times their capacity means that they wait \
                 for their answers.",
                100.0 * load,
                self.setting.rate_rps(),
                self.clients
            ),
            Coming::Closed(clients) => format!(
                "{service} {clients} clients, each of which sends again when it is answered. Weights are \
                 learned with open ones at {:.0} % of the capacity.",
                100.0 * load
            ),
        }
    }
}
