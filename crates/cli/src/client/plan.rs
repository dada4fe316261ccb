//! `plimsoll plan`: the packing behind the weights, how good it is, and what would be better.

use std::io::Write;
use std::process::ExitCode;

use plimsoll_api::wire::ServicePlan;
use plimsoll_control::{Advice, PlanView};
use plimsoll_terminal::{Format, Screen, Tone, json, number};
use serde::Serialize;

use super::{Common, Failure, finish, method, phase};

/// Show the packing behind the weights, and what would serve better
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) common: Common,
}

/// `-o json`
#[derive(Serialize)]
struct Plans<'a> {
    services: &'a [ServicePlan],
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    finish(|out| execute(args, &Screen::stdout(), out))
}

pub(super) fn execute(args: &Args, screen: &Screen, out: &mut dyn Write) -> Result<(), Failure> {
    let client = args.common.client()?;
    let services: Vec<ServicePlan> = args.common.each(&client, "/plan")?;
    if args.common.output == Format::Json {
        return Ok(json(out, &Plans { services: &services })?);
    }
    for (i, service) in services.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        let heading = screen.paint(Tone::Head, &service.service);
        let method = method(service.method, &service.method_name);
        writeln!(out, "{heading}: {method}, {}", phase(service.phase).painted(screen))?;
        for (name, value) in facts(service) {
            writeln!(out, "  {name:<11} {value}")?;
        }
        if let Some(advice) = &service.plan.advice {
            writeln!(out, "  {:<11} {}", "advice", screen.paint(Tone::Warn, &sentence(advice)))?;
        }
    }
    Ok(())
}

fn facts(service: &ServicePlan) -> Vec<(&'static str, String)> {
    let plan = &service.plan;
    let ms = |value: Option<f64>| value.map(|value| format!("{} ms", number(value)));
    let epoch = match plan.epoch {
        0 => "none yet".to_owned(),
        epoch => format!("epoch {epoch}: {}", plan.reason),
    };
    let unknown = || "unknown".to_owned();
    let mut facts = vec![
        ("plan", epoch),
        ("objective", plan.objective.to_string()),
        ("expected", ms(plan.expected_ms).unwrap_or_else(unknown)),
        ("measured", ms(service.latency_ms).unwrap_or_else(unknown)),
        ("proof", proof(plan)),
    ];
    let load = if plan.capacity_rps > 0.0 {
        format!(
            "{} of {} req/s ({:.0} %)",
            number(plan.rate_rps),
            number(plan.capacity_rps),
            100.0 * plan.rate_rps / plan.capacity_rps
        )
    } else {
        format!("{} req/s, capacity not known yet", number(plan.rate_rps))
    };
    facts.push(("load", load));
    facts.push(("learns from", sources(plan.probed, plan.told_by.as_deref()).to_owned()));
    if let Some(cost) = plan.several_cost {
        let subsets = plan
            .subsets_cost
            .map_or(String::new(), |cost| format!(", with `subsets: true` {:.0} %", 100.0 * cost));
        let said = format!(
            "each counts only its own requests: clients wait {:.0} % longer than behind one with these weights{subsets}",
            100.0 * cost
        );
        facts.push(("balancers", said));
    }
    facts
}

/// Where response times come from, and what is worse without probes.
fn sources(probed: bool, told_by: Option<&str>) -> &'static str {
    match (told_by, probed) {
        (Some("access_log"), true) => "the balancer's access log and probes",
        (Some("access_log"), false) => {
            "the balancer's access log (no probe): all is known a second later than from its counters"
        }
        (Some(_), true) => "Prometheus and probes",
        (Some(_), false) => {
            "Prometheus (no probe): a change shows after the range and the interval of its queries; wrong answers only \
             where a query tells `errors`"
        }
        (None, true) => "traffic and probes",
        (None, false) => {
            // The figures are those of docs/configuration.md, "Without a probe".
            "traffic alone (no probe): means to within 5 % after 20 s of traffic; a backend without traffic keeps the \
             response time that was learned last, and its next clients find out if it answers wrongly by now (weight 0 \
             some 100 ms later)"
        }
    }
}

/// How far from the best the packing can be, for the curves it was made from.
fn proof(plan: &PlanView) -> String {
    let bound = plan.bound_ms.map(|bound| format!("bound {} ms", number(bound)));
    let gap = plan.gap.map(|gap| format!("gap {:.2} %", 100.0 * gap));
    let known: Vec<String> = bound.into_iter().chain(gap).collect();
    let verdict = if plan.proven { "optimal for these curves" } else { "not proven optimal" };
    match known.is_empty() {
        true => verdict.to_owned(),
        false => format!("{verdict} ({})", known.join(", ")),
    }
}

/// By how much, and no more: of the model that compares them only the ratio is to be trusted.
fn sentence(advice: &Advice) -> String {
    format!(
        "{} would serve better: clients would wait about {:.0} % less in the mean",
        advice.method,
        100.0 * advice.gain
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_says_by_how_much() {
        let advice = Advice {
            method: "leastconn".to_owned(),
            expected_ms: 34.6,
            present_ms: 44.7,
            gain: 1.0 - 34.6 / 44.7,
        };
        assert_eq!(
            sentence(&advice),
            "leastconn would serve better: clients would wait about 23 % less in the mean"
        );
    }
}
