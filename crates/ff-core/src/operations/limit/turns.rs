//! Weighted turns: each key has a place on one line, an admission moves it on by a stride that is
//! shorter the more the key weighs, and the key that is furthest behind is next.

use std::collections::BTreeMap;

/// Divisible by most small weights, so that strides stay exact.
const STRIDE: u64 = 27_720 * 64;

/// How far one admission moves a key on.
pub fn stride(weight: u32) -> u64 {
    STRIDE / u64::from(weight.max(1))
}

/// Where a key starts that was not there before, or has been idle: with the others, so that
/// nobody is owed the time in which he had no work.
pub fn entry(own: u64, line: u64) -> u64 {
    own.max(line)
}

/// The order in which candidates take their turns. Each is its key and its rank within the lane;
/// `passes` says where the keys stand and `weights` how much they weigh.
pub fn order<K: Ord + Clone>(
    candidates: &[(K, i64)],
    passes: &BTreeMap<K, u64>,
    weight: impl Fn(&K) -> u32,
) -> Vec<usize> {
    let mut queues: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for (at, (key, _)) in candidates.iter().enumerate().rev() {
        queues.entry(key.clone()).or_default().push(at);
    }
    let mut passes = passes.clone();
    let mut order = Vec::with_capacity(candidates.len());
    while order.len() < candidates.len() {
        let next = queues
            .iter()
            .filter_map(|(key, queue)| {
                let head = *queue.last()?;
                Some((passes.get(key).copied().unwrap_or(0), candidates[head].1, key))
            })
            .min();
        let Some((pass, _, key)) = next else { break };
        let key = key.clone();
        passes.insert(key.clone(), pass.saturating_add(stride(weight(&key))));
        order.extend(queues.get_mut(&key).and_then(Vec::pop));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(counts: &[(&'static str, usize)], weights: &[(&'static str, u32)]) -> String {
        let mut candidates = Vec::new();
        for (key, count) in counts {
            for _ in 0..*count {
                candidates.push((*key, candidates.len() as i64));
            }
        }
        let weight = |key: &&str| {
            weights.iter().find(|(name, _)| name == key).map_or(1, |(_, weight)| *weight)
        };
        let order = order(&candidates, &BTreeMap::new(), weight);
        order.into_iter().map(|at| candidates[at].0).collect()
    }

    #[test]
    fn turns() {
        assert_eq!(served(&[("a", 3)], &[]), "aaa");
        assert_eq!(served(&[("a", 4), ("b", 4)], &[]), "abababab");
        assert_eq!(served(&[("a", 9), ("b", 3)], &[("a", 3)]), "abaaabaaabaa");
        assert_eq!(served(&[("a", 2), ("b", 1), ("c", 3)], &[]), "abcacc");
    }

    #[test]
    fn shares_follow_weights() {
        let line = served(&[("a", 600), ("b", 600), ("c", 600)], &[("a", 3), ("b", 2)]);
        let first = &line[..600];
        let count = |key| first.chars().filter(|c| *c == key).count() as i64;
        for (key, share) in [('a', 300), ('b', 200), ('c', 100)] {
            assert!((count(key) - share).abs() <= 1, "{key} got {}", count(key));
        }
    }

    #[test]
    fn rank_decides_within_a_key_and_between_equals() {
        let candidates = [("a", 5), ("b", 1), ("a", 7)];
        assert_eq!(order(&candidates, &BTreeMap::new(), |_| 1), [1, 0, 2]);
        let passes = BTreeMap::from([("b", 10)]);
        assert_eq!(order(&candidates, &passes, |_| 1), [0, 1, 2]);
    }

    #[test]
    fn nobody_is_owed_idle_time() {
        assert_eq!(entry(0, 70), 70);
        assert_eq!(entry(20, 70), 70);
        assert_eq!(entry(90, 70), 90);
    }
}
