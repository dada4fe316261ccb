//! `plimsoll solve`: packs a problem out of a file, without a daemon.

mod answer;
mod input;
mod json;

use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use plimsoll_model::Objective;
use plimsoll_pack::{
    CurveBackend, CurveProblem, Effort, MenuProblem, PackError, Packing, pack_curves, pack_menus,
    pack_two_step, pack_units,
};
use plimsoll_terminal::{Format, complain, exit};

use answer::{Answer, Weight};
use input::{CurveInput, Input, MenuInput};

/// Exit code for a well-formed problem that has no solution.
const INFEASIBLE: u8 = 3;
/// `--method exact` shares curves out in this many whole units.
const CURVE_UNITS: u32 = 1_000_000;

/// Pack a problem given as JSON: menus of weights, or latency curves.
#[derive(Args, Debug)]
pub struct SolveArgs {
    /// The problem, or `-` for standard input.
    pub file: PathBuf,
    /// What to minimise. Default: traffic on curves, sum on menus.
    #[arg(long, value_enum)]
    pub objective: Option<ObjectiveArg>,
    /// The greatest allowed difference between the largest and the smallest weight.
    #[arg(long, value_name = "T")]
    pub theta: Option<f64>,
    /// How to solve: exact on menus (on curves: in whole millionths), continuous or two-step on curves.
    #[arg(long, value_enum, default_value = "auto")]
    pub method: SolveMethod,
    /// What to print.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
}

/// `--objective`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ObjectiveArg {
    /// The sum of all costs, or of all latencies.
    Sum,
    /// What the mean client waits; needs curves.
    Traffic,
    /// The greatest cost, or the greatest latency of a backend in use.
    Max,
}

/// `--method`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SolveMethod {
    /// Exact on menus, continuous on curves.
    Auto,
    /// The exact menu solver; on curves the best whole millionths.
    Exact,
    /// Any weight on the curves.
    Continuous,
    /// Ten weights per curve, then ten around the answer: the KnapsackLB paper's way.
    TwoStep,
}

/// Reads, solves and prints. Problems with the input go to standard error, one line each.
pub fn run(args: &SolveArgs) -> ExitCode {
    let name = args.file.display().to_string();
    let text = match read(args) {
        Ok(text) => text,
        Err(error) => {
            complain!("{name}:1:1: problem: cannot be read: {error}");
            return ExitCode::from(exit::MALFORMED);
        }
    };
    let input = match input::parse(&name, &text) {
        Ok(input) => input,
        Err(problems) => {
            problems.iter().for_each(|problem| complain!("{problem}"));
            return ExitCode::from(exit::MALFORMED);
        }
    };
    match solve(&input, args) {
        Ok(answer) => {
            let text = match args.output {
                Format::Json => answer.to_json(),
                Format::Table => answer.to_table(),
            };
            match writeln!(std::io::stdout(), "{text}") {
                Ok(()) => {}
                // A reader that closed the pipe has seen enough.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) => {
                    complain!("plimsoll: cannot write the answer: {error}");
                    return ExitCode::from(exit::FAILED);
                }
            }
            if let Some(reason) = answer.infeasible_because() {
                complain!("{name}: infeasible: {reason}");
                return ExitCode::from(INFEASIBLE);
            }
            ExitCode::SUCCESS
        }
        Err(problem) => {
            complain!("{name}: {problem}");
            ExitCode::from(exit::MALFORMED)
        }
    }
}

fn read(args: &SolveArgs) -> std::io::Result<String> {
    if args.file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(&args.file)
}

fn solve(input: &Input, args: &SolveArgs) -> Result<Answer, String> {
    if args.theta.is_some_and(|theta| theta.is_nan() || theta < 0.0) {
        return Err("--theta: a number of 0 or more was expected".to_owned());
    }
    match input {
        Input::Menus(input) => solve_menus(input, args),
        Input::Curves(input) => solve_curves(input, args),
    }
}

fn solve_menus(input: &MenuInput, args: &SolveArgs) -> Result<Answer, String> {
    if matches!(args.method, SolveMethod::Continuous | SolveMethod::TwoStep) {
        return Err("--method: menus take auto or exact; the others need curves".to_owned());
    }
    let objective = match args.objective {
        None | Some(ObjectiveArg::Sum) => Objective::Sum,
        Some(ObjectiveArg::Max) => Objective::Max,
        Some(ObjectiveArg::Traffic) => {
            return Err("--objective: menus take sum or max; traffic needs curves".to_owned());
        }
    };
    // Whole weights differ by T at the most if they differ by the whole part of T.
    let theta = args.theta.map(|theta| theta.floor() as i64);
    let problem = MenuProblem { menus: &input.menus, target: input.target, theta };
    let start = Instant::now();
    let result = pack_menus(&problem, objective, &Effort::default());
    let elapsed = start.elapsed();
    answer(&input.names, result, elapsed, Weight::Whole)
}

fn solve_curves(input: &CurveInput, args: &SolveArgs) -> Result<Answer, String> {
    let objective = match args.objective {
        None | Some(ObjectiveArg::Traffic) => Objective::Traffic,
        Some(ObjectiveArg::Sum) => Objective::Sum,
        Some(ObjectiveArg::Max) => Objective::Max,
    };
    if args.method == SolveMethod::Exact && args.theta.is_some() {
        return Err("--theta: curves take it with --method continuous or two-step".to_owned());
    }
    let start = Instant::now();
    let curves = input.curves.iter().zip(&input.limits);
    let backends: Vec<CurveBackend> =
        curves.map(|(curve, &max_load)| CurveBackend { curve, max_load }).collect();
    let problem = CurveProblem { backends: &backends, total: input.total, theta: args.theta };
    let result = match args.method {
        SolveMethod::Auto | SolveMethod::Continuous => pack_curves(&problem, objective),
        SolveMethod::TwoStep => pack_two_step(&problem, objective, &Effort::default()),
        SolveMethod::Exact => {
            pack_units(&backends, input.total, objective, CURVE_UNITS).map(in_shares)
        }
    };
    let elapsed = start.elapsed();
    answer(&input.names, result, elapsed, Weight::Share)
}

/// Units as shares of the traffic.
fn in_shares(packing: Packing<i64>) -> Packing<f64> {
    let share = |&units: &i64| units as f64 / f64::from(CURVE_UNITS);
    Packing {
        weights: packing.weights.iter().map(share).collect(),
        status: packing.status,
        objective: packing.objective,
        bound: packing.bound,
        gap: packing.gap,
        short_of_capacity: packing.short_of_capacity,
    }
}

fn answer<W: Copy>(
    names: &[String],
    result: Result<Packing<W>, PackError>,
    elapsed: std::time::Duration,
    weight: impl Fn(W) -> Weight,
) -> Result<Answer, String> {
    match result {
        Ok(packing) => Ok(Answer::from_packing(names, &packing, elapsed, weight)),
        Err(PackError::Infeasible { needed, reachable }) => Ok(Answer::infeasible(
            names,
            elapsed,
            needed - reachable,
            format!("{needed} needed, {reachable} reachable, {} missing", needed - reachable),
        )),
        Err(error @ PackError::ThetaTooSmall { theta, least }) => {
            Ok(Answer::infeasible(names, elapsed, least - theta, error.to_string()))
        }
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
