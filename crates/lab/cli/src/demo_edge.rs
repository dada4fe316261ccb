//! `plimsoll-lab demo-edge`: two nodes that run a network function, an elephant flow among mice, and the load of
//! both cores as the forwarder predicts it and as the nodes measure it, on one machine in less than a minute.
//!
//! The real forwarder and the real nodes run in network namespaces, native XDP on all; the function works 20 µs on
//! every packet. A third of the time there are mice of 10 packets alone, then an elephant sends a quarter of all
//! packets, then 45 %: new flows must move away from it.

use std::io::{self, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plimsoll_edge::{EdgeError, Key, PlaceStatus, Status, ask};
use plimsoll_lanes::{Interrupt, LaneError};
use plimsoll_terminal::table::{Cell, Table, left, right};
use plimsoll_terminal::view::View;
use plimsoll_terminal::{Format, Screen, complain, exit, fail, json};
use plimsoll_testbed::net::{Namespaces, NetError, requirements};
use serde::Serialize;

/// Packets a second, of all flows. With 20 µs each, 60 % of a core, over two cores.
const RATE: u64 = 30_000;
const MOUSE: u64 = 10;
/// Addresses that mice come from, so that their ports last for as long as is sent.
const CLIENTS: u64 = 40;
const LOOK: Duration = Duration::from_millis(500);
/// At the beginning of a phase old flows are still where they were.
const SETTLES: Duration = Duration::from_secs(2);
const STARTS: Duration = Duration::from_secs(30);
const BAR: usize = 24;
/// Parts of all packets that the elephant sends, per mille.
const PHASES: [(&str, u64); 3] =
    [("mice alone", 0), ("elephant 25 %", 250), ("elephant 45 %", 450)];

/// Show how new flows move away from an elephant, by predicted load alone; needs root
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How long packets are sent, seconds
    #[arg(long, value_name = "N", default_value_t = 45,
          value_parser = clap::value_parser!(u64).range(12..=3600))]
    pub seconds: u64,
    /// How to show the result
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Edge(#[from] EdgeError),
    #[error(transparent)]
    Lane(#[from] LaneError),
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error("{0}")]
    Daemon(String),
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> DemoError {
    move |source| DemoError::System { what, source }
}

/// What one phase came to.
#[derive(Clone, Debug, Serialize)]
struct Phase {
    phase: &'static str,
    packets_per_s: f64,
    /// By core: the part of it that was busy, predicted and reported.
    predicted: Vec<f64>,
    reported: Vec<f64>,
    /// Between the cores, of reported load, as a part of a core.
    gap: f64,
    /// Mean distance of predicted from reported load, as a part of a core.
    error: f64,
}

/// Runs the demonstration. Exits 1 when it cannot, 130 when it was interrupted.
pub fn run(args: &Args) -> ExitCode {
    let phases = match demonstrate(args) {
        Ok(Some(phases)) => phases,
        Ok(None) => {
            complain!("plimsoll-lab: interrupted; everything that was started has ended");
            return ExitCode::from(exit::INTERRUPTED);
        }
        Err(error) => return fail(&error.to_string()),
    };
    let mut out = io::stdout().lock();
    let written = match args.output {
        Format::Json => json(&mut out, &phases),
        Format::Table => out.write_all(report(&phases, &Screen::stdout()).as_bytes()),
    };
    plimsoll_terminal::written(written.and_then(|()| out.flush()))
}

fn report(phases: &[Phase], screen: &Screen) -> String {
    let mut table = Table::new([
        left("PHASE"),
        right("PACKETS/S"),
        right("N1 PREDICTED %"),
        right("REPORTED %"),
        right("N2 PREDICTED %"),
        right("REPORTED %"),
        right("GAP, POINTS"),
        right("ERROR, POINTS"),
    ]);
    let percent = |part: f64| Cell::from(format!("{:.1}", part * 100.0));
    for one in phases {
        let cells = [
            one.phase.into(),
            format!("{:.0}", one.packets_per_s).into(),
            percent(one.predicted[0]),
            percent(one.reported[0]),
            percent(one.predicted[1]),
            percent(one.reported[1]),
            percent(one.gap),
            percent(one.error),
        ];
        table.row(cells);
    }
    table.render(screen)
}

/// Ended with the demonstration.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn demonstrate(args: &Args) -> Result<Option<Vec<Phase>>, DemoError> {
    requirements()?;
    let interrupt = Interrupt::listen()?;
    let program = plimsoll_lanes::plimsoll()?;
    let mut view = View::stderr();
    view.say("setting up namespaces, a forwarder and two nodes");
    let net = network()?;
    let key = net.dir().join("edge.key");
    Key::create(&key)?;
    let (file, socket) = (net.dir().join("edge.yaml"), net.dir().join("edge.sock"));
    let text = format!(
        "edge:
  interfaces: [ {{ name: eth0 }} ]
  pin_dir: {}
  socket: {}
  control: {{ key: {} }}
  services: [ {{ name: inspect, match: {{ destination: \"10.2.0.0/24\" }}, chain: [ {{ xdp: {{ work: 20us }} }} ] }} ]
  nodes:
    - {{ name: n1, address: \"10.3.0.11\", cpus: [0], services: [inspect] }}
    - {{ name: n2, address: \"10.3.0.12\", cpus: [1], services: [inspect] }}
",
        net.pins().display(),
        socket.display(),
        key.display()
    );
    std::fs::write(&file, text).map_err(system("write the configuration"))?;
    let log =
        |name: &str| std::fs::File::create(net.dir().join(name)).map_err(system("write a log"));
    let mut daemons = Vec::new();
    for (namespace, words) in [
        ("n1", &["edge", "node", "run", "--name", "n1"][..]),
        ("n2", &["edge", "node", "run", "--name", "n2"]),
        ("fwd", &["edge", "run"]),
    ] {
        let mut command = Command::new(&program);
        command.args(words).arg("--config").arg(&file).stdin(Stdio::null());
        command.stderr(log(namespace)?).stdout(Stdio::null());
        daemons.push(Daemon(net.spawn(namespace, &mut command)?));
    }
    let status = || -> Option<Status> {
        let value = ask(&socket, &serde_json::json!("status")).ok()?;
        serde_json::from_value(value).ok()
    };
    let began = Instant::now();
    let serves = |status: Status| {
        status.places.iter().all(|place| place.weight > 0.0) && !status.places.is_empty()
    };
    while !status().is_some_and(serves) {
        if interrupt.came() {
            return Ok(None);
        }
        if began.elapsed() > STARTS {
            let said: Vec<String> = ["fwd", "n1", "n2"]
                .iter()
                .map(|name| std::fs::read_to_string(net.dir().join(name)).unwrap_or_default())
                .collect();
            return Err(DemoError::Daemon(format!("the nodes do not serve:\n{}", said.concat())));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let _sink = net
        .inside("server", || UdpSocket::bind("10.2.0.20:7000"))?
        .map_err(system("open a socket"))?;
    let load = Load::start(&net)?;
    let length = Duration::from_secs(args.seconds) / PHASES.len() as u32;
    let mut phases = Vec::new();
    for (title, elephant) in PHASES {
        load.elephant.store(elephant, Ordering::Relaxed);
        match phase(title, length, &status, &mut view, &interrupt) {
            Some(one) => phases.push(one),
            None => return Ok(None),
        }
    }
    drop(load);
    drop(daemons);
    view.replace(&[]);
    Ok(Some(phases))
}

/// Client, server, forwarder and nodes on one link.
fn network() -> Result<Namespaces, DemoError> {
    let net = Namespaces::new(&["sw", "fwd", "client", "server", "n1", "n2"])?;
    let clients: Vec<String> = (0..CLIENTS).map(|n| format!("{}/24", client(n))).collect();
    let clients = clients.join(" ");
    net.run("sw", "ip link add br0 type bridge mcast_snooping 0 && ip link set br0 up")?;
    for (name, addresses) in [
        ("fwd", "10.1.0.1/24 10.2.0.1/24 10.3.0.1/24"),
        ("client", &clients),
        ("server", "10.2.0.20/24"),
        ("n1", "10.3.0.11/24"),
        ("n2", "10.3.0.12/24"),
    ] {
        let full = net.full(name);
        net.run("sw", &format!("ip link add p-{name} type veth peer name eth0 netns {full} && ip link set p-{name} master br0 up && ethtool -K p-{name} gro on tx off"))?;
        net.run(name, &format!("ethtool -K eth0 gro on tx off && ip link set eth0 up && for a in {addresses}; do ip addr add $a dev eth0; done"))?;
    }
    for name in ["fwd", "n1", "n2"] {
        for (key, value) in [
            ("ip_forward", "1"),
            ("conf.all.rp_filter", "0"),
            ("conf.eth0.rp_filter", "0"),
            ("conf.all.send_redirects", "0"),
            ("conf.eth0.send_redirects", "0"),
        ] {
            net.set_sysctl(name, &format!("net.ipv4.{key}"), value)?;
        }
    }
    net.run("client", "ip route add default via 10.1.0.1")?;
    net.run("server", "ip route add default via 10.2.0.1")?;
    for name in ["n1", "n2"] {
        net.run(name, "ip route add 10.1.0.0/24 dev eth0 && ip route add 10.2.0.0/24 dev eth0")?;
    }
    Ok(net)
}

/// Sends: mice of ten packets, and an elephant.
struct Load {
    elephant: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    fn start(net: &Namespaces) -> Result<Load, DemoError> {
        let (elephant, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (part, of) = (elephant.clone(), stop.clone());
        let thread = net.inside("client", move || std::thread::spawn(move || send(&part, &of)))?;
        Ok(Load { elephant, stop, thread: Some(thread) })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn client(n: u64) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, 10 + n as u8)
}

/// The `n`-th flow: no two have an address and a port in common, for the second would be an old flow.
fn socket(n: u64) -> Option<UdpSocket> {
    let port = 20_000 + (n / CLIENTS % 40_000) as u16;
    let socket = UdpSocket::bind((client(n % CLIENTS), port)).ok()?;
    socket.connect("10.2.0.20:7000").ok()?;
    Some(socket)
}

/// A tick of a millisecond: so many packets of the elephant's, so many of mice, each of which has ten ticks to live.
fn send(elephant: &AtomicU64, stop: &AtomicBool) {
    let Some(big) = socket(0) else { return };
    let payload = [0u8; 64];
    let mut mice: Vec<(UdpSocket, u64)> = Vec::new();
    let (began, mut sent, mut owed, mut flows) = (Instant::now(), 0u64, 0u64, 0u64);
    while !stop.load(Ordering::Relaxed) {
        let due = (began.elapsed().as_secs_f64() * RATE as f64) as u64;
        // After a pause of the machine's nothing is made up for.
        sent = sent.max(due.saturating_sub(RATE / 20));
        for _ in sent..due {
            owed += elephant.load(Ordering::Relaxed);
            if owed >= 1000 {
                owed -= 1000;
                let _ = big.send(&payload);
                continue;
            }
            if mice.len() < 30 {
                flows += 1;
                mice.extend(socket(flows).map(|mouse| (mouse, MOUSE)));
            }
            mice.rotate_left(1);
            if let Some((mouse, left)) = mice.first_mut() {
                let _ = mouse.send(&payload);
                *left -= 1;
            }
            mice.retain(|(_, left)| *left > 0);
        }
        sent = due;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One phase, shown as it goes; none when it was interrupted.
fn phase(
    title: &'static str,
    length: Duration,
    status: &impl Fn() -> Option<Status>,
    view: &mut View,
    interrupt: &Interrupt,
) -> Option<Phase> {
    let began = Instant::now();
    let (mut looks, mut errors) = (0u32, 0.0);
    let mut sums = [[0.0; 2]; 2];
    let mut first: Option<(Instant, u64)> = None;
    let mut packets = 0;
    while began.elapsed() < length {
        if interrupt.came() {
            return None;
        }
        std::thread::sleep(LOOK);
        let Some(now) = status().filter(|status| status.places.len() == 2) else { continue };
        packets = now.places.iter().map(|place| place.packets).sum();
        view.replace(&drawn(title, &now.places));
        if began.elapsed() < SETTLES {
            continue;
        }
        first.get_or_insert((Instant::now(), packets));
        for (place, sums) in now.places.iter().zip(&mut sums) {
            let reported = place.reported.unwrap_or(0.0);
            sums[0] += place.predicted;
            sums[1] += reported;
            errors += (place.predicted - reported).abs() / 2.0;
        }
        looks += 1;
    }
    let n = f64::from(looks.max(1));
    let of = |which: usize| sums.iter().map(|sums| sums[which] / n).collect::<Vec<f64>>();
    let (predicted, reported) = (of(0), of(1));
    let (since, before) = first.unwrap_or((began, packets));
    Some(Phase {
        phase: title,
        packets_per_s: (packets - before) as f64 / since.elapsed().as_secs_f64().max(1e-3),
        gap: (reported[0] - reported[1]).abs(),
        error: errors / n,
        predicted,
        reported,
    })
}

fn drawn(title: &str, places: &[PlaceStatus]) -> Vec<String> {
    let bar = |part: f64| {
        let full = ((part * BAR as f64).round() as usize).min(BAR);
        format!("{}{}", "#".repeat(full), ".".repeat(BAR - full))
    };
    let mut lines = vec![title.to_owned()];
    for place in places {
        let reported = place.reported.unwrap_or(0.0);
        lines.push(format!(
            "  {} cpu {}  predicted {} {:>5.1} %   measured {} {:>5.1} %   weight {:>5.1} %",
            place.node,
            place.cpu,
            bar(place.predicted),
            place.predicted * 100.0,
            bar(reported),
            reported * 100.0,
            place.weight * 100.0
        ));
    }
    lines
}
