//! The examples of docs/nginx.md, from start to finish, on a real NGINX.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_testbed::load::{LoadSpec, Target, start};
use plimsoll_testbed::{Testbed, TestbedSpec};

use crate::rig::guide::{START_TO_FINISH, block, with_servers};
use crate::rig::{
    Daemon, PATIENCE, arg, emulated, err, free_address, out, plimsoll, until, until_within,
};

const GUIDE: &str = include_str!("../../../../docs/nginx.md");
const PROGRAM: &str = "/usr/sbin/nginx";
const MODULES: &str = "/usr/lib/nginx/modules";

const WITHOUT_LUA: &str = "## Without Lua";

struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

/// Starts one with these lines before its `http`, and in it.
fn run(dir: &Path, modules: &str, http: &str, address: SocketAddr) -> Nginx {
    let at = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
        .concat();
    let text = format!(
        "{modules}worker_processes 2;\ndaemon off;\npid {at}/pid;\nerror_log {at}/error.log;\n\
         events {{ worker_connections 1024; }}\nhttp {{\n{temporary}{http}\n}}\n"
    );
    let file = dir.join("nginx.conf");
    std::fs::write(&file, text).expect("written");
    let child = Command::new(PROGRAM)
        .args(["-p", arg(dir), "-c", arg(&file)])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let nginx = Nginx(child.expect("start nginx"));
    until("nginx to answer", || TcpStream::connect(address).is_ok());
    nginx
}

#[test]
fn the_guide_leads_from_an_nginx_to_learned_weights() {
    let module = PathBuf::from(MODULES).join("ngx_http_lua_module.so");
    if !module.is_file() || !Path::new(PROGRAM).is_file() {
        eprintln!(
            "skipped: no nginx with a Lua module: `apt-get install nginx-light libnginx-mod-http-lua`"
        );
        return;
    }
    let bed = Testbed::start(TestbedSpec { admin: None, backends: emulated(&[1.0, 4.0]) })
        .expect("backends");
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nginx.sock");
    let (address, api) = (free_address(), free_address());
    let file = dir.path().join("plimsoll.yaml");
    let text =
        block(GUIDE, START_TO_FINISH, "yaml").replace("/run/plimsoll/nginx.sock", arg(&socket));
    let text = with_servers(text, &bed);
    let rest = |state: &str| {
        format!(
            "\nstore: {{ path: {} }}\napi: {{ listen: \"{api}\" }}\n",
            dir.path().join(state).display()
        )
    };
    std::fs::write(&file, text + &rest("state")).expect("written");
    let snippet = plimsoll(&["nginx", "snippet", "--config", arg(&file)]);
    assert!(snippet.status.success(), "{}", err(&snippet));
    std::fs::write(dir.path().join("plimsoll.conf"), out(&snippet)).expect("written");
    let server =
        block(GUIDE, START_TO_FINISH, "nginx").replace("listen 80;", &format!("listen {address};"));
    let modules = format!(
        "load_module {MODULES}/ndk_http_module.so;\nload_module {MODULES}/ngx_http_lua_module.so;\n"
    );
    let http =
        format!("access_log off;\ninclude {}/plimsoll.conf;\n{server}", dir.path().display());
    let _nginx = run(dir.path(), &modules, &http, address);
    let doctor = plimsoll(&["doctor", "--config", arg(&file)]);
    assert!(doctor.status.success(), "{}", out(&doctor));
    assert!(out(&doctor).contains("`roundrobin`: weights split the traffic"), "{}", out(&doctor));

    let target = Target::resolve(&format!("http://{address}/work")).expect("a URL");
    let _clients =
        start(LoadSpec::poisson(target, 300.0, Duration::from_secs(600))).expect("clients");
    let mut daemon = Daemon::spawn(&file, api, &dir.path().join("log"), &[]);
    daemon.wait_until_it_answers();
    let weight = |name: &str| daemon.backend(name)["programmed"].as_u64().unwrap_or(0);
    until_within(3 * PATIENCE, "the faster one to have more", || {
        weight("s2") > 2 * weight("s1") && weight("s1") > 0
    });
    drop(daemon);

    // The same without a file, and with one that init writes.
    let written = plimsoll(&["init", "--nginx", arg(&socket)]);
    assert!(written.status.success(), "{}", err(&written));
    let text = out(&written);
    assert!(text.contains("backends: auto") && text.contains("upstream: shop"), "{text}");
    let (services, _) = text.split_once("store:").expect("a store");
    std::fs::write(&file, services.to_owned() + &rest("other")).expect("written");
    let mut daemon = Daemon::spawn(&file, api, &dir.path().join("log"), &["--observe"]);
    daemon.wait_until_it_answers();
    until("both servers", || daemon.backend("s1").is_object() && daemon.backend("s2").is_object());
}

