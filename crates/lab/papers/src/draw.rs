//! Plots as SVG, by plotters: a title, a legend under it, and one panel with axes.
//!
//! The first eight colours are those of Okabe and Ito ("Color universal design", 2008), the next those of Tol
//! ("Colour schemes", 2021), which people with any kind of colour vision can distinguish; what a paper reports
//! is dashed or hollow as well.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::element::ErrorBarOrientV;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::plot::{Axis, Bars, Lines, Mark, Plot, PlotKind};
use crate::summary::figures_short;
use crate::{Failure, Provenance};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;
type Drawn<T> = Result<T, Box<dyn std::error::Error>>;

const WIDTH: u32 = 760;
/// Of the panel with its axes; title and legend come on top of it.
const PANEL_HEIGHT: u32 = 400;
const TITLE_HEIGHT: u32 = 44;
/// One entry of the legend.
const ENTRY_HEIGHT: u32 = 20;
/// Labels no longer than this, in letters, stand in two columns.
const SHORT_LABEL: usize = 42;
const FONT: &str = "system-ui, sans-serif";
const TEXT_SIZE: u32 = 15;
/// Bars get their values written over them up to this many.
const LABELLED_BARS: usize = 24;
/// The part of a category's width that its bars fill.
const FILLED: f64 = 0.8;
/// Room above the data, as a part of their span.
const HEADROOM: f64 = 0.06;

const INK: RGBColor = RGBColor(0x22, 0x26, 0x2b);
const FAINT: RGBColor = RGBColor(0xe3, 0xe6, 0xea);
/// Hues this part of the circle apart stay apart, however many there are.
const GOLDEN: f64 = 0.618_034;
const FIRST_COLORS: [RGBColor; 16] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x6b, 0x4e, 0x16),
    RGBColor(0x22, 0x26, 0x2b),
    RGBColor(0x33, 0x22, 0x88),
    RGBColor(0x44, 0xaa, 0x99),
    RGBColor(0x11, 0x77, 0x33),
    RGBColor(0x99, 0x99, 0x33),
    RGBColor(0xcc, 0x66, 0x77),
    RGBColor(0x88, 0x22, 0x55),
    RGBColor(0xaa, 0x44, 0x99),
    RGBColor(0x8a, 0x90, 0x98),
];

/// A colour of its own for every series, that can be seen on white.
fn color(series: usize) -> RGBColor {
    if let Some(first) = FIRST_COLORS.get(series) {
        return *first;
    }
    let other = (series - FIRST_COLORS.len()) as f64;
    let (r, g, b) = HSLColor((GOLDEN * other).fract(), 0.6, 0.4).to_rgba().rgb();
    RGBColor(r, g, b)
}

/// The plot as the text of an SVG file.
///
/// # Errors
/// When it holds nothing that could be drawn.
pub fn document(plot: &Plot) -> Result<String, Failure> {
    let entries = entries(plot);
    let short = entries.iter().all(|(label, ..)| label.chars().count() <= SHORT_LABEL);
    let columns = if short { 2 } else { 1 };
    let rows = entries.len().div_ceil(columns).max(1);
    let head = TITLE_HEIGHT + ENTRY_HEIGHT * rows as u32;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, head + PANEL_HEIGHT));
        let root = root.into_drawing_area();
        let (top, panel) = root.split_vertically(head);
        let draw = || -> Drawn<()> {
            root.fill(&WHITE)?;
            let legend = top.titled(&plot.title, (FONT, 20).into_font().color(&INK))?;
            let cells = legend.margin(0, 4, 16, 8).split_evenly((rows, columns));
            cells.iter().zip(&entries).try_for_each(|(cell, entry)| draw_entry(cell, entry))?;
            draw_panel(&panel, plot)
        };
        draw().map_err(|error| Failure::Other(format!("plot {}: {error}", plot.name)))?;
    }
    Ok(text)
}

/// Label, colour, and whether it is drawn hollow.
type Entry = (String, RGBColor, bool);

