//! What `plimsoll solve` reads, checked whole: every mistake is found, each with its place.

use std::collections::BTreeSet;

use plimsoll_model::Hyperbola;
use plimsoll_pack::Choice;

use super::json::{Json, Value};
use plimsoll_config::{ConfigError, Position, Report};

/// A backend without `max_weight` may be loaded to this part of its curve's capacity.
const DEFAULT_UTILISATION: f64 = 0.985;

/// A problem.
#[derive(Debug)]
pub enum Input {
    /// One weight out of each menu.
    Menus(MenuInput),
    /// Shares on curves.
    Curves(CurveInput),
}

/// `{"target": …, "backends": [{"name": …, "menu": [{"weight": …, "cost": …}, …]}, …]}`
#[derive(Debug)]
pub struct MenuInput {
    /// The backends' names, in order.
    pub names: Vec<String>,
    /// Their menus.
    pub menus: Vec<Vec<Choice>>,
    /// What the weights must reach.
    pub target: i64,
}

/// `{"backends": [{"name": …, "curve": {"kind": "hyperbola", "a": …, "b": …, "c": …}, "max_weight": …},
/// …], "total_rate": …}`
///
/// Weights and `max_weight` are shares of the traffic, which sum up to 1. With `total_rate` (requests
/// per second) the curves are over requests per second, `share · total_rate`; without it they are over
/// the share itself. `max_weight` is `0.985 · c`, as a share, if not given.
#[derive(Debug)]
pub struct CurveInput {
    /// The backends' names, in order.
    pub names: Vec<String>,
    /// Latency over load.
    pub curves: Vec<Hyperbola>,
    /// The greatest load of each, in the curves' unit.
    pub limits: Vec<f64>,
    /// The load to share out, in the curves' unit.
    pub total: f64,
}

/// Reads a problem out of a file of this name.
///
/// # Errors
/// All that is wrong.
pub fn parse(file: &str, text: &str) -> Result<Input, Vec<ConfigError>> {
    let report = Report::new(file);
    let document = match Json::read(text) {
        Ok(document) => document,
        Err(error) => {
            let place = format!(" at line {} column {}", error.line(), error.column());
            let at = Position { line: error.line(), column: error.column().max(1) };
            report.add(at, "json", error.to_string().replace(&place, ""));
            return Err(report.into_errors());
        }
    };
    let reader = Reader { text, report };
    let input = reader.problem(&document);
    let problems = reader.report.into_errors();
    input.filter(|_| problems.is_empty()).ok_or(problems)
}

/// Collects what is wrong while it reads on.
struct Reader<'a> {
    text: &'a str,
    report: Report,
}

