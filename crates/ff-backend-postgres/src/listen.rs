//! Bells between engines on one database: one coalesced NOTIFY after commits, never inside them.
//!
//! Every one of them is a hint. Whoever hears nothing looks again anyway.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ff_core::engine::supervise;
use ff_core::store::{Bells, Change, Write};
use ff_core::types::{ExecutionKey, TimestampMs};
use serde_json::{Map, Value, json};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{ConnectOptions, Executor, PgConnection};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::PostgresStore;

/// At most one message is sent in this time, however much is committed.
const COALESCE: Duration = Duration::from_millis(10);
const SEND_PATIENCE: Duration = Duration::from_secs(5);
const REST_AFTER_ERROR: Duration = Duration::from_secs(1);
/// Postgres takes no longer messages; one that would be longer rings for every lane.
const LONGEST: usize = 7_000;
/// Followers elsewhere are told of so many executions at once. Of what is more they hear later:
/// they look by themselves.
const MOST_FOLLOWED: usize = 100;
/// In a larger batch of executions hardly one has followers.
const FEW: usize = 16;

/// What has been committed here and not yet been told to others.
#[derive(Default)]
pub(crate) struct Outbox {
    news: Mutex<News>,
    ready: Notify,
}

#[derive(Default)]
struct News {
    lanes: HashMap<Arc<str>, usize>,
    due: Option<TimestampMs>,
    events: bool,
    /// Executions whose followers may have something to read.
    followed: BTreeSet<ExecutionKey>,
}

impl News {
    fn tell_followers(&mut self, change: &Change) {
        let few = if change.executions.len() <= FEW { &change.executions[..] } else { &[] };
        let room = MOST_FOLLOWED.saturating_sub(self.followed.len());
        self.followed.extend(change.streams().chain(few.iter().map(Write::key)).take(room));
    }
}

impl Outbox {
    pub fn tell(&self, change: &Change) {
        let is_silent = change.events.is_empty() && change.timers.is_empty();
        if is_silent && change.streams().next().is_none() {
            return;
        }
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        news.events |= !change.events.is_empty();
        for write in &change.executions {
            if let Write::Insert(row) | Write::Update(row) = write
                && row.is_claimable()
            {
                // A lane that was changed counts for all of its work.
                let count = news.lanes.entry(row.lane.clone()).or_default();
                *count = count.saturating_add(1);
            }
        }
        for write in &change.lanes {
            if let Write::Update(row) = write {
                news.lanes.insert(row.lane.clone(), usize::MAX);
            }
        }
        for write in &change.timers {
            if let Write::Insert(row) | Write::Update(row) = write {
                news.due = Some(news.due.map_or(row.key.due_at, |due| due.min(row.key.due_at)));
            }
        }
        news.tell_followers(change);
        drop(news);
        self.ready.notify_one();
    }

    fn take(&self, from: Uuid) -> String {
        let news = std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner));
        let lanes: Map<String, Value> =
            news.lanes.iter().map(|(lane, count)| (lane.to_string(), json!(count))).collect();
        let due = news.due.map(|due| due.0);
        let followed: Vec<_> = news.followed.iter().map(|key| (key.partition, key.id)).collect();
        let mut message = json!({
            "from": from, "lanes": lanes, "due": due, "events": news.events, "followed": followed,
        });
        let mut text = message.to_string();
        if text.len() > LONGEST {
            message["followed"].take();
            text = message.to_string();
        }
        if text.len() <= LONGEST { text } else { json!({ "from": from, "all": true }).to_string() }
    }
}

/// Starts the task that tells others, and the one that hears them.
pub(crate) fn spawn(store: &Arc<PostgresStore>, ended: watch::Receiver<()>) {
    let from = Uuid::new_v4();
    let until = |mut ended: watch::Receiver<()>| async move {
        // The channel is sent to when the store is closed, and closes with it.
        let _ = ended.changed().await;
    };
    let (weak, outbox) = (Arc::downgrade(store), store.outbox.clone());
    let telling =
        supervise("bells to other engines", move || tell(weak.clone(), outbox.clone(), from));
    let end = until(ended.clone());
    tokio::spawn(async move {
        tokio::select! { () = telling => {}, () = end => {} }
    });
    if store.listens {
        let (weak, bells) = (Arc::downgrade(store), store.bells.clone());
        let hearing =
            supervise("bells of other engines", move || hear(weak.clone(), bells.clone(), from));
        let end = until(ended);
        tokio::spawn(async move {
            tokio::select! { () = hearing => {}, () = end => {} }
        });
    }
}

async fn tell(store: Weak<PostgresStore>, outbox: Arc<Outbox>, from: Uuid) {
    let mut connection = None;
    loop {
        outbox.ready.notified().await;
        let mut text = outbox.take(from);
        // A connection that has rested for long may be gone, and nobody knows what went with it.
        while !send(&store, &mut connection, &text).await {
            connection = None;
            text = json!({ "from": from, "all": true }).to_string();
            tokio::time::sleep(REST_AFTER_ERROR).await;
        }
        tokio::time::sleep(COALESCE).await;
    }
}

/// Whether the message is on its way. It is plain text, which passes through any pooler.
async fn send(
    store: &Weak<PostgresStore>,
    connection: &mut Option<PgConnection>,
    text: &str,
) -> bool {
    let sending = async {
        let channel = channel(store, connection).await?;
        let sql = format!("SELECT pg_notify('{channel}', '{}')", text.replace('\'', "''"));
        connection.as_mut()?.execute(&*sql).await.ok()
    };
    matches!(tokio::time::timeout(SEND_PATIENCE, sending).await, Ok(Some(_)))
}

