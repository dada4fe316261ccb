use plimsoll_admission::WaitOptions;
use plimsoll_config::Document;

use super::*;

fn read(text: &str) -> Result<ProxyConfig, Vec<String>> {
    let document = Document::parse("F", text).expect("YAML");
    document
        .read(|c| c.fields(&["proxy"])?.required("proxy", "it", ProxyConfig::read))
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

const WHOLE: &str = r#"
proxy:
  threads: 2
  drain: 5s
  socket: /run/plimsoll/proxy.sock
  metrics: { listen: "127.0.0.1:7402" }
  ingress:
    - { listen: "127.0.0.1:8081", upstream: "127.0.0.1:9001", trust: ["127.0.0.0/8"], capacity: { static: 10 } }
  egress:
    - name: shop
      listen: "127.0.0.1:8080"
      routes: [ { path: /, pool: shop }, { host: Shop.example, path: /a, pool: other } ]
      timeouts: { connect: 1s, request: 30s, idle: 60s }
      limits: { connections: 10000, headers: 32KiB, body_kept_for_retries: 64KiB }
  pools:
    - name: shop
      policy: bloc
      bloc: { reset_interval: 1s }
      refusals: { most: 3 }
      backends: [ { name: b1, address: "127.0.0.1:8081", weight: 1 } ]
    - name: other
      policy: hash_maglev
      key: { header: x-user }
      backends: [ { name: b1, address: "127.0.0.1:8082" }, { name: b2, address: "127.0.0.1:8083", weight: 3 } ]
"#;

#[test]
fn the_fixed_names_are_read() {
    let config = read(WHOLE).expect("a configuration");
    assert_eq!((config.threads, config.drain), (Some(2), Duration::from_secs(5)));
    let egress = &config.egress[0];
    assert_eq!((egress.timeouts, egress.limits), (Timeouts::default(), Limits::default()));
    let first = &egress.routes[0];
    assert_eq!(
        (first.host.as_deref(), first.pool),
        (Some("shop.example"), 1),
        "the specific first"
    );
    assert_eq!(config.pools[0].policy, plimsoll_policy::PolicyKind::Bloc);
    assert_eq!(config.pools[1].weights(), [1, 3]);
    assert_eq!(config.ingress[0].name, "127.0.0.1:8081");
}

#[test]
fn every_mistake_has_its_place() {
    let cases = [
        ("policy: bloc", "policy: blok", "proxy.pools[0].policy: no policy is called \"blok\""),
        (
            "policy: bloc",
            "policy: prequal\n      proxy_protocol: v1",
            "proxy.pools[0].proxy_protocol: expected none: prequal asks backends",
        ),
        (
            "policy: bloc",
            "policy: cpu_random\n      cpu_threshold_percent: 101",
            "proxy.pools[0].cpu_threshold_percent: expected a whole number",
        ),
        (
            "capacity: { static: 10 }",
            "cpu: { cgroup: /nowhere }",
            "proxy.ingress[0].cpu.cgroup: expected the directory of a control group, such as /sys/fs/cgroup/shop: this one \
             has neither a cpu.stat with usage_usec (version 2) nor",
        ),
        (
            "key: { header: x-user }",
            "key: { header: x-user }\n      cookie: { name: SRV }",
            "proxy.pools[1].cookie: expected no cookie: hash_maglev sends each key",
        ),
        (
            "policy: bloc",
            "policy: bloc\n      cookie: { name: \"a b\" }",
            "proxy.pools[0].cookie.name: expected a cookie's name",
        ),
        (
            "policy: bloc",
            "policy: bloc\n      cookie: { name: SRV, key: short }",
            "proxy.pools[0].cookie.key: expected a secret of at least 16 bytes",
        ),
        (
            "policy: bloc",
            "policy: bloc\n      cookie: { name: SRV, same_site: none }",
            "proxy.pools[0].cookie.same_site: expected secure: true",
        ),
        (
            "policy: bloc",
            "policy: bloc\n      cookie: { name: __Host-s, secure: true, path: /shop }",
            "proxy.pools[0].cookie.path: expected / beside",
        ),
        (
            "policy: bloc\n      bloc: { reset_interval: 1s }\n      refusals: { most: 3 }\n      backends: [ { name: b1, address: \"127.0.0.1:8081\", weight: 1 } ]",
            "cookie: { name: SRV }\n      backends: { dns: \"shop:80\" }",
            "proxy.pools[0].cookie: missing key; expected a secret",
        ),
        (
            "weight: 1 }",
            "weight: 0 }",
            "proxy.pools[0].backends: expected at least one backend of weight",
        ),
        (
            "b1, address: \"127.0.0.1:8081\"",
            "b1, address: \"app:80\"",
            "proxy.pools[0].backends[0].address: expected an IP address",
        ),
        ("key: { header: x-user }", "choices: 2", "proxy.pools[1]: missing key"),
        ("bloc: { reset_interval: 1s }", "key: source", "proxy.pools[0].key: expected no key"),
        (
            "pool: other",
            "pool: nowhere",
            "proxy.egress[0].routes[1].pool: no pool is called \"nowhere\"",
        ),
        (
            "headers: 32KiB",
            "headers: 1KiB",
            "proxy.egress[0].limits.headers: expected a size from 8192",
        ),
        ("127.0.0.0/8", "127.0.0.1/8", "proxy.ingress[0].trust[0]: expected a network"),
        (
            "{ static: 10 }",
            "{ static: 0 }",
            "proxy.ingress[0].capacity.static: expected a whole number",
        ),
        (
            "127.0.0.1:8080",
            "127.0.0.1:8081",
            "proxy.egress[0].listen: expected an address that nothing",
        ),
        ("threads: 2", "captured: true", "proxy.captured: unknown key"),
        ("connect: 1s", "connect: 1", "proxy.egress[0].timeouts.connect: expected a time"),
        ("name: b2", "name: b1", "proxy.pools[1].backends[1].name: expected a name that no other"),
        (
            "name: shop\n      listen",
            "name: shop\n      capture: { ports: [80], except_user: 1 }\n      listen",
            "proxy.egress[0].capture.networks: missing",
        ),
        (
            "name: shop\n      listen",
            "name: shop\n      capture: { networks: [10.0.0.0/8], ports: [0], except_user: 1 }\n      listen",
            "proxy.egress[0].capture.ports[0]: expected a whole number",
        ),
        (
            "name: shop\n      listen",
            "name: shop\n      capture: { networks: [10.0.0.0/8], ports: [80] }\n      listen",
            "proxy.egress[0].capture.except_user: missing",
        ),
        (
            "name: shop\n      listen",
            "name: shop\n      capture: { networks: [\"fd00::/8\"], ports: [80], except_user: 1 }\n      listen",
            "proxy.egress[0].capture: expected networks of IPv4",
        ),
        (
            "name: shop\n      listen: \"127.0.0.1:8080\"",
            "name: shop\n      capture: { networks: [10.0.0.0/8], ports: [80], except_user: 1 }\n      listen: \"10.0.0.1:8080\"",
            "proxy.egress[0].capture: expected an entry that listens on a loopback",
        ),
        (
            "threads: 2",
            "access_log: { file: /x, sample: 0 }",
            "proxy.access_log.sample: expected a number",
        ),
        (
            "threads: 2",
            "access_log: { sample: 1 }",
            "proxy.access_log.file: missing; expected the path",
        ),
        ("threads: 2", "access_log: { file: \"\" }", "proxy.access_log.file: expected the path"),
        (
            "name: shop\n      listen",
            "name: shop\n      x_forwarded: on\n      listen",
            "proxy.egress[0].x_forwarded: expected off or append or replace",
        ),
        (
            "name: shop\n      listen",
            "name: shop\n      forwarded: true\n      listen",
            "proxy.egress[0].forwarded: expected off or append or replace",
        ),
        (
            "name: shop\n      listen",
            "name: shop\n      proxy_protocol: [10.0.0.1]\n      listen",
            "proxy.egress[0].proxy_protocol[0]: expected a network",
        ),
        (
            "trust: [\"127.0.0.0/8\"]",
            "proxy_protocol: []",
            "proxy.ingress[0].proxy_protocol: expected a list of networks, with at least one",
        ),
        (
            "policy: bloc",
            "policy: bloc\n      proxy_protocol: v3",
            "proxy.pools[0].proxy_protocol: expected v1 or v2",
        ),
        (
            "policy: bloc",
            "policy: bloc\n      health: { path: health }",
            "proxy.pools[0].health.path: expected a path that begins with /",
        ),
        (
            "policy: bloc",
            "policy: bloc\n      health: { interval: 1ms }",
            "proxy.pools[0].health.interval: expected a time",
        ),
        (
            "policy: bloc",
            "policy: bloc\n      health: { timeout: 5 }",
            "proxy.pools[0].health.timeout: expected a time",
        ),
        (
            "policy: bloc",
            "policy: bloc\n      health: { host: a/b }",
            "proxy.pools[0].health.host: expected a host name",
        ),
        (
            "policy: bloc",
            "policy: bloc\n      health: { rise: 0 }",
            "proxy.pools[0].health.rise: expected a whole number",
        ),
        (
            "policy: bloc",
            "policy: bloc\n      health: { fall: 101 }",
            "proxy.pools[0].health.fall: expected a whole number",
        ),
        (
            "[ { name: b1, address: \"127.0.0.1:8081\", weight: 1 } ]",
            "{ file: /no/such/file }",
            "proxy.pools[0].backends.file: /no/such/file",
        ),
        (
            "[ { name: b1, address: \"127.0.0.1:8081\", weight: 1 } ]",
            "{ dns: shop.example }",
            "proxy.pools[0].backends.dns: expected",
        ),
        (
            "[ { name: b1, address: \"127.0.0.1:8081\", weight: 1 } ]",
            "{ dns: \"a:1\", interval: 1ms }",
            "proxy.pools[0].backends.interval: expected a time",
        ),
        (
            "[ { name: b1, address: \"127.0.0.1:8081\", weight: 1 } ]",
            "{ dns: \"a:1\", file: F }",
            "proxy.pools[0].backends: expected a list of backends, { file: F } or",
        ),
        (
            "[ { name: b1, address: \"127.0.0.1:8081\", weight: 1 } ]",
            "b1",
            "proxy.pools[0].backends: expected a list of backends",
        ),
        ("pool: other", "pool: shop", "proxy.pools: no egress entry sends to the pool \"other\""),
    ];
    let mut others = Vec::new();
    for (good, bad, start) in cases {
        assert!(WHOLE.contains(good), "{good}");
        let errors = read(&WHOLE.replacen(good, bad, 1)).expect_err(bad);
        if !errors.iter().any(|error| error.contains(start)) {
            others.push(format!("{bad}: {errors:?}"));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn what_operators_ask_for_is_read() {
    let text = WHOLE
        .replace("threads: 2", "access_log: { file: /var/log/p.json, sample: 0.01 }")
        .replace("policy: bloc", "policy: bloc\n      proxy_protocol: v2\n      health: {}")
        .replace(
            "[ { name: b1, address: \"127.0.0.1:8081\", weight: 1 } ]",
            "{ dns: \"shop.example:80\" }",
        );
    let config = read(&text).expect("a configuration");
    assert_eq!(config.access_log.as_ref().map(|log| log.sample), Some(0.01));
    let pool = &config.pools[0];
    assert_eq!((pool.proxy_protocol, pool.backends.len()), (Some(ProxyProtocol::V2), 0));
    let health = pool.health.as_ref().expect("checks");
    assert_eq!((health.path.as_deref(), health.rise, health.fall), (None, 2, 3));
    let Source::Dns { address, interval } = &pool.source else { panic!("{:?}", pool.source) };
    assert_eq!((address.to_string().as_str(), interval.as_secs()), ("shop.example:80", 10));
    // A sidecar says nothing of its one caller, a gateway tells backends of its clients.
    assert_eq!(config.egress[0].forwarding, Forwarding::OFF);
    let gateway = read(&text.replace("127.0.0.1:8080", "0.0.0.0:8080")).expect("a configuration");
    let expected = Forwarding { x_forwarded: Note::Append, forwarded: Note::Off };
    assert_eq!(gateway.egress[0].forwarding, expected);
    let off = text.replace("127.0.0.1:8080\"", "0.0.0.0:8080\"\n      x_forwarded: off");
    assert_eq!(read(&off).expect("a configuration").egress[0].forwarding, Forwarding::OFF);
}

#[test]
fn requests_wait_where_a_pool_says_so() {
    let queues = |queue: &str| {
        let text = WHOLE.replace("refusals: { most: 3 }", &format!("refusals: {{ {queue} }}"));
        read(&text).map(|config| (config.pools[0].queue, config.pools[0].retries.refusals.most))
    };
    assert_eq!(queues("most: 3"), Ok((None, 3)));
    assert_eq!(queues("queue: {}"), Ok((Some(WaitOptions::default()), 3)));
    let some = WaitOptions { timeout_ms: 250, max_requests: 7 };
    assert_eq!(queues("most: 0, queue: { timeout: 250ms, max_requests: 7 }"), Ok((Some(some), 0)));
    let key = "proxy.pools[0].refusals.queue";
    for (queue, start) in [
        ("queue: { timeout: 0s }", format!("{key}.timeout: expected a time")),
        ("queue: { timeout: 5 }", format!("{key}.timeout: expected a time")),
        ("queue: { max_requests: 0 }", format!("{key}.max_requests: expected a whole number")),
        // As it was called.
        ("queue: { max: 5s }", format!("{key}.max: unknown key")),
        ("wait: {}", "proxy.pools[0].refusals.wait: unknown key".to_owned()),
        ("queue: 5s", format!("{key}: expected")),
    ] {
        let errors = queues(queue).expect_err(queue);
        assert!(errors.len() == 1 && errors[0].contains(&start), "{queue}: {errors:?}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let bad = WHOLE.replace("threads: 2", "threads: 0").replace("1s }", "x }").replace("9001", "0");
    assert_eq!(read(&bad).expect_err("bad").len(), 3);
}

#[test]
fn all_keys_that_do_not_go_with_each_other_are_reported_at_once() {
    let errors = |pool: &str| {
        let text = format!(
            "proxy:
  egress: [ {{ name: out, listen: \"10.0.0.1:80\", capture: {{ networks: [\"fd00::/8\"], ports: [80], except_user: 1 }} }} ]
  pools: [ {{ name: pool, {pool} }} ]
"
        );
        let errors = read(&text).expect_err("mistakes");
        let place = |error: &String| error.split(':').nth(3).unwrap_or("").trim().to_owned();
        let mut places: Vec<String> = errors.iter().map(place).collect();
        places.sort();
        // The entry's own two are there each time.
        let capture = "proxy.egress[0].capture";
        places.iter().filter(|place| *place == capture).count().eq(&2).then(|| {
            places.retain(|place| place != capture);
            places
        })
    };
    let key = |keys: &[&str]| {
        Some(keys.iter().map(|key| format!("proxy.pools[0]{key}")).collect::<Vec<String>>())
    };
    let name = "name: __Host-s, path: /x, same_site: none";
    let cookie = format!("cookie: {{ {name} }}, backends: {{ dns: \"a:1\" }}");
    assert_eq!(
        errors(&format!("policy: prequal, key: source, proxy_protocol: v1, {cookie}")),
        key(&[
            ".cookie",
            ".cookie.name",
            ".cookie.path",
            ".cookie.same_site",
            ".key",
            ".proxy_protocol",
        ])
    );
    assert_eq!(errors(&format!("policy: hash_map, {cookie}")).map(|all| all.len()), Some(6));
    // A mistake in one key hides none between others.
    let bad = "policy: hash_map, max_in_flight: x, backends: { dns: a, interval: 1 }";
    let expected = ["", ".backends.dns", ".backends.interval", ".max_in_flight"];
    assert_eq!(errors(bad), key(&expected));
}

#[test]
fn several_pools_need_routes_and_one_needs_none() {
    let routes = "      routes: [ { path: /, pool: shop }, { host: Shop.example, path: /a, pool: other } ]\n";
    let errors = read(&WHOLE.replace(routes, "")).expect_err("two pools");
    assert!(errors[0].contains("missing routes"), "{errors:?}");
    let one = WHOLE.replace(routes, "");
    let one = &one[..one.find("    - name: other").expect("it")];
    assert_eq!(read(one).expect("one pool").egress[0].routes.len(), 1);
}

#[test]
fn mistakes_elsewhere_hide_none_of_pools_and_routes() {
    let text = |routes: &str, first: &str| {
        format!(
            "proxy:
  egress: [ {{ name: out, listen: \"127.0.0.1:8080\"{routes} }} ]
  pools:
    - {{ name: one, backends: [ {{ name: b1, address: \"127.0.0.1:1\" }} ]{first} }}
    - {{ name: two, backends: [ {{ name: b1, address: \"127.0.0.1:1\" }} ] }}
"
        )
    };
    let found = |routes: &str, first: &str| {
        let errors = read(&text(routes, first)).expect_err("mistakes");
        let without_place =
            |error: &String| error.splitn(4, ':').nth(3).unwrap_or("").trim().to_owned();
        errors.iter().map(without_place).collect::<Vec<String>>()
    };
    let missing = "proxy.egress[0].routes[0].pool: no pool is called \"missing\"";
    let unused = |name| format!("proxy.pools: no egress entry sends to the pool \"{name}\"");
    let routes = ", routes: [ { path: /a, pool: missing }, { pool: one } ]";
    assert_eq!(found(routes, ""), [missing.to_owned(), unused("two")]);
    let wrong = found(routes, ", choices: 99");
    assert_eq!((wrong.len(), &wrong[0][..], &wrong[1]), (3, missing, &unused("two")));
    assert!(wrong[2].starts_with("proxy.pools[0].choices"), "{wrong:?}");
    // Where it is not known what a route or a pool is called, nobody is blamed for it.
    let unknown = found(", routes: [ { path: /a, pools: one }, { pool: one } ]", "");
    assert_eq!(unknown.len(), 1, "{unknown:?}");
    let nameless = text(", routes: [ { path: /a, pool: first }, { pool: two } ]", "")
        .replace("name: one", "name: \"o ne\"");
    let errors = read(&nameless).expect_err("a mistake");
    assert!(errors.len() == 1 && errors[0].contains("proxy.pools[0].name"), "{errors:?}");
    assert_eq!(
        found("", ""),
        ["proxy.egress[0]: missing routes; expected them with several pools"]
    );
}