fn entries(plot: &Plot) -> Vec<Entry> {
    let entry = |(i, (label, from, like)): (usize, (&str, Provenance, Option<usize>))| {
        (format!("{label} ({from})"), color(like.unwrap_or(i)), reported(from))
    };
    match &plot.kind {
        PlotKind::Lines(lines) => {
            let all = lines.iter().map(|l| (&*l.label, l.provenance, l.like));
            all.enumerate().map(entry).collect()
        }
        PlotKind::Bars { series, .. } => {
            let all = series.iter().map(|s| (&*s.label, s.provenance, s.like));
            all.enumerate().map(entry).collect()
        }
    }
}

fn draw_entry(cell: &Area, (label, color, hollow): &Entry) -> Drawn<()> {
    let swatch = [(0, 4), (24, 15)];
    cell.draw(&Rectangle::new(swatch, fill(*color, *hollow)))?;
    cell.draw(&Rectangle::new(swatch, color.stroke_width(2)))?;
    let text = (FONT, TEXT_SIZE).into_font().color(&INK);
    Ok(cell.draw(&Text::new(label.clone(), (32, 3), text))?)
}

fn reported(provenance: Provenance) -> bool {
    provenance == Provenance::Reported
}

fn fill(color: RGBColor, hollow: bool) -> ShapeStyle {
    color.mix(if hollow { 0.18 } else { 1.0 }).filled()
}

fn draw_panel(area: &Area, plot: &Plot) -> Drawn<()> {
    let (xs, ys): (Vec<f64>, Vec<f64>) = match &plot.kind {
        PlotKind::Lines(lines) => lines.iter().flat_map(|line| visible(plot, line)).unzip(),
        PlotKind::Bars { series, .. } => (
            Vec::new(),
            series.iter().flat_map(|bars| bars.values.iter().flatten().copied()).collect(),
        ),
    };
    let y = range(&ys, &plot.y, true)?;
    match &plot.kind {
        PlotKind::Bars { categories, series } => {
            let count = categories.len();
            // Category i stands around i, where the marks are.
            let x = -0.5..count as f64 - 0.5;
            let word = |x: &f64| categories.get(x.round() as usize).cloned().unwrap_or_default();
            let marks = count + 1;
            let labelled = count * series.len() <= LABELLED_BARS;
            if plot.y.log {
                let mut chart = chart(area, plot, (x, marks), (y.0..y.1).log_scale(), &word)?;
                draw_bars(&mut chart, series, y.0, labelled)
            } else {
                let mut chart = chart(area, plot, (x, marks), y.0..y.1, &word)?;
                draw_bars(&mut chart, series, y.0.max(0.0), labelled)
            }
        }
        PlotKind::Lines(lines) => {
            let x = range(&xs, &plot.x, false)?;
            let (linear, log) = (x.0..x.1, (x.0..x.1).log_scale());
            let number = |x: &f64| figures_short(*x);
            match (plot.x.log, plot.y.log) {
                (false, false) => {
                    draw_lines(&mut chart(area, plot, (linear, 8), y.0..y.1, &number)?, plot, lines)
                }
                (false, true) => {
                    let y = (y.0..y.1).log_scale();
                    draw_lines(&mut chart(area, plot, (linear, 8), y, &number)?, plot, lines)
                }
                (true, false) => {
                    draw_lines(&mut chart(area, plot, (log, 8), y.0..y.1, &number)?, plot, lines)
                }
                (true, true) => {
                    let y = (y.0..y.1).log_scale();
                    draw_lines(&mut chart(area, plot, (log, 8), y, &number)?, plot, lines)
                }
            }
        }
    }
}

/// From where to where an axis goes: what was asked for, or what holds the data; from zero if asked for and
/// none is negative.
fn range(values: &[f64], axis: &Axis, from_zero: bool) -> Result<(f64, f64), String> {
    if let Some(range) = axis.range {
        return Ok(range);
    }
    let shown = values.iter().copied().filter(|v| v.is_finite() && (!axis.log || *v > 0.0));
    let (least, most) =
        shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
    if least > most {
        return Err(format!("there is nothing to show on the axis {:?}", axis.label));
    }
    if axis.log {
        let ends = (10f64.powf(least.log10().floor()), 10f64.powf(most.log10().ceil()));
        return Ok(if ends.1 / ends.0 > 10.0 { ends } else { (least / 1.5, most * 1.5) });
    }
    let from = if from_zero && least >= 0.0 { 0.0 } else { least };
    let span = if most > from { most - from } else { from.abs().max(1.0) };
    let room = if from_zero { HEADROOM * span } else { 0.0 };
    Ok((if from < 0.0 { from - room } else { from }, from + span + room))
}

