//! The counters of a flow, counted anew from its members and edges. Every transaction that ends a
//! member moves them with it, so they differ only after somebody has written to the tables by hand,
//! or because of a fault here; whoever waits for them would wait for ever.

use std::collections::HashMap;

use uuid::Uuid;

use super::cascade::{self, Told, flow_event, tally};
use super::drafts::put_flow;
use super::replay::{ReplayFlow, outcome_of, was_spared};
use super::rule;
use crate::contracts::{Drift, EdgeGroupState, EventType};
use crate::engine_error::{ContentionKind, EngineError};
use crate::operations::Operation;
use crate::rows::{
    CascadeRow, ChildrenKey, ChildrenRow, EdgeGroupRow, EdgeKind, EdgeRow, Endings, ExecutionRow,
    FlowKey, FlowRow, FlowState, Word,
};
use crate::state::TerminalOutcome;
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct RecountFlow {
    pub flow: FlowKey,
    /// Writes what was counted; otherwise it is only told.
    pub mend: bool,
    /// A flow with more nodes than this is not loaded as a whole.
    pub max_nodes: usize,
}

impl Operation for RecountFlow {
    type Reply = Vec<Drift>;

    const NAME: &'static str = "recount_flow";

    fn needs(&self, needs: &mut Needs) {
        needs.flows.insert(self.flow);
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        let fits = |flow: &&FlowRow| flow.nodes <= self.max_nodes as u64;
        if world.flow(self.flow).filter(fits).is_none() {
            return;
        }
        needs.members.insert(ReplayFlow::members(self.flow));
        needs.scan(&ReplayFlow::edges(self.flow));
        needs.scan(&ReplayFlow::groups(self.flow));
        needs.scan(&ReplayFlow::cascades(self.flow));
        for edge in world.scan::<EdgeRow>(&ReplayFlow::edges(self.flow)) {
            match edge.kind.0 {
                // A parent may have stayed in the flow that this one was forked from.
                EdgeKind::Depends => needs.unwritten_execution(self.flow.member(edge.upstream)),
                EdgeKind::Awaits => {
                    let execution = self.flow.member(edge.downstream);
                    needs.record::<ChildrenRow>(&ChildrenKey { execution });
                }
            }
        }
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let flow = world.flow(self.flow).ok_or(EngineError::NotFound { entity: "flow" })?;
        if flow.nodes > self.max_nodes as u64 {
            let (nodes, max) = (flow.nodes, self.max_nodes);
            let detail = format!("the flow has {nodes} nodes, at most {max} are counted");
            return Err(EngineError::invalid(detail));
        }
        if !world.scan::<CascadeRow>(&ReplayFlow::cascades(self.flow)).is_empty() {
            return Err(EngineError::Contention(ContentionKind::CascadeRunning));
        }
        let mut recount = Recount::new(world, flow);
        // Nobody counted the members of a flow that was inserted by hand.
        if flow.nodes > 0 {
            recount.header();
        }
        // In a cancelled flow nobody is told of anything any more.
        if flow.state != FlowState::Cancelled {
            recount.groups();
            recount.children();
        }
        let Recount { drifts, change, .. } = recount;
        Ok((drifts, if self.mend { change } else { Change::default() }))
    }
}

struct Recount<'w> {
    world: &'w World,
    flow: &'w FlowRow,
    members: Vec<&'w ExecutionRow>,
    /// By the downstream, who stands before it.
    depends: HashMap<Uuid, Vec<Uuid>>,
    awaits: HashMap<Uuid, Vec<Uuid>>,
    drifts: Vec<Drift>,
    change: Change,
}

impl<'w> Recount<'w> {
    fn new(world: &'w World, flow: &'w FlowRow) -> Self {
        let members = world.members(&ReplayFlow::members(flow.key));
        let (mut depends, mut awaits) = (HashMap::new(), HashMap::new());
        for edge in world.scan::<EdgeRow>(&ReplayFlow::edges(flow.key)) {
            let ends: &mut HashMap<Uuid, Vec<Uuid>> = match edge.kind {
                Word(EdgeKind::Depends) => &mut depends,
                Word(EdgeKind::Awaits) => &mut awaits,
            };
            ends.entry(edge.downstream).or_default().push(edge.upstream);
        }
        let (drifts, change) = (Vec::new(), Change::default());
        Self { world, flow, members, depends, awaits, drifts, change }
    }

