//! Schedules: work that is submitted by itself.

use axum::http::Method;
use ff_api::{
    BackfillScheduleAnswer, BackfillScheduleRequest, JSON, PauseScheduleRequest,
    PreviewScheduleAnswer, PreviewScheduleRequest, PutScheduleAnswer, ScheduleRequest,
    ScheduleSnapshot, ScheduleTemplate, SchedulesAnswer, Scope, TriggerScheduleAnswer, bytes,
};
use ff_core::contracts::{
    self, BackfillScheduleArgs, ListSchedulesArgs, PauseScheduleArgs, PutScheduleArgs, ScheduleId,
    TriggerScheduleArgs,
};
use ff_core::engine_backend::ScheduleOperations;
use ff_core::limits;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::call::{Answer, Call};
use crate::refusal::{Answered, Refusal};
use crate::route::{MIB, Nothing, Route};
use crate::wire;

/// How many due times are told unless more are asked for.
const UPCOMING: usize = 5;

pub fn routes() -> Vec<Route> {
    let mut routes = definitions();
    routes.extend(by_hand());
    routes
}

fn definitions() -> Vec<Route> {
    vec![
        Route::new(
            (Method::PUT, "/v1/schedules/{schedule_name}"),
            ("put_schedule", "Makes a schedule, or gives the one of this name another definition."),
            Scope::Operate,
            put,
        )
        .body(2 * MIB),
        Route::new(
            (Method::GET, "/v1/schedules"),
            ("list_schedules", "The schedules of the namespace in the order of their names."),
            Scope::Read,
            list,
        ),
        Route::new(
            (Method::GET, "/v1/schedules/{schedule_name}"),
            ("describe_schedule", "Everything about one schedule, with its next due times."),
            Scope::Read,
            describe,
        ),
        Route::new(
            (Method::DELETE, "/v1/schedules/{schedule_name}"),
            ("delete_schedule", "Forgets a schedule; its runs stay."),
            Scope::Operate,
            delete,
        ),
        Route::new(
            (Method::POST, "/v1/schedule-preview"),
            ("preview_schedule", "When a schedule with these times would be due next."),
            Scope::Read,
            preview,
        ),
    ]
}

fn by_hand() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, "/v1/schedules/{schedule_name}/pause"),
            ("pause_schedule", "It starts nothing by itself; what comes due is left out."),
            Scope::Operate,
            pause,
        ),
        Route::new(
            (Method::POST, "/v1/schedules/{schedule_name}/resume"),
            ("resume_schedule", "It starts its runs by itself again."),
            Scope::Operate,
            resume,
        ),
        Route::new(
            (Method::POST, "/v1/schedules/{schedule_name}/trigger"),
            ("trigger_schedule", "Starts a run at once, one for each `Idempotency-Key`."),
            Scope::Operate,
            trigger,
        )
        .remembered_by_engine()
        .success(201),
        Route::new(
            (Method::POST, "/v1/schedules/{schedule_name}/backfill"),
            ("backfill_schedule", "Makes up for the due times of a range."),
            Scope::Operate,
            backfill,
        ),
    ]
}

fn id<Q, B>(call: &Call<Q, B>) -> Answered<ScheduleId> {
    let namespace = call.door.namespace()?.clone();
    Ok(ScheduleId { namespace, name: call.param("schedule_name").to_owned() })
}

async fn put(call: Call<Nothing, ScheduleRequest>) -> Answered<Answer<PutScheduleAnswer>> {
    let schedule_id = id(&call)?;
    let body = call.body;
    let args = PutScheduleArgs {
        schedule_id,
        timing: body.timing,
        template: template(body.template)?,
        overlap: body.overlap,
        missed: body.missed,
        jitter_ms: body.jitter_ms,
        starts_at: body.starts_at,
        ends_at: body.ends_at,
    };
    let outcome = call.door.backend().put_schedule(args).await?;
    Ok(Answer::json(PutScheduleAnswer { outcome }))
}

fn template(given: ScheduleTemplate) -> Answered<contracts::ScheduleTemplate> {
    let payload = given.bytes().map_err(|error| Refusal::invalid(error.to_string()))?;
    let encoding = given.payload.as_ref().map(|_| JSON.to_owned());
    Ok(contracts::ScheduleTemplate {
        lane_id: given.lane_id,
        execution_kind: given.execution_kind,
        input_payload: payload.unwrap_or_default(),
        payload_encoding: given.payload_encoding.or(encoding),
        priority: given.priority,
        tags: given.tags,
        policy: given.policy,
    })
}

