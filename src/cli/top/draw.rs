//! Drawing of the view. Control characters are left out by the terminal library, so that no text can move the cursor.

use payferry_domain::Timestamp;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table};
use ratatui::{Frame, Terminal};

use super::View;
use super::sheets::{Screen, Sheet, sheets};

/// Color of what the operator should act on.
const BAD: Color = Color::Red;
/// Lines of a table besides its rows: the border and the headings.
const TABLE_LINES: u16 = 3;

/// Draws the view.
pub(super) fn draw(view: &View, frame: &mut Frame<'_>, now: Timestamp) {
    let [head, tabs, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(headline(view, now)), head);
    frame.render_widget(Paragraph::new(tab_line(view)), tabs);
    frame.render_widget(Paragraph::new("1-5 Tab: screen  j k: scroll  s: order of the actors  q: end").dim(), foot);
    let Some(snapshot) = &view.snapshot else { return };
    let all = sheets(view.screen, view.order, snapshot, now);
    let last = all.len().saturating_sub(1);
    let height = |(place, sheet): (usize, &Sheet)| {
        let lines = u16::try_from(sheet.rows.len().max(1)).unwrap_or(u16::MAX).saturating_add(TABLE_LINES);
        if place == last { Constraint::Min(TABLE_LINES) } else { Constraint::Length(lines) }
    };
    let areas = Layout::vertical(all.iter().enumerate().map(height)).split(body);
    for (sheet, area) in all.iter().zip(areas.iter()) {
        // A single table scrolls; several are shown from their start.
        let top = if last == 0 { view.top.min(sheet.rows.len().saturating_sub(1)) } else { 0 };
        table(sheet, top, frame, *area);
    }
}

fn headline(view: &View, now: Timestamp) -> Line<'_> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::styled("Payferry ", bold), Span::raw(view.url.as_str()), Span::raw("  ")];
    if let Some(snapshot) = &view.snapshot {
        let is_ready = snapshot.overview["readiness"]["ready"] == true;
        let (word, style) =
            if is_ready { ("ready", Style::new().fg(Color::Green)) } else { ("not ready", bold.fg(BAD)) };
        spans.push(Span::styled(word, style));
        let total = snapshot.attention["total"]["counted"].as_u64().unwrap_or_default();
        let style = if total > 0 { bold.fg(BAD) } else { Style::new() };
        spans.push(Span::styled(format!("  {total} need attention"), style));
        let old = now.millis_since(snapshot.at).max(0) / 1_000;
        spans.push(Span::raw(format!("  {old} s old")));
    }
    if let Some(error) = &view.error {
        spans.push(Span::styled(format!("  {error}"), bold.fg(BAD)));
    }
    Line::from(spans)
}

fn tab_line(view: &View) -> Line<'static> {
    let tab = |(place, screen): (usize, Screen)| {
        let style = if screen == view.screen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        [Span::styled(format!(" {} {} ", place + 1, screen.as_str()), style), Span::raw(" ")]
    };
    Line::from(Screen::ALL.into_iter().enumerate().flat_map(tab).collect::<Vec<_>>())
}

fn table(sheet: &Sheet, top: usize, frame: &mut Frame<'_>, area: Rect) {
    let widths = sheet.columns.iter().map(|(_, width)| match width {
        0 => Constraint::Min(8),
        width => Constraint::Length(*width),
    });
    let headings =
        Row::new(sheet.columns.iter().map(|(name, _)| *name)).style(Style::new().add_modifier(Modifier::BOLD));
    let rows = sheet.rows.iter().skip(top).map(|row| {
        let style = if row.is_bad { Style::new().fg(BAD) } else { Style::new() };
        Row::new(row.cells.iter().map(String::as_str)).style(style)
    });
    let block = Block::new().borders(Borders::TOP).title(format!(" {} ", sheet.title));
    let table = Table::new(rows, widths).header(headings).block(block).column_spacing(1);
    frame.render_widget(table, area);
    if sheet.rows.is_empty() && area.height >= TABLE_LINES {
        let line = Rect { y: area.y + 2, height: 1, ..area };
        frame.render_widget(Paragraph::new("none").dim(), line);
    }
}

/// The view as text of this size, without empty lines at its end.
pub(super) fn text(view: &View, (width, height): (u16, u16), now: Timestamp) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap_or_else(|never| match never {});
    if let Err(never) = terminal.draw(|frame| draw(view, frame, now)) {
        match never {}
    }
    let buffer = terminal.backend().buffer();
    let line = |y: u16| {
        let cells = (0..width).filter_map(|x| buffer.cell((x, y)));
        cells.map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
    };
    // The last line names the keys.
    let lines: Vec<String> = (0..height.saturating_sub(1)).map(line).collect();
    lines.join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::{Snapshot, View};
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_of_others_cannot_move_the_cursor() {
        let item = json!({ "id": "pay_1", "money": "10.00 USDC", "age_ms": 5_000, "reason": "a\u{1b}[2J\r\nb" });
        let attention = json!({ "total": { "counted": 1, "more": false },
            "kinds": [{ "kind": "settlement_failed", "items": [item] }] });
        let mut view = View::new("http://127.0.0.1:1".to_owned(), Screen::Attention);
        view.snapshot = Some(Snapshot { overview: json!({}), attention, messages: json!({}), at: Timestamp(0) });
        let shown = text(&view, (140, 12), Timestamp(3_000));
        assert!(!shown.contains(['\u{1b}', '\r']), "{shown:?}");
        for wanted in ["Needs attention: 1", "settlement failed", "pay_1", "10.00 USDC", "5 s", "3 s old", "not ready"]
        {
            assert!(shown.contains(wanted), "{wanted} in {shown}");
        }
    }
}
