//! The example of docs/prometheus.md, from start to finish, with a real Prometheus that scrapes a real HAProxy.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::rig::guide::{START_TO_FINISH, block, with_servers};
use crate::rig::{Daemon, Rig, arg, free_address, out, plimsoll, until, until_within};

const GUIDE: &str = include_str!("../../../../docs/prometheus.md");
const PROGRAM: &str = "/usr/bin/prometheus";
const LEARNED_WITHIN: Duration = Duration::from_secs(120);

struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(dir: &Path, config: &str, address: SocketAddr) -> Prometheus {
    let file = dir.join("prometheus.yml");
    std::fs::write(&file, config).expect("written");
    let child = Command::new(PROGRAM)
        .arg(format!("--config.file={}", arg(&file)))
        .arg(format!("--storage.tsdb.path={}", arg(&dir.join("tsdb"))))
        .arg(format!("--web.listen-address={address}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let prometheus = Prometheus(child.expect("start Prometheus"));
    until_within(Duration::from_secs(60), "Prometheus to listen", || {
        TcpStream::connect(address).is_ok()
    });
    prometheus
}

#[test]
fn the_guide_leads_from_a_prometheus_to_learned_weights_that_stay_without_it() {
    if !Path::new(PROGRAM).is_file() {
        eprintln!("skipped: no Prometheus: `apt-get install prometheus`");
        return;
    }
    let mut rig = Rig::new("roundrobin", &[1.0, 4.0]);
    let (exporter, address) = (free_address(), free_address());
    rig.haproxy.extend(
        &block(GUIDE, START_TO_FINISH, "haproxy").replace("127.0.0.1:8405", &exporter.to_string()),
    );
    let scrapes = block(GUIDE, START_TO_FINISH, "prometheus")
        .replace("127.0.0.1:8405", &exporter.to_string());
    let prometheus = start(rig.dir.path(), &scrapes, address);

    let text = block(GUIDE, START_TO_FINISH, "yaml")
        .replace("/run/haproxy/admin.sock", arg(&rig.haproxy.socket("admin")))
        .replace("127.0.0.1:9090", &address.to_string());
    let mut text = with_servers(text, &rig.bed);
    text.push_str(&format!(
        "\nstore: {{ path: {} }}\napi: {{ listen: \"{}\" }}\n",
        rig.path("state").display(),
        rig.api
    ));
    let file = rig.path("plimsoll.yaml");
    std::fs::write(&file, text).expect("written");
    let _clients = rig.clients(300.0);
    until_within(LEARNED_WITHIN, "both queries to tell of both servers", || {
        let said = out(&plimsoll(&["doctor", "--config", arg(&file)]));
        ["rate tells of 2 of 2 servers", "in_flight tells of 2 of 2 servers"]
            .iter()
            .all(|line| said.contains(line))
    });
    let mut daemon = Daemon::spawn(&file, rig.api, &rig.path("log"), &[]);
    daemon.wait_until_it_answers();
    until_within(LEARNED_WITHIN, "the faster one to have more", || {
        let [slow, fast] = ["s1", "s2"].map(|name| rig.weight(name));
        slow > 0 && fast > 2 * slow
    });

    // Without Prometheus nothing is learned, weights stay, and a server that dies is taken out all the same.
    drop(prometheus);
    until_within(LEARNED_WITHIN, "it to be missed", || daemon.log().contains("cannot connect"));
    // What it knew counts for three intervals of a second.
    until("its silence to be shown", || daemon.trouble().contains("tells no rates"));
    assert_eq!(daemon.http("/readyz").0, 503);
    let before = ["s1", "s2"].map(|name| rig.weight(name));
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(["s1", "s2"].map(|name| rig.weight(name)), before);
    rig.set_mode("s1", plimsoll_testbed::Mode::Refuse);
    until("the dead one to get nothing", || rig.weight("s1") == 0 && rig.weight("s2") > 0);
    let said = plimsoll(&["doctor", "--config", arg(&file)]);
    assert!(out(&said).contains("cannot connect"), "{}", out(&said));
    assert!(daemon.is_running());
}
