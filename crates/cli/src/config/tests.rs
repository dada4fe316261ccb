//! The configuration as a whole: what is accepted, what is meant by it, and what is said of the rest.

mod mutations;
mod sinks;
mod source;

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_control::CurveChoice;
use plimsoll_model::Objective;
use plimsoll_probe::{Connection, ProbeSpec, Scheme, TlsSpec};
use plimsoll_sink::{Poll, Sink, SocketAddress};

use super::*;

/// Every key there is.
const FULL: &str = r#"
services:
  - name: shop
    backends:
      - { name: s1, address: "127.0.0.1:9001" }
      - { name: s2, address: "[::1]:9001" }
      - name: s3
        address: shop-3.example:80
    probe:
      path: /work?n=1
      timeout: 2s
      interval: 50ms
      requests: 20
      scheme: https
      method: POST
      host: shop.example
      headers: { X-Probe: "1", Accept: "*/*" }
      body: "{}"
      expect: { status: [200, 202-204], body: "fine" }
      connection: new
      jitter: 0
      max_body: 1024
      tls: { ca: ./ca.pem, server_name: shop.example, insecure: false }
    liveness: { path: /health, interval: 100ms, requests: 3, timeout: 1s, port: 9100 }
    objective: max
    theta: 0.2
    sink: { haproxy: { socket: "127.0.0.1:9999", backend: shop, poll: 200ms, timeout: 500ms } }
    learn: { curve: isotonic, drift: off, refresh: false, latency_factor: 5, max_step: 1.5 }
    limits: { min_change: 0.05, min_interval: 2s }
store: { path: /var/lib/plimsoll/state }
api: { listen: "0.0.0.0:7400", allow_remote: true }
"#;

