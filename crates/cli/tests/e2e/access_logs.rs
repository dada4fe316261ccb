//! The example of docs/access-logs.md, from start to finish, with a real HAProxy that sends its log.

use std::time::Duration;

use plimsoll_testbed::load::{LoadSpec, Target, start};

use crate::rig::guide::{START_TO_FINISH, block, with_servers};
use crate::rig::{Daemon, Rig, arg, free_address, out, plimsoll, until_within};

const GUIDE: &str = include_str!("../../../../docs/access-logs.md");

#[test]
fn the_guide_leads_from_a_log_to_learned_weights() {
    let mut rig = Rig::new("roundrobin", &[1.0, 4.0]);
    let (web, log) = (free_address(), free_address().to_string());
    let own = |text: String| text.replace("127.0.0.1:5514", &log);
    let frontend = own(block(GUIDE, START_TO_FINISH, "haproxy"));
    assert!(frontend.contains("bind :80\n"), "{frontend}");
    rig.haproxy.extend(&format!("{}\n", frontend.replace("bind :80", &format!("bind {web}"))));
    let socket = rig.haproxy.socket("admin");
    let text =
        own(block(GUIDE, START_TO_FINISH, "yaml")).replace("/run/haproxy/admin.sock", arg(&socket));
    let rest = format!(
        "\nstore: {{ path: {} }}\napi: {{ listen: \"{}\" }}\n",
        rig.path("state").display(),
        rig.api
    );
    let file = rig.path("plimsoll.yaml");
    std::fs::write(&file, with_servers(text, &rig.bed) + &rest).expect("written");
    let doctor = plimsoll(&["doctor", "--config", arg(&file)]);
    assert!(doctor.status.success(), "{}", out(&doctor));

    let target = Target::resolve(&format!("http://{web}/work")).expect("a URL");
    let _clients =
        start(LoadSpec::poisson(target, 300.0, Duration::from_secs(600))).expect("clients");
    let mut daemon = Daemon::spawn(&file, rig.api, &rig.path("log"), &[]);
    daemon.wait_until_it_answers();
    until_within(Duration::from_secs(60), "the faster one to have more", || {
        let [slow, fast] = ["s1", "s2"].map(|name| rig.weight(name));
        slow > 0 && fast > 2 * slow
    });
}
