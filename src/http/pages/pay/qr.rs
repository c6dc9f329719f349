//! Draws a QR code as inline SVG.

use std::fmt::Write as _;

use maud::{Markup, html};
use qrcode::{Color, EcLevel, QrCode};

/// White modules around the code, as scanners require.
const QUIET: usize = 4;

/// Renders the code of `text`; `None` if it is too long for a QR code.
pub(super) fn picture(text: &str, label: &str) -> Option<Markup> {
    let code = QrCode::with_error_correction_level(text, EcLevel::M).ok()?;
    let side = code.width() + 2 * QUIET;
    Some(html! {
        svg.qr role="img" aria-label=(label) viewBox=(format!("0 0 {side} {side}")) shape-rendering="crispEdges" {
            rect width=(side) height=(side) fill="#fff" {}
            path d=(outline(&code)) fill="#000" {}
        }
    })
}

/// Draws each horizontal run of dark modules as one rectangle.
fn outline(code: &QrCode) -> String {
    let (colors, width) = (code.to_colors(), code.width());
    let mut path = String::new();
    for (y, line) in colors.chunks(width).enumerate() {
        let mut x = 0;
        for run in line.chunk_by(|one, next| one == next) {
            if run[0] == Color::Dark {
                let length = run.len();
                // Writing to a `String` cannot fail.
                let _ = write!(path, "M{} {}h{length}v1h-{length}z", x + QUIET, y + QUIET);
            }
            x += run.len();
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pixels per module of the rendered test image.
    const DOTS: usize = 3;

    #[test]
    fn a_scanner_can_read_the_picture() {
        let text = "ethereum:0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913@8453/transfer\
                    ?address=0x5FbDB2315678afecb367f032d93F642f64180aa3&uint256=12500000";
        let code = QrCode::with_error_correction_level(text, EcLevel::M).unwrap();
        let side = code.width() + 2 * QUIET;
        let mut dark = vec![vec![false; side]; side];
        for run in outline(&code).split('M').skip(1) {
            let numbers = run.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<usize>().ok());
            let [x, y, length, ..] = numbers.collect::<Vec<_>>()[..] else { panic!("{run}") };
            dark[y][x..x + length].fill(true);
        }
        let mut picture =
            rqrr::PreparedImage::prepare_from_bitmap(side * DOTS, side * DOTS, |x, y| dark[y / DOTS][x / DOTS]);
        let found = picture.detect_grids();
        assert_eq!(found[0].decode().unwrap().1, text);
        assert!(super::picture(&"x".repeat(5_000), "").is_none(), "too long for a QR code");
    }
}
