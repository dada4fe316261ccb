//! measure → learn → pack → steer, with XDP at the end.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_testbed::net::SiteSpec;
use plimsoll_testbed::net::clients::{ClientSpec, Clients, Sessions};
use plimsoll_testbed::{BackendSpec, Change, Mode, Service, Testbed, TestbedSpec};

use crate::place::{Place, Process, binary, each, until};

const GUIDE: &str = include_str!("../../../../docs/l4.md");

/// Connections, each with one request, in a second: more than s3 could bear a third of.
const RATE: f64 = 130.0;
/// s1 and s2 bear 200 a second each, s3 25.
const SPEEDS: [f64; 3] = [1.0, 1.0, 0.125];

struct Scene {
    place: Place,
    servers: Vec<Testbed>,
}

impl Scene {
    fn new(policy: &str) -> Option<Self> {
        let place = Place::new(&SiteSpec::new(SPEEDS.len()))?;
        place.write("l4.yaml", &place.l4(policy, |_| String::new(), ""));
        let servers = (0..SPEEDS.len()).map(|index| serve(&place, index, SPEEDS[index])).collect();
        let backends: String = (0..SPEEDS.len())
            .map(|i| {
                let address = SocketAddr::new(place.site.address_of(i), 80);
                format!("      - {{ name: {}, address: \"{address}\" }}\n", place.site.servers[i])
            })
            .collect();
        let text = format!(
            "services:\n  - name: shop\n    backends:\n{backends}    probe: {{ path: /work, timeout: 2s }}\n    \
             liveness: {{ path: /health, interval: 100ms, requests: 3, timeout: 1s }}\n    sink: {{ l4: {{ \
             socket: {}, vip: web }} }}\nstore: {{ path: {} }}\napi: {{ listen: \"127.0.0.1:7400\" }}\n",
            place.socket().display(),
            place.path("state").display()
        );
        place.write("plimsoll.yaml", &text);
        Some(Scene { place, servers })
    }

    /// The two files of docs/l4.md, for a fast and a slow server.
    fn of_the_guide() -> Option<Self> {
        let place = Place::new(&SiteSpec::new(2))?;
        let (_, section) = GUIDE.split_once("\n## Weights from a controller\n").expect("a section");
        let mut examples = section.split("```yaml\n").skip(1);
        let mut own = |wanted: &[(&str, String)]| {
            let (example, _) = examples.next()?.split_once("```")?;
            let mut text = example.to_owned();
            for (theirs, ours) in wanted {
                assert!(text.contains(theirs), "{theirs} in {text}");
                text = text.replace(theirs, ours);
            }
            Some(text)
        };
        let [first, second] = [("10.0.2.2", 0), ("10.0.2.3", 1)]
            .map(|(example, i)| (example, place.site.address_of(i).to_string()));
        let socket = ("/run/plimsoll/l4.sock", place.socket().display().to_string());
        let key = place.path("l4.key");
        let pins = place.site.net.pins().join("l4");
        let ours = format!(
            "l4:\n  pin_dir: {}\n  cookie: {{ key_file: {} }}\n",
            pins.display(),
            key.display()
        );
        let l4 = own(&[
            ("eth0", place.site.balancer_interfaces().join(" }, { name: ")),
            ("10.0.9.9:80", place.site.vip.to_string()),
            ("l4:\n", ours),
            first.clone(),
            second.clone(),
            socket.clone(),
        ]);
        place.write("l4.yaml", &l4.expect("the balancer's"));
        let daemon = own(&[first, second, socket]);
        let state = place.path("state");
        let rest = format!("store: {{ path: {} }}\n", state.display());
        place.write("plimsoll.yaml", &(daemon.expect("the controller's") + &rest));
        let servers = [1.0, 0.125].iter().enumerate().map(|(i, speed)| serve(&place, i, *speed));
        let servers = servers.collect();
        Some(Scene { place, servers })
    }

    fn steer(&self) -> Process {
        let command = &mut binary(&["run"], &self.place.path("plimsoll.yaml"));
        self.place.start("lb", command, "run.log")
    }

    fn clients(&self) -> Clients {
        let spec = ClientSpec {
            sessions: Sessions::Open { connections_per_s: RATE },
            requests: 1,
            path: "/work".to_owned(),
            ..ClientSpec::new(self.place.site.vip)
        };
        Clients::start(&self.place.site.net.namespace("cli").expect("there"), spec)
            .expect("clients")
    }

    fn weights(&self) -> Vec<u64> {
        each(&self.place.status(), "weight")
    }

