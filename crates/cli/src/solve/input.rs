//! What `plimsoll solve` reads, checked whole: every mistake is found, each with its place.

use std::collections::BTreeSet;

use plimsoll_model::Hyperbola;
use plimsoll_pack::Choice;

use super::json::Json;

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

/// Reads a problem.
///
/// # Errors
/// All that is wrong, one line each, to follow the file's name and a colon.
pub fn parse(text: &str) -> Result<Input, Vec<String>> {
    let document: Json = serde_json::from_str(text).map_err(|error| {
        let place = format!(" at line {} column {}", error.line(), error.column());
        let message = error.to_string().replace(&place, "");
        vec![format!("{}:{}: {message}", error.line(), error.column())]
    })?;
    let mut reader = Reader::default();
    let input = reader.problem(&document);
    match input {
        Some(input) if reader.problems.is_empty() => Ok(input),
        _ => Err(reader.problems),
    }
}

/// Collects what is wrong while it reads on.
#[derive(Default)]
struct Reader {
    problems: Vec<String>,
}

impl Reader {
    fn wrong(&mut self, place: &str, expected: &str) {
        let separator = if place.is_empty() { "" } else { ": " };
        self.problems.push(format!(" {place}{separator}{expected}"));
    }

    fn expected<T>(&mut self, place: &str, what: &str, found: &Json) -> Option<T> {
        self.wrong(place, &format!("{what} was expected, not {}", found.kind()));
        None
    }

