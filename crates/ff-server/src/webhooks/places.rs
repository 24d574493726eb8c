//! Places for deliveries under way, shared fairly among namespaces: slow receivers of one tenant
//! delay no other.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// So many deliveries are under way at once.
const AT_ONCE: usize = 64;
/// And so many of them for one namespace.
const PER_NAMESPACE: usize = 8;

#[derive(Clone, Default)]
pub struct Places(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    taken: usize,
    /// Who has been waiting for longest, where two namespaces have taken as much.
    arrivals: u64,
    namespaces: HashMap<Arc<str>, Tenant>,
}

#[derive(Default)]
struct Tenant {
    taken: usize,
    waiting: VecDeque<(u64, oneshot::Sender<Place>)>,
}

/// A place, given back when it is dropped.
pub struct Place {
    places: Places,
    namespace: Arc<str>,
}

impl Places {
    /// Waits for a place among those of a namespace.
    pub async fn take(&self, namespace: &str) -> Option<Place> {
        let (place, taken) = oneshot::channel();
        {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.arrivals += 1;
            let arrival = state.arrivals;
            let tenant = state.namespaces.entry(namespace.into()).or_default();
            tenant.waiting.push_back((arrival, place));
        }
        self.hand_out();
        taken.await.ok()
    }

    /// Gives free places to those that wait: first to the namespace that has taken least.
    fn hand_out(&self) {
        loop {
            // A place that its taker did not wait for comes back here, so the lock is not held.
            let handed = self.next();
            match handed {
                Some((taker, place)) => drop(taker.send(place)),
                None => return,
            }
        }
    }

    fn next(&self) -> Option<(oneshot::Sender<Place>, Place)> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.taken >= AT_ONCE {
            return None;
        }
        let due = |(_, tenant): &(&Arc<str>, &mut Tenant)| {
            tenant.taken < PER_NAMESPACE && !tenant.waiting.is_empty()
        };
        let (namespace, tenant) =
            state.namespaces.iter_mut().filter(due).min_by_key(|(_, tenant)| {
                (tenant.taken, tenant.waiting.front().map(|(arrival, _)| *arrival))
            })?;
        let namespace = namespace.clone();
        let (_, taker) = tenant.waiting.pop_front()?;
        tenant.taken += 1;
        state.taken += 1;
        Some((taker, Place { places: self.clone(), namespace }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut state = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.taken -= 1;
            if let Some(tenant) = state.namespaces.get_mut(&self.namespace) {
                tenant.taken -= 1;
                if tenant.taken == 0 && tenant.waiting.is_empty() {
                    state.namespaces.remove(&self.namespace);
                }
            }
        }
        self.places.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_namespace_takes_its_share_and_leaves_the_rest() {
        let places = Places::default();
        let mut waiting: Vec<_> = (0..96).map(|_| Box::pin(places.take("loud"))).collect();
        let mut held: Vec<_> = waiting.iter_mut().filter_map(|one| one.now_or_never()).collect();
        assert_eq!(held.len(), PER_NAMESPACE);
        assert!(places.take("quiet").now_or_never().is_some());
        // Everything is taken by many namespaces; a new one is next, before those that had theirs.
        for at in 1..AT_ONCE / PER_NAMESPACE {
            let name = at.to_string();
            let more = (0..PER_NAMESPACE).map(|_| places.take(&name).now_or_never().flatten());
            held.extend(more);
        }
        let mut late = Box::pin(places.take("late"));
        assert!((&mut late).now_or_never().is_none());
        held.pop();
        assert!((&mut late).now_or_never().is_some());
    }

    #[test]
    fn what_is_given_up_comes_back() {
        let places = Places::default();
        let held: Vec<_> = (0..PER_NAMESPACE).map(|_| places.take("a").now_or_never()).collect();
        let mut gone = Box::pin(places.take("a"));
        assert!((&mut gone).now_or_never().is_none());
        drop(gone);
        drop(held);
        let state = places.0.lock().unwrap();
        assert!(state.taken == 0 && state.namespaces.is_empty());
    }
}
