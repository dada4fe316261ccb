//! The effects of each fault when it begins and when it ends.

use plimsoll_control::Event;
use plimsoll_model::ServerStatus;

use super::happening::Happening;
use super::sink::Mood;
use super::{Rig, backend_spec};
use crate::fault::Fault;
use crate::pool::Method;
use crate::pool_model::{Condition, PoolModel};
use crate::random::RandomStream;
use crate::scenario::Scenario;

/// Delay of the balancer's own checks.
const CHECK_NS: u64 = 2_000_000_000;
/// Time between the changes of a flapping backend, seconds.
const FLAP_S: (f64, f64) = (1.0, 8.0);
/// Size of a clock step, seconds.
const STEP_S: (f64, f64) = (10.0, 20_000.0);
/// Interval at which another party sets a contested weight, seconds.
const FIGHT_S: (f64, f64) = (1.0, 15.0);

/// An active fault: what has to be undone when it ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// These backends are in this condition.
    Ill(Vec<usize>, Condition),
    /// The balancer's own checks notice the condition of a backend.
    Checked(usize),
    /// This backend alternates between healthy and dead.
    Flaps(usize),
    /// This backend has this part of its speed.
    Slowed(usize, f64),
    /// This backend is drained or in maintenance.
    Reserved(usize, ServerStatus),
    /// This backend is not configured.
    Left(usize),
    /// Another party keeps setting this weight.
    Fought(usize, u32),
    /// The balancer runs another method.
    OtherMethod,
    /// The controller is not running.
    Down,
    /// A fault without a target.
    Flag,
}

/// All active faults.
pub struct Troubles {
    /// Random numbers of each fault, by its position in the scenario.
    rng: Vec<RandomStream>,
    /// Number of faults that put each backend into each condition.
    ills: Vec<[u32; 5]>,
    checked_down: Vec<bool>,
    reserved: Vec<Vec<ServerStatus>>,
    pace: Vec<f64>,
    pub(super) method: Method,
    pub probes_lost: f64,
    pub probes_late_s: f64,
    pub rounds_lost: f64,
    pub rounds_late_s: f64,
    pub wrong_url: bool,
    pub blind: bool,
    pub balancer_away: bool,
    pub wobble: f64,
    traffic_factor: f64,
    is_silent: bool,
    overload: Option<f64>,
    fights: u32,
}

impl Troubles {
    pub fn new(scenario: &Scenario) -> Self {
        let n = scenario.pool.len();
        let rng = |d: &crate::scenario::Disturbance| {
            // Numbered by the kind of fault and not by its position: leaving one fault out does not change the others.
            let number = Fault::ALL.iter().position(|f| *f == d.fault).unwrap_or(0);
            RandomStream::new(scenario.seed, 1_000 + number as u64)
        };
        Troubles {
            rng: scenario.disturbances.iter().map(rng).collect(),
            ills: vec![[0; 5]; n],
            checked_down: vec![false; n],
            reserved: vec![Vec::new(); n],
            pace: vec![1.0; n],
            method: scenario.method,
            probes_lost: 0.0,
            probes_late_s: 0.0,
            rounds_lost: 0.0,
            rounds_late_s: 0.0,
            wrong_url: false,
            blind: false,
            balancer_away: false,
            wobble: 0.0,
            traffic_factor: 1.0,
            is_silent: false,
            overload: None,
            fights: 0,
        }
    }

    /// The traffic under the active faults.
    pub fn traffic(&self, usual: f64, capacity_rps: f64) -> f64 {
        if self.is_silent {
            return 0.0;
        }
        self.overload.map_or(usual * self.traffic_factor, |part| part * capacity_rps)
    }

    /// The balancer cannot be read or programmed, or another party contests its weights.
    pub fn steering_is_disturbed(&self) -> bool {
        self.balancer_away || self.fights > 0
    }

    fn condition(&self, i: usize) -> Condition {
        [Condition::Dead, Condition::Hangs, Condition::FailsFast]
            .into_iter()
            .find(|&c| self.ills[i][c as usize] > 0)
            .unwrap_or_default()
    }
}

