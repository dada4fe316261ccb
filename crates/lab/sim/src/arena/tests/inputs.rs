//! Client addresses and CPU utilisation as inputs of balancers.

use plimsoll_model::Nanos;
use plimsoll_policy::{Request, ServerLoad};
use rand::RngCore;

use super::*;

/// The keys and CPU utilisations that arrived.
type Heard = (Vec<Option<u64>>, Vec<f32>);

/// Records them.
struct Listener(std::sync::Arc<std::sync::Mutex<Heard>>);

impl Policy for Listener {
    fn set_weights(&mut self, _weights: &[u32]) {}

    fn pick(&mut self, request: &Request<'_>, _: Nanos, _: &mut dyn RngCore) -> Option<usize> {
        self.0.lock().expect("one thread").0.push(request.key);
        Some(0)
    }

    fn on_probe(&mut self, _backend: usize, load: ServerLoad, _now: Nanos) {
        self.0.lock().expect("one thread").1.extend(load.cpu);
    }
}

fn listened(arena: &Arena) -> (ArenaReport, Heard) {
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Heard::default()));
    let listener: Box<dyn Policy> = Box::new(Listener(std::sync::Arc::clone(&heard)));
    let report = arena.run(&mut [listener]);
    let heard = heard.lock().expect("one thread").clone();
    (report, heard)
}

#[test]
fn requests_have_addresses_and_balancers_get_cpu_utilisation_if_configured() {
    let mut arena = Arena::new(vec![BackendModel { cores: 2, speed: 1.0 }], 0.5, 20_000, 1);
    let (plain, (keys, cpus)) = listened(&arena);
    assert!(keys.iter().all(Option::is_none) && cpus.is_empty());
    arena.addresses = 50;
    arena.cpu_news = Some(Duration::from_secs(1));
    let (report, (mut keys, cpus)) = listened(&arena);
    keys.sort_unstable();
    keys.dedup();
    assert!(keys.len() == 50 && keys[0].is_some(), "{keys:?}");
    // 20,000 requests at 33 a second; the CPU is busy for half of the time.
    assert!((560..640).contains(&cpus.len()), "{}", cpus.len());
    let mean = cpus.iter().sum::<f32>() / cpus.len() as f32;
    assert!((0.45..0.55).contains(&mean), "{mean}");
    assert_eq!(report.mean_us, plain.mean_us, "neither changes the rng");
}
