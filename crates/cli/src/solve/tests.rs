use super::answer::Answer;
use super::input::{Input, parse};
use super::*;

const MENUS: &str = r#"{"target": 5, "backends": [
    {"name": "b", "menu": [{"weight": 3, "cost": 4.5}, {"weight": 0, "cost": 1}]},
    {"name": "a", "menu": [{"weight": 2e0, "cost": 2.0}, {"weight": 4, "cost": 9}]}
]}"#;

const CURVES: &str = r#"{"total_rate": 100, "backends": [
    {"name": "x", "curve": {"kind": "hyperbola", "a": 1, "b": 50, "c": 80}},
    {"name": "y", "curve": {"kind": "hyperbola", "a": 1, "b": 50, "c": 80}, "max_weight": 0.25}
]}"#;

fn args() -> SolveArgs {
    SolveArgs {
        file: PathBuf::from("-"),
        objective: None,
        theta: None,
        method: SolveMethod::Auto,
        output: Format::Json,
    }
}

fn solved(text: &str, args: &SolveArgs) -> Result<Answer, String> {
    solve(&parse("F", text).expect("a well-formed problem"), args)
}

fn json(text: &str, args: &SolveArgs) -> serde_json::Value {
    let answer = solved(text, args).expect("an answer");
    serde_json::from_str(&answer.to_json()).expect("valid JSON")
}

