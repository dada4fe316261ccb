//! The example of docs/nginx.md, from start to finish, on a real NGINX.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_testbed::load::{LoadSpec, Target, start};
use plimsoll_testbed::{Testbed, TestbedSpec};

use crate::rig::{Daemon, arg, emulated, err, free_address, out, plimsoll, until};

const GUIDE: &str = include_str!("../../../../docs/nginx.md");
const PROGRAM: &str = "/usr/sbin/nginx";
const MODULES: &str = "/usr/lib/nginx/modules";

/// The first block of this language in the guide, without its indentation.
fn block(language: &str) -> String {
    let (_, rest) = GUIDE.split_once(&format!("```{language}\n")).expect("a block");
    let (text, _) = rest.split_once("```").expect("its end");
    text.lines().map(|line| line.strip_prefix("   ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

fn run(dir: &Path, server: &str, address: SocketAddr) -> Nginx {
    let at = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
        .concat();
    let text = format!(
        "load_module {MODULES}/ndk_http_module.so;\nload_module {MODULES}/ngx_http_lua_module.so;\n\
         worker_processes 2;\ndaemon off;\npid {at}/pid;\nerror_log {at}/error.log;\n\
         events {{ worker_connections 1024; }}\nhttp {{\naccess_log off;\n{temporary}include {at}/plimsoll.conf;\n\
         {server}\n}}\n"
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
    let mut text = block("yaml").replace("/run/plimsoll/nginx.sock", arg(&socket));
    for (example, (_, real)) in ["10.0.0.11:8080", "10.0.0.12:8080"].iter().zip(bed.addresses()) {
        assert!(text.contains(example), "{text}");
        text = text.replace(example, &real.to_string());
    }
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
    let server = block("nginx").replace("listen 80;", &format!("listen {address};"));
    let _nginx = run(dir.path(), &server, address);
    let doctor = plimsoll(&["doctor", "--config", arg(&file)]);
    assert!(doctor.status.success(), "{}", out(&doctor));
    assert!(out(&doctor).contains("`roundrobin`: weights split the traffic"), "{}", out(&doctor));

    let target = Target::resolve(&format!("http://{address}/work")).expect("a URL");
    let _clients =
        start(LoadSpec::poisson(target, 300.0, Duration::from_secs(600))).expect("clients");
    let mut daemon = Daemon::spawn(&file, api, &dir.path().join("log"), &[]);
    daemon.wait_until_it_answers();
    let weight = |name: &str| daemon.backend(name)["programmed"].as_u64().unwrap_or(0);
    until("the faster one to have more", || weight("s2") > 2 * weight("s1") && weight("s1") > 0);
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
