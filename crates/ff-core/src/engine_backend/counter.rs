//! Counters, counted anew, for `doctor`.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use uuid::Uuid;

use super::{EngineBackend, check_unscoped, flow_key};
use crate::contracts::{Amounts, Drift, ListOrder};
use crate::engine::Engine;
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::flow::RecountFlow;
use crate::operations::limit::{Counted, RecountLimit};
use crate::rows::{
    LimitKey, LimitRow, LimitStateRow, LimitUsageKey, LimitUsageRow, LimitWaitRow, Record,
    Standing, values,
};
use crate::state::PublicState;
use crate::store::{ListQuery, Query, Scan};
use crate::types::{ExecutionKey, FlowId};

/// How often limits are counted that move while they are counted.
const TRIES: u32 = 5;

#[async_trait]
pub trait CounterOperations: EngineBackend {
    /// Counts the members of a flow and what its nodes have heard of their parents. Says what
    /// differs; if asked to, it is mended in the same transaction, and whoever waited for it goes
    /// on.
    async fn recount_flow(&self, id: &FlowId, mend: bool) -> Result<Vec<Drift>, EngineError> {
        check_unscoped(self.scope(), "recount_flow")?;
        let flow = flow_key(self.engine(), id);
        let operation = RecountFlow { flow, mend, max_nodes: limits::FLOW_REPLAY_NODES };
        let drifts = self.engine().run(None, operation).await?;
        log(&drifts, mend);
        Ok(drifts)
    }

    /// Counts what leases hold of budgets and quotas and who waits for them. Says what differs; if
    /// asked to, each of them is mended in a transaction of its own. What moves all the time is
    /// in use, and is left alone.
    async fn recount_limits(&self, mend: bool) -> Result<Vec<Drift>, EngineError> {
        check_unscoped(self.scope(), "recount_limits")?;
        let (engine, mut found) = (self.engine(), Vec::new());
        let mut mended = BTreeMap::new();
        for _ in 0..TRIES {
            let before = states(engine).await?;
            let counted = count(engine).await?;
            let after = states(engine).await?;
            let mut moving = false;
            found.clear();
            for (id, state) in before {
                let counted = counted.get(&id).cloned().unwrap_or_default();
                let drifts = differences(&state, &counted);
                if drifts.is_empty() {
                    continue;
                }
                if after.get(&id) != Some(&state) {
                    moving = true;
                    continue;
                }
                let drifts = named(engine, &state, drifts).await?;
                if mend {
                    match engine.run(None, RecountLimit { seen: state, counted }).await? {
                        true => drop(mended.insert(id, drifts.clone())),
                        false => moving = true,
                    }
                }
                found.extend(drifts);
            }
            if !moving {
                break;
            }
        }
        let drifts = if mend { mended.into_values().flatten().collect() } else { found };
        log(&drifts, mend);
        Ok(drifts)
    }
}

impl<B: EngineBackend + ?Sized> CounterOperations for B {}

fn log(drifts: &[Drift], mended: bool) {
    for Drift { subject, counter, stored, counted } in drifts {
        tracing::warn!(subject, counter, stored, counted, mended, "a counter was wrong");
    }
}

/// Where every limit stands.
async fn states(engine: &Engine) -> Result<BTreeMap<Uuid, LimitStateRow>, EngineError> {
    let mut states = BTreeMap::new();
    let mut after = Vec::new();
    loop {
        let scan = Scan::of::<LimitStateRow>(Vec::new()).limit(limits::PAGE).after(after);
        let found: Vec<LimitStateRow> = records(engine, Vec::new(), vec![scan]).await?;
        let Some(last) = found.last().map(|row| row.key.id) else { return Ok(states) };
        states.extend(found.into_iter().map(|row| (row.key.id, row)));
        after = values![last];
    }
}

/// What there is to be held of each limit, and who waits.
async fn count(engine: &Engine) -> Result<HashMap<Uuid, Counted>, EngineError> {
    let mut counted: HashMap<Uuid, Counted> = HashMap::new();
    let mut list = ListQuery {
        states: vec![PublicState::Active],
        order: ListOrder::OldestFirst,
        limit: limits::PAGE,
        ..ListQuery::default()
    };
    loop {
        let rows = engine.query(Query::Executions(list.clone())).await?.executions;
        let mut shares: Vec<(ExecutionKey, Uuid)> = Vec::new();
        for row in &rows {
            let holds = row.limit_holds().unwrap_or_default();
            for id in holds.permits {
                counted.entry(id).or_default().in_use += 1;
            }
            shares.extend(holds.budgets.into_iter().map(|id| (row.key, id)));
        }
        reserved(engine, &shares, &mut counted).await?;
        list.after = rows.last().map(|row| (row.created_at, row.key.id));
        if rows.len() < limits::PAGE {
            break;
        }
    }
    waiting(engine, &mut counted).await?;
    Ok(counted)
}