/// The name that engines on this database have in common, which others on the same server have not.
async fn channel(
    store: &Weak<PostgresStore>,
    connection: &mut Option<PgConnection>,
) -> Option<String> {
    let store = store.upgrade().filter(|store| !store.is_closed())?;
    if connection.is_none() {
        *connection = Some(bell_options(&store).connect().await.ok()?);
    }
    let identity = store.identity(connection.as_mut()?).await.ok()?;
    Some(format!("flowfabric_{}", identity.history_id.simple()))
}

async fn hear(store: Weak<PostgresStore>, bells: Arc<Bells>, from: Uuid) {
    loop {
        if let Some(mut listener) = listener(&store).await {
            // What was rung while nobody listened is not known.
            bells.ring_everybody();
            while let Ok(heard) = listener.try_recv().await {
                match heard {
                    Some(message) => ring(&bells, message.payload(), from),
                    None => bells.ring_everybody(),
                }
            }
        }
        tokio::time::sleep(REST_AFTER_ERROR).await;
    }
}

async fn listener(store: &Weak<PostgresStore>) -> Option<PgListener> {
    let mut connection = None;
    let channel = channel(store, &mut connection).await?;
    drop(connection);
    let connecting = bell_options(&*store.upgrade()?);
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(connecting);
    let mut listener = PgListener::connect_with(&pool).await.ok()?;
    listener.listen(&channel).await.ok()?;
    Some(listener)
}

fn bell_options(store: &PostgresStore) -> PgConnectOptions {
    store.connecting.clone().application_name("flowfabric bell")
}

fn ring(bells: &Bells, text: &str, own: Uuid) {
    let Ok(message) = serde_json::from_str::<Value>(text) else {
        return bells.ring_everybody();
    };
    if message["from"].as_str().is_some_and(|from| Uuid::parse_str(from) == Ok(own)) {
        return;
    }
    if message["all"].as_bool() == Some(true) {
        return bells.ring_everybody();
    }
    for (lane, count) in message["lanes"].as_object().into_iter().flatten() {
        let count = count.as_u64().and_then(|count| usize::try_from(count).ok());
        bells.ring_lane(&lane.as_str().into(), count.unwrap_or(usize::MAX));
    }
    if let Some(due) = message["due"].as_i64() {
        bells.ring_timers(TimestampMs(due));
    }
    if message["events"].as_bool() == Some(true) {
        bells.ring_events();
    }
    let followed: Vec<(u16, Uuid)> =
        serde_json::from_value(message["followed"].clone()).unwrap_or_default();
    for (partition, id) in followed {
        bells.ring_followers(&ExecutionKey { partition, id });
    }
}

#[cfg(test)]
mod tests {
    use ff_core::contracts::EventType;
    use ff_core::rows::{EventRow, ExecutionRow, LaneRow, StreamKey, StreamRow};

    use super::*;

    fn appended(execution: ExecutionKey) -> Change {
        let now = TimestampMs(1);
        let mut change = Change::default();
        change.update(&StreamRow {
            key: StreamKey { execution, attempt_index: 0 },
            first_sequence: 1,
            next_sequence: 2,
            early_until: 0,
            bytes: 1,
            created_at: now,
            last_frame_at: now,
            append_id: None,
            append_first: 0,
        });
        change
    }

    /// A lane that was resumed rings for all of its work, however much is accepted after it.
    #[test]
    fn work_after_a_resumed_lane_rings_for_all_of_it() {
        let lane = || LaneRow::active("lane".into());
        let mut resumed = Change::default();
        resumed.lanes.push(Write::Update(lane()));
        resumed.events.push(EventRow::bare(EventType::LaneResumed, "".into(), TimestampMs(1)));
        let mut accepted = resumed.clone();
        accepted.lanes.clear();
        let key = ExecutionKey { partition: 0, id: Uuid::from_u128(7) };
        let row = ExecutionRow { lane: "lane".into(), ..ExecutionRow::blank(key) };
        accepted.executions.push(Write::Insert(row));
        let outbox = Outbox::default();
        for change in [&accepted, &resumed, &accepted, &accepted] {
            outbox.tell(change);
        }
        let text = outbox.take(Uuid::nil());
        let message: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(message["lanes"]["lane"], json!(usize::MAX), "{text}");
    }

    #[tokio::test]
    async fn a_stream_is_told_to_those_who_follow_it_elsewhere() {
        let key = ExecutionKey { partition: 3, id: Uuid::from_u128(7) };
        let outbox = Outbox::default();
        outbox.tell(&appended(key));
        let text = outbox.take(Uuid::from_u128(1));
        let bells = Bells::default();
        let mut follower = bells.follow(key);
        ring(&bells, &text, Uuid::from_u128(2));
        let rung = tokio::time::timeout(Duration::from_secs(10), follower.rung()).await;
        assert!(rung.is_ok(), "nobody rang: {text}");
    }

    #[test]
    fn too_many_streams_for_a_message_leave_the_rest_of_it_alone() {
        let outbox = Outbox::default();
        for id in 0..10_000 {
            outbox.tell(&appended(ExecutionKey { partition: 0, id: Uuid::from_u128(id) }));
        }
        let text = outbox.take(Uuid::nil());
        assert!(text.len() <= LONGEST && !text.contains("all"), "{text}");
    }
}
