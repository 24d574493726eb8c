//! Schedules in a sequence: a few names, short intervals, and runs that meet the other calls.

use ff_core::contracts::{
    BackfillScheduleArgs, ListSchedulesArgs, MissedPolicy, OverlapPolicy, PauseScheduleArgs,
    PutScheduleArgs, ScheduleId, ScheduleTemplate, Timing, TriggerScheduleArgs,
};
use ff_core::engine_backend::{EngineBackend, ScheduleOperations};
use ff_core::partition::{PartitionConfig, lane_partition};
use ff_core::types::{LaneId, Namespace, TimestampMs};

use super::generate::Sequence;
use super::step::text;

#[derive(Clone, Debug)]
pub enum ScheduleStep {
    Put(Box<PutScheduleArgs>),
    Pause(PauseScheduleArgs),
    Resume(ScheduleId),
    Trigger(TriggerScheduleArgs),
    Backfill(BackfillScheduleArgs),
    Delete(ScheduleId),
    Describe(ScheduleId),
    List(Namespace),
    Preview(Timing),
}

const NAMES: [&str; 2] = ["first", "second"];

impl ScheduleStep {
    pub async fn run(&self, on: &dyn EngineBackend) -> String {
        match self.clone() {
            Self::Put(args) => text(on, &on.put_schedule(*args).await),
            Self::Pause(args) => text(on, &on.pause_schedule(args).await),
            Self::Resume(id) => text(on, &on.resume_schedule(&id, "model").await),
            Self::Trigger(args) => text(on, &on.trigger_schedule(args).await),
            Self::Backfill(args) => text(on, &on.backfill_schedule(args).await),
            Self::Delete(id) => text(on, &on.delete_schedule(&id).await),
            Self::Describe(id) => text(on, &on.describe_schedule(&id, 3).await),
            Self::List(own) => {
                let namespace = Some(own);
                let args = ListSchedulesArgs { namespace, limit: 1, cursor: None };
                text(on, &on.list_schedules(args).await)
            }
            Self::Preview(timing) => text(on, &on.preview_schedule(&timing, 4).await),
        }
    }
}

impl Sequence {
    /// Runs live where their lane says; this one lives on partition 0, where every store has it.
    pub(super) fn schedule_lane(&self) -> LaneId {
        let config = PartitionConfig::default();
        let lane = |draw: u32| LaneId::new(format!("model-{}-due-{draw}", self.seed()));
        let mut lanes = (0..).map(lane);
        lanes.find(|lane| lane_partition(lane, &config).index == 0).expect("one of 256 is on it")
    }

    fn schedule_id(&self, at: usize) -> ScheduleId {
        ScheduleId { namespace: self.namespace(), name: NAMES[at].to_owned() }
    }

    pub(super) async fn end_schedules(&self, on: &dyn EngineBackend) {
        for at in 0..NAMES.len() {
            // Most sequences have none.
            let _ = on.delete_schedule(&self.schedule_id(at)).await;
        }
    }

    pub(super) fn schedule_step(&mut self) -> ScheduleStep {
        let at = self.rng().usize(..NAMES.len());
        let schedule_id = self.schedule_id(at);
        match self.rng().u32(..12) {
            0..5 => ScheduleStep::Put(Box::new(self.put_schedule(schedule_id))),
            5 => {
                let (reason, by) = ("model".into(), "me".into());
                ScheduleStep::Pause(PauseScheduleArgs { schedule_id, reason, by })
            }
            6 => ScheduleStep::Resume(schedule_id),
            7 => {
                let request_id = Some(self.rng().u32(..3).to_string());
                ScheduleStep::Trigger(TriggerScheduleArgs { schedule_id, request_id })
            }
            8 => ScheduleStep::Backfill(self.backfill(schedule_id)),
            9 if self.rng().bool() => ScheduleStep::Delete(schedule_id),
            10 => ScheduleStep::List(self.namespace()),
            11 => ScheduleStep::Preview(self.timing()),
            _ => ScheduleStep::Describe(schedule_id),
        }
    }

    fn timing(&mut self) -> Timing {
        match self.rng().u32(..4) {
            0 => Timing::cron("*/5 * * * *", "Europe/Berlin"),
            // This one is refused.
            1 if self.rng().u32(..5) == 0 => Timing::cron("61 * * * *", "UTC"),
            _ => {
                let every_ms = [5_000, 60_000, 3_600_000][self.rng().usize(..3)];
                let anchor = self.some(30, |_| TimestampMs(1_000));
                Timing::Interval { every_ms, anchor }
            }
        }
    }

    fn put_schedule(&mut self, schedule_id: ScheduleId) -> PutScheduleArgs {
        let lane = self.schedule_lane();
        let now = self.now();
        let template = ScheduleTemplate {
            input_payload: vec![3; self.rng().usize(..2)],
            priority: self.rng().i32(-1..3),
            policy: Some(self.policy()),
            ..ScheduleTemplate::new(lane.0, "due")
        };
        let overlaps = [
            OverlapPolicy::Skip,
            OverlapPolicy::BufferOne,
            OverlapPolicy::CancelRunning,
            OverlapPolicy::Allow,
        ];
        PutScheduleArgs {
            overlap: overlaps[self.rng().usize(..4)],
            missed: match self.rng().u32(..3) {
                0 => MissedPolicy::Skip,
                1 => MissedPolicy::Latest,
                _ => MissedPolicy::All { max: 3 },
            },
            jitter_ms: [0, 0, 2_000][self.rng().usize(..3)],
            starts_at: self.some(20, |own| now.after_ms(own.rng().u64(..120_000))),
            // Some end before they start, which is refused.
            ends_at: self.some(20, |own| now.after_ms(own.rng().u64(..600_000))),
            ..PutScheduleArgs::new(schedule_id, self.timing(), template)
        }
    }

    /// A few of the periods before now.
    fn backfill(&mut self, schedule_id: ScheduleId) -> BackfillScheduleArgs {
        let now = self.now();
        let back = [10_000, 120_000][self.rng().usize(..2)];
        let until = TimestampMs(now.0 - self.rng().i64(..20_000));
        BackfillScheduleArgs { schedule_id, from: TimestampMs(until.0 - back), until }
    }

    /// Reads that show all that there is of the sequence's schedules.
    pub(super) fn every_schedule(&self) -> impl Iterator<Item = ScheduleStep> {
        (0..NAMES.len()).map(|at| ScheduleStep::Describe(self.schedule_id(at)))
    }
}
