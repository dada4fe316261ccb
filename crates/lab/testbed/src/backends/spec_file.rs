//! Reads a specification from YAML or JSON (which is YAML), with the place of every error.

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::spec::{BackendSpec, TestbedSpec};

/// Where a specification is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecFileError {
    /// From 1; 0 when it is about the whole file.
    pub line: u64,
    /// From 1; 0 when it is about the whole file.
    pub column: u64,
    /// What was expected.
    pub message: String,
}

impl SpecFileError {
    /// As `FILE:line:column: message`.
    pub fn describe(&self, file: &str) -> String {
        match self.line {
            0 => format!("{file}: {}", self.message),
            line => format!("{file}:{line}:{}: {}", self.column, self.message),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Located {
    #[serde(default)]
    admin: Option<std::net::SocketAddr>,
    backends: Vec<Spanned<BackendSpec>>,
}

impl TestbedSpec {
    /// Reads the text of a specification file.
    ///
    /// # Errors
    /// The first error of form (syntax, unknown keys, wrong types), or else every rule that is broken.
    pub fn from_yaml(text: &str) -> Result<Self, Vec<SpecFileError>> {
        let located: Located =
            serde_saphyr::from_str(text).map_err(|e| vec![form_error(text, &e)])?;
        let places: Vec<_> = located.backends.iter().map(|b| b.referenced).collect();
        let backends = located.backends.into_iter().map(|b| b.value).collect();
        let spec = TestbedSpec { admin: located.admin, backends };
        let problems = spec.problems();
        if problems.is_empty() {
            return Ok(spec);
        }
        let place = |backend: Option<usize>| {
            backend.and_then(|i| places.get(i)).map_or((0, 0), |at| (at.line(), at.column()))
        };
        let error = |problem: super::spec::SpecProblem| {
            let (line, column) = place(problem.backend);
            SpecFileError { line, column, message: problem.to_string() }
        };
        Err(problems.into_iter().map(error).collect())
    }
}

fn form_error(text: &str, error: &serde_saphyr::Error) -> SpecFileError {
    let bare = error.without_snippet();
    let (line, column) = bare.location().map_or((0, 0), |at| (at.line(), at.column()));
    let said = bare.to_string();
    // The library ends its sentences with the place, which we put in front.
    let said = said.split(" at line ").next().and_then(|said| said.lines().next());
    let expected = expected(said.unwrap_or_default());
    let message = match key_before(text, line, column) {
        Some(key) => format!("{key}: {expected}"),
        None => expected.to_owned(),
    };
    SpecFileError { line, column, message }
}

/// What the library names by types of Rust, in words.
fn expected(said: &str) -> &str {
    match said {
        "invalid u32" | "invalid u64" | "invalid usize" => "expected a whole number of 0 or more",
        "invalid floating point" => "expected a number",
        _ if said.starts_with("invalid boolean") => "expected true or false",
        "invalid socket address syntax" => "expected an address such as 127.0.0.1:9001",
        _ => said,
    }
}

/// The key whose value begins at a place, line and column from 1.
fn key_before(text: &str, line: u64, column: u64) -> Option<&str> {
    let line = text.lines().nth(usize::try_from(line.checked_sub(1)?).ok()?)?;
    let length = usize::try_from(column.checked_sub(1)?).ok()?;
    let end = line.char_indices().nth(length).map_or(line.len(), |(at, _)| at);
    // A mapping begins with its first key where something is missing from it.
    let before = line[..end].trim_end().trim_end_matches(['"', '\'', '{']).trim_end();
    let key = before.strip_suffix(':')?.trim_end().trim_end_matches(['"', '\'']);
    let start = key.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
    Some(&key[start..]).filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::mode::Mode;
    use crate::backends::queue::Discipline;

    const FULL: &str = "\
admin: 127.0.0.1:9900
backends:
  - name: s1
    listen: 127.0.0.1:9001
    service: { kind: exponential, mean: 30ms }
  - name: s2
    listen: 127.0.0.1:9002
    cores: 4
    speed: 1.1
    service: { kind: bimodal, mean: 30ms, slow_share: 0.05, slow_factor: 19 }
    discipline: ps
    queue_limit: 100
    error_rate: 0.01
    fast_fail: false
    seed: 7
    light_paths: [/health, /ready]
    mode: status:404
";

    #[test]
    fn reads_every_key_and_fills_in_the_rest() {
        let spec = TestbedSpec::from_yaml(FULL).unwrap();
        let [one, two] = &spec.backends[..] else { panic!("two backends") };
        let expected = BackendSpec {
            listen: "127.0.0.1:9001".parse().unwrap(),
            ..BackendSpec::new("s1", one.service)
        };
        assert_eq!(one, &expected);
        assert_eq!((two.cores, two.discipline, two.mode), (4, Discipline::Ps, Mode::Status(404)));
        assert_eq!((two.queue_limit, two.fast_fail), (Some(100), false));
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(TestbedSpec::from_yaml(&json).unwrap(), spec);
    }

    #[test]
    fn errors_of_form_have_their_place() {
        for (from, to, start) in [
            ("cores: 4", "core: 4", "f.yaml:8:5: unknown field `core`, expected one of"),
            ("cores: 4", "cores: many", "f.yaml:8:12: cores: expected a whole number"),
            ("speed: 1.1", "speed: fast", "f.yaml:9:12: speed: expected a number"),
            ("fast_fail: false", "fast_fail: maybe", "f.yaml:14:16: fast_fail: expected true"),
            ("kind: exponential, ", "", "f.yaml:5:16: service: missing field `kind`"),
            ("mean: 30ms }", "mean: 30 }", "f.yaml:5:41: mean: expected a duration such as"),
            ("mode: status:404", "mode: dead", "f.yaml:17:11: mode: expected"),
            ("127.0.0.1:9002", "localhost", "f.yaml:7:13: listen: expected an address such as"),
            ("  - name: s1", "  - name: [", "f.yaml:3:"),
        ] {
            let errors = TestbedSpec::from_yaml(&FULL.replacen(from, to, 1)).unwrap_err();
            assert_eq!(errors.len(), 1);
            let text = errors[0].describe("f.yaml");
            assert!(text.starts_with(start), "{to}: {text}");
        }
        let json = serde_json::to_string(&TestbedSpec::from_yaml(FULL).unwrap()).unwrap();
        let errors = TestbedSpec::from_yaml(&json.replace("\"cores\":4", "\"cores\":-4"));
        assert!(errors.unwrap_err()[0].message.starts_with("cores: expected"));
    }

    #[test]
    fn broken_rules_come_all_together() {
        let text = FULL
            .replace("name: s2", "name: s1")
            .replace(":9002", ":9001")
            .replace("error_rate: 0.01", "error_rate: 2");
        let errors = TestbedSpec::from_yaml(&text).unwrap_err();
        let lines: Vec<String> = errors.iter().map(|e| e.describe("f")).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines.iter().all(|l| l.starts_with("f:6:5: backends[1]: ")), "{lines:?}");
        assert!(TestbedSpec::from_yaml("backends: []").is_err());
        assert!(TestbedSpec::from_yaml("").is_err());
    }
}