/// Axes with about so many marks from left to right.
fn chart<'a, 'b, X, Y>(
    area: &'a Area<'b>,
    plot: &Plot,
    (x, x_marks): (X, usize),
    y: Y,
    x_label: &dyn Fn(&f64) -> String,
) -> Drawn<Chart<'a, 'b, X::CoordDescType, Y::CoordDescType>>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .margin_left(8)
        .margin_bottom(6)
        .x_label_area_size(52)
        .y_label_area_size(68)
        .build_cartesian_2d(x, y)?;
    let text = (FONT, TEXT_SIZE).into_font().color(&INK);
    let mut mesh = chart.configure_mesh();
    if matches!(plot.kind, PlotKind::Bars { .. }) {
        mesh.disable_x_mesh();
    }
    mesh.x_desc(&plot.x.label)
        .y_desc(&plot.y.label)
        .x_labels(x_marks)
        .y_labels(8)
        .x_label_formatter(&x_label)
        .y_label_formatter(&|y| figures_short(*y))
        .label_style(text.clone())
        .axis_desc_style(text)
        .axis_style(INK)
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .draw()?;
    Ok(chart)
}

/// Points that have a place on the axes.
fn visible(plot: &Plot, line: &Lines) -> Vec<(f64, f64)> {
    let shows = |axis: &Axis, value: f64| value.is_finite() && (!axis.log || value > 0.0);
    let points = line.points.iter().copied();
    points.filter(|p| shows(&plot.x, p.0) && shows(&plot.y, p.1)).collect()
}

fn draw_lines<X, Y>(chart: &mut Chart<X, Y>, plot: &Plot, lines: &[Lines]) -> Drawn<()>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    for (i, line) in lines.iter().enumerate() {
        let color = color(line.like.unwrap_or(i));
        let stroke = color.stroke_width(2);
        let dots = visible(plot, line);
        let mut points = dots.clone();
        if line.mark == Mark::Steps {
            let steps = points.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
            points = steps.chain(points.last().copied()).collect();
        }
        let hollow = reported(line.provenance);
        if line.mark != Mark::Points && hollow {
            chart.draw_series(DashedLineSeries::new(points, 7, 5, stroke))?;
        } else if line.mark != Mark::Points {
            chart.draw_series(LineSeries::new(points, stroke))?;
        }
        if matches!(line.mark, Mark::LineAndPoints | Mark::Points) {
            let inside = if hollow { WHITE.filled() } else { color.filled() };
            chart.draw_series(dots.iter().map(|&dot| Circle::new(dot, 4, inside)))?;
            chart.draw_series(dots.iter().map(|&dot| Circle::new(dot, 4, stroke)))?;
        }
        let errors = line.points.iter().zip(&line.errors).filter(|(_, error)| **error > 0.0);
        let bars = errors.map(|(&(x, y), &error)| interval((x, y), error, color));
        chart.draw_series(bars)?;
    }
    Ok(())
}

type Interval = ErrorBar<f64, f64, ErrorBarOrientV<f64, f64>>;

/// From a value less its error to the value and its error.
fn interval((x, y): (f64, f64), error: f64, color: RGBColor) -> Interval {
    ErrorBar::new_vertical(x, y - error, y, y + error, color.stroke_width(2), 6)
}