#[test]
fn the_guide_without_lua_leads_to_learned_weights() {
    if !Path::new(PROGRAM).is_file() {
        eprintln!("skipped: no nginx: `apt-get install nginx-light`");
        return;
    }
    let bed = Testbed::start(TestbedSpec { admin: None, backends: emulated(&[1.0, 4.0]) })
        .expect("backends");
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().display();
    let (address, api, log) = (free_address(), free_address(), free_address());
    let servers = dir.path().join("shop.servers");
    let own = |text: String| {
        text.replace("/etc/nginx/shop.servers", arg(&servers))
            .replace("127.0.0.1:5514", &log.to_string())
    };
    let lines: String =
        bed.addresses().iter().map(|(_, at)| format!("server {at} weight=100;\n")).collect();
    std::fs::write(&servers, lines).expect("written");
    let server = format!("server {{ listen {address}; location / {{ proxy_pass http://shop; }} }}");
    let http = format!("{}\n{server}", own(block(GUIDE, WITHOUT_LUA, "nginx")));
    let _nginx = run(dir.path(), "", &http, address);

    // What is not where Debian has it, and a test that need not wait.
    let here = format!(
        "shop.servers, pid: {at}/pid, command: [ {PROGRAM}, -p, {at}, -c, {at}/nginx.conf ], min_interval: 2s"
    );
    let rest = format!("\nstore: {{ path: {at}/state }}\napi: {{ listen: \"{api}\" }}\n");
    let text = with_servers(own(block(GUIDE, WITHOUT_LUA, "yaml")), &bed);
    let text = text.replace("shop.servers, min_interval: 2m", &here) + &rest;
    let file = dir.path().join("plimsoll.yaml");
    std::fs::write(&file, &text).expect("written");
    let doctor = plimsoll(&["doctor", "--config", arg(&file)]);
    assert!(doctor.status.success(), "{}\n{text}", out(&doctor));

    let target = Target::resolve(&format!("http://{address}/work")).expect("a URL");
    let _clients =
        start(LoadSpec::poisson(target, 200.0, Duration::from_secs(600))).expect("clients");
    let mut daemon = Daemon::spawn(&file, api, &dir.path().join("log"), &[]);
    daemon.wait_until_it_answers();
    let [slow, fast] = [0, 1].map(|i| bed.addresses()[i].1.to_string());
    let weight = |name: &str| daemon.backend(name)["programmed"].as_u64().unwrap_or(0);
    // A reload each time, and a log that is a second late.
    let patience = Duration::from_secs(60);
    until_within(patience, "the faster one to have more", || weight(&fast) > 2 * weight(&slow));
    until("NGINX's file to say so", || {
        let text = std::fs::read_to_string(&servers).unwrap_or_default();
        text.contains(&format!("server {fast} weight={};", weight(&fast)))
    });
    drop(daemon);

    let written = plimsoll(&["init", "--nginx-reload", arg(&servers)]);
    let found = out(&written);
    assert!(found.contains("name: shop.servers") && found.contains("backends: auto"), "{found}");
    std::fs::write(&file, &found).expect("written");
    assert!(plimsoll(&["check", "--config", arg(&file)]).status.success(), "{found}");
}
