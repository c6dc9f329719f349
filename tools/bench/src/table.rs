//! Lines of the table, and their text form.

use serde::Serialize;

/// Cargo profile of this binary: `debug`, `release` or `dist`.
pub const PROFILE: &str = env!("PAYFERRY_BENCH_PROFILE");

/// Goal of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Lower limit.
    AtLeast(f64),
    /// Upper limit.
    AtMost(f64),
    /// No goal.
    None,
}

impl Goal {
    /// Returns true if `figure` meets the goal.
    pub fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
            Self::None => true,
        }
    }

    /// Returns the text form, if there is a goal.
    fn text(self, figure: impl Fn(f64) -> String) -> Option<String> {
        match self {
            Self::AtLeast(least) => Some(format!("≥ {}", figure(least))),
            Self::AtMost(most) => Some(format!("≤ {}", figure(most))),
            Self::None => None,
        }
    }
}

/// Figure to compare with, measured in the same run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// Description.
    pub what: &'static str,
    /// Value in the unit of the line.
    pub figure: f64,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableLine {
    /// Name of the measurement.
    pub what: String,
    /// The figure.
    pub figure: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Goal of the figure.
    pub goal: Goal,
    /// Figure to compare with.
    pub bound: Option<Bound>,
    /// Ratio of the figure to the bound.
    pub ratio: Option<f64>,
    /// Goal of the ratio.
    pub ratio_goal: Goal,
    /// True if figure and ratio meet their goals and nothing is lacking.
    pub holds: bool,
    /// Missing preconditions without which no figure meets the goal, for example a durable database.
    pub lacks: Vec<String>,
    /// Further information.
    pub notes: Vec<String>,
    /// Wrong results, for example lost payments.
    pub wrong: Vec<String>,
    /// Cargo profile of this binary.
    pub profile: &'static str,
}

impl TableLine {
    /// Makes a line without a bound and notes.
    pub fn new(what: impl Into<String>, figure: f64, unit: &'static str, goal: Goal) -> Self {
        Self {
            what: what.into(),
            figure,
            unit,
            goal,
            bound: None,
            ratio: None,
            ratio_goal: Goal::None,
            holds: goal.holds(figure),
            lacks: Vec::new(),
            notes: Vec::new(),
            wrong: Vec::new(),
            profile: PROFILE,
        }
    }

    /// Makes the line of a row that could not be measured.
    pub fn unmeasured(what: impl Into<String>, why: String) -> Self {
        let lacks = vec!["it could not be measured".to_owned()];
        Self::new(what, 0.0, "", Goal::None).unless(lacks).wrong(vec![why])
    }

    /// Adds the figure to compare with.
    pub fn beside(mut self, what: &'static str, figure: f64) -> Self {
        self.ratio = (figure > 0.0).then(|| self.figure / figure);
        self.bound = Some(Bound { what, figure });
        self
    }

    /// Sets the ratio of paired measurements, which is more precise than the ratio of the two figures.
    pub fn in_pairs(mut self, ratio: f64) -> Self {
        self.ratio = Some(ratio);
        self
    }

    /// Sets the goal of the ratio. An unknown ratio misses it.
    pub fn ratio_goal(mut self, goal: Goal) -> Self {
        self.ratio_goal = goal;
        self.holds &= self.ratio_holds();
        self
    }

    /// Adds missing preconditions.
    pub fn unless(mut self, lacks: Vec<String>) -> Self {
        self.holds &= lacks.is_empty();
        self.lacks.extend(lacks);
        self
    }

    /// Describes the line for a list of missed goals.
    pub fn summary(&self) -> String {
        let [what, figure, goal, _, ratio] = self.cells();
        let ratio = if self.ratio_holds() { String::new() } else { format!(", of the bound {ratio}") };
        let lacks = self.lacks.iter().map(|lack| format!(", {lack}")).collect::<Vec<_>>().concat();
        format!("{what}: {figure}, goal {goal}{ratio}{lacks}")
    }

    fn ratio_holds(&self) -> bool {
        self.ratio_goal == Goal::None || self.ratio.is_some_and(|ratio| self.ratio_goal.holds(ratio))
    }

    /// Adds a note.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds wrong results.
    pub fn wrong(mut self, wrong: Vec<String>) -> Self {
        self.wrong.extend(wrong);
        self
    }

    fn cells(&self) -> [String; 5] {
        let goal = self.goal.text(short).unwrap_or_else(|| "-".to_owned());
        let goal = if self.goal.holds(self.figure) { goal } else { format!("{goal} ✗") };
        let bound = self.bound.as_ref().map_or_else(|| "-".to_owned(), |bound| short(bound.figure));
        let ratio = self.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let ratio = match self.ratio_goal.text(|ratio| format!("{ratio:.2}")) {
            Some(goal) => format!("{ratio} {goal}{}", if self.ratio_holds() { "" } else { " ✗" }),
            None => ratio,
        };
        [self.what.clone(), format!("{} {}", short(self.figure), self.unit), goal, bound, ratio]
    }
}

/// Formats a figure with at least three digits.
fn short(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// Returns the table as text: every line with its notes below it.
pub fn render(lines: &[TableLine]) -> String {
    use std::fmt::Write as _;

    let heads = ["", "figure", "goal", "bound", "ratio"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(heads).chain(lines.iter().map(TableLine::cells)).collect();
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
        for lack in &line.lacks {
            let _ = writeln!(text, "    ✗ {lack}");
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
    fn lines_hold_if_they_meet_their_goals_and_lack_nothing() {
        let handled = |figure, bound| {
            let line = TableLine::new("payments initiated", figure, "/s", Goal::AtLeast(5_000.0));
            line.beside("a bare handler", bound)
        };
        let ratio_too = |figure, bound| handled(figure, bound).ratio_goal(Goal::AtLeast(0.3));
        let ratio_only = |ratio| {
            let line = TableLine::new("CPU of a payment", 1_300.0, "µs", Goal::None).beside("beside few", 1_000.0);
            line.in_pairs(ratio).ratio_goal(Goal::AtMost(1.25))
        };
        let lacks = || vec!["not durable: fsync = off".to_owned()];
        let wrong = vec!["1 is lost".to_owned()];
        let lines = [
            (true, handled(5_123.4, 10_000.0)),
            (false, TableLine::new("p99", 61.24, "ms", Goal::AtMost(50.0)).note("at 5,000/s").wrong(wrong)),
            (true, ratio_too(6_000.0, 20_000.0)),
            (false, ratio_too(6_000.0, 24_000.0)),
            (false, ratio_too(4_000.0, 10_000.0)),
            (false, ratio_too(6_000.0, 0.0)),
            (true, ratio_only(1.2)),
            (false, ratio_only(1.26)),
            (false, TableLine::unmeasured("webhooks", "the service did not start".to_owned())),
            (true, handled(6_000.0, 10_000.0).unless(vec![]).ratio_goal(Goal::AtLeast(0.3))),
            (false, ratio_too(6_000.0, 10_000.0).unless(lacks())),
            (false, handled(6_000.0, 10_000.0).unless(lacks()).ratio_goal(Goal::AtLeast(0.3))),
        ];
        for (holds, line) in &lines {
            assert_eq!(line.holds, *holds, "{line:?}");
        }
        let lines = lines.map(|(_, line)| line);
        let missed: Vec<String> = lines.iter().filter(|line| !line.holds).map(TableLine::summary).collect();
        insta::assert_snapshot!(format!("{}\n{}", render(&lines), missed.join("\n")));
    }
}