fn draw_bars<X, Y>(chart: &mut Chart<X, Y>, series: &[Bars], foot: f64, labelled: bool) -> Drawn<()>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let each = FILLED / series.len() as f64;
    let text = (FONT, TEXT_SIZE - 2).into_font().color(&INK);
    let text = text.pos(Pos::new(HPos::Center, VPos::Bottom));
    for (i, bars) in series.iter().enumerate() {
        let (color, hollow) = (color(bars.like.unwrap_or(i)), reported(bars.provenance));
        for (at, value) in bars.values.iter().enumerate() {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let left = at as f64 - FILLED / 2.0 + each * i as f64;
            let corners = [(left + each * 0.05, foot), (left + each * 0.95, value)];
            chart.draw_series([Rectangle::new(corners, fill(color, hollow))])?;
            if hollow {
                chart.draw_series([Rectangle::new(corners, color.stroke_width(2))])?;
            }
            let middle = left + each / 2.0;
            if let Some(Some(error)) = bars.errors.get(at) {
                chart.draw_series([interval((middle, value), *error, INK)])?;
            }
            if labelled {
                let label = Text::new(figures_short(value), (0, -3), text.clone());
                chart.draw_series([EmptyElement::at((middle, value.max(foot))) + label])?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn lines(points: Vec<(f64, f64)>, y: Axis) -> Plot {
        let ours = Lines::new("ours & <theirs>", Provenance::Measured, points.clone());
        let theirs = Lines::new("paper", Provenance::Reported, points);
        Plot::lines("p", "Title", Axis::linear("x (s)"), y, vec![ours, theirs])
    }

    #[test]
    fn a_plot_names_axes_and_series_and_escapes_them() {
        let text =
            document(&lines(vec![(0.0, 1.0), (10.0, 20.0)], Axis::linear("y (ms)"))).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for part in
            ["Title", "x (s)", "y (ms)", "ours &amp; &lt;theirs&gt; (measured)", "(reported)"]
        {
            assert!(text.contains(part), "{part}");
        }
        // Both have marked points; only the paper's are hollow.
        assert!(text.matches("<circle").count() >= 6);
        // Marks at round numbers.
        for mark in [">\n0\n", ">\n5\n", ">\n10\n", ">\n20\n"] {
            assert!(text.contains(mark), "{mark}");
        }
    }

    #[test]
    fn points_without_a_place_are_left_out() {
        let plot = lines(vec![(1.0, 0.0), (2.0, f64::NAN), (3.0, 30.0)], Axis::log("y"));
        assert_eq!(document(&plot).unwrap().matches("<circle").count(), 4);
        assert!(document(&lines(Vec::new(), Axis::linear("y"))).is_err());
    }

    #[test]
    fn bars_stand_over_their_categories_with_their_intervals() {
        let categories = vec!["one".to_owned(), "two".to_owned()];
        let ours = Bars::new("ours", Provenance::Simulated, vec![Some(3.0), None]);
        let theirs = Bars::new("paper", Provenance::Reported, vec![Some(2.0), Some(4.0)]);
        let document = |ours: Bars| {
            let (y, series) = (Axis::linear("y"), vec![ours, theirs.clone()]);
            document(&Plot::bars("b", "Bars", "", y, categories.clone(), series)).unwrap()
        };
        let text = document(ours.clone());
        for part in [">\none", ">\ntwo", ">\n3\n", ">\n4\n"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let lines = |text: &str| text.matches("<line").count();
        let with = document(ours.errors(vec![Some(0.5), None]));
        assert!(lines(&with) > lines(&text));
    }

    #[test]
    fn no_two_series_have_the_same_colour() {
        let colors: BTreeSet<(u8, u8, u8)> = (0..40).map(|i| color(i).rgb()).collect();
        assert_eq!(colors.len(), 40);
        assert!(colors.iter().all(|&(r, g, _)| r < 240 || g < 200), "{colors:?}");
    }

    #[test]
    fn an_axis_holds_its_data() {
        let linear = range(&[2.0, 8.0], &Axis::linear("y"), true).unwrap();
        assert!(linear.0 == 0.0 && linear.1 > 8.0, "{linear:?}");
        let log = range(&[0.02, 0.0, 300.0], &Axis::log("y"), true).unwrap();
        assert_eq!(log, (0.01, 1000.0));
        let given = Axis::linear("y").from_to(10.0, 20.0);
        assert_eq!(range(&[0.0], &given, true), Ok((10.0, 20.0)));
        assert!(range(&[0.0], &Axis::log("y"), true).is_err());
    }
}
