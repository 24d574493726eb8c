//! Everything the checker looks at, as plain data: what clients wrote down, and what the engine
//! says through its API once all is over.

mod domain;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::ensure;
use ff_core::contracts::{
    EdgeGroupSnapshot, Event, EventFilter, EventType, FlowStatus, ListExecutionsArgs, ListOrder,
    ListSignalsArgs,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::{EngineBackend, SuspensionOperations};
use ff_core::limits;
use ff_core::state::PublicState;
use ff_core::types::ExecutionId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::history::{self, Entry, Op, Standing};
use crate::workload::{Delivery, deliveries_path, many, subscribers_of};

#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub history: Vec<Entry>,
    pub subscribers: Vec<Deliveries>,
    /// The whole log from its beginning.
    pub log: Vec<LogEvent>,
    /// Why the log could not be read to its end.
    pub log_error: Option<String>,
    pub executions: BTreeMap<String, FinalExecution>,
    pub flows: BTreeMap<Uuid, FinalFlow>,
    /// How the limits stand when all is over, by name.
    pub limits: BTreeMap<&'static str, Standing>,
    pub schedules: BTreeMap<String, FinalSchedule>,
    /// What was done to many executions at once, by mark.
    pub sweeps: BTreeMap<String, FinalSweep>,
    /// Lines that a kill tore in two.
    pub torn_lines: usize,
}

/// What one subscriber was given, with the places at which it resumed.
#[derive(Clone, Debug)]
pub struct Deliveries {
    pub name: String,
    /// Which events it asked for; empty means all.
    pub event_types: Vec<EventType>,
    pub lines: Vec<Delivery>,
}

/// An event of one execution or flow, without its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogEvent {
    pub id: String,
    pub version: u64,
    pub event_type: EventType,
    pub from: Option<PublicState>,
    pub to: Option<PublicState>,
    pub epoch: u64,
    /// By the store's clock, in milliseconds.
    pub at: i64,
    /// The name of the operation that caused it, if it was given one.
    pub reason: Option<String>,
    /// When a retry becomes claimable.
    pub delay_until: Option<i64>,
    /// How the members of a flow have ended that ended with this event.
    pub endings: Option<BTreeMap<String, u64>>,
}

/// Where the names of flows begin, among those of executions.
pub const FLOW: &str = "flow/";

impl LogEvent {
    /// Nothing for an event that is about neither an execution nor a flow.
    pub fn of(event: &Event) -> Option<Self> {
        let word = event.event_type.as_str();
        let (id, version) = match (&event.execution_id, &event.flow_id) {
            (Some(id), _) => (id.as_str().to_owned(), event.version),
            // Nothing happens to a flow twice here.
            (None, Some(flow)) => (format!("{FLOW}{}/{word}", flow.0), 1),
            (None, None) => return None,
        };
        let ended = matches!(event.event_type, EventType::FlowCompleted | EventType::FlowFailed);
        let endings = event.details.as_object().filter(|_| ended).map(|details| {
            let counts =
                details.iter().filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)));
            counts.collect()
        });
        Some(Self {
            id,
            version,
            event_type: event.event_type,
            from: event.from,
            to: event.to,
            epoch: event.lease_epoch,
            at: event.at.0,
            reason: reason(&event.details).and_then(Value::as_str).map(str::to_owned),
            delay_until: event.details.get("delay_until").and_then(Value::as_i64),
            endings,
        })
    }
}

/// What somebody gave as a reason, or left as a mark.
fn reason(details: &Value) -> Option<&Value> {
    details.get("reason").or_else(|| details.get("tags")?.get(many::TAG))
}

/// A flow as it stands at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct FinalFlow {
    pub status: FlowStatus,
    pub counts: BTreeMap<PublicState, u64>,
    /// What its members waited for, by their ids.
    pub groups: BTreeMap<String, EdgeGroupSnapshot>,
}

/// A schedule as it stands at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct FinalSchedule {
    pub created_at: i64,
    /// The last instant for which a run was started or left out.
    pub last_due: Option<i64>,
    pub started: u64,
    pub overlapped: u64,
    /// Whether a run waits for the one before it.
    pub buffered: bool,
}

/// Something that was done to many executions, as it stands at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct FinalSweep {
    pub lane: String,
    pub cancels: bool,
    pub created_from: i64,
    pub created_at: i64,
    pub finished: bool,
    pub matched: u64,
    pub done: u64,
    pub changed: u64,
}

/// A frame, by the call that said it and its place in that call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spoken {
    pub sequence: u64,
    pub append_id: Uuid,
    pub at: u32,
}

/// An execution as it stands at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct FinalExecution {
    pub state: PublicState,
    pub version: u64,
    pub lane: String,
    pub kind: String,
    /// By the store's clock, in milliseconds.
    pub created_at: i64,
    /// The schedule that started it, and the instant for which it did.
    pub due: Option<(String, i64)>,
    pub key: Option<String>,
    /// Hashes of the bytes.
    pub payload: u64,
    pub result: Option<u64>,
    pub history: Vec<LogEvent>,
    /// The keys of the signals that it was sent.
    pub signals: Vec<String>,
    /// Its steps, with the hashes of their results, in their order.
    pub steps: Vec<(String, u64)>,
    /// What its attempts said.
    pub frames: BTreeMap<u32, Vec<Spoken>>,
    /// Why it is not running, if it is not finished.
    pub explanation: Option<String>,
}

