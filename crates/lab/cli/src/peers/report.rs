//! What all cells say together.

use std::fmt::Write as _;

use plimsoll_lanes::{half_width, mean};
use plimsoll_terminal::Screen;
use plimsoll_terminal::table::{Table, left, right};
use serde::Serialize;

use super::Args;
use super::cell::Cell;

/// All cells, and what they say of each make under each load.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What the mean client of one queue that all servers share waits, milliseconds, by load below 1: simulated.
    pub central_ms: Vec<(f64, f64)>,
    /// By load, number of balancers and make.
    pub rows: Vec<Row>,
    /// Every cell.
    pub cells: Vec<Cell>,
    #[serde(skip)]
    against: Option<&'static str>,
}

/// One make under one load, over all rounds.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The balancer.
    pub peer: String,
    /// How many.
    pub balancers: u32,
    /// The part of the capacity that was asked for.
    pub load: f64,
    /// Mean of the rounds' means, milliseconds, of what was served.
    pub mean_ms: f64,
    /// Mean of their 99th percentiles.
    pub p99_ms: f64,
    /// Requests that failed, percent of all.
    pub failed_percent: f64,
    /// The mean over that of the central queue.
    pub of_central: Option<f64>,
    /// The mean over that of the one to compare with, by round: their mean and the half of its 95 % interval, where
    /// there are several rounds.
    pub of_other: Option<(f64, Option<f64>)>,
    /// How busy the machine was, 0…1.
    pub busy: Option<f64>,
}

impl Report {
    /// Of these.
    pub fn new(args: &Args, cells: Vec<Cell>, central_ms: Vec<(f64, f64)>) -> Self {
        let against = args.against.map(plimsoll_lanes::Peer::name);
        let mut rows: Vec<Row> = Vec::new();
        for cell in &cells {
            let is_row = |row: &Row| {
                (row.load, row.balancers, &row.peer) == (cell.load, cell.balancers, &cell.peer)
            };
            if !rows.iter().any(is_row) {
                rows.push(row(cell, &cells, &central_ms, against));
            }
        }
        Report { central_ms, rows, cells, against }
    }

    /// For people.
    pub fn text(&self, screen: &Screen) -> String {
        let mut columns = vec![
            right("LOAD"),
            right("BALANCERS"),
            left("PEER"),
            right("MEAN ms"),
            right("P99 ms"),
            right("FAILED %"),
            right("/CENTRAL"),
            right("CPU %"),
        ];
        columns.extend(self.against.map(|_| right("/OTHER")));
        let mut table = Table::new(columns);
        for row in &self.rows {
            let ratio =
                |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}"));
            let mut line = vec![
                row.load.to_string(),
                row.balancers.to_string(),
                row.peer.clone(),
                format!("{:.1}", row.mean_ms),
                format!("{:.1}", row.p99_ms),
                format!("{:.2}", row.failed_percent),
                ratio(row.of_central),
                row.busy.map_or_else(|| "-".to_owned(), |busy| format!("{:.0}", 100.0 * busy)),
            ];
            if self.against.is_some() {
                line.push(match row.of_other {
                    Some((of, Some(half))) => format!("{of:.3} ±{half:.3}"),
                    Some((of, None)) => format!("{of:.3}"),
                    None => "-".to_owned(),
                });
            }
            table.row(line.into_iter().map(Into::into));
        }
        let mut text = table.render(screen);
        for (load, ms) in &self.central_ms {
            // To a string: it cannot fail.
            let _ = writeln!(text, "central queue at {load}: {ms:.1} ms (simulated)");
        }
        if let Some(other) = self.against {
            let _ = writeln!(text, "/OTHER: by round, over {other}; ± half of the 95 % interval");
        }
        text
    }
}

fn row(of: &Cell, cells: &[Cell], central: &[(f64, f64)], against: Option<&str>) -> Row {
    let alike = |cell: &&Cell| (cell.load, cell.balancers) == (of.load, of.balancers);
    let ours: Vec<&Cell> = cells.iter().filter(alike).filter(|cell| cell.peer == of.peer).collect();
    let mean_of = |what: fn(&Cell) -> Option<f64>| {
        mean(&ours.iter().filter_map(|cell| what(cell)).collect::<Vec<_>>())
    };
    let mean_ms = mean_of(|cell| cell.mean_ms).unwrap_or(f64::NAN);
    let central = central.iter().find(|(load, _)| *load == of.load).map(|(_, ms)| *ms);
    let ratios: Vec<f64> = ours
        .iter()
        .filter_map(|cell| {
            let mut others = cells.iter().filter(alike).filter(|o| Some(&*o.peer) == against);
            Some(cell.mean_ms? / others.find(|other| other.round == cell.round)?.mean_ms?)
        })
        .collect();
    let requests: u64 = ours.iter().map(|cell| cell.requests).sum();
    let failed: u64 = ours.iter().map(|cell| cell.failed).sum();
    Row {
        peer: of.peer.clone(),
        balancers: of.balancers,
        load: of.load,
        mean_ms,
        p99_ms: mean_of(|cell| cell.p99_ms).unwrap_or(f64::NAN),
        failed_percent: 100.0 * failed as f64 / requests.max(1) as f64,
        of_central: central.map(|central| mean_ms / central),
        of_other: mean(&ratios).map(|mean| (mean, half_width(&ratios))),
        busy: mean_of(|cell| cell.busy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(peer: &str, round: u32, mean_ms: f64) -> Cell {
        Cell {
            peer: peer.to_owned(),
            balancers: 1,
            load: 0.7,
            round,
            settings: String::new(),
            rate_rps: 10.0,
            requests: 100,
            failed: 1,
            mean_ms: Some(mean_ms),
            error_ms: None,
            p50_ms: None,
            p99_ms: Some(5.0 * mean_ms),
            busy: Some(0.5),
            lateness_p99_us: 7,
            first_error: None,
        }
    }

    #[test]
    fn rounds_are_compared_one_by_one() {
        let cells =
            [cell("a", 1, 11.0), cell("b", 1, 10.0), cell("a", 2, 24.0), cell("b", 2, 20.0)];
        let of = row(&cells[0], &cells, &[(0.7, 10.0)], Some("b"));
        assert!((of.mean_ms - 17.5).abs() < 1e-9 && of.of_central == Some(1.75));
        let (ratio, half) = of.of_other.unwrap();
        assert!((ratio - 1.15).abs() < 1e-9);
        // A standard deviation of 0.0707 over the root of 2, 12.71 times.
        assert!(half.is_some_and(|half| (half - 0.6355).abs() < 1e-3), "{half:?}");
        assert!((of.failed_percent - 1.0).abs() < 1e-9);
        assert_eq!(row(&cells[1], &cells, &[], None).of_other, None);
    }
}
