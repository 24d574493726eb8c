//! Why an execution is not running: the rule, its numbers, and when that can change. What waits for
//! a limit, a signal or other members is told by others.

use serde_json::{Value, json};

use super::worker::nearest;
use crate::contracts::Explanation;
use crate::rows::{AttemptRow, ExecutionRow, FlowRow, LaneRow, WorkerRow};
use crate::state::{BlockingReason, EligibilityState, LaneState, LifecyclePhase};
use crate::types::{TimestampMs, duration_in_words};

struct Finding {
    rule: &'static str,
    words: String,
    details: Value,
    next_change_at: Option<TimestampMs>,
}

pub fn explain(
    row: &ExecutionRow,
    attempts: &[AttemptRow],
    lane: Option<&LaneRow>,
    flow: Option<&FlowRow>,
    workers: &[WorkerRow],
    now: TimestampMs,
) -> Explanation {
    let current = attempts.iter().find(|attempt| attempt.key.index == row.attempt_index);
    let ended = flow.filter(|flow| flow.state.is_finished());
    let finding = match row.phase {
        LifecyclePhase::Terminal | LifecyclePhase::Cancelled => finished(row),
        LifecyclePhase::Active => running(row, current, now),
        _ if ended.is_some() => ended_flow(row),
        LifecyclePhase::Suspended => Finding {
            rule: "suspended",
            words: "It is suspended and waits for a signal.".into(),
            details: json!({}),
            next_change_at: None,
        },
        LifecyclePhase::Submitted | LifecyclePhase::Runnable => waiting(row, lane, workers, now),
    };
    let Finding { rule, mut words, mut details, next_change_at } = finding;
    let unread = row.unread_policy();
    if !unread.is_empty() {
        words += &format!(" Parts of its policy cannot be read: {}.", unread.join(", "));
        details["unread_policy"] = json!(unread);
    }
    Explanation {
        execution_id: row.key.execution_id(),
        public_state: row.public_state,
        rule: rule.into(),
        words,
        details,
        next_change_at,
    }
}

fn finished(row: &ExecutionRow) -> Finding {
    let reason = row.failure_reason.as_deref().or(row.cancellation_reason.as_deref());
    let because = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    Finding {
        rule: "finished",
        words: format!("It has ended as {}{because}.", row.public_state.as_str()),
        details: json!({
            "finished_at": row.terminal_at,
            "reason": reason,
            "category": row.failure_category.as_deref(),
        }),
        next_change_at: None,
    }
}

fn running(row: &ExecutionRow, current: Option<&AttemptRow>, now: TimestampMs) -> Finding {
    let holder = current.and_then(AttemptRow::holder).unwrap_or("nobody");
    let expires_at = current.and_then(|attempt| attempt.lease_expires_at);
    let expired = expires_at.is_none_or(|at| at <= now);
    let words = if expired {
        format!("The lease of {holder} has expired; it is about to be handed out again.")
    } else {
        format!("It is running: {holder} holds attempt {}.", row.attempt_index + 1)
    };
    Finding {
        rule: if expired { "lease_expired" } else { "running" },
        words,
        details: json!({
            "worker_instance_id": holder,
            "attempt_index": row.attempt_index,
            "lease_expires_at": expires_at,
        }),
        next_change_at: expires_at,
    }
}

fn ended_flow(row: &ExecutionRow) -> Finding {
    Finding {
        rule: "flow_ended",
        words: "Its flow has ended; it is never handed out again.".into(),
        details: json!({ "flow_id": row.flow_id }),
        next_change_at: None,
    }
}

fn waiting(
    row: &ExecutionRow,
    lane: Option<&LaneRow>,
    workers: &[WorkerRow],
    now: TimestampMs,
) -> Finding {
    match (row.eligibility, row.blocking) {
        (EligibilityState::NotEligibleUntilTime, BlockingReason::WaitingForRetryBackoff) => {
            // People count attempts from 1, and the index is the next one's already.
            let (failed, next) = (row.attempt_index, row.attempt_index + 1);
            let left = left(row, now);
            Finding {
                rule: "retry_backoff",
                words: format!("Attempt {failed} failed; attempt {next} starts in {left}."),
                details: json!({
                    "not_before": row.not_before,
                    "retry_count": row.retry_count,
                    "max_retries": row.policy().retry_policy.max_retries,
                    "reason": row.failure_reason.as_deref(),
                }),
                next_change_at: row.not_before,
            }
        }
        (EligibilityState::NotEligibleUntilTime, BlockingReason::WaitingForResumeDelay) => {
            Finding {
                rule: "resume_delay",
                words: format!("It has been resumed and goes on in {}.", left(row, now)),
                details: json!({ "not_before": row.not_before }),
                next_change_at: row.not_before,
            }
        }
        (EligibilityState::NotEligibleUntilTime, _) => Finding {
            rule: "delay",
            words: format!("It is delayed for another {}.", left(row, now)),
            details: json!({ "not_before": row.not_before }),
            next_change_at: row.not_before,
        },
        (EligibilityState::BlockedByOperator, _) => Finding {
            rule: "held",
            words: "It is held back by an operator.".into(),
            details: json!({}),
            next_change_at: None,
        },
        _ => eligible(row, lane, workers),
    }
}

fn eligible(row: &ExecutionRow, lane: Option<&LaneRow>, workers: &[WorkerRow]) -> Finding {
    if let Some(lane) = lane.filter(|lane| lane.state == LaneState::Paused) {
        let reason = lane.paused_reason.as_deref().unwrap_or_default();
        return Finding {
            rule: "lane_paused",
            words: format!("Lane {} is paused: {reason}.", lane.lane),
            details: json!({
                "lane_id": &*lane.lane,
                "reason": reason,
                "by": lane.paused_by.as_deref(),
                "paused_at": lane.paused_at,
            }),
            next_change_at: None,
        };
    }
    let needs = &*row.capability_class;
    let ready = if needs.is_empty() {
        format!("It is ready; no worker of lane {} has claimed it yet.", row.lane)
    } else {
        format!("It is ready; no worker of lane {} that offers {needs} has claimed it.", row.lane)
    };
    let mut details = json!({
        "lane_id": &*row.lane,
        "priority": row.priority,
        "required_capabilities": needs,
    });
    let Some((nearest, missing)) = nearest(workers, needs) else {
        return Finding { rule: "waiting_for_worker", words: ready, details, next_change_at: None };
    };
    let instance = &*nearest.key.instance;
    details["live_workers"] = workers.len().into();
    details["nearest_worker"] = instance.into();
    details["missing_capabilities"] = json!(missing);
    let (rule, words) = if missing.is_empty() {
        let words = format!("{ready} Worker {instance} is alive and can do it.");
        ("waiting_for_worker", words)
    } else {
        let lacks = missing.join(", ");
        let words = format!(
            "It is ready, but no live worker of lane {} can do it: {instance} comes nearest and \
             lacks {lacks}.",
            row.lane
        );
        ("missing_capability", words)
    };
    Finding { rule, words, details, next_change_at: None }
}

fn left(row: &ExecutionRow, now: TimestampMs) -> String {
    duration_in_words(row.not_before.unwrap_or(now).since(now))
}