pub async fn collect(backend: Arc<dyn EngineBackend>, dir: &Path) -> anyhow::Result<Evidence> {
    let journalled = history::read_all(dir)?;
    let speakers = journalled.lines.iter().filter_map(|entry| match &entry.op {
        Op::Append { lease, .. } => Some(lease.id.clone()),
        _ => None,
    });
    let speakers = Arc::new(speakers.collect());
    let mut evidence = Evidence {
        history: journalled.lines,
        torn_lines: journalled.torn,
        executions: executions(&backend, speakers).await?,
        flows: domain::flows(&*backend).await?,
        limits: domain::limits(&*backend).await,
        schedules: domain::schedules(&*backend).await?,
        sweeps: domain::sweeps(&*backend).await?,
        ..Evidence::default()
    };
    for (seat, subscriber) in subscribers_of(dir)? {
        let journalled = history::read(&deliveries_path(dir, &seat, subscriber.name))?;
        evidence.torn_lines += journalled.torn;
        evidence.subscribers.push(Deliveries {
            name: format!("{seat}'s {}", subscriber.name),
            event_types: subscriber.event_types.to_vec(),
            lines: journalled.lines,
        });
    }
    ensure!(!evidence.subscribers.is_empty(), "nobody followed the log");
    let mut subscription = backend.subscribe(EventFilter::default(), StartAt::Oldest).await?;
    loop {
        match subscription.try_next().await {
            Ok(Some(event)) => evidence.log.extend(LogEvent::of(&event)),
            Ok(None) => break,
            Err(error) => {
                evidence.log_error = Some(error.to_string());
                break;
            }
        }
    }
    Ok(evidence)
}

/// How many executions are read at the same time.
const READERS: usize = 4;

async fn executions(
    backend: &Arc<dyn EngineBackend>,
    speakers: Arc<HashSet<String>>,
) -> anyhow::Result<BTreeMap<String, FinalExecution>> {
    let ids = all_ids(&**backend).await?;
    let mut readers = tokio::task::JoinSet::new();
    for share in ids.chunks(ids.len().div_ceil(READERS).max(1)) {
        let (backend, share, speakers) = (backend.clone(), share.to_vec(), speakers.clone());
        readers.spawn(async move {
            let mut found = Vec::with_capacity(share.len());
            for id in share {
                let mut last = execution(&*backend, &id).await?;
                // To read every stream would take longer than all the rest.
                if speakers.contains(id.as_str()) {
                    last.frames = domain::frames(&*backend, &id).await?;
                }
                found.push((id.as_str().to_owned(), last));
            }
            anyhow::Ok(found)
        });
    }
    let mut found = BTreeMap::new();
    while let Some(share) = readers.join_next().await {
        found.extend(share??);
    }
    Ok(found)
}

async fn all_ids(backend: &dyn EngineBackend) -> anyhow::Result<Vec<ExecutionId>> {
    let mut ids = Vec::new();
    let mut cursor = None;
    loop {
        let page = backend.list_executions(ListExecutionsArgs {
            order: ListOrder::OldestFirst,
            cursor,
            limit: limits::PAGE,
            ..ListExecutionsArgs::default()
        });
        let page = page.await?;
        ids.extend(page.executions.into_iter().map(|summary| summary.execution_id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(ids);
        }
    }
}

async fn execution(
    backend: &dyn EngineBackend,
    id: &ExecutionId,
) -> anyhow::Result<FinalExecution> {
    let snapshot = backend.describe_execution(id).await?;
    let snapshot = snapshot.ok_or_else(|| anyhow::anyhow!("{id} is listed but not there"))?;
    let payload = backend.payload(id).await?.unwrap_or_default();
    let result = backend.result(id).await?;
    let history = backend.history(id, 0, limits::PAGE).await?;
    let signalled = history.iter().any(|event| event.event_type == EventType::SignalDelivered);
    let signals = match signalled {
        true => {
            let execution_id = id.clone();
            let list = ListSignalsArgs { execution_id, after: 0, limit: limits::PAGE };
            let signals = backend.list_signals(list).await?;
            signals.into_iter().filter_map(|signal| signal.idempotency_key).collect()
        }
        false => Vec::new(),
    };
    let explanation = match snapshot.public_state.is_finished() {
        true => None,
        false => Some(backend.explain(id).await?.words),
    };
    Ok(FinalExecution {
        state: snapshot.public_state,
        version: snapshot.version,
        lane: snapshot.lane_id.as_str().to_owned(),
        kind: snapshot.execution_kind.clone(),
        created_at: snapshot.created_at.0,
        due: domain::due(&snapshot),
        steps: domain::steps(backend, &snapshot).await?,
        frames: BTreeMap::new(),
        key: snapshot.idempotency_key,
        payload: history::hash(&payload),
        result: result.map(|bytes| history::hash(&bytes)),
        history: history.iter().filter_map(LogEvent::of).collect(),
        signals,
        explanation,
    })
}
