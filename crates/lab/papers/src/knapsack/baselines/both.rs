use super::emulated::emulated;
use super::simulated::{Simulated, Size, simulated};
use super::{Clients, METHODS, Method, Ran, Setting};
use crate::{Context, Failure, Provenance};

/// The part of the time that simulations take.
const SIMULATED: f64 = 0.15;

/// A pool under all methods in simulation, and under some behind real HAProxys.
pub struct Both {
    /// What came of the simulation besides its rows.
    pub simulated: Simulated,
    /// First the simulated, then the emulated.
    pub rows: Vec<Ran>,
}

impl Both {
    /// Runs all methods in simulation and those of these names emulated (with `--quick` the second list),
    /// there with closed clients. Progress goes up to `to`.
    pub fn run(
        context: &Context,
        setting: &Setting,
        names: &[&str],
        quick_names: &[&str],
        to: f64,
    ) -> Result<Both, Failure> {
        let names = if context.quick { quick_names } else { names };
        let wanted: Vec<&'static Method> =
            METHODS.iter().filter(|method| names.contains(&method.name)).collect();
        let mut simulated = simulated(context, setting, Size::of(context), (0.0, SIMULATED * to))?;
        let clients = Clients::Closed(simulated.clients);
        let weights = &simulated.weights;
        let lanes = emulated(context, setting, &wanted, weights, clients, (SIMULATED * to, to))?;
        let mut rows = std::mem::take(&mut simulated.rows);
        rows.extend(lanes);
        Ok(Both { simulated, rows })
    }

    /// The simulated row of this method.
    ///
    /// # Panics
    /// When there is no such method: names are literals of the figures.
    pub fn sim(&self, name: &str, open: bool) -> &Ran {
        let found = self.rows.iter().find(|r| {
            r.method.name == name
                && r.provenance == Provenance::Simulated
                && (r.clients == Clients::Open) == open
        });
        found.unwrap_or_else(|| panic!("no method is called {name:?}"))
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
        let simulated = [false, true].map(|open| (self.sim(from, open), self.sim(to, open)));
        emulated.into_iter().chain(simulated).collect()
    }

    /// The emulated rows, and the simulated ones with closed clients of methods that HAProxy lacks.
    pub fn nearest_to_real(&self, names: &[&str]) -> Vec<&Ran> {
        names.iter().map(|name| self.lane(name).unwrap_or_else(|| self.sim(name, false))).collect()
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
    pub fn notes(&self, setting: &Setting) -> Vec<String> {
        vec![
            "CPU utilisation is busy cores over cores: emulated and simulated backends burn no CPU."
                .to_owned(),
            format!(
                "Service is exponential, {:.0} ms in the mean on a core of speed 1. Open clients: Poisson \
                 arrivals at {:.0} % of the capacity, {:.0} requests/s. Closed clients: {}, each of which \
                 sends again when it is answered; as many as are in the pool in the mean when open ones are \
                 split as well as a static split can. The paper does not say how its clients send; that it \
                 reports a latency in Figure 12 for an equal split, by which 16 of 30 backends are asked \
                 for 1.5 times their capacity means that they wait for their answers.",
                setting.service_us / 1e3,
                100.0 * setting.load,
                setting.rate_rps(),
                self.simulated.clients
            ),
            format!(
                "KLB is the paper's method: {:.1} measurements per backend by Algorithm 1 with its stopping \
                 rule mended, a polynomial of degree two, ten weights per backend, least unweighted sum of \
                 latencies, programmed under roundrobin. The ILPs on connections and on CPU minimise the \
                 greatest over the same weights. They and KLB learn in simulation, and their weights are what \
                 the emulated HAProxy is given; the emulated Plimsoll is a real daemon that learns behind its \
                 own HAProxy from nothing for 40 s (2 s with --quick), which is short for a pool of \
                 thirty: what it still tries out then shows in its numbers.",
                self.simulated.steps
            ),
            self.overloads(),
        ]
    }
}
