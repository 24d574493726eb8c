//! Schedules come due once, whoever looks, and say what they leave out.

use std::time::Duration;

use ff_core::contracts::{
    BackfillScheduleArgs, EventFilter, EventType, ListExecutionsArgs, ListOrder, ListSchedulesArgs,
    MissedPolicy, OverlapPolicy, PauseScheduleArgs, PutScheduleArgs, PutScheduleOutcome,
    ScheduleId, ScheduleSnapshot, ScheduleTemplate, Timing, TriggerScheduleArgs,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::{EngineBackend, LimitOperations, Namespaced, ScheduleOperations};
use ff_core::policy::ExecutionPolicy;
use ff_core::state::PublicState;
use ff_core::types::{ExecutionId, Namespace, TimestampMs};

use super::budget::budget;
use super::{Fixture, LANE, START_MS, code};

const MINUTE: u64 = 60_000;

fn id() -> ScheduleId {
    ScheduleId::new("default", "nightly")
}

/// Every minute, beside whatever runs.
pub(super) fn every_minute() -> PutScheduleArgs {
    let timing = Timing::every(Duration::from_millis(MINUTE));
    let template = ScheduleTemplate::new(LANE, "kind");
    PutScheduleArgs {
        overlap: OverlapPolicy::Allow,
        ..PutScheduleArgs::new(id(), timing, template)
    }
}

fn with_overlap(overlap: OverlapPolicy) -> PutScheduleArgs {
    PutScheduleArgs { overlap, ..every_minute() }
}

fn minute(number: u64) -> TimestampMs {
    TimestampMs(START_MS).after_ms(number * MINUTE)
}

/// The runs so far, oldest first: the minute for which each was started, and its state.
async fn runs(f: &Fixture) -> Vec<(u64, PublicState, ExecutionId)> {
    let args = ListExecutionsArgs { order: ListOrder::OldestFirst, ..Default::default() };
    let page = f.backend.list_executions(args).await.unwrap();
    let mut runs = Vec::new();
    for run in page.executions {
        let seen = f.snapshot(&run.execution_id).await;
        assert_eq!(seen.tags["schedule.name"], "nightly");
        let due: jiff::Timestamp = seen.tags["schedule.due_at"].parse().unwrap();
        let number = (due.as_millisecond() - START_MS) as u64 / MINUTE;
        runs.push((number, seen.public_state, run.execution_id));
    }
    runs.sort_by_key(|(number, ..)| *number);
    runs
}

async fn minutes(f: &Fixture) -> Vec<u64> {
    runs(f).await.into_iter().map(|(number, ..)| number).collect()
}

pub(super) async fn described(f: &Fixture) -> ScheduleSnapshot {
    f.backend.describe_schedule(&id(), 3).await.unwrap().expect("the schedule exists")
}

/// What was left out, as the log tells it.
async fn left_out(f: &Fixture) -> Vec<String> {
    let event_types = vec![EventType::ScheduleLeftOut];
    let filter = EventFilter { event_types, ..EventFilter::default() };
    let mut log = f.backend.subscribe(filter, StartAt::Oldest).await.unwrap();
    let mut why = Vec::new();
    while let Some(event) = log.try_next().await.unwrap() {
        why.push(event.details["why"].as_str().unwrap().to_owned());
    }
    why
}

/// Ends the oldest run.
async fn finish_one(f: &Fixture) {
    let claimed = f.claim().await;
    f.backend.complete(&claimed.handle, None).await.unwrap();
    f.advance(0).await;
}

pub async fn once_per_due_time(f: &Fixture) {
    let put = f.backend.put_schedule(every_minute()).await.unwrap();
    assert_eq!(put, PutScheduleOutcome::Created);
    f.advance(MINUTE - 1).await;
    assert!(minutes(f).await.is_empty(), "a run before its time");
    for number in 1..=3 {
        f.advance(if number == 1 { 1 } else { MINUTE }).await;
        for _ in 0..2 {
            f.backend.engine().sweep().await.unwrap();
        }
        assert_eq!(minutes(f).await, (1..=number).collect::<Vec<_>>());
    }
    let seen = described(f).await;
    assert_eq!((seen.started, seen.last_due), (3, Some(minute(3))));
    assert_eq!(seen.upcoming, [minute(4), minute(5), minute(6)]);
    assert_eq!(seen.next_start_at, Some(minute(4)));
    let last = runs(f).await.pop().unwrap().2;
    assert_eq!(seen.last_execution_id, Some(last.clone()));
    assert!(f.snapshot(&last).await.creator_identity.starts_with("schedule/"));
}

pub async fn what_a_run_carries(f: &Fixture) {
    let mut args = every_minute();
    args.template.input_payload = b"\0bytes\xff".to_vec();
    args.template.priority = 7;
    args.template.payload_encoding = Some("raw".into());
    args.template.tags.insert("team.name".into(), "ops".into());
    args.template.policy = Some(super::retries(2, 500));
    f.backend.put_schedule(args.clone()).await.unwrap();
    f.advance(MINUTE).await;
    let claimed = f.claim().await;
    assert_eq!(&*claimed.payload, b"\0bytes\xff");
    assert_eq!((claimed.priority, claimed.execution_kind.as_str()), (7, "kind"));
    assert_eq!(claimed.payload_encoding.as_deref(), Some("raw"));
    assert_eq!(claimed.tags["team.name"], "ops");
    assert_eq!(described(f).await.definition, args, "what was put is told");
}

pub async fn cron_in_a_zone(f: &Fixture) {
    // The clock starts at 2027-01-15T08:00Z, which is 09:00 in Berlin.
    let timing = Timing::cron("30 9 * * *", "Europe/Berlin");
    f.backend.put_schedule(PutScheduleArgs { timing, ..every_minute() }).await.unwrap();
    let seen = described(f).await;
    let at = |text: &str| TimestampMs(text.parse::<jiff::Timestamp>().unwrap().as_millisecond());
    assert_eq!(seen.upcoming[..2], [at("2027-01-15T08:30:00Z"), at("2027-01-16T08:30:00Z")]);
    f.advance(30 * MINUTE).await;
    assert_eq!(minutes(f).await, [30]);
    let preview = Timing::cron("0 0 L * *", "Europe/Berlin");
    let preview = f.backend.preview_schedule(&preview, 1).await.unwrap();
    assert_eq!(preview, [at("2027-01-30T23:00:00Z")]);
}

pub async fn missed_skip(f: &Fixture) {
    let missed = MissedPolicy::Skip;
    f.backend.put_schedule(PutScheduleArgs { missed, ..every_minute() }).await.unwrap();
    let daily = Timing::every(Duration::from_millis(60 * MINUTE));
    let hourly = ScheduleId::new("default", "hourly");
    let hourly = PutScheduleArgs { schedule_id: hourly, timing: daily, missed, ..every_minute() };
    f.backend.put_schedule(hourly).await.unwrap();
    // Nobody looks for more than an hour.
    f.advance(62 * MINUTE + 1).await;
    let page = f.backend.list_executions(ListExecutionsArgs::default()).await.unwrap();
    assert_eq!(page.executions.len(), 1, "only what is on time is run");
    let run = f.snapshot(&page.executions[0].execution_id).await;
    assert_eq!(run.tags["schedule.name"], "nightly");
    assert_eq!(left_out(f).await, ["missed", "missed"]);
}

pub async fn missed_latest(f: &Fixture) {
    f.backend.put_schedule(every_minute()).await.unwrap();
    f.advance(500 * MINUTE + 30_000).await;
    assert_eq!(minutes(f).await, [500]);
    f.advance(30_000).await;
    assert_eq!(minutes(f).await, [500, 501]);
    assert_eq!(left_out(f).await, ["missed"]);
}

pub async fn missed_all(f: &Fixture) {
    let missed = MissedPolicy::All { max: 250 };
    f.backend.put_schedule(PutScheduleArgs { missed, ..every_minute() }).await.unwrap();
    f.advance(20 * MINUTE).await;
    assert_eq!(minutes(f).await.len(), 20);
    assert!(left_out(f).await.is_empty());
    f.advance(1_000 * MINUTE).await;
    let seen = described(f).await;
    assert_eq!((seen.started, seen.last_due), (270, Some(minute(1_020))));
    assert_eq!(left_out(f).await, ["missed"]);
    f.advance(MINUTE).await;
    assert_eq!(described(f).await.started, 271);
}

pub async fn overlap_allow(f: &Fixture) {
    f.backend.put_schedule(with_overlap(OverlapPolicy::Allow)).await.unwrap();
    f.advance(MINUTE).await;
    f.advance(MINUTE).await;
    let waiting = |(number, state, _): &(u64, PublicState, _)| (*number, *state);
    let states: Vec<_> = runs(f).await.iter().map(waiting).collect();
    assert_eq!(states, [(1, PublicState::Waiting), (2, PublicState::Waiting)]);
}

pub async fn overlap_skip(f: &Fixture) {
    f.backend.put_schedule(with_overlap(OverlapPolicy::Skip)).await.unwrap();
    f.advance(MINUTE).await;
    f.advance(MINUTE).await;
    assert_eq!(minutes(f).await, [1]);
    let seen = described(f).await;
    assert_eq!((seen.overlapped, seen.running.len()), (1, 1));
    assert_eq!(left_out(f).await, ["overlap"]);
    finish_one(f).await;
    f.advance(MINUTE).await;
    assert_eq!(minutes(f).await, [1, 3]);
}

pub async fn overlap_buffer_one(f: &Fixture) {
    f.backend.put_schedule(with_overlap(OverlapPolicy::BufferOne)).await.unwrap();
    for _ in 0..3 {
        f.advance(MINUTE).await;
    }
    assert_eq!(minutes(f).await, [1]);
    let seen = described(f).await;
    assert_eq!((seen.buffered, seen.overlapped), (Some(minute(2)), 1));
    // The one that waited starts as soon as the first has ended, not at the next due time.
    finish_one(f).await;
    assert_eq!(minutes(f).await, [1, 2]);
    assert_eq!(described(f).await.buffered, None);
    finish_one(f).await;
    assert_eq!(minutes(f).await, [1, 2]);
    f.advance(MINUTE).await;
    assert_eq!(minutes(f).await, [1, 2, 4]);
}

pub async fn overlap_cancel_running(f: &Fixture) {
    f.backend.put_schedule(with_overlap(OverlapPolicy::CancelRunning)).await.unwrap();
    f.advance(MINUTE).await;
    let claimed = f.claim().await;
    f.advance(MINUTE).await;
    let seen = runs(f).await;
    assert_eq!(seen[0].1, PublicState::Cancelled);
    assert_eq!(seen[1].1, PublicState::Waiting);
    let cancelled = f.snapshot(&seen[0].2).await;
    assert_eq!(cancelled.cancelled_by.as_deref(), Some("schedule"));
    let refused = f.backend.complete(&claimed.handle, None).await;
    assert_eq!(code(&refused), "execution_not_active");
    assert_eq!(described(f).await.running, [seen[1].2.clone()]);
}

pub async fn pause_and_resume(f: &Fixture) {
    f.backend.put_schedule(every_minute()).await.unwrap();
    f.advance(MINUTE).await;
    let pause = PauseScheduleArgs { schedule_id: id(), reason: "broken".into(), by: "me".into() };
    f.backend.pause_schedule(pause.clone()).await.unwrap();
    f.backend.pause_schedule(pause).await.unwrap();
    let seen = described(f).await;
    let paused = seen.paused.expect("it is paused");
    assert_eq!((paused.reason.as_str(), paused.by.as_str(), paused.at), ("broken", "me", f.now()));
    assert!(seen.upcoming.is_empty() && seen.next_start_at.is_none());
    f.advance(5 * MINUTE).await;
    assert_eq!(minutes(f).await, [1]);
    // A definition that is put again leaves it paused.
    let mut changed = every_minute();
    changed.template.priority = 3;
    let put = f.backend.put_schedule(changed).await.unwrap();
    assert_eq!(put, PutScheduleOutcome::Updated);
    f.advance(MINUTE).await;
    assert_eq!(minutes(f).await, [1]);
    f.backend.resume_schedule(&id(), "me").await.unwrap();
    f.backend.resume_schedule(&id(), "me").await.unwrap();
    f.advance(0).await;
    assert_eq!(minutes(f).await, [1], "what came due meanwhile is left out");
    f.advance(MINUTE).await;
    assert_eq!(minutes(f).await, [1, 8]);
}

/// A run that waited when its schedule was paused is not lost with the last due time.
pub async fn buffered_over_a_pause(f: &Fixture) {
    let ends_at = Some(minute(3));
    let args = PutScheduleArgs { ends_at, ..with_overlap(OverlapPolicy::BufferOne) };
    f.backend.put_schedule(args).await.unwrap();
    f.advance(MINUTE).await;
    f.advance(MINUTE).await;
    assert_eq!(described(f).await.buffered, Some(minute(2)));
    let pause = PauseScheduleArgs { schedule_id: id(), reason: "broken".into(), by: "me".into() };
    f.backend.pause_schedule(pause).await.unwrap();
    finish_one(f).await;
    f.advance(5 * MINUTE).await;
    assert_eq!(minutes(f).await, [1], "a paused schedule starts nothing");
    f.backend.resume_schedule(&id(), "me").await.unwrap();
    f.advance(0).await;
    assert_eq!(minutes(f).await, [1, 2]);
    assert_eq!(described(f).await.buffered, None);
}

pub async fn trigger(f: &Fixture) {
    f.backend.put_schedule(with_overlap(OverlapPolicy::Skip)).await.unwrap();
    let ask = |request: Option<&str>| TriggerScheduleArgs {
        schedule_id: id(),
        request_id: request.map(str::to_owned),
    };
    let first = f.backend.trigger_schedule(ask(Some("a"))).await.unwrap();
    assert_eq!(f.backend.trigger_schedule(ask(Some("a"))).await.unwrap(), first);
    let second = f.backend.trigger_schedule(ask(None)).await.unwrap();
    assert_ne!(first, second);
    let seen = described(f).await;
    assert_eq!((seen.started, seen.running.len()), (2, 2));
    f.advance(MINUTE).await;
    assert_eq!(described(f).await.overlapped, 1, "a triggered run counts as running");
    finish_one(f).await;
    finish_one(f).await;
    f.advance(MINUTE).await;
    assert_eq!(described(f).await.started, 3);
}

pub async fn backfill(f: &Fixture) {
    f.backend.put_schedule(with_overlap(OverlapPolicy::Skip)).await.unwrap();
    f.advance(250 * MINUTE).await;
    assert_eq!(minutes(f).await, [250]);
    let range = |from, until| BackfillScheduleArgs {
        schedule_id: id(),
        from: minute(from),
        until: minute(until),
    };
    assert_eq!(f.backend.backfill_schedule(range(1, 241)).await.unwrap(), 240);
    f.advance(0).await;
    assert_eq!(described(f).await.started, 241);
    assert!(described(f).await.backfills.is_empty());
    // Again, and over what ran by itself: nothing runs twice.
    let until = f.now().after_ms(1);
    let overlapping = BackfillScheduleArgs { until, ..range(239, 250) };
    assert_eq!(f.backend.backfill_schedule(overlapping).await.unwrap(), 12);
    f.advance(0).await;
    assert_eq!(described(f).await.started, 250);
    f.advance(MINUTE).await;
    assert_eq!(described(f).await.last_due, Some(minute(251)), "it goes on by itself");
    let backfill = f.backend.backfill_schedule(range(251, 253)).await;
    assert_eq!(code(&backfill), "invalid_input", "the future cannot be made up for");
    assert_eq!(code(&f.backend.backfill_schedule(range(3, 3)).await), "invalid_input");
    let far = BackfillScheduleArgs { from: TimestampMs(0), ..range(0, 1) };
    assert_eq!(code(&f.backend.backfill_schedule(far).await), "invalid_input");
}

pub async fn put_again(f: &Fixture) {
    f.backend.put_schedule(every_minute()).await.unwrap();
    let same = f.backend.put_schedule(every_minute()).await.unwrap();
    assert_eq!(same, PutScheduleOutcome::Unchanged);
    f.advance(MINUTE).await;
    let timing = Timing::every(Duration::from_millis(2 * MINUTE));
    let slower = PutScheduleArgs { timing, ..every_minute() };
    assert_eq!(f.backend.put_schedule(slower).await.unwrap(), PutScheduleOutcome::Updated);
    let seen = described(f).await;
    assert_eq!((seen.generation, seen.created_at), (2, minute(0)));
    assert_eq!(seen.upcoming, [minute(2), minute(4), minute(6)]);
    for _ in 0..4 {
        f.advance(MINUTE).await;
    }
    assert_eq!(minutes(f).await, [1, 2, 4]);
}

pub async fn delete(f: &Fixture) {
    f.backend.put_schedule(with_overlap(OverlapPolicy::Skip)).await.unwrap();
    f.advance(MINUTE).await;
    f.backend.delete_schedule(&id()).await.unwrap();
    assert!(f.backend.describe_schedule(&id(), 1).await.unwrap().is_none());
    f.advance(5 * MINUTE).await;
    assert_eq!(minutes(f).await, [1], "the run stays, and none follows");
    finish_one(f).await;
    let pause = PauseScheduleArgs { schedule_id: id(), reason: String::new(), by: String::new() };
    let trigger = TriggerScheduleArgs { schedule_id: id(), request_id: None };
    let (from, until) = (minute(0), minute(1));
    let backfill = BackfillScheduleArgs { schedule_id: id(), from, until };
    for answer in [
        code(&f.backend.delete_schedule(&id()).await),
        code(&f.backend.pause_schedule(pause).await),
        code(&f.backend.resume_schedule(&id(), "").await),
        code(&f.backend.trigger_schedule(trigger).await),
        code(&f.backend.backfill_schedule(backfill).await),
    ] {
        assert_eq!(answer, "not_found");
    }
    f.backend.put_schedule(every_minute()).await.unwrap();
    f.advance(MINUTE).await;
    assert_eq!(minutes(f).await, [1, 7], "another of the same name begins anew");
}

pub async fn jitter(f: &Fixture) {
    let jitter_ms = 30_000;
    f.backend.put_schedule(PutScheduleArgs { jitter_ms, ..every_minute() }).await.unwrap();
    let mut late = Vec::new();
    for number in 1..=20 {
        let start = described(f).await.next_start_at.unwrap();
        late.push(start.since(minute(number)).as_millis() as u64);
        f.advance(start.since(f.now()).as_millis() as u64 - 1).await;
        assert_eq!(minutes(f).await.len(), number as usize - 1, "before its jitter is over");
        f.advance(1).await;
        assert_eq!(minutes(f).await.last(), Some(&number));
    }
    assert!(late.iter().all(|late| *late <= jitter_ms));
    assert!(late.iter().any(|first| late.iter().any(|second| first != second)));
}

pub async fn refused(f: &Fixture) {
    let mut bad: Vec<PutScheduleArgs> = Vec::new();
    let mut with = |change: &dyn Fn(&mut PutScheduleArgs)| {
        let mut args = every_minute();
        change(&mut args);
        bad.push(args);
    };
    with(&|args| args.schedule_id.name = String::new());
    with(&|args| args.schedule_id.name = "x".repeat(256));
    with(&|args| args.schedule_id.name = "a\0b".into());
    with(&|args| args.schedule_id.namespace = Namespace::new(""));
    with(&|args| args.template.lane_id.0 = String::new());
    with(&|args| args.template.execution_kind = String::new());
    with(&|args| args.timing = Timing::cron("* * * *", "UTC"));
    with(&|args| args.timing = Timing::cron("* * * * *", "Nowhere"));
    with(&|args| args.timing = Timing::Interval { every_ms: 999, anchor: None });
    with(&|args| args.timing = Timing::Interval { every_ms: u64::MAX, anchor: None });
    with(&|args| args.missed = MissedPolicy::All { max: 0 });
    with(&|args| args.missed = MissedPolicy::All { max: 1_001 });
    with(&|args| args.jitter_ms = u64::MAX);
    with(&|args| (args.starts_at, args.ends_at) = (Some(minute(2)), Some(minute(1))));
    with(&|args| {
        args.template.tags = (0..31).map(|n| (format!("a.b{n}"), String::new())).collect();
    });
    for args in bad {
        let refused = f.backend.put_schedule(args.clone()).await;
        assert_eq!(code(&refused), "invalid_input", "{args:?}");
    }
    let page = f.backend.list_schedules(ListSchedulesArgs::default()).await.unwrap();
    assert!(page.schedules.is_empty());
}

/// A run that cannot be submitted is told and counted, and the schedule goes on.
pub async fn refused_runs(f: &Fixture) {
    let mut args = every_minute();
    let budget_ids = vec![budget(10, 1).budget_id.0];
    args.template.policy = Some(ExecutionPolicy { budget_ids, ..ExecutionPolicy::default() });
    let put = f.backend.put_schedule(args.clone()).await;
    assert_eq!(code(&put), "not_found", "the budget is not there");
    f.backend.put_budget(budget(10, 1)).await.unwrap();
    f.backend.put_schedule(args).await.unwrap();
    f.advance(MINUTE).await;
    assert_eq!(minutes(f).await, [1]);
    let own = budget(10, 1);
    f.backend.delete_budget(&own.namespace, &own.budget_id).await.unwrap();
    f.advance(MINUTE).await;
    f.advance(MINUTE).await;
    assert_eq!(left_out(f).await, ["refused", "refused"]);
    let seen = described(f).await;
    assert_eq!((seen.started, seen.refused, seen.last_due), (1, 2, Some(minute(3))));
    let until = f.now().after_ms(1);
    let range = BackfillScheduleArgs { schedule_id: id(), from: minute(2), until };
    let made_up = f.backend.backfill_schedule(range.clone()).await.unwrap();
    f.advance(0).await;
    let seen = described(f).await;
    assert_eq!((made_up, seen.started, seen.refused), (2, 1, 4));
    // Once the budget is there again, what was refused can be made up for.
    f.backend.put_budget(own).await.unwrap();
    f.backend.backfill_schedule(range).await.unwrap();
    f.advance(MINUTE).await;
    assert_eq!(minutes(f).await, [1, 2, 3, 4]);
}

pub async fn lists_and_namespaces(f: &Fixture) {
    for namespace in ["mine", "theirs"] {
        for name in ["c", "a", "b"] {
            let schedule_id = ScheduleId::new(namespace, name);
            let args = PutScheduleArgs { schedule_id, ..every_minute() };
            f.backend.put_schedule(args).await.unwrap();
        }
    }
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let args = ListSchedulesArgs { cursor, limit: 2, ..Default::default() };
        let page = f.backend.list_schedules(args).await.unwrap();
        seen.extend(page.schedules.iter().map(|one| {
            let id = &one.definition.schedule_id;
            format!("{}/{}", id.namespace, id.name)
        }));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let all = ["mine/a", "mine/b", "mine/c", "theirs/a", "theirs/b", "theirs/c"];
    assert_eq!(seen, all);
    let me = Namespaced::new(f.backend.clone(), Namespace::new("mine"));
    let args = ListSchedulesArgs { limit: 2, ..Default::default() };
    let page = me.list_schedules(args.clone()).await.unwrap();
    assert_eq!(page.schedules[1].definition.schedule_id, ScheduleId::new("mine", "b"));
    let rest = ListSchedulesArgs { cursor: page.next_cursor, ..args };
    assert_eq!(me.list_schedules(rest).await.unwrap().schedules.len(), 1);

    let theirs = ScheduleId::new("theirs", "a");
    assert!(me.describe_schedule(&theirs, 1).await.unwrap().is_none());
    assert_eq!(code(&me.delete_schedule(&theirs).await), "not_found");
    assert_eq!(code(&me.resume_schedule(&theirs, "").await), "not_found");
    let put = PutScheduleArgs { schedule_id: theirs.clone(), ..every_minute() };
    assert_eq!(code(&me.put_schedule(put).await), "invalid_input");
    let namespace = Some(Namespace::new("theirs"));
    let foreign = ListSchedulesArgs { namespace, ..Default::default() };
    assert_eq!(code(&me.list_schedules(foreign).await), "invalid_input");
    assert!(f.backend.describe_schedule(&theirs, 1).await.unwrap().is_some());
    f.advance(MINUTE).await;
    let own = me.list_executions(ListExecutionsArgs::default()).await.unwrap();
    assert_eq!(own.executions.len(), 3, "runs belong to the namespace of their schedule");
}