    /// Of so many new connections, how many each server got.
    fn next(&self, count: u64) -> Vec<u64> {
        let begun = || each(&self.place.status(), "new_connections");
        let before = begun();
        let mut now = before.clone();
        until("new connections", || {
            now = begun();
            now.iter().sum::<u64>() >= before.iter().sum::<u64>() + count
        });
        now.iter().zip(&before).map(|(now, before)| now - before).collect()
    }
}

/// An emulated server, of one core that takes 5 ms for a request at speed 1.
fn serve(place: &Place, index: usize, speed: f64) -> Testbed {
    let name = &place.site.servers[index];
    let service = Service::exponential(Duration::from_millis(5));
    let listen = "0.0.0.0:80".parse().expect("an address");
    let backend = BackendSpec { listen, speed, ..BackendSpec::new(name.clone(), service) };
    let spec = TestbedSpec { admin: None, backends: vec![backend] };
    place.site.net.inside(name, || Testbed::start(spec)).expect("entered").expect("a server")
}

fn by_controller(scene: &Scene) -> bool {
    scene.place.status()["weights"]["set_by"] == "controller"
}

#[test]
fn new_connections_follow_what_was_learned_and_outlive_everybody() {
    let Some(scene) = Scene::new("weighted_round_robin") else { return };
    let balancer = scene.place.balance();
    let controller = scene.steer();
    let clients = scene.clients();
    let learned = until("weights to follow the speeds", || {
        let w = scene.weights();
        by_controller(&scene) && w[2] * 3 < w[0].min(w[1])
    });
    eprintln!("learned in {learned:?}: {:?}", scene.weights());
    let got = scene.next(300);
    assert!(got[2] * 2 < got[0].min(got[1]), "{got:?} by {:?}", scene.weights());
    let status = scene.place.status();
    let who = status["weights"]["who"].as_str().expect("a name");
    assert!(who.starts_with("plimsoll run") && status["weights"]["epoch"].as_u64() >= Some(1));

    // A server that refuses gets no new connection once that was noticed, and comes back.
    assert!(scene.weights()[0] > 0, "{:?}", scene.weights());
    let dead = Change { mode: Some(Mode::Refuse), ..Change::default() };
    scene.servers[0].set("s1", dead).expect("set");
    let noticed = until("the dead server to be drained", || scene.weights()[0] == 0);
    eprintln!("drained in {noticed:?}");
    let got = scene.next(100);
    assert_eq!(got[0], 0, "{got:?}");
    let well = Change { mode: Some(Mode::Normal), ..Change::default() };
    scene.servers[0].set("s1", well).expect("set");
    until("it to be back", || scene.weights()[0] > 0);

    // Without the controller, and then with another daemon, the last weights stay.
    drop(controller);
    let last = scene.weights();
    let got = scene.next(100);
    assert!(got[2] * 2 < got.iter().sum(), "{got:?} by {last:?}");
    assert_eq!(scene.weights(), last);
    drop(balancer);
    scene.next(50);
    let balancer = scene.place.balance();
    assert_eq!(scene.weights(), last);
    assert!(by_controller(&scene));

    // A balancer that knows nothing any more gets its weights again, by a controller that remembers.
    let _controller = scene.steer();
    until("a plan of the new controller", || {
        scene.place.log("run.log").matches("started").count() == 2
    });
    drop(balancer);
    assert!(scene.place.run("lb", &["l4", "detach"], "l4.yaml").status.success());
    let _balancer = scene.place.balance();
    until("the weights to be back", || {
        let w = scene.weights();
        by_controller(&scene) && w[2] * 2 < w[0].min(w[1])
    });
    drop(clients);
}

#[test]
fn the_guide_leads_to_learned_weights() {
    let Some(scene) = Scene::of_the_guide() else { return };
    let _balancer = scene.place.balance();
    let _controller = scene.steer();
    let _clients = scene.clients();
    until("weights to follow the speeds", || {
        let w = scene.weights();
        by_controller(&scene) && w[1] * 3 < w[0]
    });
}

#[test]
fn least_connections_are_steered_by_what_is_open() {
    let Some(scene) = Scene::new("least_connections") else { return };
    let _balancer = scene.place.balance();
    let _controller = scene.steer();
    let clients = scene.clients();
    until("weights to follow the speeds", || {
        let w = scene.weights();
        by_controller(&scene) && w[2] * 2 < w[0].min(w[1])
    });
    let got = scene.next(200);
    assert!(got[2] * 2 < got[0].min(got[1]), "{got:?} by {:?}", scene.weights());
    drop(clients);
}
