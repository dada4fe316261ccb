//! Every balancer that can be steered runs the conformance suite (`contract/mod.rs`): a new one names its test here.

use plimsoll_sink::Sink;

/// By key, the file that calls the suite, from this crate's folder.
const TESTS: &[(&str, &str)] = &[
    ("haproxy", "tests/weights.rs"),
    ("l4", "../../cli/tests/l4_steer/promises.rs"),
    ("proxy", "../proxy/tests/it/steer.rs"),
    ("nginx", "tests/nginx/lua.rs"),
    ("nginx_reload", "tests/nginx/reload.rs"),
];

#[test]
fn every_sink_runs_the_conformance_suite() {
    let named: Vec<&str> = TESTS.iter().map(|(key, _)| *key).collect();
    assert_eq!(named, Sink::KINDS);
    for (key, file) in TESTS {
        let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect(&path);
        for promise in ["holds(&mut ", "goes_on_without_a_server(&mut "] {
            assert!(text.contains(promise), "{key}: {file} has no `{promise}`");
        }
    }
}
