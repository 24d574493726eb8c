//! Whether a graph can be accepted. Every reason against it is found, not only the first.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::contracts::EdgePolicy;

/// A reason to refuse a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    NoNodes,
    TooManyNodes {
        count: usize,
        max: usize,
    },
    TooManyEdges {
        count: usize,
        max: usize,
    },
    DuplicateName(String),
    DuplicateId(String),
    /// An end of an edge that is no node.
    UnknownEnd(String),
    SelfEdge(String),
    DuplicateEdge {
        from: String,
        to: String,
    },
    /// The nodes of a cycle in order; the first depends on the last.
    Cycle(Vec<String>),
    Quorum {
        node: String,
        k: u32,
        parents: usize,
    },
    /// What is wrong with a node by itself.
    Node {
        node: String,
        why: String,
    },
    /// An edge that comes too late or from elsewhere.
    Edge {
        from: String,
        to: String,
        why: &'static str,
    },
}

/// Names in a message; a cycle may be as long as the graph.
const SHOWN: usize = 20;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => write!(f, "the graph has no nodes"),
            Self::TooManyNodes { count, max } => {
                write!(f, "the graph has {count} nodes, the limit is {max}")
            }
            Self::TooManyEdges { count, max } => {
                write!(f, "the graph has {count} edges, the limit is {max}")
            }
            Self::DuplicateName(name) => write!(f, "two nodes are named {name:?}"),
            Self::DuplicateId(id) => write!(f, "two nodes have the id {id}"),
            Self::UnknownEnd(name) => write!(f, "an edge names {name:?}, which is no node"),
            Self::SelfEdge(name) => write!(f, "node {name:?} depends on itself"),
            Self::DuplicateEdge { from, to } => {
                write!(f, "the edge from {from:?} to {to:?} is there twice")
            }
            Self::Cycle(path) => {
                write!(f, "a cycle:")?;
                for name in path.iter().take(SHOWN) {
                    write!(f, " {name:?} ->")?;
                }
                match path.len() > SHOWN {
                    true => write!(f, " and so on, {} nodes in all", path.len()),
                    false => write!(f, " {:?}", path.first().map_or("", String::as_str)),
                }
            }
            Self::Quorum { node, k, parents } => {
                write!(f, "node {node:?} waits for {k} of its {parents} parents")
            }
            Self::Node { node, why } => write!(f, "node {node:?}: {why}"),
            Self::Edge { from, to, why } => write!(f, "the edge from {from:?} to {to:?}: {why}"),
        }
    }
}

/// So many reasons are told; a bad graph may have as many as it has edges.
const TOLD: usize = 50;

/// All reasons in one text.
pub fn tell(faults: &[Fault]) -> String {
    let told: Vec<String> = faults.iter().take(TOLD).map(Fault::to_string).collect();
    let mut text = told.join("; ");
    if faults.len() > TOLD {
        text += &format!("; and {} more", faults.len() - TOLD);
    }
    text
}

/// Edges between nodes by their places; places from `nodes` on stand for members that are there
/// already. What is wrong with it as a graph is added to the faults.
pub fn check_edges(
    nodes: usize,
    edges: &[(usize, usize)],
    name: impl Fn(usize) -> String,
    faults: &mut Vec<Fault>,
) {
    let mut seen = HashSet::with_capacity(edges.len());
    for &(from, to) in edges {
        if from == to {
            faults.push(Fault::SelfEdge(name(from)));
        } else if !seen.insert((from, to)) {
            faults.push(Fault::DuplicateEdge { from: name(from), to: name(to) });
        }
    }
    let largest = edges.iter().map(|(from, to)| (*from).max(*to) + 1).max().unwrap_or(0);
    let cycles = cycles(nodes.max(largest), edges);
    faults
        .extend(cycles.into_iter().map(|path| Fault::Cycle(path.into_iter().map(&name).collect())));
}

/// What is wrong with the policies of nodes, given how many parents each has.
pub fn check_policies(
    nodes: impl Iterator<Item = (EdgePolicy, usize)>,
    name: impl Fn(usize) -> String,
    faults: &mut Vec<Fault>,
) {
    for (at, (policy, parents)) in nodes.enumerate() {
        if let EdgePolicy::Quorum { k, .. } = policy
            && (k == 0 || k as usize > parents)
        {
            faults.push(Fault::Quorum { node: name(at), k, parents });
        }
    }
}

/// Cycles that share no node, at least one if there is any; edges to oneself are not counted.
pub fn cycles(nodes: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    let mut back: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for &(from, to) in edges.iter().filter(|(from, to)| from != to) {
        next[from].push(to);
        back[to].push(from);
    }
    let mut left = vec![true; nodes];
    // Whoever has nobody before it, or nobody behind it, is on no cycle.
    peel(&mut left, &next, &back);
    peel(&mut left, &back, &next);
    let mut found = Vec::new();
    let mut walked = vec![false; nodes];
    for start in 0..nodes {
        if !left[start] || walked[start] {
            continue;
        }
        let mut place: HashMap<usize, usize> = HashMap::new();
        let mut path = Vec::new();
        let mut at = start;
        // Every node that is left has somebody behind it who is left, so the walk goes on until
        // it meets itself or a walk before it.
        while !walked[at] {
            walked[at] = true;
            place.insert(at, path.len());
            path.push(at);
            let Some(behind) = next[at].iter().copied().find(|to| left[*to]) else { break };
            at = behind;
        }
        if let Some(from) = place.get(&at) {
            found.push(path.split_off(*from));
        }
    }
    found
}

