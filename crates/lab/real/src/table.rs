//! The result for people: aligned columns, two spaces between them.

use plimsoll_lanes::Measured;

use crate::noticed::Reaction;
use crate::ratio::Ratio;
use crate::report::Report;

/// The whole report.
pub fn text(report: &Report) -> String {
    let mut text = format!("servers ({})\n", report.make);
    let mut rows = vec![row(["SERVER", "QUOTA %", "CAPACITY r/s"])];
    for server in &report.servers {
        rows.push(vec![
            server.name.clone(),
            format!("{:.2}", server.cores * 100.0),
            format!("{:.2}", server.capacity_rps),
        ]);
    }
    text += &aligned(&rows);
    text += "\nafter learning; ratio of means to the same method with weights by true capacity\n";
    let mut rows = vec![row([
        "LOAD", "LANE", "REQUESTS", "ERRORS", "MEAN ms", "P50", "P99", "RATIO", "95 %", "FAILED",
        "BUSY %",
    ])];
    for cell in &report.cells {
        let [requests, errors, mean, p50, p99] = numbers(&cell.steady);
        let [ratio, interval] = ratio(cell.ratio);
        let busy = cell.busy.map_or(dash(), |busy| format!("{:.0}", busy * 100.0));
        let lane = cell.lane.to_owned();
        let failed = count(cell.living_failed);
        let load = cell.load.to_string();
        rows.push(vec![
            load, lane, requests, errors, mean, p50, p99, ratio, interval, failed, busy,
        ]);
    }
    text += &aligned(&rows);
    text += "\nwhile learning; ratio of means to the same method with equal weights\n";
    let mut rows = vec![row([
        "LOAD", "LANE", "REQUESTS", "ERRORS", "MEAN ms", "P50", "P99", "RATIO", "95 %", "FAILED",
    ])];
    for cell in &report.cells {
        let [requests, errors, mean, p50, p99] = numbers(&cell.learning);
        let [ratio, interval] = ratio(cell.learning_ratio);
        let (load, lane) = (cell.load.to_string(), cell.lane.to_owned());
        let failed = count(cell.living_failed_learning);
        rows.push(vec![load, lane, requests, errors, mean, p50, p99, ratio, interval, failed]);
    }
    text += &aligned(&rows);
    text += "\nall loads: geometric mean of the ratios, p99 of all requests\n";
    let mut rows = vec![row(["LANE", "RATIO", "95 %", "P99 ms", "RATIO", "ERRORS", "FAILED"])];
    for lane in &report.lanes {
        let [ratio, interval] = ratio(lane.ratio);
        let p99_ratio = lane.p99_ratio.map_or(dash(), |ratio| format!("{ratio:.3}"));
        let (errors, failed) = (lane.errors.to_string(), count(lane.living_failed));
        rows.push(vec![
            lane.lane.to_owned(),
            ratio,
            interval,
            ms(lane.p99_ms),
            p99_ratio,
            errors,
            failed,
        ]);
    }
    text += &aligned(&rows);
    text += "FAILED: living backends that Plimsoll declared failed\n";
    if !report.events.is_empty() {
        text += "\nevents\n";
        let mut rows = vec![row([
            "EVENT", "WHEN", "LOAD", "LANE", "REQUESTS", "ERRORS", "MEAN ms", "P50", "P99",
            "RATIO", "95 %",
        ])];
        for during in &report.events {
            let [requests, errors, mean, p50, p99] = numbers(&during.measured);
            let [ratio, interval] = ratio(during.ratio);
            let (event, when) = (during.event.clone(), during.when.clone());
            let (load, lane) = (during.load.to_string(), during.lane.to_owned());
            rows.push(vec![
                event, when, load, lane, requests, errors, mean, p50, p99, ratio, interval,
            ]);
        }
        text += &aligned(&rows);
    }
    if !report.noticed.is_empty() {
        text +=
            "\nwhat Plimsoll did about events: seconds until it did, at the latest (how often)\n";
        let mut rows =
            vec![row(["EVENT", "LOAD", "LANE", "TIMES", "SET ASIDE", "FAILED", "CHANGE", "BACK"])];
        for noticed in &report.noticed {
            let mut cells = vec![
                noticed.event.clone(),
                noticed.load.to_string(),
                noticed.lane.to_owned(),
                noticed.times.to_string(),
            ];
            let reactions = [noticed.set_aside, noticed.failed, noticed.change, noticed.back];
            cells.extend(reactions.map(reaction));
            rows.push(cells);
        }
        text += &aligned(&rows);
        text += "BACK: restored or returned, from the end of the event\n";
    }
    for warning in &report.warnings {
        text += &format!("\nwarning: {warning}\n");
    }
    text
}

fn dash() -> String {
    "-".to_owned()
}

fn row<const N: usize>(titles: [&str; N]) -> Vec<String> {
    titles.map(str::to_owned).into()
}

fn ms(value: Option<f64>) -> String {
    value.map_or(dash(), |ms| if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") })
}

fn count(value: Option<usize>) -> String {
    value.map_or(dash(), |count| count.to_string())
}

fn numbers(measured: &Measured) -> [String; 5] {
    let Measured { requests, errors, mean_ms, p50_ms, p99_ms, .. } = *measured;
    [requests.to_string(), errors.to_string(), ms(mean_ms), ms(p50_ms), ms(p99_ms)]
}

fn reaction(reaction: Reaction) -> String {
    let latest = reaction.latest_s;
    latest.map_or(dash(), |seconds| format!("{seconds:.2} ({})", reaction.count))
}

fn ratio(ratio: Option<Ratio>) -> [String; 2] {
    let Some(ratio) = ratio else { return [dash(), dash()] };
    let ends = ratio.low.zip(ratio.high);
    let interval = ends.map_or(dash(), |(low, high)| format!("{low:.3}–{high:.3}"));
    [format!("{:.3}", ratio.value), interval]
}

/// Numbers to the right, words to the left.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let width = |column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let is_number = |cell: &String| cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit());
    let formats: Vec<(usize, bool)> =
        (0..columns).map(|column| (width(column), cells(column).skip(1).all(is_number))).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, (width, right)) in row.iter().zip(&formats) {
            let space = " ".repeat(width - cell.chars().count());
            let (before, after) =
                if *right { (space, String::new()) } else { (String::new(), space) };
            line += &format!("{before}{cell}{after}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let rows = [row(["LANE", "MEAN"]), row(["a", "5"]), row(["bcdef", "12.5"])];
        assert_eq!(aligned(&rows), "LANE   MEAN\na         5\nbcdef  12.5\n");
    }
}
