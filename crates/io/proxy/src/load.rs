//! The load of an application, as its ingress tells it to balancers that ask ([`crate::probe`]), in answer to
//! `OPTIONS *` with `plimsoll-probe`: requests in flight, what a request that found so many took, how busy the CPU is, and how
//! many cores the admission has learned that there are.
//!
//! The latency is a moving mean of its own for each number in flight that a request found, as Prequal has it (NSDI 2024,
//! section 4): at the nearest level below that has one, or above.

use std::cell::RefCell;
use std::time::Duration;

use hyper::header::HeaderValue;
use hyper::{Method, Request};
use plimsoll_model::Nanos;
use plimsoll_policy::ServerLoad;

use crate::cgroup::Reading;
use crate::config::Cpu;
use crate::headers;

/// Numbers in flight with a latency of their own; greater ones count as the greatest.
const LEVELS: usize = 128;
/// Weight of the newest latency in the mean of its level.
const NEWEST: f32 = 0.125;
/// A reading of the CPU is of at least so long a time: the kernel counts a machine's in hundredths of a second.
const CPU_WINDOW: Duration = Duration::from_millis(200);

/// What an ingress has to tell.
pub(crate) struct LoadMeter {
    found_us: RefCell<Box<[f32; LEVELS]>>,
    cpu: RefCell<CpuMeter>,
}

impl LoadMeter {
    pub(crate) fn new(cpu: Cpu) -> Self {
        let cpu = RefCell::new(CpuMeter { of: cpu, last: None, busy: None });
        LoadMeter { found_us: RefCell::new(Box::new([0.0; LEVELS])), cpu }
    }

    /// A request that found so many in flight was answered after this time.
    pub(crate) fn note(&self, found: u32, took: Duration) {
        let Ok(mut found_us) = self.found_us.try_borrow_mut() else { return };
        let mean = &mut found_us[(found as usize).min(LEVELS - 1)];
        let us = took.as_secs_f32() * 1e6;
        *mean += (us - *mean) * if *mean == 0.0 { 1.0 } else { NEWEST };
    }

    /// The load with so many in flight and, where they are known, so many cores.
    pub(crate) fn read(&self, in_flight: u32, cores: Option<f64>, now: Nanos) -> ServerLoad {
        let found_us = self.found_us.borrow();
        let at = (in_flight as usize).min(LEVELS - 1);
        let is_known = |us: &&f32| **us > 0.0;
        let below = found_us[..=at].iter().rev().find(is_known);
        let above = || found_us[at..].iter().find(is_known);
        ServerLoad {
            in_flight,
            latency_us: below.or_else(above).copied().unwrap_or(0.0),
            cpu: self.cpu.borrow_mut().look(now),
            cores: cores.map(|cores| cores as f32),
        }
    }
}

/// CPU time used of what there was, since any instant and in any unit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Used {
    busy: f64,
    all: f64,
}

/// Reads how busy a CPU is when it is asked.
struct CpuMeter {
    of: Cpu,
    /// When, and what had been used then of what there was.
    last: Option<(Nanos, Used)>,
    busy: Option<f32>,
}

impl CpuMeter {
    /// The busy part since the last reading; none at the first, or where it cannot be read.
    fn look(&mut self, now: Nanos) -> Option<f32> {
        if self.last.is_some_and(|(then, _)| now.since(then) < CPU_WINDOW) {
            return self.busy;
        }
        let used = self.of.used(now, self.last)?;
        if let Some((_, before)) = self.last.replace((now, used)) {
            let all = used.all - before.all;
            self.busy =
                (all > 0.0).then(|| ((used.busy - before.busy) / all).clamp(0.0, 1.0) as f32);
        }
        self.busy
    }
}

impl Cpu {
    /// What was used by now, and `last` by then.
    fn used(&self, now: Nanos, last: Option<(Nanos, Used)>) -> Option<Used> {
        match self {
            Cpu::Machine => of_machine(&std::fs::read_to_string("/proc/stat").ok()?),
            Cpu::Group(group) => {
                let Reading { busy_us, cores } = group.read()?;
                // By the cores of now: what it might use before its quota changed is past.
                let all = last.map_or(0.0, |(then, before)| {
                    before.all + now.since(then).as_secs_f64() * 1e6 * cores
                });
                Some(Used { busy: busy_us, all })
            }
        }
    }
}

/// `cpu user nice system idle iowait irq softirq steal …`, in hundredths of a second.
fn of_machine(stat: &str) -> Option<Used> {
    let mut words = stat.lines().next()?.split_ascii_whitespace();
    (words.next()? == "cpu").then_some(())?;
    let kinds: Vec<f64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let [_, _, _, idle, waits, ..] = kinds[..] else { return None };
    let all: f64 = kinds.iter().sum();
    Some(Used { busy: all - idle - waits, all })
}

