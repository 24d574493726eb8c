//! Suspending, signalling and resuming: what callers hold.

use std::collections::HashMap;

use async_trait::async_trait;

use super::{EngineBackend, check_unscoped, scan, visible};
use crate::backend::{Handle, HandleKind};
use crate::contracts::{
    CreateWaitpointArgs, DeliverSignalArgs, Explanation, ListSignalsArgs, ListWaitpointsArgs,
    Listed, PendingWaitpoint, Question, ResumeArgs, ResumeSignal, RotateWaitpointSecretArgs,
    RotateWaitpointSecretResult, SeedWaitpointSecretResult, SignalOutcome, SignalSnapshot,
    SuspendArgs, SuspendOutcome, SuspensionDetails, SuspensionSnapshot, WaitpointGrant,
    WaitpointKeySnapshot, WaitpointPage,
};
use crate::engine::prepare::suspension::{
    known_keys, prepare_create_waitpoint, prepare_deliver_signal, prepare_resume, prepare_rotate,
    prepare_seed, prepare_suspend,
};
use crate::engine::{Engine, check_count};
use crate::engine_error::{EngineError, StateKind, ValidationKind};
use crate::limits;
use crate::operations::execution::Grant;
use crate::operations::suspension::{Suspended, all_keys, signals_of};
use crate::rows::{
    AnyKey, ExecutionRow, Record, SignalRow, SuspensionKey, SuspensionRow, WaitpointKey,
    WaitpointKeyRow, WaitpointRow, values,
};
use crate::state::{LifecyclePhase, PublicState};
use crate::store::{Query, Scan};
use crate::token::{VerifiedToken, WaitpointToken};
use crate::types::{ExecutionId, ExecutionKey, SuspensionId, TimestampMs, WaitpointId};
use crate::views;

#[async_trait]
pub trait SuspensionOperations: EngineBackend {
    /// The holder gives its lease back until the condition is met. If signals that came before
    /// meet it already, the holder keeps the lease and is given them.
    async fn suspend(
        &self,
        handle: &Handle,
        args: SuspendArgs,
    ) -> Result<SuspendOutcome, EngineError> {
        let engine = self.engine();
        let operation = prepare_suspend(handle, args, engine.keyring())?;
        Ok(match engine.run_as(self.caller(), operation).await? {
            Suspended::Put(wait, waitpoints) => SuspendOutcome::Suspended(SuspensionDetails {
                suspension_id: SuspensionId(wait.suspension_id),
                waitpoints: waitpoints.iter().map(|row| granted(engine, row)).collect(),
                timeout_at: wait.timeout_at,
            }),
            Suspended::AtOnce(suspension_id, signals) => SuspendOutcome::AlreadySatisfied {
                suspension_id: SuspensionId(suspension_id),
                signals: signals.iter().map(views::resume_signal).collect(),
            },
        })
    }

    /// Makes a waitpoint ahead of the suspension that will use it: what is signalled in between
    /// is kept.
    async fn create_waitpoint(
        &self,
        handle: &Handle,
        args: CreateWaitpointArgs,
    ) -> Result<PendingWaitpoint, EngineError> {
        let engine = self.engine();
        let operation = prepare_create_waitpoint(handle, args, engine.keyring())?;
        let row = engine.run_as(self.caller(), operation).await?;
        let expires_at = row.expires_at.unwrap_or(row.created_at);
        let token = row.token_kid.as_ref().map(|_| token(engine, &row)).transpose()?;
        Ok(PendingWaitpoint {
            waitpoint: WaitpointGrant { token, ..granted(engine, &row) },
            expires_at,
        })
    }

    /// Signals a waitpoint, by its token or as an operator. Delivering the same signal again
    /// changes nothing.
    async fn deliver_signal(&self, args: DeliverSignalArgs) -> Result<SignalOutcome, EngineError> {
        let engine = self.engine();
        let operation = prepare_deliver_signal(args, engine.keyring(), &engine.config().limits)?;
        engine.run_as(self.caller(), operation).await
    }

    /// An operator lets a suspended execution go on, whatever it waits for.
    async fn resume(&self, args: ResumeArgs) -> Result<PublicState, EngineError> {
        self.engine().run_as(self.caller(), prepare_resume(args)?).await
    }

