//! Steps that another execution has done and a fork need not do again.

use crate::rows::{ExecutionRow, StepCount, StepKey, StepRow};

/// The steps up to a chosen one, that one included, in the order in which they were recorded;
/// nothing if no step has that name.
pub fn steps_up_to(steps: &[StepRow], name: &str) -> Option<Vec<StepRow>> {
    let last = steps.iter().find(|step| &*step.key.name == name)?.sequence;
    let mut taken: Vec<_> = steps.iter().filter(|step| step.sequence <= last).cloned().collect();
    taken.sort_unstable_by_key(|step| step.sequence);
    Some(taken)
}

/// The steps of another execution as a new one's own.
pub fn adopt(row: &mut ExecutionRow, steps: &[StepRow]) -> Vec<StepRow> {
    let mut counted = StepCount::default();
    let mut adopted = Vec::with_capacity(steps.len());
    for step in steps {
        counted.count += 1;
        counted.bytes += (step.key.name.len() + step.result.len()) as u64;
        let key = StepKey { execution: row.key, name: step.key.name.clone() };
        let (sequence, attempt_index) = (counted.count, row.attempt_index);
        adopted.push(StepRow { key, sequence, attempt_index, ..step.clone() });
    }
    if counted.count > 0 {
        row.set_step_count(counted);
    }
    adopted
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::types::{ExecutionKey, TimestampMs};

    fn step(name: &str, sequence: u32) -> StepRow {
        let execution = ExecutionKey { partition: 0, id: Uuid::nil() };
        StepRow {
            key: StepKey { execution, name: name.into() },
            sequence,
            result: Arc::from(*b"ok"),
            attempt_index: 3,
            recorded_at: TimestampMs(1),
            due_at: None,
        }
    }

    #[test]
    fn a_fork_takes_what_was_done_before() {
        // Rows come in the order of their names.
        let steps = [step("b", 1), step("c", 3), step("d", 2)];
        let names = |name: &str| -> Option<Vec<String>> {
            let taken = steps_up_to(&steps, name)?;
            Some(taken.iter().map(|step| step.key.name.to_string()).collect())
        };
        assert_eq!(names("b").unwrap(), ["b"]);
        assert_eq!(names("d").unwrap(), ["b", "d"]);
        assert_eq!(names("c").unwrap(), ["b", "d", "c"]);
        assert_eq!(names("a"), None);
    }
}