    fn row(&self, id: Uuid) -> Option<&'w ExecutionRow> {
        self.world.executions.get(&self.flow.key.member(id))
    }

    fn compare(&mut self, subject: &str, counter: &str, stored: i64, counted: i64) -> bool {
        if stored != counted {
            let (subject, counter) = (subject.to_owned(), counter.to_owned());
            self.drifts.push(Drift { subject, counter, stored, counted });
        }
        stored != counted
    }

    /// How many members there are, and how they have ended.
    fn header(&mut self) {
        let flow = self.flow;
        let mut ended = Endings::default();
        for row in &self.members {
            match outcome_of(row) {
                Some(_) if was_spared(row) => ended.spared += 1,
                Some(outcome) => *ended.of(outcome) += 1,
                None => {}
            }
        }
        if ended.cancelled + ended.spared == flow.ended.cancelled + flow.ended.spared {
            (ended.cancelled, ended.spared) = (flow.ended.cancelled, flow.ended.spared);
        }
        let nodes = self.members.len() as u64;
        let subject = format!("flow {}", flow.key.flow_id());
        let mut differs = false;
        for (counter, stored, counted) in [
            ("nodes", flow.nodes, nodes),
            ("completed", flow.ended.completed, ended.completed),
            ("failed", flow.ended.failed, ended.failed),
            ("cancelled", flow.ended.cancelled, ended.cancelled),
            ("expired", flow.ended.expired, ended.expired),
            ("skipped", flow.ended.skipped, ended.skipped),
            ("spared", flow.ended.spared, ended.spared),
        ] {
            differs |= self.compare(&subject, counter, whole(stored), whole(counted));
        }
        if !differs {
            return;
        }
        let mut after = FlowRow { nodes, ended, ..flow.clone() };
        match (after.state, rule::ending(nodes, ended)) {
            (FlowState::Open, Some(state)) => {
                cascade::end_flow(&mut self.change, &mut after, state, self.world.now);
            }
            (FlowState::Completed | FlowState::Failed, None) => {
                (after.state, after.terminal_at) = (FlowState::Open, None);
                let event = flow_event(&after, EventType::FlowReopened, self.world.now);
                let details = serde_json::json!({ "flow_id": flow.key.flow_id() });
                self.change.events.push(event.details(&details));
            }
            _ => {}
        }
        put_flow(&mut self.change, after);
    }

    /// What members that wait for their parents have heard of them.
    fn groups(&mut self) {
        for group in self.world.scan::<EdgeGroupRow>(&ReplayFlow::groups(self.flow.key)) {
            let Some(child) = self.row(group.key.downstream).filter(|row| cascade::waits(row))
            else {
                continue;
            };
            let subject = format!("the parents of {}", child.key.execution_id());
            if !group.is_pending() {
                if self.compare(&subject, "undecided", 1, 0) {
                    cascade::follow(self.world, &mut self.change, &group);
                }
                continue;
            }
            // Who inserted a group by hand counts for itself.
            let Some(mut counted) = self.parents(&group).filter(|_| group.parents > 0) else {
                continue;
            };
            let mut differs = false;
            for (counter, stored, counted) in [
                ("parents", group.parents, counted.parents),
                ("succeeded", group.succeeded, counted.succeeded),
                ("failed", group.failed, counted.failed),
                ("skipped", group.skipped, counted.skipped),
            ] {
                differs |= self.compare(&subject, counter, stored, counted);
            }
            let decision = rule::decide(counted.policy(), tally(&counted));
            if !differs && decision == EdgeGroupState::Pending {
                continue;
            }
            if !differs {
                self.compare(&subject, "undecided", 1, 0);
            }
            counted.state = Word(decision);
            self.change.update(&counted);
            if decision != EdgeGroupState::Pending {
                let told = Told {
                    flow: self.flow.key,
                    upstream: child.key.id,
                    outcome: TerminalOutcome::Success,
                    version: child.version.max(1) + 1,
                    at: self.world.now,
                };
                cascade::decided(self.world, &mut self.change, &told, &counted);
            }
        }
    }

    /// A group as its parents are; nothing if one of them is not known any more.
    fn parents(&self, group: &EdgeGroupRow) -> Option<EdgeGroupRow> {
        let parents = self.depends.get(&group.key.downstream)?;
        let mut counted = EdgeGroupRow { succeeded: 0, failed: 0, skipped: 0, ..group.clone() };
        counted.parents = i64::try_from(parents.len()).unwrap_or(i64::MAX);
        for parent in parents {
            let row = self.row(*parent)?;
            // One that runs again in its own flow counts here as it was counted.
            if !row.is_finished() && row.flow_id != Some(self.flow.key.id) {
                return None;
            }
            let forgotten = group.reset_at.is_some_and(|reset| row.terminal_at <= Some(reset));
            match outcome_of(row) {
                Some(TerminalOutcome::Success) => counted.succeeded += 1,
                None => {}
                Some(_) if forgotten => {}
                Some(TerminalOutcome::Skipped) => counted.skipped += 1,
                Some(_) => counted.failed += 1,
            }
        }
        counted.running = counted.parents - counted.succeeded - counted.failed - counted.skipped;
        Some(counted)
    }

    /// What members that have added nodes know of them.
    fn children(&mut self) {
        for (member, added) in std::mem::take(&mut self.awaits) {
            let key = ChildrenKey { execution: self.flow.key.member(member) };
            let Some(known) = self.world.record::<ChildrenRow>(&key) else { continue };
            let has_ended = |id: &&Uuid| self.row(**id).is_none_or(ExecutionRow::is_finished);
            let ended = added.iter().filter(has_ended).count() as u64;
            let counted = ChildrenRow { added: added.len() as u64, ended, ..known.clone() };
            let subject = format!("the nodes that {} has added", key.execution.execution_id());
            let differs = self.compare(&subject, "added", whole(known.added), whole(counted.added))
                | self.compare(&subject, "ended", whole(known.ended), whole(counted.ended));
            if differs {
                self.change.update(&counted);
                cascade::follow_children(self.world, &mut self.change, &key);
            }
        }
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
