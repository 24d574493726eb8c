//! Checks what callers say about schedules, before it reaches the queue.

use super::{check_text, prepare_submission};
use crate::contracts::{
    MissedPolicy, PutScheduleArgs, ScheduleId, ScheduleTemplate, Submission, Timing,
};
use crate::engine_error::EngineError;
use crate::limits::{self, Limits};
use crate::operations::schedule::{Calendar, PutSchedule, key_of};
use crate::rows::ScheduleKey;
use crate::types::{Namespace, TimestampMs};

/// A schedule as the operation that makes it. `partition` is where its runs live.
pub fn prepare_put_schedule(
    args: PutScheduleArgs,
    limits: &Limits,
    scope: Option<&Namespace>,
    partition: u16,
) -> Result<PutSchedule, EngineError> {
    let mut definition = args;
    check_text("schedule name", &definition.schedule_id.name, 1, limits::NAME_BYTES)?;
    check_template(&definition.template, &definition.schedule_id.namespace, limits, scope)?;
    check_timing(&definition.timing)?;
    if let MissedPolicy::All { max } = definition.missed
        && !(1..=limits::MISSED_RUNS).contains(&max)
    {
        let detail = format!("{max} missed runs; allowed are 1 to {}", limits::MISSED_RUNS);
        return Err(EngineError::invalid(detail));
    }
    if definition.jitter_ms > limits::JITTER_MAX_MS {
        let (given, max) = (definition.jitter_ms, limits::JITTER_MAX_MS);
        return Err(EngineError::invalid(format!("a jitter of {given} ms, the limit is {max}")));
    }
    if let (Some(start), Some(end)) = (definition.starts_at, definition.ends_at)
        && start >= end
    {
        return Err(EngineError::invalid("the schedule ends before it starts"));
    }
    // Nothing is stored that could not be read again.
    Calendar::of(&definition, key_of(&definition.schedule_id).id, TimestampMs(0))?;
    let payload = std::mem::take(&mut definition.template.input_payload).into();
    Ok(PutSchedule { definition, payload, partition })
}

/// The schedule's key, if the caller may know of it.
pub fn schedule_key(
    id: &ScheduleId,
    scope: Option<&Namespace>,
) -> Result<ScheduleKey, EngineError> {
    if scope.is_some_and(|own| *own != id.namespace) {
        return Err(EngineError::NotFound { entity: "schedule" });
    }
    check_text("namespace", id.namespace.as_str(), 0, limits::NAME_BYTES)?;
    check_text("schedule name", &id.name, 0, limits::NAME_BYTES)?;
    Ok(key_of(id))
}

pub fn check_timing(timing: &Timing) -> Result<(), EngineError> {
    let Timing::Interval { every_ms, .. } = timing else { return Ok(()) };
    let max = u64::try_from(limits::HORIZON.as_millis()).unwrap_or(u64::MAX);
    if (limits::INTERVAL_MIN_MS..=max).contains(every_ms) {
        return Ok(());
    }
    let min = limits::INTERVAL_MIN_MS;
    Err(EngineError::invalid(format!("an interval of {every_ms} ms; allowed are {min} to {max}")))
}

/// The same rules as for a submission, with room for the tags that name the schedule.
fn check_template(
    template: &ScheduleTemplate,
    namespace: &Namespace,
    limits: &Limits,
    scope: Option<&Namespace>,
) -> Result<(), EngineError> {
    let mut tags = template.tags.clone();
    for own in ["schedule.name", "schedule.due_at"] {
        tags.insert(own.to_owned(), String::new());
    }
    let submission = Submission {
        namespace: namespace.clone(),
        lane_id: template.lane_id.clone(),
        execution_kind: template.execution_kind.clone(),
        input_payload: template.input_payload.clone(),
        payload_encoding: template.payload_encoding.clone(),
        priority: template.priority,
        tags,
        policy: template.policy.clone(),
        ..Submission::default()
    };
    prepare_submission(submission, limits, scope, 0).map(drop)
}
