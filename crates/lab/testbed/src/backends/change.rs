//! A change to a running backend.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::mode::Mode;
use super::queue::Discipline;
use super::service::Service;
use super::spec::{check_cores, check_share, check_speed};

/// What to change; what is `None` stays. Requests in the backend keep the work they have left, and
/// their order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// Work per second and core.
    pub speed: Option<f64>,
    /// Number of cores.
    pub cores: Option<u32>,
    /// Service time of requests yet to come.
    pub service: Option<Service>,
    /// Share of requests yet to come that is answered 500.
    pub error_rate: Option<f64>,
    /// Whether errors are answered at once.
    pub fast_fail: Option<bool>,
    /// The new limit, or `Some(None)` for none.
    pub queue_limit: Option<Option<u32>>,
    /// How requests share the cores.
    pub discipline: Option<Discipline>,
    /// How clients are treated.
    pub mode: Option<Mode>,
}

impl Change {
    /// A change of mode alone.
    pub fn mode(mode: Mode) -> Self {
        Change { mode: Some(mode), ..Change::default() }
    }

    /// A change of speed alone.
    pub fn speed(speed: f64) -> Self {
        Change { speed: Some(speed), ..Change::default() }
    }

    /// Every rule that the change breaks.
    pub fn problems(&self) -> Vec<String> {
        let checks = [
            ("speed", self.speed.map(check_speed)),
            ("cores", self.cores.map(check_cores)),
            ("error_rate", self.error_rate.map(check_share)),
        ];
        let broken = checks.into_iter().filter_map(|(key, check)| match check {
            Some(Err(problem)) => Some(format!("{key}: {problem}")),
            _ => None,
        });
        broken.collect()
    }

    /// Reads the admin API's form. `service` may name only some keys: the others stay as in `present`,
    /// unless its kind changes.
    ///
    /// # Errors
    /// Everything that is wrong with it, one line each.
    pub(super) fn from_json(text: &[u8], present: &Service) -> Result<Self, Vec<String>> {
        let value: Value =
            serde_json::from_slice(text).map_err(|e| vec![format!("body: not JSON: {e}")])?;
        let Value::Object(map) = value else {
            return Err(vec!["body: expected a JSON object".into()]);
        };
        let mut change = Change::default();
        let mut problems = Vec::new();
        for (key, value) in map {
            if let Err(problem) = change.read_key(&key, value, present) {
                problems.push(format!("{key}: {problem}"));
            }
        }
        problems.extend(change.problems());
        if problems.is_empty() { Ok(change) } else { Err(problems) }
    }

    fn read_key(&mut self, key: &str, value: Value, present: &Service) -> Result<(), String> {
        match key {
            "speed" => self.speed = Some(read(value, "a number above 0")?),
            "cores" => self.cores = Some(read(value, "a whole number above 0")?),
            "error_rate" => self.error_rate = Some(read(value, "a number from 0 to 1")?),
            "fast_fail" => self.fast_fail = Some(read(value, "true or false")?),
            "queue_limit" => self.queue_limit = Some(read(value, "a whole number, or null")?),
            "discipline" => self.discipline = Some(read(value, "fifo or ps")?),
            "mode" => self.mode = Some(read::<String>(value, "a string")?.parse()?),
            "service" => self.service = Some(read_service(value, present)?),
            _ => {
                return Err(
                    "unknown key; known are speed, cores, service, error_rate, fast_fail, \
                            queue_limit, discipline, mode"
                        .into(),
                );
            }
        }
        Ok(())
    }
}

fn read<T: DeserializeOwned>(value: Value, expected: &str) -> Result<T, String> {
    let found = value.to_string();
    serde_json::from_value(value).map_err(|_| format!("expected {expected}, found {found}"))
}

fn read_service(value: Value, present: &Service) -> Result<Service, String> {
    let Value::Object(given) = value else {
        return Err(format!("expected an object, found {value}"));
    };
    let mut merged: Map<String, Value> = match serde_json::to_value(present) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    if given.get("kind").is_some_and(|kind| merged.get("kind") != Some(kind)) {
        // Parameters of the old kind mean nothing to the new one; the mean does.
        merged.retain(|key, _| key == "mean");
    }
    merged.extend(given);
    Service::deserialize(Value::Object(merged)).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::service::ServiceKind;
    use std::time::Duration;

    fn present() -> Service {
        Service {
            mean: Duration::from_millis(30),
            kind: ServiceKind::Bimodal { slow_share: 0.1, slow_factor: 5.0 },
        }
    }

    #[test]
    fn reads_every_key() {
        let text = br#"{"speed":0.5,"cores":2,"service":{"mean":"60ms"},"error_rate":0.25,
            "fast_fail":false,"queue_limit":null,"discipline":"ps","mode":"status:404"}"#;
        let change = Change::from_json(text, &present()).unwrap();
        let service = Service { mean: Duration::from_millis(60), ..present() };
        let expected = Change {
            speed: Some(0.5),
            cores: Some(2),
            service: Some(service),
            error_rate: Some(0.25),
            fast_fail: Some(false),
            queue_limit: Some(None),
            discipline: Some(Discipline::Ps),
            mode: Some(Mode::Status(404)),
        };
        assert_eq!(change, expected);
    }

    #[test]
    fn another_kind_drops_the_old_parameters_and_keeps_the_mean() {
        let text = br#"{"service":{"kind":"exponential"}}"#;
        let change = Change::from_json(text, &present()).unwrap();
        assert_eq!(change.service, Some(Service::exponential(Duration::from_millis(30))));
    }

    #[test]
    fn reports_everything_that_is_wrong() {
        let text = br#"{"speed":0,"cores":"two","sped":1,"mode":"dead","service":{"sigma":1}}"#;
        let problems = Change::from_json(text, &present()).unwrap_err();
        assert_eq!(problems.len(), 5, "{problems:?}");
        for key in ["speed:", "cores:", "sped:", "mode:", "service:"] {
            assert!(problems.iter().any(|p| p.starts_with(key)), "{key} in {problems:?}");
        }
        assert!(Change::from_json(b"[1]", &present()).is_err());
        assert!(Change::from_json(b"{", &present()).is_err());
    }
}
