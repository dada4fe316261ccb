//! Plots in a terminal: braille dots for the curve, letters for what was measured.

use plimsoll_terminal::{Screen, number, printable};

use super::chart::{Chart, Span};

/// Characters for the numbers of the vertical axis.
const LABEL: usize = 7;
/// Characters of the plot itself.
const WIDTH: usize = 30;
/// Lines of the plot itself.
const HEIGHT: usize = 8;
/// Characters between two plots on one line.
const BETWEEN: usize = 3;
/// Columns to fill where the screen's width is not known.
const USUAL_WIDTH: usize = 80;

/// What the marks mean, as one line.
pub const LEGEND: &str = "⠒ fitted curve   o measured   ● now   ┊ capacity";

/// The dot of a braille character at (column 0…1, row 0…3), as a bit of U+2800.
const DOTS: [[u32; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

/// Charts beside and below each other, as many to a line as the screen has room for.
pub fn grid(charts: &[Chart], screen: &Screen) -> String {
    let each = LABEL + 1 + WIDTH + BETWEEN;
    let across = ((screen.width.unwrap_or(USUAL_WIDTH) + BETWEEN) / each).max(1);
    let mut text = String::new();
    for group in charts.chunks(across) {
        let plots: Vec<Vec<String>> = group.iter().map(draw).collect();
        for row in 0..plots[0].len() {
            let mut line = String::new();
            for plot in &plots {
                let wanted = line.chars().count().next_multiple_of(each);
                line.extend(std::iter::repeat_n(' ', wanted - line.chars().count()));
                line.push_str(&plot[row]);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

/// One chart as lines, all charts as many: title, note, plot, axis, numbers. No line is longer than
/// one chart is wide.
fn draw(chart: &Chart) -> Vec<String> {
    let span = chart.span();
    let canvas = canvas(chart, span);
    let cut = |text: &str| -> String { printable(text).chars().take(LABEL + 1 + WIDTH).collect() };
    let mut lines = vec![cut(&chart.title), cut(&chart.note)];
    for (row, cells) in canvas.iter().enumerate() {
        let label = match row {
            0 => format!("{} ms", short(span.ms)),
            row if row == HEIGHT / 2 => short(span.ms / 2.0),
            _ => String::new(),
        };
        lines.push(format!("{label:>LABEL$}┤{}", cells.iter().collect::<String>()));
    }
    lines.push(format!("{:>LABEL$}└{}", "0", "─".repeat(WIDTH)));
    let right = format!("{} req/s", short(span.rps));
    lines.push(format!("{:LABEL$} 0{right:>rest$}", "", rest = WIDTH - 1));
    lines
}

/// A number that fits an axis.
fn short(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0}") } else { number(value) }
}

fn canvas(chart: &Chart, span: Span) -> Vec<Vec<char>> {
    let mut dots = vec![vec![0u32; WIDTH]; HEIGHT];
    let line = chart.visible_line(span);
    // Twice as many steps as dots across, and again for the steep part: no gaps in the stroke.
    let steps = 4 * (WIDTH * 2 + HEIGHT * 4) / line.len().max(1) + 1;
    for pair in line.windows(2) {
        for step in 0..=steps {
            let part = step as f64 / steps as f64;
            let rps = pair[0].0 + part * (pair[1].0 - pair[0].0);
            let ms = pair[0].1 + part * (pair[1].1 - pair[0].1);
            let (x, y) = place((rps, ms), span, WIDTH * 2, HEIGHT * 4);
            dots[y / 4][x / 2] |= DOTS[x % 2][y % 4];
        }
    }
    let braille = |bits: &u32| match bits {
        0 => ' ',
        bits => char::from_u32(0x2800 + bits).unwrap_or(' '),
    };
    let mut cells: Vec<Vec<char>> =
        dots.iter().map(|row| row.iter().map(braille).collect()).collect();
    let (limit, _) = place((chart.capacity_rps, 0.0), span, WIDTH, HEIGHT);
    for row in &mut cells {
        if row[limit] == ' ' {
            row[limit] = '┊';
        }
    }
    for (points, mark) in [(chart.points.as_slice(), 'o'), (chart.now.as_slice(), '●')] {
        for point in points {
            let (x, y) = place(*point, span, WIDTH, HEIGHT);
            cells[y][x] = mark;
        }
    }
    cells
}

/// The column and row of a point on a canvas of this size; points outside lie on its edge.
fn place((rps, ms): (f64, f64), span: Span, width: usize, height: usize) -> (usize, usize) {
    let cell = |part: f64, size: usize| ((part * size as f64) as usize).min(size - 1);
    (cell(rps / span.rps, width), height - 1 - cell(ms / span.ms, height))
}

#[cfg(test)]
mod tests {
    use super::super::chart::tests::hyperbola;
    use super::*;

    #[test]
    fn a_curve_is_drawn_with_its_marks() {
        let expected = "\
s1
20.0 ms unloaded
 125 ms┤                         ⢰⠁ ┊
       ┤                         ⡜  ┊
       ┤                        ⣰⠁  ┊
       ┤                       ⣰⠃   ┊
     62┤                    ⢀⣠⠞⠁    ┊
       ┤               ⣀⣀o⠴⠚⠉       ┊
       ┤⠤⠤⠤⠤⠤⠤⠤⠖o⠒⠒⠒⠋⠉●⠁            ┊
       ┤                            ┊
      0└──────────────────────────────
        0                    105 req/s

";
        let drawn = grid(&[hyperbola()], &Screen::PLAIN);
        assert_eq!(drawn, expected, "\n{drawn}");
    }

    #[test]
    fn plots_stand_side_by_side_where_there_is_room() {
        let charts = vec![hyperbola(); 3];
        let lines =
            |width| grid(&charts, &Screen { color: false, width: Some(width) }).lines().count();
        assert_eq!((lines(40), lines(80), lines(120)), (3 * 13, 2 * 13, 13));
        let wide = grid(&charts, &Screen { color: false, width: Some(120) });
        assert!(wide.lines().all(|line| line.chars().count() <= 120), "{wide}");
    }

    #[test]
    fn points_outside_stay_on_the_edge() {
        let span = Span { rps: 10.0, ms: 10.0 };
        assert_eq!(place((-5.0, 1e9), span, 4, 4), (0, 0));
        assert_eq!(place((f64::INFINITY, f64::NAN), span, 4, 4), (3, 3));
    }
}
