//! Why a member of a flow waits for others: which of them are open, and how many are needed.

use serde_json::{Value, json};

use super::flow::group_snapshot;
use crate::contracts::{EdgeGroupSnapshot, EdgeGroupState, EdgePolicy, Explanation, ParentResult};
use crate::rows::{ChildrenRow, EdgeGroupRow, ExecutionRow};

/// How many of those that a member waits for are named.
pub const SHOWN_OPEN: usize = 10;

/// What is known about those that a member waits for.
#[derive(Debug, Default)]
pub struct Dependencies {
    /// What its parents have decided so far.
    pub group: Option<EdgeGroupRow>,
    /// The nodes that it has added itself and waits for.
    pub children: Option<ChildrenRow>,
    /// The first of those that have not ended.
    pub open: Vec<ParentResult>,
}

pub fn explain_dependencies(row: &ExecutionRow, waits: &Dependencies) -> Explanation {
    let open: Vec<Value> = waits.open.iter().map(shown).collect();
    let mut details = json!({ "flow_id": row.flow_id, "open": open });
    let words = match (&waits.children, &waits.group) {
        (Some(children), _) => {
            details["children"] = json!({ "added": children.added, "ended": children.ended });
            let left = children.added.saturating_sub(children.ended);
            details["open_total"] = left.into();
            format!("It waits for the {left} nodes that it has added{}.", named(waits, left))
        }
        (None, Some(group)) => {
            let group = group_snapshot(group);
            details["group"] = json!(group);
            details["open_total"] = open_parents(&group).into();
            of_group(&group, waits)
        }
        (None, None) => "It waits for other executions of its flow.".into(),
    };
    Explanation {
        execution_id: row.key.execution_id(),
        public_state: row.public_state,
        rule: "dependencies".into(),
        words,
        details,
        next_change_at: None,
    }
}

fn of_group(group: &EdgeGroupSnapshot, waits: &Dependencies) -> String {
    match group.state {
        EdgeGroupState::Satisfied => {
            return "Its parents have let it run; it is about to be made ready.".into();
        }
        EdgeGroupState::Impossible => {
            return "Too few of its parents can complete; it is about to be skipped.".into();
        }
        EdgeGroupState::Pending | EdgeGroupState::Cancelled => {}
    }
    let needed = match group.policy {
        EdgePolicy::AllOf => "all".to_owned(),
        EdgePolicy::AnyOf { .. } => "one".to_owned(),
        EdgePolicy::Quorum { k, .. } => k.to_string(),
    };
    let left = open_parents(group);
    format!(
        "It waits for {needed} of its {} parents to complete; {} have, {left} have not ended{}.",
        group.parents,
        group.succeeded,
        named(waits, left)
    )
}

/// How many parents have not ended, of which the first are named.
fn open_parents(group: &EdgeGroupSnapshot) -> u64 {
    group.parents.saturating_sub(group.succeeded + group.failed + group.skipped)
}

/// Those that are open by their names, as far as they are shown.
fn named(waits: &Dependencies, left: u64) -> String {
    let name = |one: &ParentResult| {
        let name = if one.name.is_empty() { one.execution_id.as_str() } else { &one.name };
        format!("{name} ({})", one.public_state.as_str())
    };
    let names: Vec<String> = waits.open.iter().map(name).collect();
    match left.saturating_sub(names.len() as u64) {
        _ if names.is_empty() => String::new(),
        0 => format!(": {}", names.join(", ")),
        more => format!(": {} and {more} more", names.join(", ")),
    }
}

fn shown(one: &ParentResult) -> Value {
    json!({ "execution_id": one.execution_id, "name": one.name, "state": one.public_state })
}