fn problems(text: &str) -> Vec<String> {
    let found = parse("F", text).map(|input| panic!("{input:?}")).unwrap_err();
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn menus_are_packed_in_order() {
    let answer = json(MENUS, &args());
    assert_eq!(answer["status"], "optimal");
    assert_eq!(answer["objective"], 6.5);
    assert_eq!(answer["bound"], 6.5);
    assert_eq!(answer["gap"], 0.0);
    assert!(answer["elapsed_us"].as_f64().unwrap() >= 0.0);
    let text = solved(MENUS, &args()).unwrap().to_json();
    assert!(text.contains(r#""weights":{"b":3,"a":2}"#), "{text}");
    let max = json(MENUS, &SolveArgs { objective: Some(ObjectiveArg::Max), ..args() });
    assert_eq!(max["objective"], 4.5);
    let near = json(MENUS, &SolveArgs { theta: Some(1.9), ..args() });
    assert_eq!(near["objective"], 6.5);
}

#[test]
fn curves_share_the_rate() {
    for method in [SolveMethod::Auto, SolveMethod::Continuous, SolveMethod::Exact] {
        let answer = json(CURVES, &SolveArgs { method, ..args() });
        assert_eq!(answer["status"], "optimal", "{method:?}");
        assert!((answer["weights"]["x"].as_f64().unwrap() - 0.75).abs() < 1e-9);
        assert!((answer["weights"]["y"].as_f64().unwrap() - 0.25).abs() < 1e-9);
        // 0.75 · (1 + 50 / 5) + 0.25 · (1 + 50 / 55)
        let mean = answer["objective"].as_f64().unwrap();
        assert!((mean - (8.25 + 0.25 * (1.0 + 50.0 / 55.0))).abs() < 1e-6, "{mean}");
    }
    let steps = json(CURVES, &SolveArgs { method: SolveMethod::TwoStep, ..args() });
    assert!(steps["objective"].as_f64().unwrap() > 8.7);
    let free = CURVES.replace(r#", "max_weight": 0.25"#, "");
    let near = json(&free, &SolveArgs { theta: Some(0.0), ..args() });
    assert_eq!(near["weights"]["x"], 0.5);
}

#[test]
fn infeasible_says_what_is_missing() {
    let far = MENUS.replace("\"target\": 5", "\"target\": 9");
    let answer = solved(&far, &args()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&answer.to_json()).unwrap();
    assert_eq!((&json["status"], &json["missing"]), (&"infeasible".into(), &2.0.into()));
    assert_eq!(answer.infeasible_because(), Some("9 needed, 7 reachable, 2 missing"));
    assert_eq!(json["weights"], serde_json::json!({"b": null, "a": null}));
    let narrow = SolveArgs { theta: Some(0.0), ..args() };
    let answer = solved(MENUS, &narrow).unwrap();
    assert!(answer.infeasible_because().unwrap().contains("theta 0 is too small"));
    let short = CURVES.replace("\"total_rate\": 100", "\"total_rate\": 500");
    for method in [SolveMethod::Auto, SolveMethod::TwoStep, SolveMethod::Exact] {
        let answer = solved(&short, &SolveArgs { method, ..args() }).unwrap();
        let json: serde_json::Value = serde_json::from_str(&answer.to_json()).unwrap();
        let missing = 500.0 - 80.0 * 0.985 - 80.0 * (1.0 - 1e-6);
        assert!((json["missing"].as_f64().unwrap() - missing).abs() < 1e-3, "{json}");
        assert!(answer.infeasible_because().is_some());
        // In proportion to what each may carry; exact knows whole millionths only, and has none.
        let share = json["weights"]["x"].as_f64();
        let shared = share.is_some_and(|share| (share - 0.5).abs() < 0.01);
        assert!(shared != (method == SolveMethod::Exact), "{json}");
    }
}

#[test]
fn arguments_must_fit_the_input() {
    let refused = |text: &str, args: SolveArgs, word: &str| {
        let message = solved(text, &args).unwrap_err();
        assert!(message.starts_with(word), "{message}");
    };
    refused(MENUS, SolveArgs { method: SolveMethod::Continuous, ..args() }, "--method");
    refused(MENUS, SolveArgs { method: SolveMethod::TwoStep, ..args() }, "--method");
    refused(MENUS, SolveArgs { objective: Some(ObjectiveArg::Traffic), ..args() }, "--objective");
    refused(MENUS, SolveArgs { theta: Some(-1.0), ..args() }, "--theta");
    let exact = SolveArgs { method: SolveMethod::Exact, theta: Some(0.1), ..args() };
    refused(CURVES, exact, "--theta");
}

#[test]
fn all_mistakes_are_found_with_their_places() {
    let text = r#"{"target": 1.5, "colour": 1, "backends": [
        {"name": "a", "menu": [{"weight": -1, "cost": "x"}, {"weight": 1, "cost": 1, "cost": 2}]},
        {"name": "a", "menu": []},
        {"name": 3, "menu": [{"cost": 1}], "max_weight": 1},
        {"menu": [7]},
        {"name": "", "curve": {"kind": "line", "a": -1, "b": null, "c": 0}},
        {"name": "b"}
    ]}"#;
    let expected = [
        "1:12: target: expected a 64-bit integer, found 1.5",
        "1:27: colour: unknown key; expected one of backends, target, total_rate",
        "2:43: backends[0].menu[0].weight: expected an integer of 0 or more, found -1",
        "2:55: backends[0].menu[0].cost: expected a finite number, found a string",
        "2:94: backends[0].menu[1].cost: expected once, found again",
        "3:9: backends[1].name: expected a name that no earlier backend has, found \"a\"",
        "3:31: backends[1].menu: expected at least one entry, found none",
        "4:18: backends[2].name: expected a string, found a number",
        "4:30: backends[2].menu[0].weight: missing",
        "4:58: backends[2].max_weight: only curves take it",
        "5:9: backends[3].name: missing",
        "5:19: backends[3].menu[0]: expected an object, found a number",
        "6:18: backends[4].name: expected a name, found an empty one",
        "6:40: backends[4].curve.kind: expected hyperbola, found \"line\"",
        "6:53: backends[4].curve.a: expected a number of 0 or more, found -1",
        "6:62: backends[4].curve.b: expected a number of 0 or more, found null",
        "6:73: backends[4].curve.c: expected a number above 0, found 0",
        "7:9: backends[5]: expected a menu or a curve, found neither",
    ];
    assert_eq!(problems(text), expected.map(|line| format!("F:{line}")));
}

#[test]
fn what_is_no_problem_at_all_is_named() {
    let begins = |text: &str, start: &str| {
        let found = problems(text);
        assert!(found.len() == 1 && found[0].starts_with(start), "{text}: {found:#?}");
    };
    begins("{\"a\": 1,\n  oops}", "F:2:3: json: ");
    begins("", "F:1:1: json: ");
    begins("{} x", "F:1:4: json: ");
    begins(r#"{"target": 1e999, "backends": []}"#, "F:1:16: json: number out of range");
    begins("[]", "F:1:1: problem: expected an object, found a list");
    begins(r#"{"target": 1}"#, "F:1:1: backends: missing");
    begins(r#"{"target": 1, "backends": []}"#, "F:1:27: backends: expected at least one entry");
    let huge = MENUS.replace("\"target\": 5", "\"target\": 99999999999999999999");
    begins(&huge, "F:1:12: target: expected a 64-bit integer, found 1");
    let both = MENUS.replace(
        r#""menu": [{"weight": 3, "cost": 4.5}, {"weight": 0, "cost": 1}]"#,
        r#""curve": {"kind": "hyperbola", "a": 1, "b": 1, "c": 1}"#,
    );
    begins(&both, "F:1:27: backends: expected all menus or all curves, found both");
    begins(&MENUS.replace("\"target\": 5, ", ""), "F:1:1: target: missing");
    begins(&CURVES.replace("100", "-3"), "F:1:16: total_rate: expected a number above 0, found -3");
}

#[test]
fn a_table_names_every_backend() {
    let table = solved(MENUS, &args()).unwrap().to_table();
    for part in ["status     optimal", "objective  6.5", "\nb                   3", "\na  "] {
        assert!(table.contains(part), "{table}");
    }
    assert!(matches!(parse("F", MENUS), Ok(Input::Menus(_))));
}