/// Adds what these leases have reserved of these budgets.
async fn reserved(
    engine: &Engine,
    shares: &[(ExecutionKey, Uuid)],
    counted: &mut HashMap<Uuid, Counted>,
) -> Result<(), EngineError> {
    for some in shares.chunks(limits::PAGE) {
        let key = |(execution, id): &(ExecutionKey, Uuid)| {
            LimitUsageRow::erase_key(&LimitUsageKey::sum(*execution, *id))
        };
        let keys = some.iter().map(key).collect();
        for usage in records::<LimitUsageRow>(engine, keys, Vec::new()).await? {
            let sums = &mut counted.entry(usage.key.limit).or_default().reserved;
            for (dimension, amount) in usage.share.0.reserved {
                *sums.entry(dimension).or_default() += amount;
            }
        }
    }
    Ok(())
}

/// Adds who waits for each of the limits.
async fn waiting(engine: &Engine, counted: &mut HashMap<Uuid, Counted>) -> Result<(), EngineError> {
    let mut after = Vec::new();
    loop {
        let scan = Scan::of::<LimitWaitRow>(Vec::new()).limit(limits::PAGE).after(after);
        let found: Vec<LimitWaitRow> = records(engine, Vec::new(), vec![scan]).await?;
        for wait in &found {
            counted.entry(wait.key.state).or_default().waiting += 1;
        }
        let Some(LimitWaitRow { key, .. }) = found.last() else { return Ok(()) };
        after = values![key.state, key.rank, key.execution, key.ticket];
    }
}

async fn records<R: Record>(
    engine: &Engine,
    keys: Vec<crate::rows::AnyKey>,
    scans: Vec<Scan>,
) -> Result<Vec<R>, EngineError> {
    let rows = engine.query(Query::Records { keys, scans }).await?;
    rows.records().map_err(|error| engine.store_error(error))
}

/// What a limit says of itself and what there is, wherever they differ.
fn differences(state: &LimitStateRow, counted: &Counted) -> Vec<(String, u64, u64)> {
    let mut differences = vec![("waiting".to_owned(), state.waiting, counted.waiting)];
    match &state.standing.0 {
        Standing::Quota(permits) => {
            differences.push(("in_use".to_owned(), permits.in_use, counted.in_use));
        }
        Standing::Budget(account) => {
            let of = |amounts: &Amounts, name: &str| amounts.get(name).copied().unwrap_or(0);
            let known = account.reserved.keys().chain(counted.reserved.keys());
            let names: std::collections::BTreeSet<_> = known.collect();
            differences.extend(names.into_iter().map(|name| {
                let (stored, there) = (of(&account.reserved, name), of(&counted.reserved, name));
                (format!("reserved {name}"), stored, there)
            }));
        }
    }
    differences.retain(|(_, stored, counted)| stored != counted);
    differences
}

async fn named(
    engine: &Engine,
    state: &LimitStateRow,
    differences: Vec<(String, u64, u64)>,
) -> Result<Vec<Drift>, EngineError> {
    let keys = vec![LimitRow::erase_key(&LimitKey { id: state.limit })];
    let limits: Vec<LimitRow> = records(engine, keys, Vec::new()).await?;
    let noun = match &state.standing.0 {
        Standing::Budget(_) => "budget",
        Standing::Quota(_) => "quota",
    };
    let name = match limits.first() {
        Some(limit) => limit.name.to_string(),
        None => format!("{} that was deleted", state.limit),
    };
    let subject = match &*state.value {
        "" => format!("{noun} {name}"),
        value => format!("{noun} {name}, key {value}"),
    };
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let drift = |(counter, stored, counted)| {
        let (stored, counted) = (whole(stored), whole(counted));
        Drift { subject: subject.clone(), counter, stored, counted }
    };
    Ok(differences.into_iter().map(drift).collect())
}
