//! The memory store, which says what the others must do, does it itself; `docs/state-machine.md`
//! shows the transitions that were seen meanwhile, no more and no fewer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ff_conformance::exercise::{Setup, exercise};
use ff_core::contracts::{EventFilter, EventType};
use ff_core::engine::StartAt;
use ff_core::engine_backend::EngineBackend;
use ff_core::state::PublicState;
use ff_core::store::memory::MemoryBackend;

const PAGE: &str = include_str!("../../../../docs/state-machine.md");

pub fn memory(setup: Setup) -> std::future::Ready<Arc<dyn EngineBackend>> {
    std::future::ready(MemoryBackend::new(setup.clock, setup.config))
}

/// From one public state to another, and the events that do so.
type Transitions = BTreeMap<(Option<PublicState>, PublicState), BTreeSet<EventType>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_does_every_exercise() {
    let backends = Mutex::new(Vec::new());
    exercise(|setup| {
        let backend = MemoryBackend::new(setup.clock, setup.config);
        backends.lock().unwrap().push(backend.clone());
        std::future::ready(backend as Arc<dyn EngineBackend>)
    })
    .await;
    if std::env::var("FF_EXERCISE").is_err() {
        let mut seen = Transitions::new();
        for backend in backends.into_inner().unwrap() {
            note_transitions(&*backend, &mut seen).await;
        }
        let diagram = diagram(&seen);
        assert!(PAGE.contains(&diagram), "docs/state-machine.md must contain\n\n{diagram}");
    }
}

async fn note_transitions(backend: &dyn EngineBackend, seen: &mut Transitions) {
    let mut log = backend.subscribe(EventFilter::default(), StartAt::Oldest).await.unwrap();
    while let Some(event) = log.try_next().await.unwrap() {
        let Some(to) = event.to.filter(|to| event.from != Some(*to)) else { continue };
        // A row that was inserted with SQL begins in any state.
        use PublicState::{Delayed, Waiting, WaitingChildren};
        if event.from.is_none() && !matches!(to, Waiting | Delayed | WaitingChildren) {
            continue;
        }
        seen.entry((event.from, to)).or_default().insert(event.event_type);
    }
}

/// One arrow for each pair of states.
fn diagram(seen: &Transitions) -> String {
    let mut lines = vec!["```mermaid".to_owned(), "stateDiagram-v2".to_owned()];
    for ((from, to), events) in seen {
        let from = from.map_or("[*]", PublicState::as_str);
        let events: Vec<_> = events.iter().map(|event| event.as_str()).collect();
        lines.push(format!("    {from} --> {}: {}", to.as_str(), events.join(", ")));
    }
    lines.push("```\n".to_owned());
    lines.join("\n")
}
