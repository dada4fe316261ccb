//! How long the store takes for so many services: `speed [SERVICES] [DIRECTORY]`.

use std::path::PathBuf;
use std::time::Instant;

use plimsoll_store::{Batch, EventRecord, Holder, PlanRecord, PlanRecordEntry, Store, StoreError};

/// Backends of each service.
const BACKENDS: usize = 30;
/// Events of each service: its ring and half as much again.
const EVENTS: usize = 15_000;
/// Events that come together.
const TOGETHER: usize = 20;

fn main() -> Result<(), StoreError> {
    let mut arguments = std::env::args().skip(1);
    let services: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let path = directory.join(format!("plimsoll-store-speed-{}", std::process::id()));
    let holder = Holder::this_process("");
    let names: Vec<String> = (0..services).map(|n| format!("service-{n}")).collect();

    let store = Store::open(&path, &holder)?;
    let start = Instant::now();
    for round in 0..EVENTS / TOGETHER {
        store.write(&events(&names, round))?;
    }
    store.flush()?;
    let each = start.elapsed() / (EVENTS * services) as u32;
    println!(
        "write: {each:?} an event, {TOGETHER} of each service a batch, durable commits included"
    );

    let start = Instant::now();
    for epoch in 0..150 {
        store.write(&plans(&names, epoch))?;
    }
    store.flush()?;
    println!(
        "write: {:?} a plan of {BACKENDS} backends",
        start.elapsed() / (150 * services) as u32
    );

    let start = Instant::now();
    store.save_memory(&names[0], &vec![1; 100_000])?;
    store.flush()?;
    println!("durable commit of 100 kB of memory: {:?}", start.elapsed());
    drop(store);

    let bytes = std::fs::metadata(&path).map(|metadata| metadata.len()).unwrap_or(0);
    let start = Instant::now();
    drop(Store::open(&path, &holder)?);
    println!("open, with the check of all {:.1} MB: {:?}", bytes as f64 / 1e6, start.elapsed());
    for suffix in ["", ".lock"] {
        std::fs::remove_file(format!("{}{suffix}", path.display())).ok();
    }
    Ok(())
}

fn events(services: &[String], round: usize) -> Batch {
    let mut batch = Batch::new();
    for service in services {
        for n in 0..TOGETHER {
            let reason = "its latency rose to twice its least".to_owned();
            let backend = Some(format!("server-{n}"));
            let unix_ms = (round * TOGETHER + n) as u64;
            batch.event(
                service,
                EventRecord { unix_ms, backend, kind: "explored".to_owned(), reason },
            );
        }
    }
    batch
}

fn plans(services: &[String], epoch: u64) -> Batch {
    let mut batch = Batch::new();
    for service in services {
        let entry = |n: usize| PlanRecordEntry {
            backend: format!("server-{n}"),
            share: 1.0 / BACKENDS as f64,
            weight: 100,
        };
        let entries = (0..BACKENDS).map(entry).collect();
        let reason = "a change of the pool".to_owned();
        batch.plan(service, PlanRecord { unix_ms: epoch, epoch, reason, entries });
    }
    batch
}