    /// The values of the known keys. Unknown and repeated keys are mistakes.
    fn object<'a, const N: usize>(
        &mut self,
        place: &str,
        value: &'a Json,
        keys: [&str; N],
    ) -> Option<[Option<&'a Json>; N]> {
        let Json::Object(entries) = value else {
            return self.expected(place, "an object", value);
        };
        let mut found = [None; N];
        for (key, value) in entries {
            let at = join(place, key);
            match keys.iter().position(|known| known == key) {
                None => self.wrong(&at, &format!("unknown key; known are {}", keys.join(", "))),
                Some(position) if found[position].is_some() => self.wrong(&at, "given twice"),
                Some(position) => found[position] = Some(value),
            }
        }
        Some(found)
    }

    fn required<'a>(
        &mut self,
        place: &str,
        key: &str,
        value: Option<&'a Json>,
    ) -> Option<&'a Json> {
        if value.is_none() {
            self.wrong(&join(place, key), "missing");
        }
        value
    }

    fn list<'a>(&mut self, place: &str, value: &'a Json) -> Option<&'a [Json]> {
        match value {
            Json::List(items) if items.is_empty() => {
                self.wrong(place, "at least one entry was expected");
                None
            }
            Json::List(items) => Some(items),
            other => self.expected(place, "a list", other),
        }
    }

    fn number(&mut self, place: &str, value: &Json) -> Option<f64> {
        match value {
            Json::Integer(number) => Some(*number as f64),
            Json::Float(number) => Some(*number),
            other => self.expected(place, "a number", other),
        }
    }

    fn number_where(
        &mut self,
        place: &str,
        value: &Json,
        what: &str,
        fits: impl Fn(f64) -> bool,
    ) -> Option<f64> {
        let number = self.number(place, value)?;
        if !fits(number) {
            self.wrong(place, &format!("{what} was expected, not {number}"));
            return None;
        }
        Some(number)
    }

    fn integer(&mut self, place: &str, value: &Json) -> Option<i64> {
        match value {
            Json::Integer(number) => Some(*number),
            // Floats hold every integer up to 2⁵³ exactly.
            Json::Float(number)
                if number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0 =>
            {
                Some(*number as i64)
            }
            Json::Float(number) => {
                self.wrong(place, &format!("a 64-bit integer was expected, not {number}"));
                None
            }
            other => self.expected(place, "an integer", other),
        }
    }

    fn problem(&mut self, document: &Json) -> Option<Input> {
        let keys = ["backends", "target", "total_rate"];
        let [backends, target, total_rate] = self.object("", document, keys)?;
        let target_value = target.and_then(|value| self.integer("target", value));
        let rate = total_rate.and_then(|value| {
            let positive = |rate: f64| rate > 0.0 && rate.is_finite();
            self.number_where("total_rate", value, "a number above 0", positive)
        });
        let list = self.required("", "backends", backends)?;
        let list = self.list("backends", list)?;
        let scale = rate.unwrap_or(1.0);
        let backends: Vec<Option<Backend>> = list
            .iter()
            .enumerate()
            .map(|(at, value)| self.backend(&format!("backends[{at}]"), value, scale))
            .collect();
        self.duplicate_names(&backends);
        let has = |want: fn(&Offer) -> bool| {
            backends.iter().flatten().any(|backend| backend.offer.as_ref().is_some_and(want))
        };
        let has_menu = has(|offer| matches!(offer, Offer::Menu(_)));
        let has_curve = has(|offer| matches!(offer, Offer::Curve { .. }));
        match (has_menu, has_curve) {
            (true, true) => {
                self.wrong("backends", "all menus or all curves were expected, not both")
            }
            (true, false) => {
                self.required("", "target", target);
                if total_rate.is_some() {
                    self.wrong("total_rate", "only curves take it");
                }
            }
            (false, true) if target.is_some() => self.wrong("target", "only menus take it"),
            _ => {}
        }
        if !self.problems.is_empty() {
            return None;
        }
        let backends = backends.into_iter().flatten();
        if has_menu { menus(backends, target_value?) } else { Some(curves(backends, scale)) }
    }

    fn duplicate_names(&mut self, backends: &[Option<Backend>]) {
        let mut seen = BTreeSet::new();
        for (at, backend) in backends.iter().enumerate() {
            let name = backend.as_ref().and_then(|backend| backend.name.as_deref());
            if let Some(name) = name
                && !seen.insert(name)
            {
                let place = format!("backends[{at}].name");
                self.wrong(&place, &format!("{name:?} is the name of an earlier backend"));
            }
        }
    }

    fn backend(&mut self, place: &str, value: &Json, scale: f64) -> Option<Backend> {
        let keys = ["name", "menu", "curve", "max_weight"];
        let [name, menu, curve, max_weight] = self.object(place, value, keys)?;
        let name_place = join(place, "name");
        let name = self.required(place, "name", name).and_then(|name| match name {
            Json::Text(text) if !text.is_empty() => Some(text.clone()),
            Json::Text(_) => {
                self.wrong(&name_place, "a name was expected, not an empty one");
                None
            }
            other => self.expected(&name_place, "a string", other),
        });
        let limit_place = join(place, "max_weight");
        let limit = max_weight.and_then(|value| {
            let fits = |limit: f64| limit >= 0.0 && limit.is_finite();
            self.number_where(&limit_place, value, "a number of 0 or more", fits)
        });
        let offer = match (menu, curve) {
            (Some(menu), None) => {
                if max_weight.is_some() {
                    self.wrong(&limit_place, "only curves take it");
                }
                self.menu(&join(place, "menu"), menu).map(Offer::Menu)
            }
            (None, Some(curve)) => self.curve(&join(place, "curve"), curve).map(|curve| {
                let limit = limit.map_or(DEFAULT_UTILISATION * curve.c, |limit| limit * scale);
                Offer::Curve { curve, limit }
            }),
            (Some(_), Some(_)) => {
                self.wrong(place, "a menu or a curve was expected, not both");
                None
            }
            (None, None) => {
                self.wrong(place, "a menu or a curve was expected");
                None
            }
        };
        Some(Backend { name, offer })
    }

    fn menu(&mut self, place: &str, value: &Json) -> Option<Vec<Choice>> {
        let items = self.list(place, value)?;
        let choices: Vec<Option<Choice>> = items
            .iter()
            .enumerate()
            .map(|(at, item)| self.choice(&format!("{place}[{at}]"), item))
            .collect();
        choices.into_iter().collect()
    }

    fn choice(&mut self, place: &str, value: &Json) -> Option<Choice> {
        let [weight, cost] = self.object(place, value, ["weight", "cost"])?;
        let weight_place = join(place, "weight");
        let weight = self.required(place, "weight", weight);
        let weight =
            weight.and_then(|value| self.integer(&weight_place, value)).filter(|&weight| {
                if weight < 0 {
                    self.wrong(
                        &weight_place,
                        &format!("an integer of 0 or more was expected, not {weight}"),
                    );
                }
                weight >= 0
            });
        let cost = self.required(place, "cost", cost).and_then(|value| {
            self.number_where(&join(place, "cost"), value, "a finite number", f64::is_finite)
        });
        Some(Choice { weight: weight?, cost: cost? })
    }

    fn curve(&mut self, place: &str, value: &Json) -> Option<Hyperbola> {
        let [kind, a, b, c] = self.object(place, value, ["kind", "a", "b", "c"])?;
        let kind_place = join(place, "kind");
        match self.required(place, "kind", kind) {
            Some(Json::Text(kind)) if kind == "hyperbola" => {}
            Some(Json::Text(kind)) => {
                self.wrong(&kind_place, &format!("hyperbola was expected, not {kind:?}"));
            }
            Some(other) => {
                self.expected::<()>(&kind_place, "hyperbola", other);
            }
            None => {}
        }
        let mut parameter = |key: &str, value, what: &str, fits: fn(f64) -> bool| {
            let value = self.required(place, key, value)?;
            self.number_where(&join(place, key), value, what, fits)
        };
        let not_negative = |number: f64| number >= 0.0 && number.is_finite();
        let a = parameter("a", a, "a number of 0 or more", not_negative);
        let b = parameter("b", b, "a number of 0 or more", not_negative);
        let positive = |number: f64| number > 0.0 && number.is_finite();
        let c = parameter("c", c, "a number above 0", positive);
        Some(Hyperbola { a: a?, b: b?, c: c? })
    }
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

fn menus(backends: impl Iterator<Item = Backend>, target: i64) -> Option<Input> {
    let mut input = MenuInput { names: Vec::new(), menus: Vec::new(), target };
    for backend in backends {
        let Some(Offer::Menu(menu)) = backend.offer else { return None };
        input.names.push(backend.name?);
        input.menus.push(menu);
    }
    Some(Input::Menus(input))
}

fn curves(backends: impl Iterator<Item = Backend>, total: f64) -> Input {
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
