//! Steps as users see them.

use crate::contracts::Step;
use crate::rows::StepRow;

/// In the order in which they were recorded.
pub fn steps(rows: impl IntoIterator<Item = StepRow>) -> Vec<Step> {
    let mut steps: Vec<Step> = rows.into_iter().map(step).collect();
    steps.sort_unstable_by_key(|step| step.sequence);
    steps
}

fn step(row: StepRow) -> Step {
    Step {
        name: row.key.name.to_string(),
        sequence: row.sequence,
        result: row.result,
        attempt_index: row.attempt_index,
        recorded_at: row.recorded_at,
        due_at: row.due_at,
    }
}