/// As a header tells it: `in_flight=3, latency_us=1200, cpu=0.431, cores=4`.
pub(crate) fn write(load: &ServerLoad) -> Option<HeaderValue> {
    let ServerLoad { in_flight, latency_us, cpu, cores } = load;
    let mut text = format!("in_flight={in_flight}, latency_us={latency_us:.0}");
    if let Some(cpu) = cpu {
        text.push_str(&format!(", cpu={cpu:.3}"));
    }
    if let Some(cores) = cores {
        text.push_str(&format!(", cores={cores:.0}"));
    }
    HeaderValue::from_str(&text).ok()
}

/// What such a header tells; words that are not known are ignored.
pub(crate) fn parse(value: &[u8]) -> Option<ServerLoad> {
    let text = std::str::from_utf8(value).ok()?;
    let words = || text.split(',').filter_map(|word| word.trim().split_once('='));
    let number = |name: &str| {
        let found = words().find(|(found, _)| *found == name)?.1.parse::<f32>().ok()?;
        (found.is_finite() && found >= 0.0).then_some(found)
    };
    let in_flight = words().find(|(found, _)| *found == "in_flight")?.1.parse().ok()?;
    let latency_us = number("latency_us").unwrap_or(0.0);
    let cpu = number("cpu").map(|cpu| cpu.min(1.0));
    Some(ServerLoad { in_flight, latency_us, cpu, cores: number("cores").filter(|n| *n >= 1.0) })
}

/// Whether a request asks for the load. Its header alone does not: any client's request may bring that.
pub(crate) fn is_asked<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request.uri().path() == "*"
        && request.headers().contains_key(headers::PROBE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::CpuGroup;

    #[test]
    fn what_is_written_is_read() {
        for (cpu, cores) in [(None, None), (Some(0.431), Some(12.0))] {
            let load = ServerLoad { in_flight: 3, latency_us: 1_200.0, cpu, cores };
            assert_eq!(parse(write(&load).unwrap().as_bytes()), Some(load));
        }
        let newer = b"queue=7,in_flight=2 , cpu=7, cores=0";
        let read = ServerLoad { in_flight: 2, cpu: Some(1.0), ..ServerLoad::default() };
        assert_eq!(parse(newer), Some(read));
        for bad in [&b""[..], b"in_flight", b"in_flight=-1", b"in_flight=x", b"cpu=0.5", b"\xff"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        let odd = parse(b"in_flight=1, latency_us=nan, cpu=-1").unwrap();
        assert_eq!((odd.latency_us, odd.cpu), (0.0, None));
    }

    #[test]
    fn a_latency_is_of_those_that_found_as_many() {
        let meter = LoadMeter::new(Cpu::Machine);
        let us = |in_flight| meter.read(in_flight, None, Nanos::ZERO).latency_us;
        assert_eq!(us(5), 0.0);
        meter.note(4, Duration::from_micros(400));
        assert_eq!((us(0), us(4), us(9)), (400.0, 400.0, 400.0), "the only one");
        meter.note(8, Duration::from_micros(1_000));
        meter.note(8, Duration::from_micros(1_800));
        assert_eq!((us(3), us(7), us(8), us(9_999)), (400.0, 400.0, 1_100.0, 1_100.0));
    }

    #[test]
    fn a_cpu_is_busy_by_what_was_used_of_what_there_was() {
        let used = |busy, all| Some(Used { busy, all });
        assert_eq!(of_machine("cpu  100 0 50 800 50 0 0 0 9 9\ncpu0 1\n"), used(150.0, 1_000.0));
        assert_eq!(of_machine("intr 5"), None);

        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cpu.max"), "200000 100000").unwrap();
        let put = |us: u64| {
            std::fs::write(dir.path().join("cpu.stat"), format!("usage_usec {us}\n")).unwrap();
        };
        put(0);
        let of = Cpu::Group(CpuGroup::V2(dir.path().to_owned()));
        let mut meter = CpuMeter { of, last: None, busy: None };
        let at = |ms: u64| Nanos(ms * 1_000_000);
        assert_eq!(meter.look(at(0)), None, "nothing has passed");
        put(500_000);
        assert_eq!(meter.look(at(100)), None, "too soon");
        assert_eq!(meter.look(at(1_000)), Some(0.25));
        put(9_000_000);
        assert_eq!(meter.look(at(1_100)), Some(0.25));
        assert_eq!(meter.look(at(2_000)), Some(1.0), "never more than there is");
        std::fs::write(dir.path().join("cpu.max"), "50000 100000").unwrap();
        put(9_250_000);
        assert_eq!(meter.look(at(3_000)), Some(0.5), "half of its new quota");
        std::fs::write(dir.path().join("cpu.max"), "400000 100000").unwrap();
        put(10_250_000);
        assert_eq!(meter.look(at(4_000)), Some(0.25), "a quarter of its new quota");
    }
}