impl<P: PoolModel> Rig<P> {
    /// Schedules the first occurrence of every fault.
    pub(super) fn plan_faults(&mut self) {
        for k in 0..self.scenario.disturbances.len() {
            self.plan_next(k);
        }
    }

    fn plan_next(&mut self, k: usize) {
        let d = self.scenario.disturbances[k];
        let rng = &mut self.troubles.rng[k];
        let wait = (rng.exponential(d.every_s) * 1e9) as u64;
        let at = self.now + wait;
        if d.fault.is_crash() {
            let stale = match d.fault {
                Fault::CrashStoreStale => (rng.between(30.0, 600.0) * 1e9) as u64,
                _ => 0,
            };
            self.store.expect_crash(at, at.saturating_sub(stale));
        }
        self.agenda.at(at, Happening::Begin(k));
    }

    pub(super) fn begin(&mut self, k: usize) {
        self.tally.faults += 1;
        let d = self.scenario.disturbances[k];
        let seconds = self.troubles.rng[k].exponential(d.lasts_s).max(0.05);
        let lasts = (seconds * 1e9) as u64;
        let trouble = self.strike(k, d.fault, lasts);
        self.trace(format_args!("{} begins for {seconds:.3} s: {trouble:?}", d.fault));
        self.agenda.at(self.now + lasts, Happening::End(k, trouble));
    }

    fn strike(&mut self, k: usize, fault: Fault, lasts: u64) -> Trouble {
        let i = self.troubles.rng[k].index(self.pool_model.len());
        match fault {
            Fault::Death => self.sicken(vec![i], Condition::Dead),
            Fault::Hang => self.sicken(vec![i], Condition::Hangs),
            Fault::FailsFast => self.sicken(vec![i], Condition::FailsFast),
            Fault::MassDeath => self.strike_all_but(k, i),
            Fault::Flapping => {
                let next = self.flap_time(k);
                self.agenda.at(self.now + next, Happening::Again(k, Trouble::Flaps(i), 1));
                Trouble::Flag
            }
            Fault::Neighbour => {
                let part = self.troubles.rng[k].between(0.3, 0.9);
                self.slow(i, part);
                Trouble::Slowed(i, part)
            }
            Fault::NewSpeed => {
                let part = self.troubles.rng[k].log_between(0.6, 1.6);
                // The speed stays between half and twice the original, however often it changes.
                if (0.5..2.0).contains(&(self.troubles.pace[i] * part)) {
                    self.slow(i, part);
                }
                Trouble::Flag
            }
            Fault::Drain => self.reserve(i, ServerStatus::Drain),
            Fault::Maintenance => self.reserve(i, ServerStatus::Maintenance),
            Fault::Leave => self.leave(i),
            Fault::ForeignWeight => {
                let weight = self.troubles.rng[k].index(257) as u32;
                self.set_foreign(i, weight);
                Trouble::Flag
            }
            Fault::ForeignFight => {
                let weight = self.troubles.rng[k].index(257) as u32;
                self.troubles.fights += 1;
                let fought = Trouble::Fought(i, weight);
                self.agenda.at(self.now, Happening::Again(k, fought, 400));
                Trouble::Fought(i, weight)
            }
            Fault::Reload => {
                self.reload();
                Trouble::Flag
            }
            Fault::NewMethod => {
                self.switch_method();
                Trouble::OtherMethod
            }
            _ => self.strike_process(k, fault, lasts),
        }
    }

    /// All backends at once, in half of the cases without this one.
    fn strike_all_but(&mut self, k: usize, i: usize) -> Trouble {
        let survivor = self.troubles.rng[k].chance(0.5).then_some(i);
        let what = self.troubles.rng[k].pick(&[Condition::Dead, Condition::Hangs]);
        self.sicken((0..self.pool_model.len()).filter(|&j| Some(j) != survivor).collect(), what)
    }

