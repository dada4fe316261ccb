//! Plots as SVG: a title, a legend under it, and one panel with axes.
//!
//! Colours are those of Okabe and Ito ("Color universal design", 2008), which people with any kind of
//! colour vision can tell apart; what a paper reports is dashed or hollow as well.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::plot::{Axis, Bars, Lines, Mark, Plot, PlotKind};
use crate::{Failure, Provenance};

mod scale;

use scale::Scale;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Scale, Scale>>;
type Drawn<T> = Result<T, Box<dyn std::error::Error>>;

const WIDTH: u32 = 760;
/// Of the panel with its axes; title and legend come on top of it.
const PANEL_HEIGHT: u32 = 400;
const TITLE_HEIGHT: u32 = 40;
const LEGEND_LINE: u32 = 22;
/// Left and right of title and legend.
const MARGIN: i32 = 16;
const FONT: &str = "system-ui, sans-serif";
const TEXT_SIZE: u32 = 15;
const TITLE_SIZE: u32 = 20;
/// Mean width of a letter, as a part of the size: SVG is laid out without fonts at hand, and plotters
/// makes letters 1.24 times smaller than their size.
const LETTER: f64 = 0.56 / 1.24;
/// The colour swatch of a legend's entry and the room around it.
const SWATCH: i32 = 24;
const ENTRY_GAP: i32 = 20;
/// Bars get their values written over them up to this many.
const LABELLED_BARS: usize = 24;
/// The part of a category's width that its bars fill.
const FILLED: f64 = 0.8;

const INK: RGBColor = RGBColor(0x22, 0x26, 0x2b);
const FAINT: RGBColor = RGBColor(0xe3, 0xe6, 0xea);
const PALETTE: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x6b, 0x4e, 0x16),
    RGBColor(0x22, 0x26, 0x2b),
];

/// The plot as the text of an SVG file.
///
/// # Errors
/// When it holds nothing that could be drawn.
pub fn document(plot: &Plot) -> Result<String, Failure> {
    let legend = Legend::of(plot);
    let head = TITLE_HEIGHT + LEGEND_LINE * legend.lines() + 6;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, head + PANEL_HEIGHT));
        let root = root.into_drawing_area();
        draw(plot, &legend, &root, head)
            .map_err(|error| Failure::Other(format!("plot {}: {error}", plot.name)))?;
    }
    Ok(scalable(&text))
}

/// The same with a size that adapts to its place: plotters writes a fixed one.
fn scalable(text: &str) -> String {
    text.replacen("<svg width=", "<svg font-kerning=\"normal\" width=", 1)
}

fn draw(plot: &Plot, legend: &Legend, root: &Area, head: u32) -> Drawn<()> {
    root.fill(&WHITE)?;
    let (top, panel) = root.split_vertically(head);
    let title = (FONT, TITLE_SIZE).into_font().style(FontStyle::Bold).color(&INK);
    top.draw(&Text::new(plot.title.clone(), (MARGIN, 14), title))?;
    legend.draw(&top)?;
    match &plot.kind {
        PlotKind::Lines(lines) => {
            let xs = lines.iter().flat_map(|l| l.points.iter().map(|p| p.0));
            let ys = lines.iter().flat_map(|l| l.points.iter().map(|p| p.1));
            let x = Scale::holding(xs, &plot.x, false)?;
            let y = Scale::holding(ys, &plot.y, true)?;
            let mut chart = chart(&panel, plot, x, y)?;
            lines
                .iter()
                .enumerate()
                .try_for_each(|(i, line)| draw_line(&mut chart, plot, line, line.like.unwrap_or(i)))
        }
        PlotKind::Bars { categories, series } => {
            let ys = series.iter().flat_map(|bars| bars.values.iter().flatten().copied());
            let y = Scale::holding(ys, &plot.y, true)?;
            let mut chart = chart(&panel, plot, Scale::words(categories), y)?;
            let count = categories.len() * series.len();
            for (i, bars) in series.iter().enumerate() {
                draw_bars(&mut chart, bars, (i, series.len()), count <= LABELLED_BARS)?;
            }
            Ok(())
        }
    }
}

fn chart<'a, 'b>(area: &'a Area<'b>, plot: &Plot, x: Scale, y: Scale) -> Drawn<Chart<'a, 'b>> {
    let words = x.is_words();
    let (x_marks, y_marks) = (x.marks(), y.marks());
    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .margin_left(8)
        .margin_bottom(6)
        .x_label_area_size(52)
        .y_label_area_size(68)
        .build_cartesian_2d(x, y)?;
    let text = (FONT, TEXT_SIZE).into_font().color(&INK);
    let mut mesh = chart.configure_mesh();
    if words {
        mesh.disable_x_mesh();
    }
    mesh.x_desc(&plot.x.label)
        .y_desc(&plot.y.label)
        .x_labels(x_marks)
        .y_labels(y_marks)
        .label_style(text.clone())
        .axis_desc_style(text)
        .axis_style(INK)
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .draw()?;
    Ok(chart)
}

fn reported(provenance: Provenance) -> bool {
    provenance == Provenance::Reported
}

fn color(i: usize) -> RGBColor {
    PALETTE[i % PALETTE.len()]
}

/// Points that have a place on these axes.
fn visible(plot: &Plot, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let shows = |axis: &Axis, value: f64| value.is_finite() && (!axis.log || value > 0.0);
    points.iter().copied().filter(|p| shows(&plot.x, p.0) && shows(&plot.y, p.1)).collect()
}

