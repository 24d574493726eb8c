//! Schedules: work that is submitted by itself.

use async_trait::async_trait;
use uuid::Uuid;

use super::EngineBackend;
use crate::contracts::{
    BackfillScheduleArgs, ListSchedulesArgs, PauseScheduleArgs, PutScheduleArgs,
    PutScheduleOutcome, ScheduleId, SchedulePage, ScheduleSnapshot, ScheduleTemplate, Timing,
    TriggerScheduleArgs,
};
use crate::engine::{check_count, check_text, check_timing, prepare_put_schedule, schedule_key};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::schedule::{
    BackfillSchedule, Calendar, DeleteSchedule, PauseSchedule, ResumeSchedule, TriggerSchedule,
};
use crate::rows::{Record, ScheduleRow, values};
use crate::store::{Query, Scan};
use crate::types::{ExecutionId, TimestampMs};
use crate::views;

#[async_trait]
pub trait ScheduleOperations: EngineBackend {
    /// Makes a schedule, or gives the one of this name another definition.
    async fn put_schedule(&self, args: PutScheduleArgs) -> Result<PutScheduleOutcome, EngineError> {
        let engine = self.engine();
        let partition = engine.store().solo_partition(&args.template.lane_id);
        let limits = &engine.config().limits;
        let put = prepare_put_schedule(args, limits, self.scope(), partition)?;
        engine.run_as(self.caller(), put).await
    }

    /// A paused schedule starts nothing by itself; what comes due meanwhile is left out.
    async fn pause_schedule(&self, args: PauseScheduleArgs) -> Result<(), EngineError> {
        check_text("reason", &args.reason, 0, limits::REASON_BYTES)?;
        check_text("by", &args.by, 0, limits::NAME_BYTES)?;
        let key = schedule_key(&args.schedule_id, self.scope())?;
        let (reason, by) = (args.reason.into(), args.by.into());
        self.engine().run_as(self.caller(), PauseSchedule { key, reason, by }).await
    }

    async fn resume_schedule(&self, id: &ScheduleId, by: &str) -> Result<(), EngineError> {
        check_text("by", by, 0, limits::NAME_BYTES)?;
        let key = schedule_key(id, self.scope())?;
        self.engine().run_as(self.caller(), ResumeSchedule { key, by: by.into() }).await
    }

    /// Starts a run at once, beside whatever runs, and also while the schedule is paused.
    async fn trigger_schedule(
        &self,
        args: TriggerScheduleArgs,
    ) -> Result<ExecutionId, EngineError> {
        let key = schedule_key(&args.schedule_id, self.scope())?;
        let request = args.request_id.unwrap_or_else(|| Uuid::now_v7().to_string());
        check_text("request id", &request, 1, limits::NAME_BYTES)?;
        self.engine().run_as(self.caller(), TriggerSchedule { key, request }).await
    }

    /// Makes up for the due times of a range, beside whatever runs. Answers how many there are.
    async fn backfill_schedule(&self, args: BackfillScheduleArgs) -> Result<usize, EngineError> {
        let key = schedule_key(&args.schedule_id, self.scope())?;
        if args.from >= args.until {
            return Err(EngineError::invalid("the range ends before it begins"));
        }
        let backfill = BackfillSchedule { key, from: args.from, until: args.until };
        self.engine().run_as(self.caller(), backfill).await
    }

    /// Forgets a schedule. Its runs stay.
    async fn delete_schedule(&self, id: &ScheduleId) -> Result<(), EngineError> {
        let key = schedule_key(id, self.scope())?;
        self.engine().run_as(self.caller(), DeleteSchedule { key }).await
    }

    /// Everything about one schedule, with its next due times, at most 100 of them.
    async fn describe_schedule(
        &self,
        id: &ScheduleId,
        upcoming: usize,
    ) -> Result<Option<ScheduleSnapshot>, EngineError> {
        let key = match schedule_key(id, self.scope()) {
            Err(EngineError::NotFound { .. }) => return Ok(None),
            key => key?,
        };
        let keys = vec![ScheduleRow::erase_key(&key)];
        let rows = self.engine().query(Query::Records { keys, scans: vec![] }).await?;
        let found = rows.records::<ScheduleRow>().map_err(|e| self.engine().store_error(e))?;
        let now = self.engine().store().now();
        Ok(found.first().map(|row| views::schedule(row, upcoming.min(limits::UPCOMING), now)))
    }

    /// Schedules in the order of their names.
    async fn list_schedules(&self, args: ListSchedulesArgs) -> Result<SchedulePage, EngineError> {
        let limit = if args.limit == 0 { 100 } else { args.limit };
        check_count("schedules", limit, limits::PAGE)?;
        let namespace = self.scope().or(args.namespace.as_ref());
        if args.namespace.as_ref().is_some_and(|wanted| Some(wanted) != namespace) {
            return Err(EngineError::invalid("the filter names a foreign namespace"));
        }
        let after = args.cursor.as_deref().map(views::parse_schedule_cursor).transpose()?;
        let (prefix, after) = match (namespace, after) {
            (Some(own), None) => (values![std::sync::Arc::<str>::from(own.as_str())], vec![]),
            (Some(own), Some((_, name))) => {
                (values![std::sync::Arc::<str>::from(own.as_str())], values![name])
            }
            (None, None) => (vec![], vec![]),
            (None, Some((namespace, name))) => (vec![], values![namespace, name]),
        };
        // One more than asked for tells whether there is more.
        let scan = Scan::of::<ScheduleRow>(prefix).by(&ScheduleRow::BY_NAME);
        let scan = scan.after(after).limit(limit + 1);
        let found = super::scan::find::<ScheduleRow>(self.engine(), scan).await?;
        let mut schedules = found.records;
        let more = schedules.len() > limit;
        schedules.truncate(limit);
        let now = self.engine().store().now();
        Ok(views::schedule_page(&schedules, more, now, found.unreadable))
    }

    /// When a schedule with these times would be due next, at most 100 instants.
    async fn preview_schedule(
        &self,
        timing: &Timing,
        count: usize,
    ) -> Result<Vec<TimestampMs>, EngineError> {
        check_timing(timing)?;
        let id = ScheduleId::new("", "");
        let template = ScheduleTemplate::default();
        let definition = PutScheduleArgs::new(id, timing.clone(), template);
        let now = self.engine().store().now();
        let calendar = Calendar::of(&definition, Uuid::nil(), now)?;
        Ok(calendar.upcoming(now, count.min(limits::UPCOMING)))
    }
}

impl<B: EngineBackend + ?Sized> ScheduleOperations for B {}