    /// Faults of the controller's process; all other faults are switched on and off.
    fn strike_process(&mut self, k: usize, fault: Fault, lasts: u64) -> Trouble {
        match fault {
            Fault::Crash | Fault::CrashStoreLost | Fault::CrashStoreStale => {
                self.kill_controller();
                if fault == Fault::CrashStoreLost {
                    self.store.lose();
                }
                return Trouble::Down;
            }
            Fault::Pause => self.stop_process(lasts, false),
            Fault::Sleep => self.stop_process(lasts, true),
            Fault::Suspend => {
                let clock_stops = self.troubles.rng[k].chance(0.5);
                self.stop_process(lasts, clock_stops);
            }
            Fault::ClockStep => {
                let step_s = self.troubles.rng[k].log_between(STEP_S.0, STEP_S.1);
                self.step_clock((step_s * 1e9) as u64);
            }
            _ => self.flag(k, fault, true),
        }
        Trouble::Flag
    }

    /// Faults without a target: switched on or off.
    fn flag(&mut self, k: usize, fault: Fault, on: bool) {
        let rng = &mut self.troubles.rng[k];
        let part = rng.between(0.2, 1.0);
        let late_s = rng.log_between(0.05, 8.0);
        let t = &mut self.troubles;
        match fault {
            Fault::ProbesLost => t.probes_lost = if on { part } else { 0.0 },
            Fault::ProbesLate => t.probes_late_s = if on { late_s } else { 0.0 },
            Fault::WrongUrl => t.wrong_url = on,
            Fault::RoundsLost => t.rounds_lost = if on { part } else { 0.0 },
            Fault::RoundsLate => t.rounds_late_s = if on { late_s } else { 0.0 },
            Fault::Blind => t.blind = on,
            Fault::BalancerAway => t.balancer_away = on,
            Fault::Burst => t.traffic_factor = if on { 1.0 + part } else { 1.0 },
            Fault::Silence => t.is_silent = on,
            Fault::Overload => t.overload = on.then_some(1.0 + 0.5 * part),
            Fault::Observe => {
                if self.spec.observe != on {
                    self.spec.observe = on;
                    self.reconfigure();
                }
                return;
            }
            _ => {
                if on {
                    self.sink.mood = match fault {
                        Fault::SinkRejects => Mood::Rejects { undone: true },
                        Fault::SinkHalfApplied => Mood::Rejects { undone: false },
                        Fault::SinkInterrupted => Mood::Interrupts,
                        Fault::SinkSilent => Mood::Silent,
                        Fault::SinkSlow => Mood::Slow(late_s),
                        _ => Mood::Forbids,
                    };
                } else {
                    self.sink.mend();
                }
                return;
            }
        }
        self.set_traffic();
    }

    pub(super) fn end(&mut self, k: usize, trouble: Trouble) {
        self.trace(format_args!("{} ends: {trouble:?}", self.scenario.disturbances[k].fault));
        match trouble {
            Trouble::Ill(backends, condition) => {
                for i in backends {
                    self.troubles.ills[i][condition as usize] -= 1;
                    self.update_condition(i);
                }
            }
            Trouble::Slowed(i, part) => self.slow(i, 1.0 / part),
            Trouble::Reserved(i, status) => {
                let held = &mut self.troubles.reserved[i];
                if let Some(place) = held.iter().position(|s| *s == status) {
                    held.swap_remove(place);
                }
                self.update_status(i);
            }
            Trouble::Left(i) => {
                self.roster[i] = true;
                self.spec.backends = self.steered();
                self.reconfigure();
            }
            Trouble::Fought(..) => self.troubles.fights -= 1,
            Trouble::OtherMethod => self.switch_method(),
            Trouble::Down => {
                if self.process.is_none() {
                    let memory = self.store.read();
                    self.start_controller(memory);
                }
                self.store.crash_is_over(self.now);
            }
            Trouble::Flaps(_) | Trouble::Checked(_) => {}
            Trouble::Flag => {
                let fault = self.scenario.disturbances[k].fault;
                let one_off = matches!(
                    fault,
                    Fault::Flapping
                        | Fault::NewSpeed
                        | Fault::ForeignWeight
                        | Fault::Pause
                        | Fault::Sleep
                        | Fault::Suspend
                        | Fault::ClockStep
                        | Fault::Reload
                        | Fault::Leave
                );
                if !one_off {
                    self.flag(k, fault, false);
                }
            }
        }
        self.plan_next(k);
    }

