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
        let located: Located = serde_saphyr::from_str(text).map_err(|e| vec![form_error(&e)])?;
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

fn form_error(error: &serde_saphyr::Error) -> SpecFileError {
    let bare = error.without_snippet();
    let (line, column) = bare.location().map_or((0, 0), |at| (at.line(), at.column()));
    let text = bare.to_string();
    // The library ends its sentences with the place, which we put in front.
    let message = text.split(" at line ").next().unwrap_or(&text).lines().next();
    SpecFileError { line, column, message: message.unwrap_or_default().to_owned() }
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
        for (from, to, line) in [
            ("cores: 4", "core: 4", 8),
            ("cores: 4", "cores: many", 8),
            ("mean: 30ms }", "mean: 30 }", 5),
            ("mode: status:404", "mode: dead", 17),
            ("127.0.0.1:9002", "localhost", 7),
            ("  - name: s1", "  - name: [", 3),
        ] {
            let errors = TestbedSpec::from_yaml(&FULL.replacen(from, to, 1)).unwrap_err();
            assert_eq!(errors.len(), 1);
            let text = errors[0].describe("f.yaml");
            assert!(text.starts_with(&format!("f.yaml:{line}:")), "{to}: {text}");
        }
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