fn draw_line(chart: &mut Chart, plot: &Plot, line: &Lines, i: usize) -> Drawn<()> {
    let mut points = visible(plot, &line.points);
    let dots = points.clone();
    if line.mark == Mark::Steps {
        points = points
            .windows(2)
            .flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)])
            .chain(points.last().copied())
            .collect();
    }
    let stroke = color(i).stroke_width(2);
    if line.mark != Mark::Points {
        if reported(line.provenance) {
            chart.draw_series(DashedLineSeries::new(points, 7, 5, stroke))?;
        } else {
            chart.draw_series(LineSeries::new(points, stroke))?;
        }
    }
    if matches!(line.mark, Mark::LineAndPoints | Mark::Points) {
        let hollow = reported(line.provenance);
        for dot in dots {
            if hollow {
                chart.draw_series([Circle::new(dot, 4, WHITE.filled())])?;
                chart.draw_series([Circle::new(dot, 4, stroke)])?;
            } else {
                chart.draw_series([Circle::new(dot, 4, color(i).filled())])?;
            }
        }
    }
    Ok(())
}

fn draw_bars(chart: &mut Chart, bars: &Bars, (i, of): (usize, usize), labelled: bool) -> Drawn<()> {
    let paint = color(bars.like.unwrap_or(i));
    let each = FILLED / of as f64;
    let foot = chart.as_coord_spec().y_spec().foot();
    let text = (FONT, TEXT_SIZE - 2).into_font().color(&INK);
    let text = text.pos(Pos::new(HPos::Center, VPos::Bottom));
    for (at, value) in bars.values.iter().enumerate() {
        let Some(value) = value.filter(|value| value.is_finite()) else { continue };
        let left = at as f64 + (1.0 - FILLED) / 2.0 + each * i as f64;
        let corners = [(left + each * 0.05, foot), (left + each * 0.95, value)];
        if reported(bars.provenance) {
            let light = paint.mix(0.18).filled();
            chart.draw_series([Rectangle::new(corners, light)])?;
            chart.draw_series([Rectangle::new(corners, paint.stroke_width(2))])?;
        } else {
            chart.draw_series([Rectangle::new(corners, paint.filled())])?;
        }
        if labelled {
            let place = (left + each / 2.0, value.max(foot));
            let label = EmptyElement::at(place)
                + Text::new(crate::summary::figures_short(value), (0, -3), text.clone());
            chart.draw_series([label])?;
        }
    }
    Ok(())
}

/// A series in the legend.
struct Entry {
    name: String,
    place: (i32, i32),
    color: RGBColor,
    hollow: bool,
}

/// Where every series' name goes.
struct Legend {
    entries: Vec<Entry>,
    lines: u32,
}

impl Legend {
    fn of(plot: &Plot) -> Self {
        let names: Vec<(&str, Provenance, Option<usize>)> = match &plot.kind {
            PlotKind::Lines(all) => all.iter().map(|l| (&*l.label, l.provenance, l.like)).collect(),
            PlotKind::Bars { series, .. } => {
                series.iter().map(|s| (&*s.label, s.provenance, s.like)).collect()
            }
        };
        let (mut x, mut line) = (MARGIN, 0);
        let mut entries = Vec::with_capacity(names.len());
        for (i, (label, provenance, like)) in names.into_iter().enumerate() {
            let name = format!("{label} ({provenance})");
            let letters = (name.chars().count() as f64 * LETTER * f64::from(TEXT_SIZE)) as i32;
            let width = SWATCH + 8 + letters;
            if x > MARGIN && x + width > WIDTH as i32 - MARGIN {
                (x, line) = (MARGIN, line + 1);
            }
            let y = (TITLE_HEIGHT + LEGEND_LINE * line + LEGEND_LINE / 2) as i32;
            let (color, hollow) = (color(like.unwrap_or(i)), reported(provenance));
            entries.push(Entry { name, place: (x, y), color, hollow });
            x += width + ENTRY_GAP;
        }
        let lines = if entries.is_empty() { 0 } else { line + 1 };
        Legend { entries, lines }
    }

    fn lines(&self) -> u32 {
        self.lines
    }

    fn draw(&self, area: &Area) -> Drawn<()> {
        let text = (FONT, TEXT_SIZE).into_font().color(&INK);
        for Entry { name, place: (x, y), color, hollow } in &self.entries {
            let box_of = [(*x, y - 6), (x + SWATCH, y + 6)];
            if *hollow {
                area.draw(&Rectangle::new(box_of, color.mix(0.18).filled()))?;
                area.draw(&Rectangle::new(box_of, color.stroke_width(2)))?;
            } else {
                area.draw(&Rectangle::new(box_of, color.filled()))?;
            }
            area.draw(&Text::new(name.clone(), (x + SWATCH + 8, y - 6), text.clone()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
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
    }

    #[test]
    fn points_without_a_place_are_left_out() {
        let plot = lines(vec![(1.0, 0.0), (2.0, f64::NAN), (3.0, 30.0)], Axis::log("y"));
        assert_eq!(document(&plot).unwrap().matches("<circle").count(), 3);
        assert!(document(&lines(Vec::new(), Axis::linear("y"))).is_err());
    }

    #[test]
    fn bars_stand_over_their_categories() {
        let categories = vec!["one".to_owned(), "two".to_owned()];
        let ours = Bars::new("ours", Provenance::Simulated, vec![Some(3.0), None]);
        let theirs = Bars::new("paper", Provenance::Reported, vec![Some(2.0), Some(4.0)]);
        let plot = Plot::bars("b", "Bars", "", Axis::linear("y"), categories, vec![ours, theirs]);
        let text = document(&plot).unwrap();
        for part in [">\none", ">\ntwo", ">\n3\n", ">\n4\n"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
