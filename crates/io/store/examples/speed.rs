//! How long the store takes for a pool of a given size: `speed [BACKENDS] [DIRECTORY]`.

use std::path::PathBuf;
use std::time::Instant;

use plimsoll_model::{Outcome, Source};
use plimsoll_store::{Batch, EventRecord, Holder, Store, StoreError, StoredSample};

fn main() -> Result<(), StoreError> {
    let mut arguments = std::env::args().skip(1);
    let backends: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(30);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let path = directory.join(format!("plimsoll-store-speed-{}", std::process::id()));
    let holder = Holder::this_process("");
    let names: Vec<String> = (0..backends).map(|n| format!("server-{n}")).collect();

    let store = Store::open(&path, &holder)?;
    let start = Instant::now();
    // Full rings and half as much again, a second of samples (20 per backend) to each batch.
    let rounds = 150;
    for round in 0..rounds {
        store.write(&second_of_samples(&names, round))?;
    }
    store.flush()?;
    let samples = rounds as usize * 20 * backends;
    let each = start.elapsed() / samples as u32;
    println!("write: {samples} samples, {each:?} each, durable commits included");

    let start = Instant::now();
    store.save_memory("shop", &vec![1; 100_000])?;
    store.flush()?;
    println!("durable commit of 100 kB of memory: {:?}", start.elapsed());

    let start = Instant::now();
    let mut read = 0;
    for name in &names {
        read += store.samples("shop", name)?.len();
    }
    println!("read: {read} samples in {:?}", start.elapsed());
    drop(store);

    let bytes = std::fs::metadata(&path).map(|metadata| metadata.len()).unwrap_or(0);
    let start = Instant::now();
    drop(Store::open(&path, &holder)?);
    println!("open, with the check of all {} MB: {:?}", bytes / 1_000_000, start.elapsed());
    for suffix in ["", ".lock"] {
        std::fs::remove_file(format!("{}{suffix}", path.display())).ok();
    }
    Ok(())
}

fn second_of_samples(names: &[String], round: u64) -> Batch {
    let mut batch = Batch::new();
    for name in names {
        for n in 0..20 {
            let sample = StoredSample {
                unix_ms: round * 1_000 + n * 50,
                weight: 0.03,
                rate_rps: Some(30.0),
                latency_us: 31_000.0 + n as f64,
                requests: 1,
                outcome: Outcome::Success,
                source: Source::Probe,
            };
            batch.sample("shop", name, sample);
        }
    }
    let reason = "its latency rose to twice its least".to_owned();
    let kind = "explored".to_owned();
    batch.event("shop", EventRecord { unix_ms: round * 1_000, backend: None, kind, reason });
    batch
}
