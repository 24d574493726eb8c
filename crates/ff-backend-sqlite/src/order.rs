//! The order in which new executions are stored. What moves in one commit should stand on few
//! pages, one row behind the other.

use ff_core::rows::{AnyRow, EdgeRow, ExecutionRow};
use ff_core::store::Write;
use foldhash::HashMap;
use uuid::Uuid;

/// Flows that come together mostly go along together: of all of them first the members that wait
/// for nobody, then those behind these, and so on. Claims hand out those of one rank by their ids.
pub(crate) fn stored<'r>(
    writes: &'r [Write<ExecutionRow>],
    records: &[Write<AnyRow>],
) -> Vec<&'r ExecutionRow> {
    let mut new: Vec<&ExecutionRow> = writes.iter().filter_map(inserted).collect();
    if new.iter().any(|row| row.flow_id.is_some()) {
        let edges = records.iter().filter_map(inserted).filter_map(|row| row.decode().ok()?);
        let depths = depths(edges.map(|edge: EdgeRow| (edge.upstream, edge.downstream)).collect());
        let depth = |row: &ExecutionRow| depths.get(&row.key.id).copied().unwrap_or(0);
        new.sort_by_cached_key(|row| (depth(row), row.key.id));
    }
    new
}

fn inserted<R: ff_core::rows::Row>(write: &Write<R>) -> Option<&R> {
    match write {
        Write::Insert(row) => Some(row),
        Write::Update(_) | Write::Delete(_) => None,
    }
}

/// How many members stand one behind the other before each, at most. Those that stand before nobody
/// and behind nobody are left out.
fn depths(mut edges: Vec<(Uuid, Uuid)>) -> HashMap<Uuid, u32> {
    edges.sort_unstable();
    let mut parents: HashMap<Uuid, u32> = HashMap::default();
    for (_, downstream) in &edges {
        *parents.entry(*downstream).or_default() += 1;
    }
    let first = edges.iter().map(|(upstream, _)| *upstream).filter(|id| !parents.contains_key(id));
    let mut ready: Vec<Uuid> = first.collect();
    ready.dedup();
    let mut depths: HashMap<Uuid, u32> = HashMap::default();
    while let Some(id) = ready.pop() {
        let depth = *depths.entry(id).or_default() + 1;
        let from = edges.partition_point(|(upstream, _)| *upstream < id);
        for (_, child) in edges[from..].iter().take_while(|(upstream, _)| *upstream == id) {
            let deepest = depths.entry(*child).or_default();
            *deepest = depth.max(*deepest);
            if let Some(open) = parents.get_mut(child) {
                *open -= 1;
                if *open == 0 {
                    ready.push(*child);
                }
            }
        }
    }
    depths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depths_of(edges: &[(u128, u128)]) -> Vec<(u128, u32)> {
        let id = Uuid::from_u128;
        let depths = depths(edges.iter().map(|(from, to)| (id(*from), id(*to))).collect());
        let mut depths: Vec<_> = depths.into_iter().map(|(id, at)| (id.as_u128(), at)).collect();
        depths.sort_unstable();
        depths
    }

    #[test]
    fn a_member_is_as_deep_as_the_longest_way_to_it() {
        let none: [(u128, u32); 0] = [];
        assert_eq!(depths_of(&[]), none);
        let chain = [(9, 4), (4, 7), (7, 1)];
        assert_eq!(depths_of(&chain), [(1, 3), (4, 1), (7, 2), (9, 0)]);
        let short_and_long = [(1, 2), (2, 3), (3, 4), (1, 4), (1, 5), (8, 5)];
        assert_eq!(depths_of(&short_and_long), [(1, 0), (2, 1), (3, 2), (4, 3), (5, 1), (8, 0)]);
        let fan: Vec<_> = (2..500).flat_map(|at| [(1, at), (at, 500)]).collect();
        let depths = depths_of(&fan);
        assert_eq!((depths[0], depths[499]), ((1, 0), (500, 2)));
        assert!(depths[1..499].iter().all(|(_, depth)| *depth == 1));
    }
}