    /// The signals that met the condition of the wait that this attempt was resumed from.
    async fn observe_signals(&self, handle: &Handle) -> Result<Vec<ResumeSignal>, EngineError> {
        let rows = self.engine().query(Query::Execution(handle.key())).await?;
        let row = visible(self.scope(), &rows);
        let row = row.ok_or(EngineError::NotFound { entity: "execution" })?;
        let attempt = rows.attempts.iter().find(|one| one.key.index == row.attempt_index);
        let held = attempt.is_some_and(|attempt| {
            attempt.is_fenced_by(handle)
                && attempt.holder() == Some(handle.worker_instance_id().as_str())
        });
        if !held {
            return Err(EngineError::State(StateKind::StaleLease));
        }
        let Some(wait) = suspension_of(self.engine(), row.key).await? else {
            return Ok(Vec::new());
        };
        if !wait.resumed(row) {
            return Ok(Vec::new());
        }
        signals(self.engine(), vec![signals_of(row.key, wait.number)]).await
    }

    /// Says which configured secret tokens are made with, if nobody has said so yet.
    async fn seed_waitpoint_secret(
        &self,
        kid: &str,
    ) -> Result<SeedWaitpointSecretResult, EngineError> {
        check_unscoped(self.scope(), "seed_waitpoint_secret")?;
        let operation = prepare_seed(kid, self.engine().keyring())?;
        self.engine().run_as(self.caller(), operation).await
    }

    /// Makes another configured secret the one that tokens are made with, for every engine on
    /// this store. Tokens of the one before are taken until the grace is over.
    async fn rotate_waitpoint_secret(
        &self,
        args: RotateWaitpointSecretArgs,
    ) -> Result<RotateWaitpointSecretResult, EngineError> {
        check_unscoped(self.scope(), "rotate_waitpoint_secret")?;
        let operation = prepare_rotate(&args, self.engine().keyring())?;
        self.engine().run_as(self.caller(), operation).await
    }

    // Reading.

    /// Every key that tokens have been made with.
    async fn list_waitpoint_keys(&self) -> Result<Listed<WaitpointKeySnapshot>, EngineError> {
        check_unscoped(self.scope(), "list_waitpoint_keys")?;
        let engine = self.engine();
        let all = Scan::of::<WaitpointKeyRow>(values![]).limit(usize::MAX);
        let found = scan::find::<WaitpointKeyRow>(engine, all).await?;
        let configured = |row: &WaitpointKeyRow| {
            let own = (&row.key.kid, &row.secret_check);
            engine.keyring().checks().any(|known| known == own)
        };
        Ok(found.list(|row| views::waitpoint_key(row, configured(row))))
    }

    /// The suspension that the execution is in, or was in last.
    async fn describe_suspension(
        &self,
        id: &ExecutionId,
    ) -> Result<Option<SuspensionSnapshot>, EngineError> {
        let execution = existing(self, id).await?.key;
        let Some(wait) = suspension_of(self.engine(), execution).await? else {
            return Ok(None);
        };
        let key = |id: &uuid::Uuid| {
            WaitpointRow::erase_key(&WaitpointKey { execution, waitpoint_id: *id })
        };
        let keys = wait.waitpoints.0.iter().map(key).collect();
        let waitpoints: Vec<WaitpointRow> = records(self.engine(), keys, Vec::new()).await?;
        Ok(Some(views::suspension(&wait, &waitpoints)))
    }

    /// The open waitpoints of a namespace, oldest first, or all those of an execution.
    async fn list_waitpoints(
        &self,
        args: ListWaitpointsArgs,
    ) -> Result<WaitpointPage, EngineError> {
        let limit = if args.limit == 0 { 100 } else { args.limit };
        check_count("waitpoints", limit, limits::PAGE)?;
        let after = args.cursor.as_deref().map(views::WaitpointCursor::parse).transpose()?;
        let scan = match &args.execution_id {
            Some(id) => {
                let row = existing(self, id).await?;
                if args.namespace.as_ref().is_some_and(|own| own.as_str() != &*row.namespace) {
                    return Err(EngineError::NotFound { entity: "execution" });
                }
                let after = after.map(|after| after.in_execution()).unwrap_or_default();
                Scan::of::<WaitpointRow>(values![row.key]).after(after)
            }
            None => {
                let namespace = namespace_of(self, &args)?;
                let after = after.map(|after| after.in_namespace()).unwrap_or_default();
                let namespace: std::sync::Arc<str> = namespace.as_str().into();
                Scan::of::<WaitpointRow>(values![namespace, true])
                    .by(&WaitpointRow::BY_NAMESPACE)
                    .after(after)
            }
        };
        // One more than asked for tells whether there is more.
        let scan = scan.limit(limit + 1);
        let mut found = scan::find::<WaitpointRow>(self.engine(), scan).await?;
        let more = found.records.len() > limit;
        found.records.truncate(limit);
        Ok(views::waitpoint_page(&found.records, more, found.unreadable))
    }

