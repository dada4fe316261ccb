//! The example of docs/proxy.md with a controller, from start to finish.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_testbed::load::{LoadSpec, Target, start};
use plimsoll_testbed::{Testbed, TestbedSpec};

use crate::rig::guide::{block, with_servers};
use crate::rig::{
    Daemon, PATIENCE, arg, emulated, free_address, out, plimsoll, until, until_within,
};

const GUIDE: &str = include_str!("../../../../docs/proxy.md");

struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn binary(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn without_a_file(socket: &Path, store: &Path, api: SocketAddr) -> Daemon {
    let listen = api.to_string();
    let place = ["run", "--proxy", arg(socket), "--store", arg(store), "--listen", &listen];
    let log = store.with_extension("log");
    std::fs::write(&log, "").expect("a log");
    Daemon::start_as_it_is(&mut binary(&place), api, &log)
}

#[test]
fn the_guide_leads_from_a_proxy_to_learned_weights_with_and_without_a_file() {
    let bed = Testbed::start(TestbedSpec { admin: None, backends: emulated(&[1.0, 4.0]) })
        .expect("backends");
    let dir = tempfile::tempdir().expect("a directory");
    let (address, api) = (free_address(), free_address());
    let socket = dir.path().join("proxy.sock");
    let text = block(GUIDE, "## Weights from a controller", "yaml")
        .replace("/run/plimsoll/proxy.sock", arg(&socket))
        .replace("127.0.0.1:8080", &address.to_string());
    let mut text = with_servers(text, &bed);
    let state = dir.path().join("state");
    text += &format!("\nstore: {{ path: {} }}\napi: {{ listen: \"{api}\" }}\n", state.display());
    let file = dir.path().join("plimsoll.yaml");
    std::fs::write(&file, text).expect("written");

    let proxy = binary(&["proxy", "run", "--config", arg(&file)]).spawn();
    let _proxy = Proxy(proxy.expect("start the proxy"));
    until("the proxy to answer", || TcpStream::connect(address).is_ok() && socket.exists());
    let doctor = plimsoll(&["doctor", "--config", arg(&file)]);
    assert!(doctor.status.success(), "{}", out(&doctor));
    assert!(out(&doctor).contains("the proxy answers"), "{}", out(&doctor));

    let target = Target::resolve(&format!("http://{address}/work")).expect("a URL");
    let _clients =
        start(LoadSpec::poisson(target, 300.0, Duration::from_secs(600))).expect("clients");
    let weight = |daemon: &Daemon, name| daemon.backend(name)["programmed"].as_u64().unwrap_or(0);
    let is_learned = |daemon: &Daemon| weight(daemon, "b2") > 2 * weight(daemon, "b1");
    let mut daemon = Daemon::spawn(&file, api, &dir.path().join("log"), &[]);
    daemon.wait_until_it_answers();
    until_within(3 * PATIENCE, "the faster one to have more", || is_learned(&daemon));
    drop(daemon);

    let released = plimsoll(&["proxy", "release", "--config", arg(&file), "shop"]);
    assert!(released.status.success(), "{released:?}");
    let mut daemon = without_a_file(&socket, &dir.path().join("other"), api);
    daemon.wait_until_it_answers();
    let what = "the faster one to have more without a file";
    until_within(3 * PATIENCE, what, || is_learned(&daemon));
}
