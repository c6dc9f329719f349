//! Plots as SVG: lines over a common horizontal axis. The colours come from the page's style, for light and dark. The
//! style also makes the letters larger on a narrow screen, so the margins have room for them.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::fault_marks::fault_marks;
use crate::faults::InjectedFault;

pub(super) const WIDTH: f64 = 480.0;
pub(super) const HEIGHT: f64 = 276.0;
pub(super) const LEFT: f64 = 62.0;
pub(super) const RIGHT: f64 = 14.0;
/// Room for the numbers of faults.
pub(super) const TOP: f64 = 22.0;
pub(super) const BOTTOM: f64 = 42.0;
pub(super) const COLOURS: usize = 6;

#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) name: String,
    /// Points from left to right; `None` is a gap.
    pub(super) points: Vec<Option<(f64, f64)>>,
}

/// Division of the vertical axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    /// Logarithmic, for latencies of different magnitudes.
    Logarithmic,
}

#[derive(Debug)]
pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    pub(super) unit: &'a str,
    pub(super) scale: Scale,
    pub(super) lines: Vec<Line>,
    /// Labels of the horizontal axis; computed if empty.
    pub(super) marks: Vec<(f64, String)>,
    pub(super) horizontal: &'a str,
    /// Faults during the time of the horizontal axis; empty if it is another axis.
    pub(super) faults: &'a [InjectedFault],
}

impl Plot<'_> {
    /// Draws the figure with its legend. Empty if there is no point.
    pub(super) fn draw(&self) -> Markup {
        if self.points().next().is_none() {
            return Markup::default();
        }
        let frame = Frame::around(self);
        let marks = if self.marks.is_empty() { frame.horizontal_ticks() } else { self.marks.clone() };
        html! {
            figure {
                figcaption { (self.title) " " span.unit { (self.unit) } }
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(self.title) {
                    (frame.axes(&marks, self.horizontal))
                    (fault_marks(self.faults, &frame))
                    @for (index, line) in self.lines.iter().enumerate() {
                        path class=(format!("line c{}", index % COLOURS)) d=(frame.path(&line.points)) {
                            title { (line.name) }
                        }
                    }
                }
                @if self.lines.len() > 1 {
                    div.legend {
                        @for (index, line) in self.lines.iter().enumerate() {
                            span { i class=(format!("c{}", index % COLOURS)) {} (line.name) }
                        }
                    }
                }
            }
        }
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(|line| line.points.iter().flatten().copied())
    }
}

pub(super) struct Frame {
    pub(super) x_min: f64,
    pub(super) x_max: f64,
    /// Limits of the vertical axis; of a logarithmic one, the powers of ten.
    pub(super) y_min: f64,
    pub(super) y_max: f64,
    pub(super) scale: Scale,
}

