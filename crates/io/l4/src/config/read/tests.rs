use plimsoll_config::Document;

use super::*;

const GOOD: &str = r#"
l4:
  interfaces: [ { name: eth0, mode: native } ]
  vips:
    - name: shop
      address: "10.0.9.9:80"
      protocol: tcp
      mode: stateless
      policy: round_robin
      forwarding: direct
      backends: [ { name: s1, address: "10.0.2.2", mac: "02:00:00:00:02:02" } ]
"#;

fn read(text: &str) -> Result<L4Config, Vec<String>> {
    read_section(text).map(|section| section.balancer)
}

fn read_section(text: &str) -> Result<Section, Vec<String>> {
    let section =
        |top: &Cursor<'_>| top.fields(&["l4"])?.required("l4", "a mapping", Section::read);
    let read = Document::parse("f.yaml", text).and_then(|written| written.read(section));
    read.map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[test]
fn the_shortest_configuration_is_read_with_its_defaults() {
    let config = read(GOOD).expect("good");
    assert_eq!(config.vips[0].backends[0].mac, Some([2, 0, 0, 0, 2, 2]));
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.pin_dir, PathBuf::from(PIN_DIR));
    assert_eq!(config.cookie.layout.version_bits(), 4);
}

#[test]
fn a_newcomer_is_spared_unless_the_configuration_says_otherwise() {
    let least = GOOD.replace("round_robin", "least_connections");
    let slow_start = |text: &str| read(text).expect("good").vips[0].slow_start;
    assert_eq!(slow_start(&least), Duration::from_secs(10));
    assert_eq!(slow_start(&least.replace("forwarding: direct", "slow_start: 0s")), Duration::ZERO);
    let two = least.replace("forwarding: direct", "slow_start: 2s");
    assert_eq!(slow_start(&two), Duration::from_secs(2));
}

#[test]
fn all_problems_are_reported_at_once_with_their_places() {
    let text = GOOD
        .replace("mode: native", "mode: fast")
        .replace("tcp", "sctp")
        .replace("10.0.9.9:80", "10.0.9.9")
        .replace("02:00:00:00:02:02", "01:00:00:00:02:02");
    let errors = read(&text).expect_err("four problems");
    let expected = [
        "f.yaml:3:37: l4.interfaces[0].mode: expected native or generic",
        "f.yaml:6:16: l4.vips[0].address: expected an IP address and a port",
        "f.yaml:7:17: l4.vips[0].protocol: expected tcp",
        "f.yaml:11:57: l4.vips[0].backends[0].mac: expected a MAC address",
    ];
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, start) in errors.iter().zip(expected) {
        assert!(error.starts_with(start), "{errors:#?}");
    }
}

