//! Marks of the injected faults in a plot over time: a line at the begin of each, a band until its end, and its number.

use maud::{Markup, html};

use super::plot::{BOTTOM, Frame, HEIGHT, TOP, round};
use crate::faults::InjectedFault;

/// Least distance of two numbers. One that is closer to the last one is left out.
const NUMBER_GAP: f64 = 16.0;
/// Least width of a band. A shorter fault is a line only.
const BAND_LEAST: f64 = 1.0;

/// Draws the marks. Faults outside of the horizontal axis are at its ends.
pub(super) fn fault_marks(faults: &[InjectedFault], frame: &Frame) -> Markup {
    let height = HEIGHT - BOTTOM - TOP;
    let x = |secs: f64| frame.x(secs.clamp(frame.x_min, frame.x_max));
    let mut last_number = f64::MIN;
    let mut has_room = |at: f64| {
        let has_room = at - last_number >= NUMBER_GAP;
        last_number = if has_room { at } else { last_number };
        has_room
    };
    html! {
        @for fault in faults {
            @let (from, to) = (x(fault.at_secs), x(fault.until_secs));
            g.fault {
                title { (fault.number) ": " (fault.fault) }
                @if to - from >= BAND_LEAST {
                    rect x=(round(from)) y=(TOP) width=(round(to - from)) height=(height) {}
                }
                line x1=(round(from)) y1=(TOP) x2=(round(from)) y2=(TOP + height) {}
                @if has_room(from) { text x=(round(from)) y=(TOP - 5.0) text-anchor="middle" { (fault.number) } }
            }
        }
    }
}