/// Nothing but what must be there.
/// The least that works at layer 4.
const LEAST_L4: &str = "services:
  - name: shop
    backends: [ { name: s1, address: \"10.0.2.2:80\" } ]
    probe: { path: /work }
    sink: { l4: { socket: /run/l4.sock, vip: web } }
";

/// The least that works with NGINX without Lua.
const LEAST_RELOAD: &str = "services:
  - name: shop
    backends: [ { name: s1, address: \"10.0.2.2:80\" } ]
    sink: { nginx_reload: { file: /n } }
    source: { access_log: { listen: \"127.0.0.1:5514\", format: nginx } }
";

/// The least that works with NGINX.
const LEAST_NGINX: &str = "services:
  - name: shop
    backends: [ { name: s1, address: \"10.0.2.2:80\" } ]
    sink: { nginx: { socket: /run/nginx.sock, upstream: web } }
";

const LEAST: &str = "services:
  - name: shop
    backends: [{ name: s1, address: \"127.0.0.1:9001\" }]
    probe: { path: /work }
    sink: { haproxy: { socket: /run/haproxy/admin.sock, backend: shop } }
";

fn errors(text: &str) -> Vec<String> {
    match parse("F", text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn every_key_means_what_it_says() {
    let config = parse("F", FULL).unwrap();
    let service = &config.services[0];
    let addresses: Vec<String> = service.backends.iter().map(|b| b.address.to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1:9001", "[::1]:9001", "shop-3.example:80"]);
    let probe = &service.probe.as_ref().unwrap().value;
    assert_eq!((probe.interval, probe.requests), (Some(Duration::from_millis(50)), Some(20)));
    assert_eq!(probe.jitter, 0.0);
    let expected = ProbeSpec {
        scheme: Scheme::Https,
        method: "POST".into(),
        path: "/work?n=1".into(),
        host: Some("shop.example".into()),
        headers: vec![("X-Probe".into(), "1".into()), ("Accept".into(), "*/*".into())],
        body: Some(b"{}".to_vec()),
        expect_status: "200,202-204".parse().unwrap(),
        expect_body: Some(b"fine".to_vec()),
        connection: Connection::New,
        timeout: Duration::from_secs(2),
        max_body: 1024,
        tls: Some(TlsSpec {
            ca_file: Some(PathBuf::from("./ca.pem")),
            server_name: Some("shop.example".into()),
            insecure: false,
        }),
    };
    assert_eq!(probe.request, expected);
    let liveness = &service.liveness.as_ref().unwrap().value;
    assert_eq!((liveness.port, liveness.requests), (Some(9100), 3));
    assert_eq!(liveness.request.scheme, Scheme::Https, "as the probe's");
    assert_eq!((&liveness.request.host, &liveness.request.tls), (&expected.host, &expected.tls));
    assert_eq!((liveness.request.method.as_str(), &liveness.request.body), ("GET", &None));
    assert_eq!((service.objective, service.theta), (Objective::Max, Some(0.2)));
    let Sink::Haproxy(haproxy) = service.sink.value.first() else { panic!("{:?}", service.sink) };
    assert_eq!(haproxy.socket, SocketAddress::Tcp("127.0.0.1:9999".into()));
    assert_eq!(haproxy.poll, Poll::Every(Duration::from_millis(200)));
    assert_eq!(haproxy.timeout, Duration::from_millis(500));
    assert_eq!((service.learn.curve, service.learn.max_step), (CurveChoice::Isotonic, 1.5));
    assert_eq!(service.limits.min_change, 0.05);
    assert_eq!(config.store.path, PathBuf::from("/var/lib/plimsoll/state"));
    assert_eq!(config.api.listen, "0.0.0.0:7400".parse().unwrap());
}

#[test]
fn the_rest_has_defaults() {
    let config = parse("F", LEAST).unwrap();
    let service = &config.services[0];
    assert_eq!((&service.liveness, service.theta), (&None, None));
    let probe = &service.probe.as_ref().unwrap().value;
    assert_eq!((probe.interval, probe.requests), (None, None));
    assert_eq!(probe.request.expect_status, "200-399".parse().unwrap());
    let bare = parse("F", &LEAST.replace("    probe: { path: /work }\n", "")).unwrap();
    assert_eq!(bare.services[0].probe, None, "traffic tells");
    assert_eq!(service.objective, Objective::Traffic);
    let Sink::Haproxy(haproxy) = service.sink.value.first() else { panic!("{:?}", service.sink) };
    assert_eq!(haproxy.socket, SocketAddress::Unix(PathBuf::from("/run/haproxy/admin.sock")));
    assert_eq!(haproxy.poll, Poll::ByReading);
    assert_eq!(config.store.path, PathBuf::from("./plimsoll-state"));
    assert_eq!(config.api.listen, "127.0.0.1:7400".parse().unwrap());

    let spelt_out = LEAST
        .replace("path: /work", "path: /work, timeout: 2s, jitter: 0.1, method: GET")
        + "    objective: traffic
    learn: { curve: auto, drift: sequential, refresh: true, latency_factor: 3, max_step: 2.0 }
    limits: { min_change: 0.01, min_interval: 250ms, slow_start: 10s }
store: { path: ./plimsoll-state }
api: { listen: \"127.0.0.1:7400\" }
";
    assert_eq!(parse("F", &spelt_out).unwrap(), config);
    let with_liveness = LEAST.to_owned() + "    liveness: { path: /health }\n";
    let spelt_out =
        LEAST.to_owned() + "    liveness: { path: /health, requests: 1, timeout: 1s }\n";
    assert_eq!(parse("F", &with_liveness).unwrap(), parse("F", &spelt_out).unwrap());
}

#[test]
fn the_guide_is_right() {
    let guide = include_str!("../../../../docs/configuration.md");
    let examples: Vec<&str> =
        guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 2);
    for example in &examples {
        assert_eq!(errors(example), Vec::<String>::new(), "{example}");
    }
    // Each default in the tables, written out, changes nothing; and each key in them exists.
    let shortest = parse("F", LEAST).unwrap();
    let at_layer_4 = parse("F", LEAST_L4).unwrap();
    let mut checked = 0;
    for row in guide.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let (key, default) = (cells[0].trim_matches(['|', ' ', '`']), cells[2].trim());
        let Some(default) = default.strip_prefix('`').and_then(|d| d.strip_suffix('`')) else {
            continue;
        };
        let text = match key.split_once('.') {
            Some(("probe", key)) => LEAST.replace("/work", &format!("/work, {key}: {default}")),
            Some(("haproxy", key)) => {
                LEAST.replace("backend: shop", &format!("backend: shop, {key}: {default}"))
            }
            Some((part @ ("nginx_reload" | "access_log"), key)) => {
                let before = if part == "access_log" { "format: nginx" } else { "file: /n" };
                let with = format!("{before}, {key}: {default}");
                let text = LEAST_RELOAD.replace(before, &with);
                assert_eq!(parse("F", &text), parse("F", LEAST_RELOAD), "{row}");
                assert!(parse("F", &text).is_ok(), "{row}");
                checked += 1;
                continue;
            }
            Some(("prometheus", key)) => {
                let least = source::with("");
                let text = source::with(&format!("{key}: {default}"));
                assert_eq!(parse("F", &text), parse("F", &least), "{row}");
                assert!(parse("F", &text).is_ok(), "{row}");
                checked += 1;
                continue;
            }
            Some(("nginx", key)) => {
                let with = format!("upstream: web, {key}: {default}");
                let text = LEAST_NGINX.replace("upstream: web", &with);
                assert_eq!(parse("F", &text), parse("F", LEAST_NGINX), "{row}");
                assert!(parse("F", &text).is_ok(), "{row}");
                checked += 1;
                continue;
            }
            Some(("l4", key)) => {
                let text = LEAST_L4.replace("vip: web", &format!("vip: web, {key}: {default}"));
                assert_eq!(parse("F", &text).as_ref(), Ok(&at_layer_4), "{row}");
                checked += 1;
                continue;
            }
            Some(("proxy", key)) => {
                let least = LEAST_L4.replace("l4: {", "proxy: {").replace("vip: web", "pool: web");
                let text = least.replace("pool: web", &format!("pool: web, {key}: {default}"));
                assert_eq!(parse("F", &text), parse("F", &least), "{row}");
                assert!(parse("F", &text).is_ok(), "{row}");
                checked += 1;
                continue;
            }
            Some((top @ ("store" | "api"), key)) => {
                format!("{LEAST}{top}: {{ {key}: {default} }}\n")
            }
            Some((part, key)) => format!("{LEAST}    {part}: {{ {key}: {default} }}\n"),
            None => format!("{LEAST}    {key}: {default}\n"),
        };
        assert_eq!(parse("F", &text).as_ref(), Ok(&shortest), "{row}");
        checked += 1;
    }
    assert!(checked >= 15, "{checked}");
}

/// Each defect alone: what replaces what in [`FULL`], the key, and a part of the message.
const DEFECTS: &[(&str, &str, &str, &str)] = &[
    ("name: shop\n", "nam: shop\n", "services[0].nam", "did you mean \"name\"?"),
    ("name: shop\n", "name: a b\n", "services[0].name", "letters, digits"),
    ("name: shop\n", "name: 12\n", "services[0].name", "in quotes"),
    ("name: shop\n", "name: [a]\n", "services[0].name", "found a list"),
    ("name: s2", "name: s1", "services[0].backends[1].name", "no other backend has"),
    ("name: s2", "name: \"s;2\"", "services[0].backends[1].name", "a name as balancers take it"),
    ("name: s2", "name: \"\"", "services[0].backends[1].name", "a name as balancers take it"),
    (
        "[::1]:9001",
        "127.0.0.1:9001",
        "services[0].backends[1].address",
        "(this one stands on line 5)",
    ),
    ("[::1]:9001", "::1:9001", "services[0].backends[1].address", "in brackets"),
    ("\"[::1]:9001\"", "9001", "services[0].backends[1].address", "host:port"),
    ("path: /work?n=1", "path: work", "services[0].probe.path", "begins with /"),
    ("path: /work?n=1", "path: \"/a b\"", "services[0].probe.path", "begins with /"),
    ("path: /work?n=1", "path: http://a/", "services[0].probe.path", "begins with /"),
    ("path: /work?n=1\n      ", "", "services[0].probe.path", "missing"),
    ("timeout: 2s", "timeout: 2", "services[0].probe.timeout", "with its unit"),
    ("timeout: 2s", "timeout: 0s", "services[0].probe.timeout", "from 1ms to 1h"),
    ("timeout: 2s", "timeout: -2s", "services[0].probe.timeout", "a number and a unit"),
    ("timeout: 2s", "timeout: 99999999999h", "services[0].probe.timeout", "from 1ms to 1h"),
    ("timeout: 2s", "timeout: {}", "services[0].probe.timeout", "found a mapping"),
    ("timeout: 2s", "timeout:", "services[0].probe.timeout", "found nothing"),
    ("interval: 50ms", "interval: 1ms", "services[0].probe.interval", "from 10ms to 1h"),
    ("requests: 20", "requests: 2.5", "services[0].probe.requests", "a whole number"),
    ("requests: 20", "requests: \"20\"", "services[0].probe.requests", "without quotes"),
    ("requests: 20", "requests: 99999999999999999999999", "services[0].probe.requests", "10000"),
    ("scheme: https", "scheme: ftp", "services[0].probe.scheme", "http or https"),
    ("scheme: https", "scheme: http", "services[0].probe.tls", "only with scheme: https"),
    ("method: POST", "method: post", "services[0].probe.method", "GET or HEAD or POST"),
    ("method: POST", "method: HEAD", "services[0].probe.expect", "HEAD has none"),
    ("host: shop.example", "host: a/b", "services[0].probe.host", "a host name"),
    ("X-Probe:", "X Probe:", "services[0].probe.headers.\"X Probe\"", "a header name"),
    ("X-Probe:", "content-Length:", "services[0].probe.headers.content-Length", "another header"),
    ("X-Probe:", "te:", "services[0].probe.headers.te", "another header"),
    ("\"*/*\"", "\" a\"", "services[0].probe.headers.Accept", "without spaces around it"),
    ("X-Probe:", "accept:", "services[0].probe.headers.Accept", "once"),
    ("\"*/*\"", "\"a\\r\\nb\"", "services[0].probe.headers.Accept", "visible ASCII"),
    ("202-204", "204-202", "services[0].probe.expect.status[1]", "a range"),
    ("[200, 202-204]", "[]", "services[0].probe.expect.status", "at least one"),
    ("[200, 202-204]", "600", "services[0].probe.expect.status", "from 200 to 599"),
    ("[200, 202-204]", "100", "services[0].probe.expect.status", "from 200 to 599"),
    ("body: \"fine\"", "body: \"\"", "services[0].probe.expect.body", "occur in the body"),
    ("connection: new", "connection: close", "services[0].probe.connection", "keep or new"),
    ("jitter: 0", "jitter: 1.1", "services[0].probe.jitter", "from 0 to 1"),
    ("jitter: 0", "jitter: .nan", "services[0].probe.jitter", "from 0 to 1"),
    ("max_body: 1024", "max_body: -1", "services[0].probe.max_body", "a whole number"),
    ("insecure: false", "insecure: no", "services[0].probe.tls.insecure", "true or false"),
    (
        "server_name: shop.example",
        "server_name: a:1",
        "services[0].probe.tls.server_name",
        "host name",
    ),
    ("requests: 3", "requests: 17", "services[0].liveness.requests", "from 1 to 16"),
    ("timeout: 1s", "timeout: 61s", "services[0].liveness.timeout", "from 1ms to 60s"),
    (
        "100ms, requests: 3, timeout: 1s",
        "10ms, timeout: 11s",
        "services[0].liveness.timeout",
        "1000",
    ),
    ("port: 9100", "port: 65536", "services[0].liveness.port", "65535"),
    ("objective: max", "objective: min", "services[0].objective", "traffic or sum or max"),
    ("theta: 0.2", "theta: -0.2", "services[0].theta", "from 0 to 1"),
    ("theta: 0.2", "theta: 0.2\n    theta: 0.3", "services[0].theta", "first on line 26"),
    ("haproxy:", "envoy:", "services[0].sink.envoy", "expected one of haproxy"),
    ("127.0.0.1:9999", "127.0.0.1:0", "services[0].sink.haproxy.socket", "a port from 1"),
    ("127.0.0.1:9999", "", "services[0].sink.haproxy.socket", "1 to 107 bytes"),
    ("backend: shop,", "backend: \"shop; quit\",", "services[0].sink.haproxy.backend", "HAProxy"),
    ("poll: 200ms", "poll: 201ms", "services[0].sink.haproxy.poll", "from 10ms to 200ms"),
    ("curve: isotonic", "curve: poly2", "services[0].learn.curve", "auto or hyperbola"),
    ("latency_factor: 5", "latency_factor: 0.9", "services[0].learn.latency_factor", "from 1"),
    ("drift: off", "drift: literal", "services[0].learn.drift", "sequential or off"),
    ("refresh: false", "refresh: 7", "services[0].learn.refresh", "true"),
    ("refresh: false", "exploration: packed", "services[0].learn.exploration", "curve"),
    ("max_step: 1.5", "max_step: 1", "services[0].learn.max_step", "from 1.01"),
    ("min_change: 0.05", "min_change: 5%", "services[0].limits.min_change", "a number"),
    ("min_interval: 2s", "min_interval: soon", "services[0].limits.min_interval", "a unit"),
    ("/var/lib/plimsoll/state", "\"\"", "store.path", "a file"),
    ("{ path: /var/lib/plimsoll/state }", "/var/lib", "store", "a mapping with path"),
    ("0.0.0.0:7400\"", "0.0.0.0\"", "api.listen", "and a port"),
    ("allow_remote: true", "allow_remote: false", "api.listen", "loopback"),
    (", allow_remote: true", "", "api.listen", "loopback"),
    ("store:", "stores:", "stores", "did you mean \"store\"?"),
    ("path: /var", "path: *x, y: &x /var", "yaml", "anchor"),
    ("path: /var", "path: !!str /var", "store.path", "a tag"),
    ("path: /work?n=1", "path: /work\n     requests: 3", "yaml", "not valid YAML"),
];

#[test]
fn every_defect_is_found_alone_and_in_its_place() {
    assert_eq!(errors(FULL), Vec::<String>::new());
    for (good, bad, key, part) in DEFECTS {
        assert!(FULL.contains(good), "{good}");
        let broken = FULL.replacen(good, bad, 1);
        let found = parse("F", &broken).unwrap_err();
        assert!(
            found.iter().any(|e| e.key == *key && e.message.contains(part)),
            "{bad}: {found:?}"
        );
        // `envoy:` for `haproxy:` is an unknown key and a missing one; all others are one problem.
        assert!(found.len() == 1 || *bad == "envoy:", "{bad}: {found:?}");
        // The line of the change, or for what is missing or clashes, one near it.
        let changed = FULL[..FULL.find(good).unwrap()].matches('\n').count() + 1;
        let line = found[0].line;
        assert!((changed..=changed + 9).contains(&line) || bad.is_empty(), "{bad}: {found:?}");
    }
}

#[test]
fn all_defects_come_at_once_in_order() {
    let mut text = FULL.to_owned();
    let mut keys: Vec<&str> = Vec::new();
    for (good, bad, key, _) in DEFECTS {
        // One defect per key, and none that hides others.
        let hides = bad.is_empty()
            || *key == "yaml"
            || bad.contains("scheme: http")
            || ["envoy:", "stores:"].contains(bad);
        if !hides && !keys.contains(key) && text.matches(good).count() == 1 && !key.contains("tls")
        {
            text = text.replacen(good, bad, 1);
            keys.push(key);
        }
    }
    let found = parse("F", &text).unwrap_err();
    assert!(keys.len() >= 25, "{}", keys.len());
    for key in keys {
        assert!(found.iter().any(|e| e.key == key), "{key} not in {found:#?}");
    }
    assert!(found.is_sorted_by_key(|e| (e.line, e.column)));
}

#[test]
fn two_services_may_not_share_a_name_or_an_haproxy_backend() {
    let second = LEAST.trim_start_matches("services:\n");
    let found = errors(&format!("{LEAST}{second}"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("F:6:11: services[1].name: expected a name that no other"));
    assert!(found[1].starts_with("F:9:66: services[1].sink.haproxy.backend: expected an HAProxy"));
    let other = second.replace("name: shop", "name: b").replace("backend: shop", "backend: b");
    assert_eq!(errors(&format!("{LEAST}{other}")), Vec::<String>::new());
}

#[test]
fn backends_may_be_left_to_the_balancer() {
    let auto = |word: &str| {
        let (head, rest) = LEAST.split_once("    backends:").expect("backends");
        let rest = &rest[rest.find("    probe").or(rest.find("    sink")).expect("the next key")..];
        format!("{head}    backends: {word}\n{rest}")
    };
    let service = parse("F", &auto("auto")).expect("valid").services.remove(0);
    assert!(service.auto && service.backends.is_empty());
    let found = errors(&auto("all"));
    assert!(
        found.len() == 1 && found[0].contains("services[0].backends: expected auto, or a list"),
        "{found:?}"
    );
    assert!(errors(&auto("[]"))[0].contains("at least one backend"));
}

#[test]
fn whatever_is_not_a_configuration_is_said_to_be_none() {
    for (text, start) in [
        ("", "F:1:1: services: missing"),
        ("# nothing\n\n", "F:1:1: services: missing"),
        ("---\n", "F:"),
        ("~\n", "F:1:1: config: expected a mapping"),
        ("{}", "F:1:1: services: missing"),
        ("services: []", "F:1:11: services: expected at least one service"),
        ("services:\n", "F:1:1: services: expected a list of services, found nothing"),
        ("services: {}", "F:1:11: services: expected a list"),
        ("services: [~]", "F:1:12: services[0]: expected a mapping"),
        ("[1, 2]", "F:1:1: config: expected a mapping"),
        ("services: [", "F:2:1: yaml: not valid YAML"),
        ("a: 1\n---\na: 1\n", "F:2:1: yaml: expected a single document"),
        ("\u{0}", "F:1:1: yaml: not valid YAML: a control character"),
    ] {
        let found = errors(text);
        assert!(found[0].starts_with(start), "{text:?}: {found:?}");
    }
    assert_eq!(errors(&format!("\u{feff}{LEAST}")), Vec::<String>::new(), "a byte order mark");
    assert_eq!(errors(&LEAST.replace('\n', "\r\n")), Vec::<String>::new(), "DOS line ends");
}

#[test]
fn what_only_a_part_can_judge_has_its_place() {
    let long = LEAST.replace("/work", &format!("/{}", "x".repeat(9_000)));
    let found = errors(&long);
    let start = "F:4:12: services[0].probe: the request's head is 9";
    assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
    let https = "/work, scheme: https, tls: { ca: /no/such.pem }";
    assert_eq!(errors(&LEAST.replace("/work", https)), Vec::<String>::new(), "no file is read");
}

#[test]
fn sections_of_other_commands_are_left_to_them() {
    let text = format!("{LEAST}l4: of another command\n");
    assert_eq!(parse("F", &text), parse("F", LEAST));
    let found = errors(&format!("{LEAST}l5: of none\n"));
    assert!(found[0].starts_with("F:6:1: l5: unknown key; did you mean \"l4\"?"), "{found:?}");
}
