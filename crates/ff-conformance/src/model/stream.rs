//! Calls about steps, streams and workers, and how a sequence draws them.

use std::fmt::Debug;
use std::time::Duration;

use ff_core::backend::Handle;
use ff_core::contracts::{
    AppendFramesArgs, FrameId, FrameInput, FrameMode, ListWorkersArgs, ReadStreamArgs,
    RegisterWorkerArgs, StreamCursor, Visibility, WorkerRef,
};
use ff_core::engine_backend::{EngineBackend, StepOperations, StreamOperations, WorkerOperations};
use ff_core::types::{ExecutionId, WorkerId, WorkerInstanceId};
use uuid::Uuid;

use super::generate::Sequence;

#[derive(Clone, Debug)]
pub enum StreamStep {
    RecordStep(Handle, String, Vec<u8>),
    SleepStep(Handle, String, Duration),
    AppendFrames(Handle, AppendFramesArgs),
    ListSteps(ExecutionId),
    ReadStream(ReadStreamArgs),
    ReadSummary(ExecutionId, Option<u32>),
    RegisterWorker(RegisterWorkerArgs),
    HeartbeatWorker(WorkerRef),
    RetireWorker(WorkerRef),
    ListWorkers(ListWorkersArgs),
}

impl StreamStep {
    pub fn handle_mut(&mut self) -> Option<&mut Handle> {
        match self {
            Self::RecordStep(handle, ..)
            | Self::SleepStep(handle, ..)
            | Self::AppendFrames(handle, _) => Some(handle),
            _ => None,
        }
    }

    pub async fn run(&self, on: &dyn EngineBackend) -> String {
        fn text(answer: &impl Debug) -> String {
            format!("{answer:?}")
        }
        match self.clone() {
            Self::RecordStep(handle, name, result) => {
                text(&on.record_step(&handle, &name, result).await)
            }
            Self::SleepStep(handle, name, duration) => {
                text(&on.sleep_step(&handle, &name, duration).await)
            }
            Self::AppendFrames(handle, args) => text(&on.append_frames(&handle, args).await),
            Self::ListSteps(id) => text(&on.list_steps(&id, 0, 100).await),
            Self::ReadStream(args) => text(&on.read_stream(args).await),
            Self::ReadSummary(id, attempt) => text(&on.read_summary(&id, attempt).await),
            Self::RegisterWorker(args) => text(&on.register_worker(args).await),
            Self::HeartbeatWorker(worker) => text(&on.heartbeat_worker(&worker).await),
            Self::RetireWorker(worker) => text(&on.retire_worker(&worker).await),
            Self::ListWorkers(args) => text(&on.list_workers(args).await),
        }
    }

    /// Reads that show all that can be seen of an execution's steps and streams.
    pub fn everything(id: &ExecutionId) -> Vec<Self> {
        let mut reads = vec![Self::ListSteps(id.clone())];
        for attempt in 0..3 {
            let attempt_index = Some(attempt);
            let args = ReadStreamArgs { attempt_index, ..ReadStreamArgs::new(id.clone()) };
            reads.extend([Self::ReadStream(args), Self::ReadSummary(id.clone(), attempt_index)]);
        }
        reads
    }
}

impl Sequence {
    /// Few names, so that they meet.
    pub(super) fn step_name(&mut self) -> String {
        format!("step-{}", self.rng.u32(..3))
    }

    /// A call by somebody who holds, or once held, a lease.
    pub(super) fn says(&mut self, handle: Handle) -> StreamStep {
        let name = self.step_name();
        match self.rng.u32(..6) {
            0..2 => StreamStep::RecordStep(handle, name, vec![5; self.rng.usize(..2)]),
            2 => StreamStep::SleepStep(handle, name, self.wait()),
            _ => {
                // Sometimes more than a reader takes at once from its store.
                let most = if self.rng.u32(..10) == 0 { 150 } else { 5 };
                let frames = (0..self.rng.usize(1..most)).map(|_| self.frame()).collect();
                let append_id = self.some(40, |own| Uuid::from_u128(own.rng.u128(..2)));
                StreamStep::AppendFrames(handle, AppendFramesArgs { frames, append_id })
            }
        }
    }

    fn frame(&mut self) -> FrameInput {
        let said = self.rng.u32(..3);
        match self.rng.u32(..10) {
            0..4 => FrameInput::new("durable", said.to_string()),
            4..7 => FrameInput::new("token", said.to_string()).mode(FrameMode::BestEffort),
            7..9 => {
                let value = if said == 0 { "null".to_owned() } else { said.to_string() };
                let patch = format!("{{\"a\":{value},\"b\":{{\"{said}\":true}}}}");
                FrameInput::new("summary", patch).mode(FrameMode::Summary)
            }
            _ => FrameInput::new("not an object", "1").mode(FrameMode::Summary),
        }
    }

    pub(super) fn listens(&mut self, id: ExecutionId) -> StreamStep {
        let attempt = self.rng.u32(..2);
        let args = ReadStreamArgs {
            attempt_index: self.some(30, |_| attempt),
            from: match self.rng.u32(..4) {
                0..2 => StreamCursor::Start,
                2 => StreamCursor::End,
                _ => {
                    let sequence = self.rng.u64(..9);
                    StreamCursor::After(FrameId { attempt_index: attempt, sequence })
                }
            },
            limit: if self.rng.u32(..4) == 0 { 1_000 } else { self.rng.usize(1..12) },
            visibility: match self.rng.bool() {
                true => Visibility::All,
                false => Visibility::ExcludeBestEffort,
            },
            ..ReadStreamArgs::new(id.clone())
        };
        match self.rng.u32(..4) {
            0 => StreamStep::ListSteps(id),
            1 => StreamStep::ReadSummary(id, args.attempt_index),
            _ => StreamStep::ReadStream(args),
        }
    }

    pub(super) fn worker(&mut self) -> StreamStep {
        let namespace = Some(self.namespace());
        let worker_instance_id = WorkerInstanceId::new(format!("w{}", self.rng.u32(..2)));
        let worker = WorkerRef { worker_instance_id, namespace: namespace.clone() };
        match self.rng.u32(..5) {
            0..2 => StreamStep::RegisterWorker(RegisterWorkerArgs {
                worker_id: WorkerId::new(format!("program-{}", self.rng.u32(..2))),
                worker_instance_id: worker.worker_instance_id,
                namespace,
                lanes: [self.any_lane()].into(),
                capabilities: self.offered().into_iter().collect(),
                liveness_ttl_ms: [1, 1_000, 60_000][self.rng.usize(..3)],
            }),
            2 => StreamStep::HeartbeatWorker(worker),
            3 => StreamStep::RetireWorker(worker),
            _ => StreamStep::ListWorkers(ListWorkersArgs { namespace, ..Default::default() }),
        }
    }
}
