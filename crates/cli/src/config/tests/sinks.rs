//! Which balancer a service steers, or which several.

use super::{LEAST, LEAST_L4, errors};
use crate::config::parse;

#[test]
fn a_service_has_one_sink_and_a_layer_4_service_one_controller() {
    let second = LEAST_L4.trim_start_matches("services:\n").replace("name: shop", "name: b");
    let found = errors(&format!("{LEAST_L4}{second}"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("F:9:46: services[1].sink.l4.vip: expected a layer-4 service"));
    let other = second.replace("vip: web", "vip: mail");
    assert_eq!(errors(&format!("{LEAST_L4}{other}")), Vec::<String>::new());
    for (good, bad, key, part) in [
        ("vip: web", "vip: \"\"", "services[0].sink.l4.vip", "1 to 63 letters"),
        ("vip: web", "vipp: web", "services[0].sink.l4.vipp", "did you mean \"vip\"?"),
        ("/run/l4.sock", "\"\"", "services[0].sink.l4.socket", "1 to 107 bytes"),
        ("vip: web", "vip: web, poll: 1s", "services[0].sink.l4.poll", "from 10ms to 200ms"),
        ("vip: web", "vip: web, timeout: 1", "services[0].sink.l4.timeout", "with its unit"),
        (
            "{ l4: { socket: /run/l4.sock, vip: web } }",
            "{}",
            "services[0].sink",
            "one balancer: { haproxy",
        ),
        (
            "web } }",
            "web }, haproxy: { socket: /s, backend: b } }",
            "services[0].sink",
            "not several",
        ),
    ] {
        assert!(LEAST_L4.contains(good), "{good}");
        let found = parse("F", &LEAST_L4.replacen(good, bad, 1)).unwrap_err();
        assert!(found.iter().any(|e| e.key == key && e.message.contains(part)), "{bad}: {found:?}");
    }
}

#[test]
fn a_service_may_have_several_sinks() {
    let one = "sink: { haproxy: { socket: /a, backend: b } }";
    let (head, _) = LEAST.split_once("    sink:").expect("a sink");
    let with = |text: &str| format!("{head}    {text}\n");
    let two = "{ haproxy: { socket: /a, backend: b } }, { nginx: { socket: /n, upstream: b } }";
    let service =
        parse("F", &with(&format!("sinks: [ {two} ]"))).expect("valid").services.remove(0);
    assert_eq!(service.sink.value.count(), 2);
    assert_eq!(*service.sink.value.limits().range.end(), 256, "what both take");
    assert!(!service.sink.value.have_subsets());
    let text = with(&format!("sinks: [ {two} ]\n    subsets: true"));
    let service = parse("F", &text).expect("valid").services.remove(0);
    assert!(service.sink.value.have_subsets() && service.sink.value.sharing() == 1);
    for (text, key, part) in [
        (format!("sinks: [ {two} ]\n    {one}"), "services[0].sinks", "either sink or sinks"),
        ("sinks: []".to_owned(), "services[0].sinks", "1 to 64 balancers"),
        (
            format!("sinks: [ {two}, {{ haproxy: {{ socket: /a, backend: b }} }} ]"),
            "services[0].sinks[2].haproxy.backend",
            "no other service steers",
        ),
        (format!("{one}\n    subsets: true"), "services[0].subsets", "at least two balancers"),
        (format!("sinks: [ {two} ]\n    subsets: 2"), "services[0].subsets", "true or false"),
        ("sinks: [ { haproxi: {} } ]".to_owned(), "services[0].sinks[0].haproxi", "did you mean"),
    ] {
        let found = parse("F", &with(&text)).unwrap_err();
        assert!(
            found.iter().any(|e| e.key == key && e.message.contains(part)),
            "{text}: {found:?}"
        );
    }
}
