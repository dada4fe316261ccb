//! Plots as an SVG file, by plotters: one panel per chart, no scripts, no fonts of its own.

use std::io;

use plimsoll_terminal::{number, printable};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::chart::{Chart, Span};

const PANEL_WIDTH: u32 = 320;
const PANEL_HEIGHT: u32 = 230;
/// Room for the numbers before the vertical axis; title and note begin where it ends.
const LEFT: i32 = 56;
/// Panels on one line.
const ACROSS: usize = 3;
const FONT: &str = "system-ui, sans-serif";

const INK: RGBColor = RGBColor(0x22, 0x26, 0x2b);
const FAINT: RGBColor = RGBColor(0x62, 0x6d, 0x7c);
const MEASURED: RGBColor = RGBColor(0x97, 0xa1, 0xaf);
const FITTED: RGBColor = RGBColor(0x25, 0x63, 0xa8);
const CAPACITY: RGBColor = RGBColor(0xb3, 0x26, 0x1e);
const NOW: RGBColor = RGBColor(0xe0, 0x8a, 0x00);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The charts as one SVG document.
///
/// # Errors
/// When one cannot be drawn.
pub fn document(charts: &[Chart]) -> io::Result<String> {
    let across = charts.len().clamp(1, ACROSS);
    let down = charts.len().div_ceil(across).max(1);
    let size = (PANEL_WIDTH * across as u32, PANEL_HEIGHT * down as u32);
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let draw = || -> Drawn {
            root.fill(&WHITE)?;
            let panels = root.split_evenly((down, across));
            panels.iter().zip(charts).try_for_each(|(area, chart)| panel(area, chart))?;
            Ok(root.present()?)
        };
        draw().map_err(|error| io::Error::other(error.to_string()))?;
    }
    Ok(text)
}

fn panel(area: &Area<'_>, chart: &Chart) -> Drawn {
    let title = text().style(FontStyle::Bold).color(&INK);
    area.draw(&Text::new(printable(&chart.title), (LEFT, 8), title))?;
    area.draw(&Text::new(printable(&chart.note), (LEFT, 25), text().color(&FAINT)))?;
    let span = chart.span();
    let mut axes = ChartBuilder::on(area)
        .margin_top(44)
        .margin_right(14)
        .x_label_area_size(36)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..span.rps, 0.0..span.ms)?;
    axes.configure_mesh()
        .disable_mesh()
        .x_labels(5)
        .y_labels(5)
        .x_desc("requests/s")
        .y_desc("ms")
        .x_label_formatter(&|rps| number(*rps))
        .y_label_formatter(&|ms| number(*ms))
        .label_style(text().color(&FAINT))
        .axis_style(FAINT)
        .draw()?;
    let (limit, foot) = inside((chart.capacity_rps, 0.0), span);
    let dashes = [(limit, foot), (limit, span.ms)];
    axes.draw_series(DashedLineSeries::new(dashes, 4, 3, CAPACITY.stroke_width(1)))?;
    let label = beside("capacity", limit, span, &CAPACITY);
    axes.draw_series([EmptyElement::at((limit, foot)) + label])?;
    let dot = |point: &(f64, f64)| Circle::new(inside(*point, span), 3, MEASURED.filled());
    axes.draw_series(chart.points.iter().map(dot))?;
    let line = chart.visible_line(span).into_iter().map(|point| inside(point, span));
    axes.draw_series(LineSeries::new(line, FITTED.stroke_width(2)))?;
    let now = chart.now.map(|point| {
        let at = inside(point, span);
        let label = beside("now", at.0, span, &NOW);
        EmptyElement::at(at) + Circle::new((0, 0), 5, NOW.filled()) + label
    });
    axes.draw_series(now)?;
    Ok(())
}

/// Letters as high as 11 pixels: plotters takes sizes for the height of a line.
fn text() -> FontDesc<'static> {
    (FONT, 11.0 * 1.24).into_font()
}

/// A word beside a point, on the side that has more room.
fn beside<'a>(
    word: &'a str,
    rps: f64,
    span: Span,
    color: &RGBColor,
) -> Text<'a, (i32, i32), &'a str> {
    let (side, x) = if rps > 0.5 * span.rps { (HPos::Right, -6) } else { (HPos::Left, 6) };
    Text::new(word, (x, -4), text().color(color).pos(Pos::new(side, VPos::Bottom)))
}

/// Points outside the span lie on its edge.
fn inside((rps, ms): (f64, f64), span: Span) -> (f64, f64) {
    let bound = |x: f64, most: f64| if x.is_nan() { 0.0 } else { x.clamp(0.0, most) };
    (bound(rps, span.rps), bound(ms, span.ms))
}

#[cfg(test)]
mod tests {
    use super::super::chart::tests::hyperbola;
    use super::*;

    #[test]
    fn a_document_holds_a_panel_per_chart() {
        let mut odd = hyperbola();
        odd.title = "<s&2>".to_owned();
        odd.now = None;
        let text = document(&[hyperbola(), odd.clone(), odd.clone(), odd]).expect("drawn");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert!(text.contains("width=\"960\" height=\"460\""));
        assert_eq!(text.matches(">\ncapacity\n<").count(), 4);
        assert_eq!(text.matches(">\nnow\n<").count(), 1);
        assert_eq!(text.matches(">\n&lt;s&amp;2&gt;\n<").count(), 3);
        assert_eq!((text.matches("#2563A8").count(), text.matches("#97A1AF").count()), (4, 8));
    }

    #[test]
    fn an_empty_document_is_still_one() {
        assert!(document(&[]).expect("drawn").contains("height=\"230\""));
    }

    #[test]
    fn what_lies_outside_the_span_is_drawn_on_its_edge() {
        let span = Span { rps: 100.0, ms: 50.0 };
        assert_eq!(inside((30.0, 20.0), span), (30.0, 20.0));
        assert_eq!(inside((f64::INFINITY, f64::NAN), span), (100.0, 0.0));
        let unknown =
            Chart { capacity_rps: f64::NAN, points: Vec::new(), now: None, ..hyperbola() };
        assert!(document(&[unknown]).is_ok());
    }
}