impl Reader<'_> {
    fn wrong(&self, found: &Json, key: &str, message: &str) {
        let key = if key.is_empty() { "problem" } else { key };
        self.report.add(Position::after(&self.text[..found.at]), key, message.to_owned());
    }

    fn expected<T>(&self, key: &str, what: &str, found: &Json) -> Option<T> {
        self.wrong(found, key, &format!("expected {what}, found {}", found.kind()));
        None
    }

    /// The values of the known keys. Unknown and repeated keys are mistakes.
    fn object<'a, const N: usize>(
        &self,
        place: &str,
        value: &'a Json,
        keys: [&str; N],
    ) -> Option<[Option<&'a Json>; N]> {
        let Value::Object(entries) = &value.value else {
            return self.expected(place, "an object", value);
        };
        let mut found = [None; N];
        for (key, value) in entries {
            let name = join(place, key);
            match keys.iter().position(|known| known == key) {
                None => {
                    let message = format!("unknown key; expected one of {}", keys.join(", "));
                    self.wrong(value, &name, &message);
                }
                Some(position) if found[position].is_some() => {
                    self.wrong(value, &name, "expected once, found again");
                }
                Some(position) => found[position] = Some(value),
            }
        }
        Some(found)
    }

    /// The value of a key that an object must have.
    fn required<'a>(
        &self,
        object: &Json,
        place: &str,
        key: &str,
        value: Option<&'a Json>,
    ) -> Option<&'a Json> {
        if value.is_none() {
            self.wrong(object, &join(place, key), "missing");
        }
        value
    }

    fn list<'a>(&self, place: &str, value: &'a Json) -> Option<&'a [Json]> {
        match &value.value {
            Value::List(items) if items.is_empty() => {
                self.wrong(value, place, "expected at least one entry, found none");
                None
            }
            Value::List(items) => Some(items),
            _ => self.expected(place, "a list", value),
        }
    }

    fn number_where(
        &self,
        place: &str,
        value: &Json,
        what: &str,
        fits: impl Fn(f64) -> bool,
    ) -> Option<f64> {
        let number = match value.value {
            Value::Integer(number) => number as f64,
            Value::Float(number) => number,
            _ => return self.expected(place, what, value),
        };
        if !fits(number) {
            self.wrong(value, place, &format!("expected {what}, found {number}"));
            return None;
        }
        Some(number)
    }

    fn integer(&self, place: &str, value: &Json) -> Option<i64> {
        match value.value {
            Value::Integer(number) => Some(number),
            // Floats hold every integer up to 2⁵³ exactly.
            Value::Float(number)
                if number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0 =>
            {
                Some(number as i64)
            }
            Value::Float(number) => {
                self.wrong(value, place, &format!("expected a 64-bit integer, found {number}"));
                None
            }
            _ => self.expected(place, "an integer", value),
        }
    }

    fn problem(&self, document: &Json) -> Option<Input> {
        let keys = ["backends", "target", "total_rate"];
        let [backends, target, total_rate] = self.object("", document, keys)?;
        let target_value = target.and_then(|value| self.integer("target", value));
        let rate = total_rate.and_then(|value| {
            let positive = |rate: f64| rate > 0.0 && rate.is_finite();
            self.number_where("total_rate", value, "a number above 0", positive)
        });
        let list = self.required(document, "", "backends", backends)?;
        let items = self.list("backends", list)?;
        let scale = rate.unwrap_or(1.0);
        let backends: Vec<Option<Backend>> = items
            .iter()
            .enumerate()
            .map(|(at, value)| self.backend(&format!("backends[{at}]"), value, scale))
            .collect();
        self.duplicate_names(&backends, items);
        let has = |want: fn(&Offer) -> bool| {
            backends.iter().flatten().any(|backend| backend.offer.as_ref().is_some_and(want))
        };
        let has_menu = has(|offer| matches!(offer, Offer::Menu(_)));
        let has_curve = has(|offer| matches!(offer, Offer::Curve { .. }));
        match (has_menu, has_curve) {
            (true, true) => {
                self.wrong(list, "backends", "expected all menus or all curves, found both");
            }
            (true, false) => {
                self.required(document, "", "target", target);
                if let Some(rate) = total_rate {
                    self.wrong(rate, "total_rate", "only curves take it");
                }
            }
            (false, true) => {
                if let Some(target) = target {
                    self.wrong(target, "target", "only menus take it");
                }
            }
            (false, false) => {}
        }
        let backends: Vec<Backend> = backends.into_iter().collect::<Option<_>>()?;
        if has_menu { menus(backends, target_value?) } else { Some(curves(backends, scale)) }
    }

    fn duplicate_names(&self, backends: &[Option<Backend>], items: &[Json]) {
        let mut seen = BTreeSet::new();
        for (at, (backend, item)) in backends.iter().zip(items).enumerate() {
            let name = backend.as_ref().and_then(|backend| backend.name.as_deref());
            if let Some(name) = name
                && !seen.insert(name)
            {
                let message =
                    format!("expected a name that no earlier backend has, found {name:?}");
                self.wrong(item, &format!("backends[{at}].name"), &message);
            }
        }
    }

    fn backend(&self, place: &str, value: &Json, scale: f64) -> Option<Backend> {
        let keys = ["name", "menu", "curve", "max_weight"];
        let [name, menu, curve, max_weight] = self.object(place, value, keys)?;
        let name_place = join(place, "name");
        let name = self.required(value, place, "name", name).and_then(|name| match &name.value {
            Value::Text(text) if !text.is_empty() => Some(text.clone()),
            Value::Text(_) => {
                self.wrong(name, &name_place, "expected a name, found an empty one");
                None
            }
            _ => self.expected(&name_place, "a string", name),
        });
        let limit_place = join(place, "max_weight");
        let limit = max_weight.and_then(|value| {
            self.number_where(&limit_place, value, "a number of 0 or more", is_not_negative)
        });
        let offer = match (menu, curve) {
            (Some(menu), None) => {
                if let Some(limit) = max_weight {
                    self.wrong(limit, &limit_place, "only curves take it");
                }
                self.menu(&join(place, "menu"), menu).map(Offer::Menu)
            }
            (None, Some(curve)) => self.curve(&join(place, "curve"), curve).map(|curve| {
                let limit = limit.map_or(DEFAULT_UTILISATION * curve.c, |limit| limit * scale);
                Offer::Curve { curve, limit }
            }),
            (Some(_), Some(_)) => {
                self.wrong(value, place, "expected a menu or a curve, found both");
                None
            }
            (None, None) => {
                self.wrong(value, place, "expected a menu or a curve, found neither");
                None
            }
        };
        Some(Backend { name, offer })
    }

    fn menu(&self, place: &str, value: &Json) -> Option<Vec<Choice>> {
        let items = self.list(place, value)?;
        let choices: Vec<Option<Choice>> = items
            .iter()
            .enumerate()
            .map(|(at, item)| self.choice(&format!("{place}[{at}]"), item))
            .collect();
        choices.into_iter().collect()
    }

    fn choice(&self, place: &str, value: &Json) -> Option<Choice> {
        let [weight, cost] = self.object(place, value, ["weight", "cost"])?;
        let weight_place = join(place, "weight");
        let weight = self.required(value, place, "weight", weight).and_then(|found| {
            let weight = self.integer(&weight_place, found)?;
            if weight < 0 {
                let message = format!("expected an integer of 0 or more, found {weight}");
                self.wrong(found, &weight_place, &message);
                return None;
            }
            Some(weight)
        });
        let cost = self.required(value, place, "cost", cost).and_then(|value| {
            self.number_where(&join(place, "cost"), value, "a finite number", f64::is_finite)
        });
        Some(Choice { weight: weight?, cost: cost? })
    }

    fn curve(&self, place: &str, value: &Json) -> Option<Hyperbola> {
        let [kind, a, b, c] = self.object(place, value, ["kind", "a", "b", "c"])?;
        let kind_place = join(place, "kind");
        if let Some(kind) = self.required(value, place, "kind", kind) {
            match &kind.value {
                Value::Text(text) if text == "hyperbola" => {}
                Value::Text(text) => {
                    self.wrong(kind, &kind_place, &format!("expected hyperbola, found {text:?}"));
                }
                _ => {
                    self.expected::<()>(&kind_place, "hyperbola", kind);
                }
            }
        }
        let parameter = |key: &str, found, what: &str, fits: fn(f64) -> bool| {
            let found = self.required(value, place, key, found)?;
            self.number_where(&join(place, key), found, what, fits)
        };
        let a = parameter("a", a, "a number of 0 or more", is_not_negative);
        let b = parameter("b", b, "a number of 0 or more", is_not_negative);
        let positive = |number: f64| number > 0.0 && number.is_finite();
        let c = parameter("c", c, "a number above 0", positive);
        Some(Hyperbola { a: a?, b: b?, c: c? })
    }
}

fn is_not_negative(number: f64) -> bool {
    number >= 0.0 && number.is_finite()
}

/// What could be read of a backend.
struct Backend {
    name: Option<String>,
    offer: Option<Offer>,
}

enum Offer {
    Menu(Vec<Choice>),
    Curve { curve: Hyperbola, limit: f64 },
}

fn join(place: &str, key: &str) -> String {
    if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") }
}

fn menus(backends: Vec<Backend>, target: i64) -> Option<Input> {
    let mut input = MenuInput { names: Vec::new(), menus: Vec::new(), target };
    for backend in backends {
        let Some(Offer::Menu(menu)) = backend.offer else { return None };
        input.names.push(backend.name?);
        input.menus.push(menu);
    }
    Some(Input::Menus(input))
}

fn curves(backends: Vec<Backend>, total: f64) -> Input {
    let mut input = CurveInput { names: Vec::new(), curves: Vec::new(), limits: Vec::new(), total };
    for backend in backends {
        if let (Some(name), Some(Offer::Curve { curve, limit })) = (backend.name, backend.offer) {
            input.names.push(name);
            input.curves.push(curve);
            input.limits.push(limit);
        }
    }
    Input::Curves(input)
}
