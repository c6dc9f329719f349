//! Heat map of latencies: time from left to right, latency from below, and the darker a cell, the more payments.

use std::time::Duration;

use maud::{Markup, html};

use super::fault_marks::fault_marks;
use super::plot::{Frame, HEIGHT, Scale, WIDTH, round};
use crate::faults::InjectedFault;
use payferry_testkit::audit::heat::{COUNTS, Heat};
use payferry_testkit::audit::tally::Second;

/// Largest number of columns. The seconds of a longer run share them.
const COLUMNS_MAX: usize = 120;
/// Opacity of a cell with one payment at least: visible on light and dark.
const FAINTEST: f64 = 0.15;

pub(super) struct HeatMap<'a> {
    pub(super) title: &'a str,
    pub(super) course: &'a [Second],
    pub(super) of: fn(&Second) -> &Heat,
    pub(super) faults: &'a [InjectedFault],
}

/// Seconds that share a column.
struct Column {
    from_secs: f64,
    to_secs: f64,
    heat: Heat,
}

impl HeatMap<'_> {
    fn columns(&self) -> Vec<Column> {
        let together = self.course.len().div_ceil(COLUMNS_MAX).max(1);
        let column = |seconds: &[Second]| {
            let (first, last) = (seconds.first()?, seconds.last()?);
            let mut heat = Heat::default();
            for second in seconds {
                heat.add((self.of)(second));
            }
            Some(Column { from_secs: first.at_secs - first.period_secs, to_secs: last.at_secs, heat })
        };
        self.course.chunks(together).filter_map(column).collect()
    }

    /// Draws the figure. Empty if nothing was measured.
    pub(super) fn draw(&self) -> Markup {
        let columns = self.columns();
        let filled = |place: usize| columns.iter().any(|column| column.heat.0[place] > 0);
        let (Some(lowest), Some(highest)) =
            ((0..COUNTS).find(|at| filled(*at)), (0..COUNTS).rev().find(|at| filled(*at)))
        else {
            return Markup::default();
        };
        let most = columns.iter().flat_map(|column| column.heat.0).max().unwrap_or(1);
        // Whole decades around the cells.
        let frame = Frame {
            x_min: 0.0,
            x_max: columns.last().map_or(1.0, |column| column.to_secs).max(1.0),
            y_min: log(lower(lowest)).floor(),
            y_max: log(Heat::upper(highest)).ceil(),
            scale: Scale::Logarithmic,
        };
        html! {
            figure {
                figcaption { (self.title) " " span.unit { "ms" } }
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(self.title) {
                    (frame.axes(&frame.horizontal_ticks(), "seconds"))
                    @for column in &columns {
                        @for (place, count) in column.heat.0.iter().enumerate().filter(|(_, count)| **count > 0) {
                            (cell(&frame, column, place, opacity(*count, most)))
                        }
                    }
                    (fault_marks(self.faults, &frame))
                }
                div.legend { span { i.heat-few {} "1" } span { i.heat-most {} (most) " payments of a latency in a column" } }
            }
        }
    }
}

fn cell(frame: &Frame, column: &Column, place: usize, opacity: f64) -> Markup {
    let (left, right) = (frame.x(column.from_secs.max(0.0)), frame.x(column.to_secs));
    let (top, bottom) = (frame.y(millis(Heat::upper(place))), frame.y(millis(lower(place))));
    html! {
        rect.heat x=(round(left)) y=(round(top)) width=(round(right - left)) height=(round(bottom - top))
            fill-opacity=(opacity) {}
    }
}

/// Returns the lower bound of a count. The first one starts a quarter of a decade below its upper bound.
fn lower(place: usize) -> Duration {
    place.checked_sub(1).map_or_else(|| Heat::upper(0).mul_f64(10_f64.powf(-0.25)), Heat::upper)
}

fn millis(latency: Duration) -> f64 {
    latency.as_secs_f64() * 1_000.0
}

fn log(latency: Duration) -> f64 {
    // A bound of a whole decade must not be rounded to the next one.
    (millis(latency).log10() * 1_000.0).round() / 1_000.0
}

/// Returns the opacity of a cell: by the square root, so that few payments are visible beside many.
fn opacity(count: u32, most: u32) -> f64 {
    let share = (f64::from(count) / f64::from(most)).sqrt();
    ((FAINTEST + (1.0 - FAINTEST) * share) * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at_secs: f64, counts: &[(usize, u32)]) -> Second {
        let mut complete_heat = Heat::default();
        for (place, count) in counts {
            complete_heat.0[*place] = *count;
        }
        Second { at_secs, period_secs: 1.0, complete_heat, ..Second::default() }
    }

    fn drawn(course: &[Second]) -> String {
        HeatMap { title: "t", course, of: |second| &second.complete_heat, faults: &[] }.draw().into_string()
    }

    #[test]
    fn a_cell_is_darker_with_more_payments() {
        let page = drawn(&[second(1.0, &[(4, 1)]), second(2.0, &[(4, 4), (8, 16)])]);
        assert_eq!(page.matches("rect class=\"heat\"").count(), 3, "{page}");
        for opacity in ["0.36", "0.57", "1"] {
            assert!(page.contains(&format!("fill-opacity=\"{opacity}\"")), "{opacity}: {page}");
        }
        assert!(page.contains(">10<") && page.contains(">100<") && page.contains("16 payments"), "{page}");
        assert_eq!(drawn(&[second(1.0, &[])]), "");
    }

    #[test]
    fn a_long_run_has_a_limited_number_of_columns() {
        let course: Vec<Second> = (1..=10_000).map(|at| second(f64::from(at), &[(0, 1), (21, 2)])).collect();
        let page = drawn(&course);
        let cells = page.matches("rect class=\"heat\"").count();
        assert!((200..=2 * COLUMNS_MAX).contains(&cells), "{cells}");
        assert!(page.contains("168 payments") && !page.contains("NaN"), "{page}");
    }
}
