//! Flows that can be made again from their seed, so that a retry submits exactly the same graph and
//! the checker knows what was asked for.

use anyhow::Context as _;
use fastrand::Rng;
use ff_core::contracts::{EdgePolicy, FlowEdge, FlowNode, OnSatisfied, SubmitFlowArgs};
use ff_core::types::{ExecutionId, FlowId, Namespace};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::history::Work;
use crate::workload::submission;

/// Names a graph. Everything but the names follows from `seed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planted {
    pub flow: Uuid,
    /// Where the store keeps the flow and its members.
    pub partition: u16,
    pub seed: u64,
}

/// A node and the places of its parents, all of them before its own.
#[derive(Clone, Debug)]
pub struct Node {
    pub work: Work,
    pub parents: Vec<usize>,
    pub policy: EdgePolicy,
}

const FEWEST: usize = 2;
const MOST: usize = 10;

impl Planted {
    pub fn flow_id(&self) -> FlowId {
        FlowId(self.flow)
    }

    /// Any graph without a cycle, in an order in which parents come first.
    pub fn nodes(&self) -> Vec<Node> {
        let mut rng = Rng::with_seed(self.seed);
        let count = rng.usize(FEWEST..=MOST);
        let mut nodes = Vec::with_capacity(count);
        for at in 0..count {
            let id = uuid::Builder::from_random_bytes(rng.u128(..).to_be_bytes()).into_uuid();
            let id = ExecutionId::from_parts(self.partition, id).as_str().to_owned();
            let work = Work::new(id, None, rng.u64(..));
            let parents: Vec<usize> = (0..at).filter(|_| rng.u8(..3) == 0).collect();
            let policy = policy(&mut rng, parents.len());
            nodes.push(Node { work, parents, policy });
        }
        nodes
    }

    pub fn args(&self) -> anyhow::Result<SubmitFlowArgs> {
        let nodes = self.nodes();
        let name = |at: usize| format!("n{at}");
        let mut args = SubmitFlowArgs {
            flow_id: Some(self.flow_id()),
            namespace: Namespace::new("default"),
            flow_kind: "chaos".into(),
            ..SubmitFlowArgs::default()
        };
        for (at, node) in nodes.iter().enumerate() {
            let work = submission(&node.work).context("made by this process")?;
            args.nodes.push(FlowNode::new(name(at), work).policy(node.policy));
            let edges = node.parents.iter().map(|parent| FlowEdge::new(name(*parent), name(at)));
            args.edges.extend(edges);
        }
        Ok(args)
    }
}

fn policy(rng: &mut Rng, parents: usize) -> EdgePolicy {
    let rest = if rng.bool() { OnSatisfied::CancelRemaining } else { OnSatisfied::LetRun };
    match rng.u8(..4) {
        0 if parents > 0 => EdgePolicy::AnyOf { on_satisfied: rest },
        1 if parents > 1 => {
            let k = u32::try_from(rng.usize(1..=parents)).unwrap_or(1);
            EdgePolicy::Quorum { k, on_satisfied: rest }
        }
        _ => EdgePolicy::AllOf,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_one_graph() {
        let flow = Uuid::from_u128(7);
        for seed in 0..50 {
            let planted = Planted { flow, partition: 3, seed };
            let (one, other) = (planted.nodes(), planted.nodes());
            assert!((FEWEST..=MOST).contains(&one.len()));
            for (at, (one, other)) in one.iter().zip(&other).enumerate() {
                assert_eq!((&one.work, &one.parents), (&other.work, &other.parents));
                assert!(one.parents.iter().all(|parent| *parent < at));
            }
            assert_eq!(planted.args().unwrap().nodes.len(), one.len());
        }
    }
}