    /// The signals that an execution has accepted, in their order.
    async fn list_signals(
        &self,
        args: ListSignalsArgs,
    ) -> Result<Listed<SignalSnapshot>, EngineError> {
        let limit = if args.limit == 0 { 100 } else { args.limit };
        check_count("signals", limit, limits::PAGE)?;
        let execution = existing(self, &args.execution_id).await?.key;
        let scan = Scan::of::<SignalRow>(values![execution])
            .by(&SignalRow::BY_NUMBER)
            .after(values![args.after])
            .limit(limit);
        let found = scan::find::<SignalRow>(self.engine(), scan).await?;
        Ok(found.list(views::signal))
    }

    /// What the bearer of a waitpoint's token is asked. It refuses every token that would not be
    /// taken with a signal, but one that has expired or whose waitpoint is closed: of those it
    /// says that there is nothing to decide.
    async fn read_question(&self, token: &WaitpointToken) -> Result<Question, EngineError> {
        let engine = self.engine();
        let verified = engine.keyring().verify(token)?;
        let VerifiedToken { claims, .. } = &verified;
        let row = existing(self, &claims.execution.execution_id()).await?;
        let (execution, waitpoint_id) = (claims.execution, claims.waitpoint);
        let keys = vec![WaitpointRow::erase_key(&WaitpointKey { execution, waitpoint_id })];
        let rows = engine.query(Query::Records { keys, scans: vec![all_keys()] }).await?;
        let failed = |error| engine.store_error(error);
        let target = rows.records::<WaitpointRow>().map_err(failed)?.pop();
        let target = target.ok_or(EngineError::NotFound { entity: "waitpoint" })?;
        let stored = rows.records::<WaitpointKeyRow>().map_err(failed)?;
        let now = engine.store().now();
        known_keys(engine.keyring()).check_token(&stored, &verified, &target, now)?;
        let expired = claims.expires_at.is_some_and(|end| end <= now);
        Ok(Question {
            is_open: !expired && !row.is_finished() && target.is_alive(now),
            waitpoint: views::waitpoint(&target),
            execution_kind: row.kind.to_string(),
        })
    }

    /// The token of a waitpoint, for whoever may hand it out again. It is made anew; none is
    /// stored.
    async fn read_waitpoint_token(
        &self,
        execution_id: &ExecutionId,
        waitpoint_id: WaitpointId,
    ) -> Result<Option<WaitpointToken>, EngineError> {
        let execution = existing(self, execution_id).await?.key;
        let key = WaitpointKey { execution, waitpoint_id: waitpoint_id.0 };
        let keys = vec![WaitpointRow::erase_key(&key)];
        let rows: Vec<WaitpointRow> = records(self.engine(), keys, Vec::new()).await?;
        let row = rows.first().ok_or(EngineError::NotFound { entity: "waitpoint" })?;
        row.token_kid.as_ref().map(|_| token(self.engine(), row)).transpose()
    }
}

impl<B: EngineBackend + ?Sized> SuspensionOperations for B {}

