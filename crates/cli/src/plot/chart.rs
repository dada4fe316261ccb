//! What a plot of latency over load shows, wherever it is drawn.

/// The plot shows at most this multiple of the unloaded service time, unless more was measured: near
/// capacity a curve rises without bound, and would flatten everything else.
const TALLEST: f64 = 5.0;

/// Latency over load of one backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Whose.
    pub title: String,
    /// One line of numbers to go with it.
    pub note: String,
    /// The fitted curve: (requests per second, milliseconds).
    pub line: Vec<(f64, f64)>,
    /// What was measured: (requests per second, milliseconds).
    pub points: Vec<(f64, f64)>,
    /// Where the backend works now: (requests per second, milliseconds).
    pub now: Option<(f64, f64)>,
    /// Its capacity, requests per second.
    pub capacity_rps: f64,
    /// Unloaded service time, milliseconds.
    pub l0_ms: f64,
}

/// What the axes span; both begin at 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Requests per second at the right edge.
    pub rps: f64,
    /// Milliseconds at the top edge.
    pub ms: f64,
}

impl Chart {
    /// The span that shows everything measured and the telling part of the curve; never empty.
    pub fn span(&self) -> Span {
        let measured = || self.points.iter().chain(&self.now);
        let rps = measured().map(|p| p.0).chain([self.capacity_rps]).fold(0.0, f64::max);
        let seen = measured().map(|p| p.1).fold(0.0, f64::max);
        let highest = self.line.iter().map(|p| p.1).fold(seen.max(self.l0_ms), f64::max);
        let ms = (1.25 * seen.max(TALLEST * self.l0_ms)).min(1.1 * highest);
        let sound = |x: f64| if x.is_finite() && x > 0.0 { x } else { 1.0 };
        Span { rps: sound(1.05 * rps), ms: sound(ms) }
    }

    /// The part of the curve that the span shows, cut where it leaves through the top.
    pub fn visible_line(&self, span: Span) -> Vec<(f64, f64)> {
        let mut shown: Vec<(f64, f64)> = Vec::with_capacity(self.line.len());
        for &(rps, ms) in &self.line {
            if ms <= span.ms {
                shown.push((rps, ms));
                continue;
            }
            if let Some(&(before_rps, before_ms)) = shown.last() {
                let part = (span.ms - before_ms) / (ms - before_ms);
                shown.push((before_rps + part * (rps - before_rps), span.ms));
            }
            break;
        }
        shown
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// `10 + 1000 / (100 − x)` milliseconds.
    pub fn hyperbola() -> Chart {
        let at = |x: f64| (x, 10.0 + 1_000.0 / (100.0 - x));
        Chart {
            title: "s1".to_owned(),
            note: "20.0 ms unloaded".to_owned(),
            line: (0..100).map(|x| at(f64::from(x))).collect(),
            points: vec![at(30.0), at(60.0)],
            now: Some(at(50.0)),
            capacity_rps: 100.0,
            l0_ms: 20.0,
        }
    }

    #[test]
    fn the_span_shows_all_that_was_measured_but_not_the_pole() {
        let mut chart = hyperbola();
        assert_eq!(chart.span(), Span { rps: 105.0, ms: 125.0 });
        chart.points.push((120.0, 400.0));
        assert_eq!(chart.span(), Span { rps: 126.0, ms: 500.0 });
    }

    #[test]
    fn a_chart_of_nothing_still_has_a_span() {
        let empty = Chart {
            line: Vec::new(),
            points: Vec::new(),
            now: None,
            capacity_rps: f64::NAN,
            l0_ms: 0.0,
            ..hyperbola()
        };
        assert_eq!(empty.span(), Span { rps: 1.0, ms: 1.0 });
        assert_eq!(empty.visible_line(empty.span()), []);
    }

    #[test]
    fn the_curve_leaves_through_the_top_edge() {
        let chart = hyperbola();
        let shown = chart.visible_line(chart.span());
        let (rps, ms) = shown[shown.len() - 1];
        assert_eq!(ms, 125.0);
        assert!((rps - 91.3).abs() < 0.5, "{rps}");
    }
}
