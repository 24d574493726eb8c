//! The log of both sides, followed from a group's first step on: what it says of each sequence must
//! be the same, and nothing may be missing or come twice wherever reading was taken up again.

use std::collections::BTreeMap;

use ff_core::contracts::{Event, EventFilter};
use ff_core::engine::{StartAt, Subscription};
use ff_core::engine_backend::EngineBackend;
use ff_core::engine_error::EngineError;
use ff_core::types::Namespace;

use super::step::text;
use super::{Pair, Sides};

/// Reading is taken up again at the cursor of every so manieth event.
const STRIDE: usize = 61;

/// Where one side's log has been read up to.
struct Follower {
    cursor: String,
}

impl Follower {
    async fn begin(on: &dyn EngineBackend) -> Result<Self, EngineError> {
        let log = on.subscribe(EventFilter::default(), StartAt::Latest).await?;
        Ok(Self { cursor: log.cursor() })
    }

    /// What has been written since the last look, by namespace.
    async fn follow(
        &mut self,
        on: &dyn EngineBackend,
    ) -> Result<BTreeMap<Namespace, Vec<Event>>, EngineError> {
        let open = |after: String| on.subscribe(EventFilter::default(), StartAt::After(after));
        let mut log = open(self.cursor.clone()).await?;
        let mut found: BTreeMap<Namespace, Vec<Event>> = BTreeMap::new();
        let mut at = 0;
        while let Some(event) = log.try_next().await? {
            at += 1;
            if at % STRIDE == 0 {
                log = open(event.cursor.clone()).await?;
            }
            found.entry(event.namespace.clone()).or_default().push(event);
        }
        self.cursor = log.cursor();
        Ok(found)
    }
}

/// The logs of both sides.
pub struct Logs([Follower; 2]);

impl Logs {
    pub async fn begin(sides: Sides<'_>) -> Result<Self, String> {
        let [memory, subject] = sides.map(|side| Follower::begin(&**side));
        let failed = |error: EngineError| error.to_string();
        Ok(Self([memory.await.map_err(failed)?, subject.await.map_err(failed)?]))
    }

    /// What has been written since the last look.
    pub async fn compare(
        &mut self,
        sides: Sides<'_>,
        pairs: &[Pair],
        step: usize,
    ) -> Result<(), String> {
        let mut read = Vec::new();
        for (follower, side) in self.0.iter_mut().zip(sides) {
            read.push(follower.follow(&**side).await.map_err(|error| error.to_string())?);
        }
        for pair in pairs {
            let mut texts = read.iter_mut().zip(sides).map(|(read, side)| {
                let own = read.remove(&pair.sequence.namespace()).unwrap_or_default();
                text(&**side, &comparable(own))
            });
            let (expected, answer) = (texts.next(), texts.next());
            let what = format!("what the log says after step {step}");
            pair.compare(&what, &expected.unwrap_or_default(), &answer.unwrap_or_default())?;
        }
        Ok(())
    }
}

/// All that is there already.
pub async fn drain(mut log: Subscription) -> Result<(Vec<Event>, String), EngineError> {
    let mut events = Vec::new();
    while let Some(event) = log.try_next().await? {
        events.push(event);
    }
    Ok((events, log.cursor()))
}

/// Events as two sides can be compared by: those of one execution in their order, without what each
/// side draws for itself. Stores differ in how the events of several executions come together.
pub fn comparable(events: Vec<Event>) -> Vec<Event> {
    let mut events: Vec<_> = events.into_iter().map(nameless).collect();
    events.sort_by_cached_key(|event| match &event.execution_id {
        Some(id) => (id.as_str().to_owned(), String::new()),
        None => (String::new(), format!("{event:?}")),
    });
    events
}

fn nameless(event: Event) -> Event {
    let mut details = event.details;
    if let Some(fields) = details.as_object_mut() {
        fields.retain(|name, _| !["webhook_id", "bulk_id"].contains(&name.as_str()));
    }
    Event { cursor: String::new(), details, ..event }
}