/// The signals that each resumed attempt was resumed by. They do not change any more, so reading
/// them after the claim is as good as reading them with it, and costs other claims nothing.
pub(super) async fn resume_signals(
    engine: &Engine,
    grants: &[Grant],
) -> Result<HashMap<ExecutionKey, Vec<ResumeSignal>>, EngineError> {
    let resumed = grants.iter().filter(|grant| grant.handle.kind() == HandleKind::Resumed);
    let resumed: HashMap<ExecutionKey, &Grant> = resumed.map(|grant| (grant.key, grant)).collect();
    if resumed.is_empty() {
        return Ok(HashMap::new());
    }
    let key = |execution: &ExecutionKey| SuspensionKey { execution: *execution };
    let keys = resumed.keys().map(|one| SuspensionRow::erase_key(&key(one))).collect();
    // Most were suspended once, so the signals of the first wait come along.
    let scans = resumed.keys().map(|one| signals_of(*one, FIRST_WAIT)).collect();
    let rows = engine.query(Query::Records { keys, scans }).await?;
    let mut waits = rows.records::<SuspensionRow>().map_err(|error| engine.store_error(error))?;
    let mut signals = rows.records::<SignalRow>().map_err(|error| engine.store_error(error))?;
    waits.retain(|wait| {
        let grant = resumed.get(&wait.key.execution);
        let own = grant.is_some_and(|grant| {
            wait.attempt_index == grant.handle.attempt_index()
                && wait.generation == grant.generation
        });
        own && wait.end.is_some_and(|end| end.0.is_resumed())
    });
    let later = waits.iter().filter(|wait| wait.number != FIRST_WAIT);
    let later: Vec<Scan> = later.map(|wait| signals_of(wait.key.execution, wait.number)).collect();
    if !later.is_empty() {
        signals.extend(records::<SignalRow>(engine, Vec::new(), later).await?);
    }
    let mut found: HashMap<ExecutionKey, Vec<ResumeSignal>> = HashMap::new();
    let numbers: HashMap<ExecutionKey, u32> =
        waits.iter().map(|wait| (wait.key.execution, wait.number)).collect();
    for signal in &signals {
        let execution = signal.key.execution;
        if numbers.get(&execution) == Some(&signal.suspension) {
            found.entry(execution).or_default().push(views::resume_signal(signal));
        }
    }
    Ok(found)
}

/// The number of an execution's first suspension.
const FIRST_WAIT: u32 = 1;

/// Why a suspended execution does not run; nothing of any other.
pub(super) async fn explain(
    engine: &Engine,
    row: &ExecutionRow,
    now: TimestampMs,
) -> Result<Option<Explanation>, EngineError> {
    if row.phase != LifecyclePhase::Suspended {
        return Ok(None);
    }
    let wait = suspension_of(engine, row.key).await?;
    Ok(wait.map(|wait| views::explain_suspended(row, &wait, now)))
}

async fn signals(engine: &Engine, scans: Vec<Scan>) -> Result<Vec<ResumeSignal>, EngineError> {
    let rows: Vec<SignalRow> = records(engine, Vec::new(), scans).await?;
    Ok(rows.iter().map(views::resume_signal).collect())
}

async fn suspension_of(
    engine: &Engine,
    execution: ExecutionKey,
) -> Result<Option<SuspensionRow>, EngineError> {
    let keys = vec![SuspensionRow::erase_key(&SuspensionKey { execution })];
    Ok(records(engine, keys, Vec::new()).await?.pop())
}

async fn records<R: Record>(
    engine: &Engine,
    keys: Vec<AnyKey>,
    scans: Vec<Scan>,
) -> Result<Vec<R>, EngineError> {
    let rows = engine.query(Query::Records { keys, scans }).await?;
    rows.records().map_err(|error| engine.store_error(error))
}

async fn existing<B: EngineBackend + ?Sized>(
    backend: &B,
    id: &ExecutionId,
) -> Result<ExecutionRow, EngineError> {
    let rows = backend.engine().query(Query::Execution(id.key())).await?;
    let row = visible(backend.scope(), &rows).cloned();
    row.ok_or(EngineError::NotFound { entity: "execution" })
}

fn namespace_of<B: EngineBackend + ?Sized>(
    backend: &B,
    args: &ListWaitpointsArgs,
) -> Result<crate::types::Namespace, EngineError> {
    match (backend.scope(), &args.namespace) {
        (Some(scope), Some(wanted)) if scope != wanted => {
            Err(EngineError::invalid("the filter names a foreign namespace"))
        }
        (Some(scope), _) => Ok(scope.clone()),
        (None, Some(wanted)) => Ok(wanted.clone()),
        (None, None) => Err(EngineError::invalid("name a namespace or an execution")),
    }
}

/// A waitpoint with its token, if it has one and this host can make it.
fn granted(engine: &Engine, row: &WaitpointRow) -> WaitpointGrant {
    WaitpointGrant {
        waitpoint_id: WaitpointId(row.key.waitpoint_id),
        waitpoint_key: row.waitpoint_key.to_string(),
        token: token(engine, row).ok(),
    }
}

fn token(engine: &Engine, row: &WaitpointRow) -> Result<WaitpointToken, EngineError> {
    let kid = row.token_kid.as_deref().unwrap_or_default();
    engine.keyring().mint(kid, &row.claims()).ok_or_else(|| {
        let detail = format!("this host does not have the secret of the waitpoint key {kid:?}");
        EngineError::validation(ValidationKind::WaitpointSecretMissing, detail)
    })
}
