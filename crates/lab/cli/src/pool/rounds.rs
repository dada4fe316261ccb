//! Which lane runs when.

use std::time::{Duration, Instant};

use plimsoll_api::wire::Event;
use plimsoll_terminal::complain;

use super::Args;
use plimsoll_lanes::{
    CpuClock, Family, Finished, Interrupt, Lane, LaneError, LaneKind, Learning, PATIENCE, Pool,
};

/// How often lanes are looked at.
const TICK: Duration = Duration::from_millis(500);
/// How often to look for an interrupt.
const BLINK: Duration = Duration::from_millis(50);

/// A stretch of time.
pub type Stretch = (Instant, Instant);

/// One lane after all rounds.
pub struct RanLane {
    /// What its clients saw.
    pub finished: Finished,
    /// When it learned; nothing where there was nothing to learn.
    pub learning: Option<(Stretch, Learning)>,
    /// When it was measured, by round.
    pub measured: Vec<Stretch>,
    /// The weights at its end, in the order of the pool.
    pub weights: Vec<u32>,
    /// What Plimsoll decided, and why.
    pub events: Vec<Event>,
}

/// All lanes after all rounds.
pub struct Ran {
    /// In the order of the arguments.
    pub lanes: Vec<RanLane>,
    /// How busy the machine was in each turn of the rounds, 0…1.
    pub busy: Vec<f64>,
}

struct Seat {
    kind: LaneKind,
    /// None before its first turn: a controller that waits for its turn would not learn from nothing.
    lane: Option<Lane>,
    learning: Option<(Stretch, Learning)>,
    measured: Vec<Stretch>,
}

/// The lanes, and their turns.
pub struct Bench<'a> {
    args: &'a Args,
    pool: &'a Pool,
    interrupt: Interrupt,
    // Before the family, which would end their processes under their feet.
    seats: Vec<Seat>,
    family: Family,
    busy: Vec<f64>,
}

/// An interrupt has come, or something has failed.
enum Stop {
    Interrupted,
    Failed(LaneError),
}

impl From<LaneError> for Stop {
    fn from(error: LaneError) -> Self {
        Stop::Failed(error)
    }
}

impl<'a> Bench<'a> {
    /// Nothing runs yet.
    ///
    /// # Errors
    /// When the system refuses a directory or a process.
    pub fn new(args: &'a Args, pool: &'a Pool, interrupt: Interrupt) -> Result<Self, LaneError> {
        let seat = |&kind: &LaneKind| Seat { kind, lane: None, learning: None, measured: vec![] };
        let seats = args.lanes.iter().map(seat).collect();
        let family = Family::start()?;
        Ok(Bench { args, pool, interrupt, seats, family, busy: Vec::new() })
    }