#[test]
fn what_is_given_twice_or_does_not_fit_together_is_refused() {
    let second = "\n    - { name: b, address: \"10.0.9.9:80\", backends: [ { name: s, address: 10.0.2.3 } ] }\n";
    let cases = [
        (
            format!("{GOOD}{}", second.trim_start_matches('\n')),
            "an address that no other service has",
        ),
        (
            GOOD.replace("02:02\" }", "02:02\" }, { name: s1, address: 10.0.2.3 }"),
            "l4.vips[0].backends[1].name: expected a name that no other server has",
        ),
        (
            GOOD.replace("02:02\" }", "02:02\" }, { name: s2, address: 10.0.2.2 }"),
            "l4.vips[0].backends[1].address: expected an address that no other server has",
        ),
        (
            GOOD.replace(
                "02:02\" }",
                "02:02\" }, { name: s2, address: 10.0.2.3, mac: \"02:00:00:00:02:02\" }",
            ),
            "l4.vips[0].backends[1].mac: expected a MAC address that no other server has (this one stands on line 11)",
        ),
        (
            GOOD.replace("10.0.2.2", "10.0.9.9"),
            "l4.vips[0].backends[0].address: expected the server's own",
        ),
        (GOOD.replace("\"10.0.2.2\"", "\"fd00::2\""), "an address of the family"),
        (format!("{GOOD}  limits: {{ backends: 5000 }}\n"), "at most 2047"),
        (
            GOOD.replace("forwarding: direct", "slow_start: 5s"),
            "f.yaml:10:19: l4.vips[0].slow_start: expected no slow_start but beside policy: least_connections",
        ),
        (
            GOOD.replace("round_robin", "least_connections")
                .replace("forwarding: direct", "slow_start: 2h"),
            "l4.vips[0].slow_start: expected a time from 0s to 1h",
        ),
        (
            GOOD.replace("round_robin", "least_connections")
                .replace("forwarding: direct", "slow_start: 1s"),
            "f.yaml:10:19: l4.vips[0].slow_start: expected 0s, or a time from 2s to 1h",
        ),
        (format!("{GOOD}  limits: {{ clients: 0 }}\n"), "from 1 to 262144"),
        (format!("{GOOD}  uplink: never\n"), "auto or ask"),
        (format!("{GOOD}  pin_dir: /sys/fs/bpf/\n"), "a directory of its own in a bpffs"),
        (format!("{GOOD}  uplink: {{ interface: eth7, gateway: 10.0.0.1 }}\n"), "l4.uplink"),
        (format!("{GOOD}  cookie: {{ rotate: 60s }}\n"), "a time from 1048.576s"),
    ];
    for (text, says) in cases {
        let errors = read(&text).expect_err(says);
        assert!(errors.iter().any(|error| error.contains(says)), "{says}: {errors:#?}");
    }
}

#[test]
fn an_address_is_one_machines() {
    for none in ["0.0.0.0", "127.0.0.1", "224.0.0.9", "255.255.255.255"] {
        let errors = read(&GOOD.replace("10.0.9.9", none)).expect_err(none);
        let start = "f.yaml:6:16: l4.vips[0].address: expected an address that one machine";
        assert!(errors.len() == 1 && errors[0].starts_with(start), "{none}: {errors:#?}");
        let errors = read(&GOOD.replace("10.0.2.2", none)).expect_err(none);
        let start = "f.yaml:11:40: l4.vips[0].backends[0].address: expected an address that one";
        assert!(errors.len() == 1 && errors[0].starts_with(start), "{none}: {errors:#?}");
    }
    let six = GOOD.replace("10.0.2.2", "fd00:2::2");
    assert!(read(&six.replace("10.0.9.9", "[fd00:9::9]")).is_ok());
    for none in ["[::]", "[::1]", "[ff02::9]", "[::ffff:10.0.9.9]"] {
        let errors = read(&six.replace("10.0.9.9", none)).expect_err(none);
        assert!(errors[0].contains("an address that one machine"), "{none}: {errors:#?}");
    }
}

const FOLLOWS: &str = r#"
l4:
  interfaces: [ { name: eth0 } ]
  socket: { path: /run/plimsoll/l4.sock, mode: "0660" }
  agent: { listen: "0.0.0.0:7402" }
  vips:
    - name: shop
      address: "10.0.9.9:80"
      policy: awrr
      load: cpu
      backends: [ { name: s1, id: 1, agent: true, address: "10.0.2.2" } ]
"#;

#[test]
fn socket_and_load_mean_what_they_say() {
    let section = read_section(FOLLOWS).expect("good");
    let path = PathBuf::from("/run/plimsoll/l4.sock");
    assert_eq!(section.socket, Some(Socket { path, mode: 0o660 }));
    assert_eq!(section.balancer.vips[0].policy, Policy::Awrr(Load::Cpu));
    let plain = read_section(&FOLLOWS.replace(", mode: \"0660\"", "").replace("load: cpu", ""));
    let plain = plain.expect("good");
    assert_eq!(plain.socket.map(|socket| socket.mode), Some(0o600));
    assert_eq!(plain.balancer.vips[0].policy, Policy::Awrr(Load::Connections));
    assert_eq!(read_section(GOOD).expect("good").socket, None);
}

