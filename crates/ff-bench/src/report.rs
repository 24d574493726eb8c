//! The table and its judgement.

use std::fmt::Write;

use serde_json::{Value, json};

/// What a line must reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    /// At least so many times its floor.
    AtLeast(f64),
    /// At most so many times its floor.
    AtMost(f64),
    /// At least this value, whatever the floor.
    ValueAtLeast(f64),
    /// At most this value.
    ValueAtMost(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    PerSecond,
    PerMinute,
    Micros,
    Megabytes,
}

/// One measured workload.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub workload: String,
    pub unit: Unit,
    /// The middle one of all rounds.
    pub value: f64,
    pub floor: Option<Floored>,
    pub bar: Option<Bar>,
    /// Why the bar does not hold here, if it does not.
    pub waived: Option<String>,
}

/// What the value is compared with.
#[derive(Clone, Debug)]
pub(crate) struct Floored {
    pub name: &'static str,
    pub value: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub title: String,
    pub lines: Vec<Line>,
}

impl Line {
    pub(crate) fn new(workload: impl Into<String>, unit: Unit, value: f64) -> Self {
        Self { workload: workload.into(), unit, value, floor: None, bar: None, waived: None }
    }

    /// A floor of 0 was not measured in this run.
    #[must_use]
    pub(crate) fn floor(mut self, name: &'static str, value: f64) -> Self {
        self.floor = (value > 0.0).then_some(Floored { name, value });
        self
    }

    #[must_use]
    pub(crate) fn bar(mut self, bar: Bar) -> Self {
        self.bar = Some(bar);
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.floor.as_ref().map(|floor| self.value / floor.value)
    }

    /// A value that could not be measured reaches no bar.
    fn ok(&self) -> Option<bool> {
        if self.waived.is_some() {
            return None;
        }
        let ratio = self.ratio().unwrap_or(f64::NAN);
        self.bar.map(|bar| match bar {
            Bar::AtLeast(least) => ratio >= least,
            Bar::AtMost(most) => ratio <= most,
            Bar::ValueAtLeast(least) => self.value >= least,
            Bar::ValueAtMost(most) => self.value <= most,
        })
    }

    fn verdict(&self) -> &str {
        match (self.ok(), &self.waived) {
            (Some(true), _) => "ok",
            (Some(false), _) => "MISSED",
            (None, Some(why)) => why,
            (None, None) => "",
        }
    }

    fn bar_text(&self) -> String {
        match self.bar {
            Some(Bar::AtLeast(least)) => format!(">= {least} x"),
            Some(Bar::AtMost(most)) => format!("<= {most} x"),
            Some(Bar::ValueAtLeast(least)) => format!(">= {}", self.unit.show(least)),
            Some(Bar::ValueAtMost(most)) => format!("<= {}", self.unit.show(most)),
            None => String::new(),
        }
    }

    fn cells(&self) -> [String; 6] {
        let floor = self
            .floor
            .as_ref()
            .map(|floor| format!("{} ({})", self.unit.show(floor.value), floor.name));
        [
            self.workload.clone(),
            self.unit.show(self.value),
            floor.unwrap_or_default(),
            self.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            self.bar_text(),
            self.verdict().to_owned(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "workload": self.workload,
            "unit": self.unit.name(),
            "value": self.value,
            "floor_name": self.floor.as_ref().map(|floor| floor.name),
            "floor": self.floor.as_ref().map(|floor| floor.value),
            "ratio": self.ratio(),
            "bar": self.bar.map(|_| self.bar_text()),
            "ok": self.ok(),
            "waived": self.waived,
        })
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "per_second",
            Self::PerMinute => "per_minute",
            Self::Micros => "microseconds",
            Self::Megabytes => "megabytes",
        }
    }

    fn show(self, value: f64) -> String {
        let number = grouped(value);
        match self {
            Self::PerSecond => format!("{number}/s"),
            Self::PerMinute => format!("{number}/min"),
            Self::Micros => format!("{number} us"),
            Self::Megabytes => format!("{number} MB"),
        }
    }
}

/// A whole number with its thousands apart.
fn grouped(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Report {
    pub(crate) fn table(&self) -> String {
        let header = ["workload", "value", "floor", "ratio", "bar", ""].map(str::to_owned);
        let rows: Vec<_> =
            std::iter::once(header).chain(self.lines.iter().map(Line::cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        let mut text = format!("{}\n\n", self.title);
        for row in &rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                let _ = match column {
                    1 | 3 => write!(line, "{cell:>width$}  "),
                    _ => write!(line, "{cell:<width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "title": self.title,
            "lines": self.lines.iter().map(Line::json).collect::<Vec<_>>(),
            "missed": self.missed(),
        })
    }

    /// The bars that were missed, each with how far.
    pub(crate) fn missed(&self) -> Vec<String> {
        let missed = self.lines.iter().filter(|line| line.ok() == Some(false));
        let name = |line: &Line| {
            let ratio = line.ratio().map(|ratio| format!(" = {ratio:.2} x its floor"));
            let value = line.unit.show(line.value);
            let ratio = ratio.unwrap_or_default();
            format!("{}: {value}{ratio}, the bar is {}", line.workload, line.bar_text())
        };
        missed.map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judgement() {
        let line = |value, bar| Line::new("w", Unit::PerSecond, value).floor("f", 100.0).bar(bar);
        assert_eq!(line(200.0, Bar::AtLeast(2.0)).ok(), Some(true));
        assert_eq!(line(199.0, Bar::AtLeast(2.0)).ok(), Some(false));
        assert_eq!(line(201.0, Bar::AtMost(2.0)).ok(), Some(false));
        assert_eq!(line(f64::NAN, Bar::AtMost(2.0)).ok(), Some(false));
        assert_eq!(line(9.0, Bar::ValueAtLeast(10.0)).ok(), Some(false));
        assert_eq!(line(9.0, Bar::ValueAtMost(10.0)).ok(), Some(true));
        let mut waived = line(1.0, Bar::AtLeast(2.0));
        waived.waived = Some("slow disk".into());
        assert_eq!((waived.ok(), waived.verdict()), (None, "slow disk"));
        let report =
            Report { title: "t".into(), lines: vec![line(1.0, Bar::AtLeast(2.0)), waived] };
        assert_eq!(report.missed().len(), 1);
        assert!(report.table().contains("MISSED"));
    }

    #[test]
    fn thousands() {
        assert_eq!(grouped(1_234_567.4), "1,234,567");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(grouped(f64::NAN), "?");
    }
}