/// Takes away, again and again, those that no edge leads to.
fn peel(left: &mut [bool], next: &[Vec<usize>], back: &[Vec<usize>]) {
    let standing = |left: &[bool], at: usize| back[at].iter().filter(|from| left[**from]).count();
    let mut open: Vec<usize> =
        (0..left.len()).map(|at| if left[at] { standing(left, at) } else { usize::MAX }).collect();
    let mut free: Vec<usize> = (0..left.len()).filter(|at| open[*at] == 0).collect();
    while let Some(at) = free.pop() {
        left[at] = false;
        for to in next[at].iter().copied().filter(|to| left[*to]) {
            open[to] -= 1;
            if open[to] == 0 {
                free.push(to);
            }
        }
    }
}

/// Everything that can be reached from a node, the node itself included.
pub fn reach(nodes: usize, edges: &[(usize, usize)], from: usize) -> Vec<bool> {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (from, to) in edges {
        next[*from].push(*to);
    }
    let mut reached = vec![false; nodes];
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut reached[at], true) {
            open.extend(next[at].iter().copied());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(nodes: usize, edges: &[(usize, usize)]) -> Vec<Fault> {
        let mut faults = Vec::new();
        check_edges(nodes, edges, |at| format!("n{at}"), &mut faults);
        faults
    }

    fn cycle(path: &[usize]) -> Fault {
        Fault::Cycle(path.iter().map(|at| format!("n{at}")).collect())
    }

    #[test]
    fn graphs_without_faults() {
        for (nodes, edges) in [
            (1, &[][..]),
            (2, &[(0, 1)]),
            (4, &[(0, 1), (0, 2), (1, 3), (2, 3)]),
            (4, &[(3, 2), (2, 1), (1, 0), (3, 0)]),
            (3, &[(0, 2), (1, 2)]),
        ] {
            assert_eq!(faults(nodes, edges), [], "{edges:?}");
        }
    }

    #[test]
    fn cycles_are_named() {
        for (nodes, edges, path) in [
            (2, &[(0, 1), (1, 0)][..], &[0, 1][..]),
            (3, &[(0, 1), (1, 2), (2, 0)], &[0, 1, 2]),
            // What leads to a cycle and what follows it is not named.
            (5, &[(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)], &[1, 2, 3]),
            (4, &[(2, 3), (3, 2), (0, 1)], &[2, 3]),
        ] {
            assert_eq!(faults(nodes, edges), [cycle(path)], "{edges:?}");
        }
    }

    #[test]
    fn every_reason_is_found() {
        let edges = [(0, 0), (1, 2), (1, 2), (2, 1), (3, 4), (4, 3)];
        let found = faults(5, &edges);
        let twice = Fault::DuplicateEdge { from: "n1".into(), to: "n2".into() };
        let expected = [Fault::SelfEdge("n0".into()), twice, cycle(&[1, 2]), cycle(&[3, 4])];
        assert_eq!(found, expected);
        let text = tell(&found);
        for part in ["\"n0\" depends on itself", "is there twice", "\"n1\" -> \"n2\" -> \"n1\""] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn long_lists_of_reasons_are_cut() {
        let edges: Vec<_> = (0..200).map(|at| (at, at)).collect();
        let text = tell(&faults(200, &edges));
        assert!(text.ends_with("; and 150 more"), "{text}");
        let ring: Vec<_> = (0..100).map(|at| (at, (at + 1) % 100)).collect();
        assert!(tell(&faults(100, &ring)).ends_with("100 nodes in all"));
    }

    #[test]
    fn quorums() {
        use crate::contracts::OnSatisfied::LetRun;
        let quorum = |k| EdgePolicy::Quorum { k, on_satisfied: LetRun };
        for (policy, parents, fine) in [
            (EdgePolicy::AllOf, 0, true),
            (EdgePolicy::AnyOf { on_satisfied: LetRun }, 0, true),
            (quorum(0), 2, false),
            (quorum(1), 0, false),
            (quorum(2), 2, true),
            (quorum(3), 2, false),
        ] {
            let mut faults = Vec::new();
            check_policies([(policy, parents)].into_iter(), |_| "n".into(), &mut faults);
            assert_eq!(faults.is_empty(), fine, "{policy:?} of {parents}");
        }
    }

    #[test]
    fn a_random_graph_has_cycles_exactly_if_it_cannot_be_sorted() {
        for seed in 0..500_u64 {
            let mut drawn = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut draw = |below: usize| {
                drawn = drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767);
                (drawn >> 33) as usize % below
            };
            let nodes = 1 + draw(7);
            let edges: Vec<_> = (0..draw(10)).map(|_| (draw(nodes), draw(nodes))).collect();
            let own: Vec<_> = edges.iter().copied().filter(|(a, b)| a != b).collect();
            let reaches_itself =
                |at: usize| own.iter().any(|(from, to)| *from == at && reach(nodes, &own, *to)[at]);
            let cyclic = (0..nodes).any(reaches_itself);
            let found = cycles(nodes, &edges);
            assert_eq!(found.is_empty(), !cyclic, "seed {seed}: {edges:?}");
            for path in &found {
                let closed = path.iter().zip(path.iter().cycle().skip(1));
                for (from, to) in closed {
                    assert!(own.contains(&(*from, *to)), "seed {seed}: {path:?} in {edges:?}");
                }
            }
        }
    }
}