#[test]
fn an_impossible_socket_or_load_is_reported_with_its_place() {
    for (good, bad, start) in [
        ("\"0660\"", "\"0666\"", "f.yaml:4:48: l4.socket.mode: expected permissions such as"),
        ("\"0660\"", "\"0060\"", "f.yaml:4:48: l4.socket.mode: expected permissions such as"),
        ("\"0660\"", "\"+660\"", "f.yaml:4:48: l4.socket.mode: expected permissions such as"),
        ("\"0660\"", "432", "f.yaml:4:48: l4.socket.mode: expected"),
        ("path: /run/plimsoll/l4.sock, ", "", "f.yaml:4:11: l4.socket.path: missing"),
        ("mode:", "user:", "f.yaml:4:42: l4.socket.user: unknown key"),
        ("load: cpu", "load: memory", "f.yaml:10:13: l4.vips[0].load: expected connections or cpu"),
        ("policy: awrr", "policy: maglev", "f.yaml:10:13: l4.vips[0].load: expected no load"),
        ("0.0.0.0:7402", "127.0.0.1:7402", "f.yaml:7:7: l4.vips[0]: expected l4.agent.listen to"),
        ("listen:", "interfaces: [ e0 ] } #", "f.yaml:7:7: l4.vips[0]: expected l4.agent.listen"),
        ("agent: true", "agent: false", "f.yaml:7:7: l4.vips[0]: expected agent: true of every"),
    ] {
        assert!(FOLLOWS.contains(good), "{good}");
        let errors = read(&FOLLOWS.replacen(good, bad, 1)).expect_err(bad);
        assert!(errors.len() == 1 && errors[0].starts_with(start), "{bad}: {errors:#?}");
    }
    let both = FOLLOWS.replace("0660", "0666").replace("load: cpu", "load: memory");
    assert_eq!(read(&both).expect_err("two").len(), 2, "all at once");
}

#[test]
fn one_problem_hides_no_other() {
    let text = GOOD
        .replace("policy: round_robin", "slow_start: 1s\n      policy: least_connections")
        .replace(
            "02:02\" }",
            "02:02\", weight: 70000, state: drain }, { name: s1, address: \"10.0.9.9\", id: 0 }",
        );
    let text = format!(
        "{text}  cookie: {{ version_bits: 9, rotate: 1s }}\n  limits: {{ backends: 5000 }}\n"
    );
    let errors = read(&text).expect_err("eight problems");
    for key in [
        "cookie.version_bits",
        "cookie.rotate",
        "slow_start",
        "backends[0].weight",
        "backends[0].state",
        "backends[1].name",
        "backends[1].address",
        "backends[1].id",
    ] {
        assert!(
            errors.iter().any(|error| error.contains(&format!("{key}: expected"))),
            "{key}: {errors:#?}"
        );
    }
}

#[test]
fn metrics_are_served_where_it_is_said_and_nowhere_else() {
    assert_eq!(read_section(GOOD).expect("good").metrics, None);
    let with = |metrics: &str| read_section(&format!("{GOOD}  metrics: {metrics}\n"));
    let section = with("{ listen: \"[::]:7401\" }").expect("good");
    assert_eq!(section.metrics, "[::]:7401".parse().ok());
    for (bad, start) in [
        (
            "{ listen: \"7401\" }",
            "f.yaml:12:22: l4.metrics.listen: expected an IP address and a port",
        ),
        ("{ listen: \"0.0.0.0:0\" }", "f.yaml:12:22: l4.metrics.listen: expected an IP address"),
        ("{ listen: \"lb1:7401\" }", "f.yaml:12:22: l4.metrics.listen: expected an IP address"),
        ("{ port: 7401 }", "f.yaml:12:14: l4.metrics.port: unknown key"),
        ("{ }", "f.yaml:12:12: l4.metrics.listen: missing"),
        ("true", "f.yaml:12:12: l4.metrics: expected"),
    ] {
        let errors = with(bad).expect_err(bad);
        assert!(errors.iter().any(|error| error.starts_with(start)), "{bad}: {errors:#?}");
    }
}
