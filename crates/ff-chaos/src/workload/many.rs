//! Work that is started by itself, and things that are done to many executions at once.

use std::collections::BTreeMap;

use fastrand::Rng;
use ff_core::contracts::{
    BulkAction, BulkFilter, MissedPolicy, OverlapPolicy, PauseScheduleArgs, PutScheduleArgs,
    ScheduleId, ScheduleTemplate, StartBulkArgs, Timing, TriggerScheduleArgs,
};
use ff_core::engine_backend::{BulkOperations, EngineBackend, ScheduleOperations};
use ff_core::engine_error::EngineError;
use ff_core::types::{LaneId, Namespace, TimestampMs};

use super::work::LANES;
use crate::history::{Op, Outcome, Sweep};

/// The tag that a bulk operation leaves.
pub const TAG: &str = "chaos.sweep";
/// Due every second, one beside the other.
pub const STEADY: &str = "steady";
/// Due every second, one after the other.
pub const ALONE: &str = "alone";
pub const EVERY_MS: i64 = 1_000;
pub const PAYLOAD: &[u8] = b"due";

/// However long nobody could look, everything is made up for.
const MISSED: MissedPolicy = MissedPolicy::All { max: 1_000 };

pub fn schedule(name: &str) -> ScheduleId {
    ScheduleId::new("default", name)
}

/// What is declared.
pub fn schedules() -> [PutScheduleArgs; 2] {
    let every = EVERY_MS.unsigned_abs();
    let steady = Timing::Interval { every_ms: every, anchor: Some(TimestampMs(0)) };
    let alone = Timing::cron("* * * * * *", "UTC");
    let schedules =
        [(STEADY, steady, OverlapPolicy::Allow), (ALONE, alone, OverlapPolicy::BufferOne)];
    schedules.map(|(name, timing, overlap)| {
        let mut template = ScheduleTemplate::new(LANES[0], "chaos");
        template.input_payload = PAYLOAD.to_vec();
        let put = PutScheduleArgs::new(schedule(name), timing, template);
        PutScheduleArgs { overlap, missed: MISSED, ..put }
    })
}

/// Declares the schedules, whoever comes first.
pub async fn declare(backend: &dyn EngineBackend) -> Result<(), EngineError> {
    for schedule in schedules() {
        backend.put_schedule(schedule).await?;
    }
    Ok(())
}

/// Something is done to all of the latest executions of a lane, or a run is started that is not
/// due yet.
pub fn choose(rng: &mut Rng) -> Op {
    let name = format!("{:016x}", rng.u64(..));
    // Some take longer than the process lives.
    let reach = if rng.u8(..3) == 0 { 8_000 } else { 500 };
    match rng.u8(..4) {
        0 => Op::Trigger { schedule: STEADY.to_owned(), request: name },
        choice => Op::Sweep(Sweep {
            mark: name,
            lane: LANES[rng.usize(..LANES.len())].to_owned(),
            created_from: TimestampMs::now().0 - rng.i64(50..reach),
            cancels: choice == 1,
        }),
    }
}

/// Nothing is started by itself any more.
pub async fn pause(backend: &dyn EngineBackend) -> Result<(), EngineError> {
    for name in [STEADY, ALONE] {
        let args = PauseScheduleArgs {
            schedule_id: schedule(name),
            reason: "the run is over".into(),
            by: "chaos".into(),
        };
        match backend.pause_schedule(args).await {
            // Everybody was killed before anybody could declare it.
            Ok(()) | Err(EngineError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub async fn trigger(
    backend: &dyn EngineBackend,
    name: &str,
    request: &str,
) -> Result<Outcome, EngineError> {
    let request_id = Some(request.to_owned());
    let args = TriggerScheduleArgs { schedule_id: schedule(name), request_id };
    let id = backend.trigger_schedule(args).await?;
    Ok(Outcome::Accepted { id: id.as_str().to_owned() })
}

pub async fn sweep(backend: &dyn EngineBackend, sweep: &Sweep) -> Result<Outcome, EngineError> {
    let filter = BulkFilter {
        namespace: Some(Namespace::new("default")),
        lane_id: Some(LaneId::new(&sweep.lane)),
        created_from: Some(TimestampMs(sweep.created_from)),
        ..BulkFilter::default()
    };
    let action = action(sweep);
    backend
        .start_bulk(StartBulkArgs { filter, action, by: "chaos".into(), request_id: None })
        .await?;
    Ok(Outcome::Done)
}

pub fn action(sweep: &Sweep) -> BulkAction {
    match sweep.cancels {
        true => BulkAction::Cancel { reason: sweep.mark.clone() },
        false => {
            let tags = BTreeMap::from([(TAG.to_owned(), Some(sweep.mark.clone()))]);
            BulkAction::SetTags { tags }
        }
    }
}