    /// Runs everything; nothing when interrupted.
    ///
    /// # Errors
    /// When a lane does not start or a part of it dies.
    pub fn run(mut self) -> Result<Option<Ran>, LaneError> {
        match self.turns().and_then(|()| Ok(self.finish()?)) {
            Ok(ran) => Ok(Some(ran)),
            Err(Stop::Interrupted) => Ok(None),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    fn turns(&mut self) -> Result<(), Stop> {
        let learners: Vec<usize> =
            (0..self.seats.len()).filter(|&i| self.seats[i].kind.is_steered()).collect();
        let all: Vec<usize> = (0..self.seats.len()).collect();
        let (together, rounds) = (self.args.concurrent as usize, self.args.rounds);
        let learn = learners.chunks(together).filter(|_| !self.args.learn.is_zero()).count() as u32;
        let each = self.args.warmup + self.args.measure;
        let whole = self.args.learn * learn + each * rounds * all.chunks(together).count() as u32;
        complain!(
            "{} emulated backends, {:.0} requests/s to each lane, {} lanes: about {:.0} s",
            self.pool.backends.len(),
            self.pool.rate_rps,
            self.seats.len(),
            whole.as_secs_f64()
        );
        if learn > 0 {
            for turn in learners.chunks(together) {
                self.learn(turn)?;
            }
        }
        for round in 1..=rounds {
            for turn in all.chunks(together) {
                self.measure(turn, round)?;
            }
        }
        Ok(())
    }

    fn learn(&mut self, turn: &[usize]) -> Result<(), Stop> {
        self.open(turn)?;
        complain!("{}: learning for {:.0} s", self.names(turn), self.args.learn.as_secs_f64());
        let from = Instant::now();
        let until = from + self.args.learn;
        for &i in turn {
            self.seats[i].learning = Some(((from, until), Learning::default()));
        }
        self.wait(turn, until)?;
        self.close(turn)
    }

    fn measure(&mut self, turn: &[usize], round: u32) -> Result<(), Stop> {
        self.open(turn)?;
        self.wait(turn, Instant::now() + self.args.warmup)?;
        let cpu = CpuClock::now();
        let from = Instant::now();
        self.wait(turn, from + self.args.measure)?;
        let until = Instant::now();
        self.busy.extend(cpu.and_then(|cpu| cpu.busy_share()));
        for &i in turn {
            self.seats[i].measured.push((from, until));
        }
        self.close(turn)?;
        complain!("{}: round {round} of {} measured", self.names(turn), self.args.rounds);
        Ok(())
    }

    fn names(&self, turn: &[usize]) -> String {
        let names: Vec<&str> = turn.iter().map(|&i| self.seats[i].kind.name()).collect();
        names.join(", ")
    }

    /// Lets the clients of these lanes come, all at the same time.
    fn open(&mut self, turn: &[usize]) -> Result<(), Stop> {
        for &i in turn {
            let Seat { kind, lane, .. } = &mut self.seats[i];
            if lane.is_none() {
                *lane = Some(Lane::start(&self.family, self.pool, *kind, kind.name())?);
            }
        }
        let Bench { seats, family, .. } = self;
        for &i in turn {
            if let Some(lane) = &mut seats[i].lane {
                lane.open(family)?;
            }
        }
        Ok(())
    }

    /// No more clients come to these lanes; returns when the last is served or has given up. Daemons end
    /// before, so that the pause is none of their business.
    fn close(&mut self, turn: &[usize]) -> Result<(), Stop> {
        self.lanes(turn).for_each(|lane| lane.rest());
        for lane in self.lanes(turn) {
            lane.pause()?;
        }
        let end = Instant::now() + PATIENCE;
        let waits = |lane: &mut Lane| lane.so_far().is_some_and(|report| report.in_flight > 0);
        while Instant::now() < end && self.lanes(turn).any(waits) {
            self.wait(turn, Instant::now() + TICK)?;
        }
        Ok(())
    }

    fn lanes<'s>(&'s mut self, turn: &'s [usize]) -> impl Iterator<Item = &'s mut Lane> {
        let seats = self.seats.iter_mut().enumerate();
        seats.filter(|(i, _)| turn.contains(i)).filter_map(|(_, seat)| seat.lane.as_mut())
    }

    /// Looks at these lanes until then.
    fn wait(&mut self, turn: &[usize], until: Instant) -> Result<(), Stop> {
        let mut next = Instant::now();
        while Instant::now() < until {
            if self.interrupt.came() {
                return Err(Stop::Interrupted);
            }
            if Instant::now() >= next {
                next += TICK;
                for &i in turn {
                    self.seats[i].look()?;
                }
            }
            std::thread::sleep(BLINK.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Ran, LaneError> {
        for seat in &self.seats {
            seat.lane.iter().for_each(|lane| lane.close());
        }
        let lanes = self.seats.drain(..).filter_map(Seat::finish).collect::<Result<_, _>>()?;
        Ok(Ran { lanes, busy: self.busy })
    }
}

impl Seat {
    fn look(&mut self) -> Result<(), LaneError> {
        let Some(lane) = &mut self.lane else { return Ok(()) };
        lane.check()?;
        let now = Instant::now();
        if let Some(((from, until), learning)) = &mut self.learning
            && now <= *until
            && let Some(phase) = lane.phase()
        {
            learning.saw(now - *from, phase);
        }
        Ok(())
    }

    /// Nothing where it never had its turn.
    fn finish(self) -> Option<Result<RanLane, LaneError>> {
        let Seat { lane, learning, measured, .. } = self;
        let lane = lane?;
        let (weights, events) = (lane.held(lane.view().as_ref()), lane.events());
        let ran = |finished| RanLane { finished, learning, measured, weights, events };
        Some(lane.finish().map(ran))
    }
}