    pub(super) fn again(&mut self, k: usize, trouble: Trouble, left: u32) {
        match trouble {
            Trouble::Checked(i) => {
                let ill =
                    matches!(self.pool_model.condition(i), Condition::Dead | Condition::Hangs);
                self.troubles.checked_down[i] = ill;
                self.update_status(i);
            }
            // Odd: it dies. Even: it is back. About forty changes, and it ends healthy.
            Trouble::Flaps(i) => {
                let dies = left % 2 == 1;
                let ills = &mut self.troubles.ills[i][Condition::Dead as usize];
                if dies {
                    *ills += 1
                } else {
                    *ills -= 1
                }
                self.update_condition(i);
                if left < 40 {
                    let next = self.flap_time(k);
                    self.agenda.at(self.now + next, Happening::Again(k, trouble, left + 1));
                }
            }
            Trouble::Fought(i, weight) if self.troubles.fights > 0 && left > 0 => {
                self.set_foreign(i, weight);
                let wait = (self.troubles.rng[k].log_between(FIGHT_S.0, FIGHT_S.1) * 1e9) as u64;
                self.agenda.at(self.now + wait, Happening::Again(k, trouble, left - 1));
            }
            _ => {}
        }
    }

    fn flap_time(&mut self, k: usize) -> u64 {
        (self.troubles.rng[k].between(FLAP_S.0, FLAP_S.1) * 1e9) as u64
    }

    fn sicken(&mut self, backends: Vec<usize>, condition: Condition) -> Trouble {
        for &i in &backends {
            self.troubles.ills[i][condition as usize] += 1;
            self.update_condition(i);
        }
        Trouble::Ill(backends, condition)
    }

    fn update_condition(&mut self, i: usize) {
        let condition = self.troubles.condition(i);
        if condition == self.pool_model.condition(i) {
            return;
        }
        self.pool_model.set_condition(i, condition);
        if self.scenario.balancer_checks {
            self.agenda.at(self.now + CHECK_NS, Happening::Again(0, Trouble::Checked(i), 0));
        }
    }

    fn slow(&mut self, i: usize, part: f64) {
        self.troubles.pace[i] *= part;
        self.pool_model.set_pace(i, self.troubles.pace[i]);
    }

    fn reserve(&mut self, i: usize, status: ServerStatus) -> Trouble {
        self.troubles.reserved[i].push(status);
        self.update_status(i);
        Trouble::Reserved(i, status)
    }

    fn update_status(&mut self, i: usize) {
        let held = &self.troubles.reserved[i];
        let status = if held.contains(&ServerStatus::Maintenance) {
            ServerStatus::Maintenance
        } else if self.troubles.checked_down[i] {
            ServerStatus::Down
        } else if held.contains(&ServerStatus::Drain) {
            ServerStatus::Drain
        } else {
            ServerStatus::Up
        };
        self.pool_model.set_status(i, status);
    }

    fn leave(&mut self, i: usize) -> Trouble {
        let steered = self.roster.iter().filter(|r| **r).count();
        if !self.roster[i] || steered < 3 {
            return Trouble::Flag;
        }
        self.roster[i] = false;
        self.spec.backends = self.steered();
        self.reconfigure();
        Trouble::Left(i)
    }

    fn steered(&self) -> Vec<plimsoll_control::BackendSpec> {
        (0..self.roster.len()).filter(|&i| self.roster[i]).map(backend_spec).collect()
    }

    fn reconfigure(&mut self) {
        self.sink.drop_waiting();
        self.tell(Event::Reconfigured(Box::new(self.spec.clone())));
    }

    fn set_foreign(&mut self, i: usize, weight: u32) {
        // Other parties do not take the last server out of service either.
        let others = (0..self.pool_model.len()).any(|j| j != i && self.pool_model.weight(j) > 0);
        if weight > 0 || others {
            self.pool_model.set_weights(&[(i, weight)]);
            self.invariants.weights_changed();
        }
    }

    fn reload(&mut self) {
        let weights = self.scenario.weights.clone();
        self.pool_model.restart(&weights, self.troubles.method);
        self.invariants.weights_changed();
    }

    fn switch_method(&mut self) {
        self.troubles.method = match self.troubles.method {
            Method::RoundRobin => Method::LeastConn,
            Method::LeastConn => Method::RoundRobin,
        };
        self.reload();
    }
}
