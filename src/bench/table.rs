//! One line of the table, and how it is printed.

use serde::Serialize;

/// What is wanted of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
    /// Nothing: it is there to compare with.
    None,
}

impl Goal {
    /// Whether `figure` is as wanted.
    pub fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
            Self::None => true,
        }
    }
}

/// What a figure is compared with, measured in the same run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// In words.
    pub what: &'static str,
    /// In the figure's unit.
    pub figure: f64,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// What was measured.
    pub what: String,
    /// How much it is.
    pub figure: f64,
    /// Of what.
    pub unit: &'static str,
    /// What is wanted.
    pub goal: Goal,
    /// Whether it is so.
    pub holds: bool,
    /// What it is compared with.
    pub bound: Option<Bound>,
    /// The figure over that.
    pub ratio: Option<f64>,
    /// What else is to be known, such as how many were measured.
    pub notes: Vec<String>,
    /// Results that are wrong, whatever the figure: lost payments, say.
    pub wrong: Vec<String>,
}

impl Line {
    /// A line without a bound or notes.
    pub fn new(what: impl Into<String>, figure: f64, unit: &'static str, goal: Goal) -> Self {
        let holds = goal.holds(figure);
        let what = what.into();
        Self { what, figure, unit, goal, holds, bound: None, ratio: None, notes: Vec::new(), wrong: Vec::new() }
    }

    /// Beside what it is compared with.
    pub fn beside(mut self, what: &'static str, figure: f64) -> Self {
        self.ratio = (figure > 0.0).then(|| self.figure / figure);
        self.bound = Some(Bound { what, figure });
        self
    }

    /// With something more to be known.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// With what is wrong.
    pub fn wrong(mut self, wrong: Vec<String>) -> Self {
        self.wrong.extend(wrong);
        self
    }

    fn cells(&self) -> [String; 5] {
        let goal = match self.goal {
            Goal::AtLeast(least) => format!("≥ {}", short(least)),
            Goal::AtMost(most) => format!("≤ {}", short(most)),
            Goal::None => "-".to_owned(),
        };
        let goal = if self.holds { goal } else { format!("{goal} ✗") };
        let bound = self.bound.as_ref().map_or_else(|| "-".to_owned(), |bound| short(bound.figure));
        let ratio = self.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        [self.what.clone(), format!("{} {}", short(self.figure), self.unit), goal, bound, ratio]
    }
}

/// Three digits at least, and no more than are known.
fn short(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// The table, as text: every line with its notes below it.
pub fn render(lines: &[Line]) -> String {
    use std::fmt::Write as _;

    let heads = ["", "figure", "goal", "bound", "ratio"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(heads).chain(lines.iter().map(Line::cells)).collect();
    let widths: Vec<usize> =
        (0..5).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for (place, row) in rows.iter().enumerate() {
        let padded = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let blank = " ".repeat(width - cell.chars().count());
            if column == 0 { format!("{cell}{blank}") } else { format!("{blank}{cell}") }
        });
        let _ = writeln!(text, "{}", padded.collect::<Vec<_>>().join("  ").trim_end());
        let Some(line) = place.checked_sub(1).map(|place| &lines[place]) else { continue };
        if let Some(bound) = &line.bound {
            let _ = writeln!(text, "    bound: {}", bound.what);
        }
        for note in &line.notes {
            let _ = writeln!(text, "    {note}");
        }
        for wrong in &line.wrong {
            let _ = writeln!(text, "    WRONG: {wrong}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_goals_bounds_and_what_is_wrong() {
        let lines = [
            Line::new("payments initiated", 5_123.4, "/s", Goal::AtLeast(5_000.0)).beside("a bare handler", 10_000.0),
            Line::new("p99", 61.24, "ms", Goal::AtMost(50.0)).note("at 5,000/s").wrong(vec!["1 is lost".to_owned()]),
        ];
        let text = render(&lines);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["figure", "goal", "bound", "ratio"]);
        assert_eq!(words[1], ["payments", "initiated", "5123", "/s", "≥", "5000", "10000", "0.51"]);
        assert_eq!(words[2].join(" "), "bound: a bare handler");
        assert_eq!(words[3], ["p99", "61.2", "ms", "≤", "50.0", "✗", "-", "-"]);
        assert_eq!(words[4].join(" "), "at 5,000/s");
        assert_eq!(words[5].join(" "), "WRONG: 1 is lost");
    }
}
