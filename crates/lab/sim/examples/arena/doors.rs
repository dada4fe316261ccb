//! Doors of the methods that meet refusals, and how often these try again.

use plimsoll_admission::{AdmissionOptions, CapacityOptions, RefusalRetries, RetryOptions};
use plimsoll_sim::{AdmissionDoor, BackendModel, Ingress, Offer, Refusal, StaticLimit};
use rand::RngCore;

/// What stands at the backends' doors.
#[derive(Clone, Copy)]
pub enum Doors {
    Open,
    /// The product's admission by its defaults: cores are learned, refused requests are tried up to eight times
    /// again, within the default budget.
    Learned,
    /// Chips and a limit of so many times the cores.
    Chips(f64),
    /// A limit of so many times the cores, and up to six retries.
    Limit(f64),
    /// The same, but a last try is always let in: nothing is refused for good.
    ButLast(f64),
}

/// Limits that do not hold for a last try.
struct LastTryIn(Box<dyn Ingress>);

impl Ingress for LastTryIn {
    fn admits(&mut self, offer: &Offer, rng: &mut dyn RngCore) -> Result<(), Refusal> {
        if offer.tries_left == 0 { Ok(()) } else { self.0.admits(offer, rng) }
    }
}

fn chips(backend: &BackendModel, factor: f64) -> Box<dyn Ingress> {
    let limit = (f64::from(backend.cores) * factor).round() as u32;
    let options = AdmissionOptions { capacity: CapacityOptions::Static(limit), deadline_ms: None };
    Box::new(AdmissionDoor::new(&options).expect("a positive limit"))
}

impl Doors {
    /// One for each backend, or none.
    pub fn build(self, pool: &[BackendModel]) -> Vec<Box<dyn Ingress>> {
        let last_in = |door| Box::new(LastTryIn(door)) as Box<dyn Ingress>;
        match self {
            Doors::Open => Vec::new(),
            Doors::Learned => {
                AdmissionDoor::for_each(pool, &AdmissionOptions::default()).expect("the defaults")
            }
            Doors::Chips(factor) => pool.iter().map(|b| chips(b, factor)).collect(),
            Doors::Limit(factor) => StaticLimit::times_cores(pool, factor),
            Doors::ButLast(factor) => {
                StaticLimit::times_cores(pool, factor).into_iter().map(last_in).collect()
            }
        }
    }

    /// How often balancers in front of them try again.
    pub fn retries(self) -> RetryOptions {
        match self {
            Doors::Open => RetryOptions::of_refusals(0),
            Doors::Learned => RetryOptions {
                refusals: RefusalRetries { most: 8, ..RefusalRetries::default() },
                ..RetryOptions::default()
            },
            Doors::Chips(_) => RetryOptions::of_refusals(8),
            Doors::Limit(_) | Doors::ButLast(_) => RetryOptions::of_refusals(6),
        }
    }
}