impl Frame {
    fn around(plot: &Plot<'_>) -> Self {
        let points = || plot.points();
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MIN, f64::max);
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MAX, f64::min);
        let (x_min, x_max) = (least(&mut points().map(|point| point.0)), most(&mut points().map(|point| point.0)));
        let (y_min, y_max) = match plot.scale {
            Scale::Linear => (0.0, nice_above(most(&mut points().map(|point| point.1)).max(1.0))),
            Scale::Logarithmic => {
                let positive = || points().map(|point| point.1).filter(|value| *value > 0.0);
                let (least, most) = (least(&mut positive()).max(0.01), most(&mut positive()).max(0.1));
                (least.min(most).log10().floor(), (most * 1.05).log10().ceil())
            }
        };
        let x_max = if x_max > x_min { x_max } else { x_min + 1.0 };
        Self { x_min, x_max, y_min, y_max: if y_max > y_min { y_max } else { y_min + 1.0 }, scale: plot.scale }
    }

    /// Draws the grid with its labels. `marks` are those of the horizontal axis.
    pub(super) fn axes(&self, marks: &[(f64, String)], horizontal: &str) -> Markup {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        html! {
            @for (value, label) in &self.vertical_ticks() {
                @let y = self.y(*value);
                line.grid x1=(LEFT) y1=(round(y)) x2=(right) y2=(round(y)) {}
                text.tick x=(LEFT - 8.0) y=(round(y + 4.0)) text-anchor="end" { (label) }
            }
            @for (value, label) in marks {
                @let x = self.x(*value);
                line.grid x1=(round(x)) y1=(TOP) x2=(round(x)) y2=(bottom) {}
                text.tick x=(round(x)) y=(bottom + 18.0) text-anchor="middle" { (label) }
            }
            text.tick x=(right) y=(HEIGHT - 4.0) text-anchor="end" { (horizontal) }
        }
    }

    pub(super) fn x(&self, value: f64) -> f64 {
        LEFT + (value - self.x_min) / (self.x_max - self.x_min) * (WIDTH - LEFT - RIGHT)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.max(f64::MIN_POSITIVE).log10().max(self.y_min),
        };
        HEIGHT - BOTTOM - (value - self.y_min) / (self.y_max - self.y_min) * (HEIGHT - TOP - BOTTOM)
    }

    fn vertical_ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => (0..=4).map(|n| self.y_max * f64::from(n) / 4.0).map(|at| (at, number(at))).collect(),
            Scale::Logarithmic => {
                let decades = (0..12).map(|n| self.y_min + f64::from(n)).take_while(|at| *at <= self.y_max);
                decades.map(|at| 10_f64.powf(at)).map(|at| (at, number(at))).collect()
            }
        }
    }

    pub(super) fn horizontal_ticks(&self) -> Vec<(f64, String)> {
        let step = nice_above((self.x_max - self.x_min) / 8.0);
        let first = (self.x_min / step).ceil() * step;
        let ticks = (0..20).map(|n| first + step * f64::from(n)).take_while(|at| *at <= self.x_max);
        ticks.map(|at| (at, number(at))).collect()
    }

    /// Returns the path: points without a gap are connected, a single point between two gaps is a dot.
    fn path(&self, points: &[Option<(f64, f64)>]) -> String {
        let mut path = String::new();
        for run in points.split(Option::is_none) {
            for (index, (x, y)) in run.iter().flatten().enumerate() {
                let step = if index == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{step}{} {}", round(self.x(*x)), round(self.y(*y)));
            }
            if run.len() == 1 {
                path.push_str("h0");
            }
        }
        path
    }
}

/// Rounds to tenths of a pixel.
pub(super) fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Returns 1, 2, 2.5 or 5 times a power of ten, at least `value`.
fn nice_above(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|step| step * power).find(|nice| *nice >= value).unwrap_or(value)
}

/// Formats a number without unneeded digits: thousands from ten thousand on, so that it fits beside the axis.
fn number(value: f64) -> String {
    if value >= 10_000.0 {
        return format!("{}k", number(value / 1_000.0));
    }
    let digits = if value >= 10.0 || value.fract() == 0.0 { 0 } else { 2 };
    let text = format!("{value:.digits$}");
    if digits > 0 { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        for (value, nice) in [(0.3, 0.5), (1.0, 1.0), (2.2, 2.5), (37.0, 50.0), (312.0, 500.0), (1_001.0, 2_000.0)] {
            assert!((nice_above(value) - nice).abs() < 1e-9, "{value}: {}", nice_above(value));
        }
        assert_eq!(
            [0.25, 0.5, 2.0, 1_500.0, 10_000.0, 250_000.0].map(number),
            ["0.25", "0.5", "2", "1500", "10k", "250k"]
        );
    }

    #[test]
    fn lines_stay_within_the_frame() {
        let points = [(0.0, 0.0), (1.0, 7.0), (2.0, 31.5)].map(Some).to_vec();
        let plot = |scale, points| Plot {
            title: "t",
            unit: "ms",
            scale,
            lines: vec![Line { name: "a".to_owned(), points }],
            marks: Vec::new(),
            horizontal: "s",
            faults: &[],
        };
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let plot = plot(scale, points.clone());
            let frame = Frame::around(&plot);
            for (x, y) in plot.points() {
                assert!((LEFT..=WIDTH - RIGHT).contains(&frame.x(x)), "{x}");
                assert!((TOP - 0.1..=HEIGHT - BOTTOM + 0.1).contains(&frame.y(y)), "{y}: {}", frame.y(y));
            }
            let drawn = plot.draw().into_string();
            assert!(drawn.contains("<svg") && !drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
        let empty = Plot { marks: vec![(0.0, "0".to_owned())], ..plot(Scale::Linear, vec![None]) };
        assert_eq!(empty.draw().into_string(), "");
    }
}
