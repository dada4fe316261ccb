//! `docs/policies.md` against the registry, both ways: its tables name every policy, setting, key and hash
//! function that there is, and nothing that there is not.

use std::collections::BTreeSet;

use plimsoll_policy::{HashFunction, HashKey, KeySource, PolicyKind, Settings, UriPart};
use serde_json::Value;

const PAGE: &str = include_str!("../../../../../docs/policies.md");

/// The rows of the table whose first column is headed so, as cells.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let head = format!("| {heading} |");
    let from = PAGE.find(&head).unwrap_or_else(|| panic!("a table headed {heading:?}"));
    let rows = PAGE[from..].lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// What stands in backquotes, in order.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn fields(value: &Value) -> BTreeSet<String> {
    value.as_object().expect("settings are an object").keys().cloned().collect()
}

fn settings() -> BTreeSet<String> {
    fields(&serde_json::to_value(Settings::default()).unwrap())
}

#[test]
fn every_policy_has_its_row_and_no_other_has() {
    let rows: Vec<&str> = table("name").iter().filter_map(|row| quoted(row[0]).next()).collect();
    let names: Vec<&str> = PolicyKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(rows.iter().collect::<BTreeSet<_>>(), names.iter().collect::<BTreeSet<_>>());
    assert_eq!(rows.len(), names.len(), "each once");
}

#[test]
fn the_page_lists_every_setting_and_no_other() {
    let rows = table("name");
    let of_policies = rows.iter().flat_map(|row| quoted(row[4]));
    let of_any = table("setting").into_iter().flat_map(|row| quoted(row[0]).collect::<Vec<_>>());
    let told: BTreeSet<String> = of_policies.chain(of_any).map(str::to_owned).collect();
    assert_eq!(told, settings());
}

/// A policy that heeds a setting behaves otherwise when it is set, or says so in its source: each setting of
/// a row stands in the file of its policy.
#[test]
fn a_policys_file_reads_the_settings_of_its_row() {
    for row in table("name") {
        let name = quoted(row[0]).next().expect("a name");
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/policies");
        let source = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
        let source = source.iter().find_map(|path| std::fs::read_to_string(path).ok());
        let source = source.unwrap_or_else(|| panic!("{name} has a file of its own"));
        let heeds = source.lines().find(|line| line.contains("; heeds `"));
        let heeds: BTreeSet<&str> = heeds.into_iter().flat_map(quoted).collect();
        let guards = ["max_in_flight"];
        let told: BTreeSet<&str> = quoted(row[4]).filter(|s| !guards.contains(s)).collect();
        assert_eq!(told, heeds, "settings of {name}, on the page and in its file");
    }
}

#[test]
fn the_page_lists_every_field_of_grouped_settings() {
    let value = serde_json::to_value(Settings {
        ejection: Some(plimsoll_policy::EjectionSettings::default()),
        slow_start: Some(plimsoll_policy::SlowStartSettings::default()),
        ..Settings::default()
    })
    .unwrap();
    let groups = table("group");
    for name in settings() {
        let Some(_) = value[&name].as_object() else { continue };
        let row = groups.iter().find(|row| quoted(row[0]).eq([name.as_str()]));
        let row = row.unwrap_or_else(|| panic!("{name} has its row"));
        let told: BTreeSet<String> = quoted(row[1]).map(str::to_owned).collect();
        assert_eq!(told, fields(&value[&name]), "{name}");
    }
    assert_eq!(groups.len(), 5, "and no others");
}

/// A name that is none of them is refused with those that are.
fn variants<T: serde::de::DeserializeOwned>() -> BTreeSet<String> {
    let error = serde_json::from_str::<T>("\"no such\"").err().expect("it is refused").to_string();
    let (_, expected) = error.split_once("expected").expect("it is told what is expected");
    quoted(expected).map(str::to_owned).collect()
}

#[test]
fn the_page_lists_every_key_and_hash_function_and_no_other() {
    let rows = table("`of`");
    let told: BTreeSet<String> = rows
        .iter()
        .filter_map(|row| quoted(row[0]).next())
        .map(|key| key.split(':').next().expect("a name").to_owned())
        .collect();
    assert_eq!(told, variants::<KeySource>());
    let parts: BTreeSet<String> =
        rows.iter().flat_map(|row| quoted(row[0]).skip(1)).map(str::to_owned).collect();
    assert_eq!(parts, fields(&serde_json::to_value(UriPart::default()).unwrap()));

    let functions = PAGE.lines().find(|line| line.starts_with("`function` is ")).expect("a line");
    let told: BTreeSet<String> = quoted(functions).skip(1).map(str::to_owned).collect();
    assert_eq!(told, variants::<HashFunction>());
    let key = serde_json::to_value(HashKey::new(KeySource::Source)).unwrap();
    for field in fields(&key) {
        assert!(PAGE.contains(&format!("`{field}`")), "{field}");
    }
}