fn shown(schedule: contracts::ScheduleSnapshot) -> ScheduleSnapshot {
    let definition = schedule.definition;
    let template = definition.template;
    let (payload, payload_base64) = match template.input_payload.is_empty() {
        true => (None, None),
        false => bytes::write(&template.input_payload),
    };
    ScheduleSnapshot {
        namespace: definition.schedule_id.namespace,
        name: definition.schedule_id.name,
        timing: definition.timing,
        template: ScheduleTemplate {
            lane_id: template.lane_id,
            execution_kind: template.execution_kind,
            payload,
            payload_base64,
            payload_encoding: template.payload_encoding,
            priority: template.priority,
            tags: template.tags,
            policy: template.policy,
        },
        overlap: definition.overlap,
        missed: definition.missed,
        jitter_ms: definition.jitter_ms,
        starts_at: definition.starts_at,
        ends_at: definition.ends_at,
        generation: schedule.generation,
        created_at: schedule.created_at,
        updated_at: schedule.updated_at,
        paused: schedule.paused,
        upcoming: schedule.upcoming,
        next_start_at: schedule.next_start_at,
        last_due: schedule.last_due,
        last_execution_id: schedule.last_execution_id,
        running: schedule.running,
        buffered: schedule.buffered,
        backfills: schedule.backfills,
        started: schedule.started,
        overlapped: schedule.overlapped,
        refused: schedule.refused,
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// 1 to 1,000; 100 if it is absent.
    limit: Option<usize>,
}

async fn list(call: Call<ListQuery, Nothing>) -> Answered<Answer<SchedulesAnswer>> {
    let limit = wire::limit(call.query.limit, 100)?;
    let args = ListSchedulesArgs { namespace: None, cursor: call.query.cursor, limit };
    let page = call.door.backend().list_schedules(args).await?;
    let schedules = page.schedules.into_iter().map(shown).collect();
    let (next_cursor, unreadable) = (page.next_cursor, page.unreadable);
    Ok(Answer::json(SchedulesAnswer { schedules, next_cursor, unreadable }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct DescribeQuery {
    /// How many of the next due times, at most 100; 5 if it is absent.
    upcoming: Option<usize>,
}

async fn describe(call: Call<DescribeQuery, Nothing>) -> Answered<Answer<ScheduleSnapshot>> {
    let upcoming = upcoming(call.query.upcoming)?;
    let found = call.door.backend().describe_schedule(&id(&call)?, upcoming).await?;
    found.map(shown).map(Answer::json).ok_or_else(|| Refusal::not_found("schedule"))
}

fn upcoming(given: Option<usize>) -> Answered<usize> {
    let count = given.unwrap_or(UPCOMING);
    if count > limits::UPCOMING {
        let detail = format!("{count} due times; up to {} go", limits::UPCOMING);
        return Err(Refusal::invalid(detail));
    }
    Ok(count)
}

async fn delete(call: Call<Nothing, Nothing>) -> Answered<Answer<Nothing>> {
    call.door.backend().delete_schedule(&id(&call)?).await?;
    Ok(Answer::nothing())
}

async fn preview(
    call: Call<Nothing, PreviewScheduleRequest>,
) -> Answered<Answer<PreviewScheduleAnswer>> {
    let count = upcoming(call.body.count)?;
    let upcoming = call.door.backend().preview_schedule(&call.body.timing, count).await?;
    Ok(Answer::json(PreviewScheduleAnswer { upcoming }))
}

async fn pause(call: Call<Nothing, PauseScheduleRequest>) -> Answered<Answer<Nothing>> {
    let (schedule_id, by) = (id(&call)?, call.door.principal().name.clone());
    let args = PauseScheduleArgs { schedule_id, reason: call.body.reason, by };
    call.door.backend().pause_schedule(args).await?;
    Ok(Answer::nothing())
}

async fn resume(call: Call<Nothing, Nothing>) -> Answered<Answer<Nothing>> {
    let by = &call.door.principal().name;
    call.door.backend().resume_schedule(&id(&call)?, by).await?;
    Ok(Answer::nothing())
}

async fn trigger(call: Call<Nothing, Nothing>) -> Answered<Answer<TriggerScheduleAnswer>> {
    let schedule_id = id(&call)?;
    let args = TriggerScheduleArgs { schedule_id, request_id: call.idempotency_key };
    let execution_id = call.door.backend().trigger_schedule(args).await?;
    Ok(Answer::created(TriggerScheduleAnswer { execution_id }))
}

async fn backfill(
    call: Call<Nothing, BackfillScheduleRequest>,
) -> Answered<Answer<BackfillScheduleAnswer>> {
    let BackfillScheduleRequest { from, until } = call.body;
    let args = BackfillScheduleArgs { schedule_id: id(&call)?, from, until };
    let runs = call.door.backend().backfill_schedule(args).await?;
    Ok(Answer::json(BackfillScheduleAnswer { runs }))
}
