//! `docs/admission.md` against the code, both ways: its tables name every option with its default, and none that
//! there is not.

use std::collections::BTreeMap;

use plimsoll_admission::{
    AdaptiveOptions, AdmissionOptions, LedgerOptions, RetryOptions, WaitOptions,
};
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../../../docs/admission.md");

/// Defaults by option, as the table says whose first column is headed so.
fn told(heading: &str) -> BTreeMap<String, Value> {
    let head = format!("| {heading} |");
    let from = PAGE.find(&head).unwrap_or_else(|| panic!("a table headed {heading:?}"));
    let rows = PAGE[from..].lines().skip(2).take_while(|line| line.starts_with('|'));
    let option = |row: &str| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let default = cells[1].replace(['`', ','], "");
        let value = match (default.as_str(), default.parse::<f64>()) {
            ("absent", _) => Value::Null,
            (_, Ok(number)) => json!(number),
            (name, _) => json!(name),
        };
        (cells[0].trim_matches('`').to_owned(), value)
    };
    rows.map(option).collect()
}

/// The leaves of a value by their paths.
fn leaves(path: &str, value: &Value, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let dot = if path.is_empty() { "" } else { "." };
            leaves(&format!("{path}{dot}{name}"), value, found);
        }),
        Value::Number(number) => {
            found.insert(path.to_owned(), json!(number.as_f64()));
        }
        other => {
            found.insert(path.to_owned(), other.clone());
        }
    }
}

fn defaults(options: &impl serde::Serialize) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    leaves("", &serde_json::to_value(options).expect("options are plain"), &mut found);
    found
}

#[test]
fn the_page_lists_every_option_with_its_default_and_no_other() {
    assert_eq!(told("option of `adaptive`"), defaults(&AdaptiveOptions::default()));
    assert_eq!(told("option of `bloc`"), defaults(&LedgerOptions::default()));
    assert_eq!(told("option of retries"), defaults(&RetryOptions::default()));
    assert_eq!(told("option of waiting"), defaults(&WaitOptions::default()));
    let mut ingress = defaults(&AdmissionOptions::default());
    ingress.retain(|path, _| !path.starts_with("capacity."));
    let all = serde_json::to_value(AdmissionOptions::default()).expect("options are plain");
    let capacity = all["capacity"].as_object().and_then(|ways| ways.keys().next());
    ingress.insert("capacity".to_owned(), json!(capacity));
    assert_eq!(told("option of an ingress"), ingress);
}

#[test]
fn the_page_lists_every_way_to_find_the_capacity() {
    let error = serde_json::from_value::<AdmissionOptions>(json!({ "capacity": "no such" }));
    let error = error.expect_err("it is refused").to_string();
    let (_, expected) = error.split_once("expected").expect("it is told what is expected");
    let ways: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let rows: Vec<String> = told("way to find it").into_keys().collect();
    assert_eq!(
        rows.iter().map(String::as_str).collect::<std::collections::BTreeSet<_>>(),
        ways.into_iter().collect()
    );
}
