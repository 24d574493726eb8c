//! Declares a budget, and says to claims where to look for it.

use std::sync::Arc;

use serde_json::json;

use super::drafts::{Drafts, put};
use super::{declared, gate, mark_lane};
use crate::contracts::{BudgetScope, EventType, PutBudgetArgs};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::transition;
use crate::rows::{
    Account, FlowKey, Json, LimitKey, LimitKind, LimitRow, LimitStateKey, LimitStateRow, Rule,
    Standing, Word, limit_id, with_budget_name,
};
use crate::store::{Change, Needs, World, Write};
use crate::types::ExecutionKey;

#[derive(Debug)]
pub struct PutBudget {
    pub args: PutBudgetArgs,
    /// The flow that the scope names.
    pub flow: Option<FlowKey>,
}

impl Operation for PutBudget {
    type Reply = ();

    const NAME: &'static str = "put_budget";

    fn needs(&self, needs: &mut Needs) {
        let id = self.key().id;
        needs.record::<LimitRow>(&LimitKey { id });
        needs.record::<LimitStateRow>(&LimitStateKey { id });
        if let Some(lane) = self.lane() {
            needs.scan(&gate::rules_of(&lane));
            needs.written_lane(lane);
        }
        needs.flows.extend(self.flow);
        if let Some(execution) = self.execution() {
            needs.execution(execution);
        }
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        let args = &self.args;
        let namespace: Arc<str> = args.namespace.as_str().into();
        self.attach(world, &mut change)?;
        let known = world.record::<LimitRow>(&self.key());
        let row = LimitRow {
            key: self.key(),
            kind: Word(LimitKind::Budget),
            namespace: namespace.clone(),
            name: args.budget_id.as_str().into(),
            lane: self.lane(),
            rule: Json(Rule::Budget(args.clone())),
            created_at: known.as_ref().map_or(world.now, |known| known.created_at),
        };
        put(&mut change, known.is_some(), &row);
        if let Some(lane) = self.lane() {
            gate::check_room(world, known.as_ref(), &lane)?;
            mark_lane(world, &mut change, &lane);
        }
        let id = self.key().id;
        if world.record::<LimitStateRow>(&LimitStateKey { id }).is_none() {
            let standing = Standing::Budget(Account::new(world.now));
            change.insert(&LimitStateRow::new(id, id, "".into(), standing));
        } else {
            let mut drafts = Drafts::new(world);
            if let Some(account) = drafts.account(id) {
                match known.as_ref().and_then(LimitRow::budget) {
                    Some(before) => {
                        let (before, after) = (before.reset_period_ms, args.reset_period_ms);
                        account.change_period(before, after, world.now);
                    }
                    // One of the same name was deleted, and leases have ended since.
                    None => account.reset(world.now),
                }
            }
            drafts.arm_for_new_rule(&mut change, id);
            drafts.write(&mut change);
        }
        let details = json!({ "limit": "budget", "budget_id": args.budget_id });
        declared(&mut change, namespace, world.now, &details);
        Ok(((), change))
    }
}

impl PutBudget {
    fn key(&self) -> LimitKey {
        let PutBudgetArgs { namespace, budget_id, .. } = &self.args;
        let id = limit_id(LimitKind::Budget, namespace.as_str(), budget_id.as_str());
        LimitKey { id }
    }

    /// The lane whose claims must look at it; empty for every lane.
    fn lane(&self) -> Option<Arc<str>> {
        match &self.args.scope {
            BudgetScope::Lane(lane) => Some(lane.as_str().into()),
            BudgetScope::Tag { .. } | BudgetScope::Namespace => Some("".into()),
            BudgetScope::Named | BudgetScope::Execution(_) | BudgetScope::Flow(_) => None,
        }
    }

    fn execution(&self) -> Option<ExecutionKey> {
        match &self.args.scope {
            BudgetScope::Execution(id) => Some(id.key()),
            _ => None,
        }
    }

    /// An execution or a flow keeps the names of its own budgets.
    fn attach(&self, world: &World, change: &mut Change) -> Result<(), EngineError> {
        let name = self.args.budget_id.as_str();
        let own = |namespace: &Arc<str>| **namespace == *self.args.namespace.as_str();
        if let Some(key) = self.execution() {
            let row = world.existing(key)?;
            if !own(&row.namespace) {
                return Err(EngineError::NotFound { entity: "execution" });
            }
            let mut after = row.clone();
            after.add_budget_name(name);
            if after.raw_fields != row.raw_fields {
                let details = json!({ "budget_id": name });
                transition(change, row, after, EventType::BudgetAttached, world.now, |event| {
                    event.details(&details)
                });
            }
        }
        if let Some(key) = self.flow {
            let flow = world.flow(key).filter(|flow| own(&flow.namespace));
            let flow = flow.ok_or(EngineError::NotFound { entity: "flow" })?;
            let mut after = flow.clone();
            after.raw_fields = with_budget_name(&flow.raw_fields, name);
            change.flows.push(Write::Update(after));
        }
        Ok(())
    }
}
