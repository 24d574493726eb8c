//! Finds claimable executions, best first, and locks them, past whatever others have locked. Who
//! has met nobody else lately does not lock: see `alone.rs`.
//!
//! The claim index is sorted by lane, namespace and capabilities before it is sorted by rank (by
//! numbers that stand for them, because short entries are written and compared faster), so a scan
//! asks for each class of work that suits its worker. Which classes a lane has is looked up by
//! the same statement that scans those known so far; only new ones need a second one.
//!
//! The index keeps the places of executions that were handed out until they are vacuumed away, and
//! while somebody holds an old snapshot that is not soon. They pile up at the front of a lane, and
//! a scan from the front walks over all of them. So a lane with more work than was asked for is
//! scanned from where the last claim found something, and from the front again only now and then.
//! What this engine makes claimable meanwhile it knows; what others put before that place waits for
//! the next scan from the front.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ff_core::capability;
use ff_core::engine_error::StoreError;
use ff_core::store::cells::{Cells, Reader, readable};
use ff_core::store::{Change, ClaimScan, Claimable, Needs, World, Write};
use ff_core::types::ExecutionKey;

use crate::columns::Column;
use crate::load::{Loader, whole};

/// A lane with much work is scanned from the front so often, or after so many times the cost of it.
const FROM_THE_FRONT: Duration = Duration::from_millis(100);
const SHARE: u32 = 20;
/// However slow one scan was, the next comes by then.
const FROM_THE_FRONT_AT_LAST: Duration = Duration::from_secs(10);
/// How many rows that cannot be read a claim passes over.
const UNREADABLE: usize = 100;
/// So many lanes are remembered, and so many classes of each.
const MOST_LANES: usize = 16 * 1024;
const MOST_CLASSES: usize = 1_024;

/// Work of one lane that has the same namespace and needs the same capabilities.
type Class = (Arc<str>, Arc<str>);

/// What each lane has work for, as far as this engine has seen. A lane that is not known is
/// scanned from the front, so any of them may be forgotten.
pub(crate) struct Outlines {
    lanes: Mutex<HashMap<Arc<str>, Outline>>,
    last_id: AtomicU64,
    most_lanes: usize,
    most_classes: usize,
}

impl Default for Outlines {
    fn default() -> Self {
        Self::bounded(MOST_LANES, MOST_CLASSES)
    }
}

#[derive(Clone, Default)]
struct Outline {
    /// Another one each time that a lane becomes known.
    id: u64,
    /// Each with the rank that a scan begins at.
    classes: BTreeMap<Class, i64>,
    /// Until then scans begin behind what was handed out.
    behind_until: Option<Instant>,
    /// The lowest rank that this engine has made claimable since the last scan from the front, and
    /// when it last did: no scan begins behind it.
    made: Option<(Instant, i64)>,
}

impl Outline {
    fn is_behind(&self) -> bool {
        self.behind_until.is_some_and(|until| Instant::now() < until)
    }
}

impl Outlines {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Outline>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers so many lanes at most, and of each so many classes.
    fn bounded(most_lanes: usize, most_classes: usize) -> Self {
        Self { lanes: Mutex::default(), last_id: AtomicU64::new(0), most_lanes, most_classes }
    }

    /// Beyond the bound all lanes are forgotten: which of them is needed next is not known.
    fn put(&self, outlines: &mut HashMap<Arc<str>, Outline>, lane: &Arc<str>, outline: Outline) {
        if outline.classes.len() > self.most_classes {
            outlines.remove(lane);
            return;
        }
        if outlines.len() >= self.most_lanes && !outlines.contains_key(lane) {
            outlines.clear();
        }
        outlines.insert(lane.clone(), outline);
    }

    pub fn forget(&self) {
        self.lock().clear();
    }

    /// What is known of a lane, and whether it is time to look at its front. From now on the lane
    /// is known, so that what is made claimable during a scan is noted.
    fn of(&self, lane: &Arc<str>) -> Outline {
        let mut outlines = self.lock();
        let mut known = outlines.get(lane).cloned().unwrap_or_else(|| {
            let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
            let unseen = Outline { id, ..Outline::default() };
            self.put(&mut outlines, lane, unseen.clone());
            unseen
        });
        drop(outlines);
        let begin = match known.made {
            _ if !known.is_behind() => i64::MIN,
            Some((_, rank)) => rank,
            None => i64::MAX,
        };
        for from in known.classes.values_mut() {
            *from = begin.min(*from);
        }
        known.behind_until = known.behind_until.filter(|_| begin > i64::MIN);
        known
    }

    /// Keeps what was seen, and where to begin next time in lanes that have more.
    fn remember(
        &self,
        scans: &BTreeMap<ClaimScan, usize>,
        known: &HashMap<Arc<str>, Outline>,
        found: &Found,
        started: Instant,
    ) {
        let mut outlines = self.lock();
        for (lane, outline) in known {
            let mut outline = outline.clone();
            // Work may have been made while this scan ran. If the lane was forgotten meanwhile,
            // that was not noted: the next scan begins at the front.
            let Some(now) = outlines.get(lane).filter(|now| now.id == outline.id) else { continue };
            outline.made = now.made;
            for (class, from) in &now.classes {
                if outline.made.is_some() {
                    outline.classes.entry(class.clone()).or_insert(*from);
                }
            }
            if outline.behind_until.is_none() {
                outline.made = outline.made.filter(|(at, _)| *at >= started);
            }
            let full = |(scan, many): (&ClaimScan, &usize)| {
                scan.lane != *lane || found.rows.get(scan).is_some_and(|rows| rows.len() >= *many)
            };
            if !scans.iter().all(full) {
                outline.behind_until = None;
            } else if outline.behind_until.is_none() {
                let rest = (started.elapsed() * SHARE).min(FROM_THE_FRONT_AT_LAST);
                let rest = rest.max(FROM_THE_FRONT);
                outline.behind_until = Some(Instant::now() + rest);
            }
            for (class, from) in &mut outline.classes {
                let first = found.first.get(&(lane.clone(), class.clone()));
                *from = first.copied().map_or(*from, |first| first.max(*from));
            }
            self.put(&mut outlines, lane, outline);
        }
    }

    /// What this engine makes claimable is found by its next claim, wherever it stands in line.
    pub fn learn(&self, change: &Change) {
        let mut outlines = self.lock();
        for write in &change.executions {
            if let Write::Insert(row) | Write::Update(row) = write
                && row.is_claimable()
                && let Some(known) = outlines.get_mut(&row.lane)
            {
                let lowest = known.made.map_or(row.rank(), |(_, rank)| rank.min(row.rank()));
                known.made = Some((Instant::now(), lowest));
                let class = (row.namespace.clone(), row.capability_class.clone());
                known.classes.entry(class).or_insert(row.rank());
                if known.classes.len() > self.most_classes {
                    outlines.remove(&row.lane);
                }
            }
        }
    }
}

/// One combination of a scan with a class of its lane that suits its worker.
struct Part<'s> {
    scan: &'s ClaimScan,
    class: Class,
    from: i64,
    many: usize,
}

/// What one statement brought: the classes of the lanes that it looked up, and for each scan the
/// executions that it locked, with their ranks.
#[derive(Default)]
struct Found {
    classes: HashMap<Arc<str>, Vec<Class>>,
    rows: BTreeMap<ClaimScan, Vec<(i64, ExecutionKey)>>,
    /// The lowest rank of each class: before it there is nothing. Not the highest, because not all
    /// that is found is handed out.
    first: HashMap<(Arc<str>, Class), i64>,
    unreadable: usize,
}

impl Loader<'_> {
    /// Fills the world's claimable executions, and its lanes on the way.
    pub async fn claimable(&mut self, world: &mut World, needs: &Needs) -> Result<(), StoreError> {
        let scans = &needs.claimable;
        let mut lanes: Vec<&Arc<str>> = scans.keys().map(|scan| &scan.lane).collect();
        lanes.dedup();
        let mut known: HashMap<Arc<str>, Outline> =
            lanes.iter().map(|lane| ((*lane).clone(), self.cache.outlines.of(lane))).collect();
        let fresh = |lane: &&&Arc<str>| known[**lane].behind_until.is_none();
        let fresh: Vec<Arc<str>> = lanes.iter().filter(fresh).map(|lane| (*lane).clone()).collect();
        let started = Instant::now();
        let mut found = Found::default();
        self.scan(world, &mut found, &parts(scans, &known), &fresh, needs).await?;

        let mut unseen: HashMap<Arc<str>, Outline> = HashMap::new();
        for lane in &fresh {
            let classes = found.classes.remove(lane).unwrap_or_default();
            let outline = known.entry(lane.clone()).or_default();
            let new = classes.iter().filter(|class| !outline.classes.contains_key(*class));
            let new = new.map(|class| (class.clone(), i64::MIN)).collect();
            unseen.insert(lane.clone(), Outline { classes: new, ..Outline::default() });
            outline.classes = classes.into_iter().map(|class| (class, i64::MIN)).collect();
        }
        let mut more = parts(scans, &unseen);
        if found.unreadable > 0 {
            // They must not stand in front of the others for ever.
            found = Found::default();
            more = parts(scans, &known);
            more.iter_mut().for_each(|part| part.many += UNREADABLE);
        }
        if !more.is_empty() {
            self.scan(world, &mut found, &more, &[], needs).await?;
        }
        self.cache.outlines.remember(scans, &known, &found, started);
        let short = self.answer(world, scans, &known, found);
        if short.is_empty() { Ok(()) } else { self.rescan(world, short, needs).await }
    }

    /// Answers the scans, and names those that did not look at the front and found too little.
    fn answer(
        &self,
        world: &mut World,
        scans: &BTreeMap<ClaimScan, usize>,
        known: &HashMap<Arc<str>, Outline>,
        mut found: Found,
    ) -> BTreeMap<ClaimScan, usize> {
        let mut short = BTreeMap::new();
        for (scan, many) in scans {
            let mut rows = found.rows.remove(scan).unwrap_or_default();
            rows.sort_unstable_by_key(|(rank, key)| (*rank, key.id));
            let outline = &known[&scan.lane];
            if rows.len() < *many && outline.behind_until.is_some() {
                short.insert(scan.clone(), *many);
            }
            // What the index has and the scan did not bring is in somebody else's hand just now.
            let locked = rows.is_empty() && outline.classes.keys().any(|class| suits(scan, class));
            let more = locked || rows.len() >= *many;
            rows.truncate(*many);
            let keys = rows.into_iter().map(|(_, key)| key).collect();
            world.claimable.insert(scan.clone(), Claimable { keys, more });
        }
        short
    }

    /// Behind what was handed out was not enough: whatever there is, it is before it.
    async fn rescan(
        &mut self,
        world: &mut World,
        short: BTreeMap<ClaimScan, usize>,
        needs: &Needs,
    ) -> Result<(), StoreError> {
        let mut lanes: Vec<_> = short.keys().map(|scan| scan.lane.clone()).collect();
        lanes.dedup();
        let unseen = |lane: &Arc<str>| {
            let id = self.cache.outlines.of(lane).id;
            (lane.clone(), Outline { id, ..Outline::default() })
        };
        let mut known: HashMap<_, _> = lanes.iter().map(unseen).collect();
        let (mut found, started) = (Found::default(), Instant::now());
        self.scan(world, &mut found, &[], &lanes, needs).await?;
        for (lane, classes) in found.classes.drain() {
            let classes = classes.into_iter().map(|class| (class, i64::MIN)).collect();
            known.entry(lane).or_default().classes = classes;
        }
        self.scan(world, &mut found, &parts(&short, &known), &[], needs).await?;
        self.cache.outlines.remember(&short, &known, &found, started);
        self.answer(world, &short, &known, found);
        Ok(())
    }

    /// Runs the statement: locks the parts, and looks up the classes of some lanes.
    async fn scan(
        &mut self,
        world: &mut World,
        found: &mut Found,
        parts: &[Part<'_>],
        outlined: &[Arc<str>],
        needs: &Needs,
    ) -> Result<(), StoreError> {
        let column = |of: fn(&Part<'_>) -> String| parts.iter().map(of).collect::<Vec<_>>();
        let texts = self.statements;
        let text = match (outlined.is_empty(), self.locking) {
            (true, true) => &texts.claim,
            (false, true) => &texts.claim_and_outline,
            (true, false) => &texts.find,
            (false, false) => &texts.find_and_outline,
        };
        let query = sqlx::query(text)
            .bind(column(|part| part.scan.lane.to_string()))
            .bind(column(|part| part.class.0.to_string()))
            .bind(column(|part| part.class.1.to_string()))
            .bind(parts.iter().map(|part| part.from).collect::<Vec<_>>())
            .bind(parts.iter().map(|part| whole(part.many)).collect::<Vec<_>>())
            .bind(needs.lanes.iter().map(|lane| &**lane).collect::<Vec<_>>());
        let query = match outlined {
            [] => query,
            lanes => query.bind(lanes.iter().map(|lane| &**lane).collect::<Vec<_>>()),
        };
        for cells in self.fetch(query).await? {
            let column = Column(&cells);
            match column.int(0)?.unwrap_or_default() {
                -1 => world.lanes.load(Reader::from(&column, self.words, 1).lane()?),
                0 => {
                    let word = |at| {
                        Ok::<Arc<str>, StoreError>(column.text(at)?.unwrap_or_default().into())
                    };
                    found.classes.entry(word(1)?).or_default().push((word(2)?, word(3)?));
                }
                place => {
                    let read = Reader::from(&column, self.words, 7).execution_with_payload();
                    let Some(row) = readable(read)? else {
                        found.unreadable += 1;
                        continue;
                    };
                    let Part { scan, class, .. } = &parts[place as usize - 1];
                    let rows = found.rows.entry((*scan).clone()).or_default();
                    rows.push((row.rank(), row.key));
                    if let Some(writer) = column.text(1)? {
                        self.unlocked.find(row.key, writer);
                        let attempt = self.cache.held.put_down(&row, writer);
                        attempt.into_iter().for_each(|attempt| world.attempts.load(attempt));
                    }
                    let first = found.first.entry((scan.lane.clone(), class.clone()));
                    let first = first.or_insert(i64::MAX);
                    *first = (*first).min(row.rank());
                    world.executions.load(row);
                }
            }
        }
        Ok(())
    }
}

fn suits(scan: &ClaimScan, (namespace, class): &Class) -> bool {
    scan.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
        && capability::satisfied(class, &scan.offered)
}

fn parts<'s>(
    scans: &'s BTreeMap<ClaimScan, usize>,
    known: &HashMap<Arc<str>, Outline>,
) -> Vec<Part<'s>> {
    let mut parts = Vec::new();
    for (scan, many) in scans {
        let classes = known.get(&scan.lane).into_iter().flat_map(|outline| &outline.classes);
        for (class, from) in classes.filter(|(class, _)| suits(scan, class)) {
            parts.push(Part { scan, class: class.clone(), from: *from, many: *many });
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use ff_core::rows::ExecutionRow;
    use uuid::Uuid;

    use super::*;

    fn row(lane: &str, namespace: usize) -> ExecutionRow {
        let key = ExecutionKey { partition: 0, id: Uuid::nil() };
        let (lane, namespace) = (lane.into(), namespace.to_string().into());
        ExecutionRow { lane, namespace, ..ExecutionRow::blank(key) }
    }

    #[test]
    fn lanes_and_classes_are_bounded() {
        let outlines = Outlines::bounded(10, 5);
        for lane in 0..1_000 {
            let lane: Arc<str> = lane.to_string().into();
            outlines.put(&mut outlines.lock(), &lane, Outline::default());
            assert!(outlines.lock().len() <= 10);
            assert!(outlines.lock().contains_key(&lane));
        }
        let lane: Arc<str> = "999".into();
        for namespace in 0..100 {
            let executions = vec![Write::Update(row("999", namespace))];
            outlines.learn(&Change { executions, ..Change::default() });
            let known = outlines.lock().get(&lane).map_or(0, |outline| outline.classes.len());
            assert!(known <= 5, "{known} classes");
        }
    }

    /// A scan that found as much as it was asked for, in a lane with one class.
    fn remember(outlines: &Outlines, lane: &Arc<str>, mut known: Outline, started: Instant) {
        let class = (Arc::from("0"), Arc::from(""));
        known.classes.insert(class.clone(), i64::MIN);
        let scan = ClaimScan { lane: lane.clone(), namespace: None, offered: Vec::new() };
        let key = row(lane, 0).key;
        let mut found = Found::default();
        found.rows.insert(scan.clone(), vec![(70, key)]);
        found.first.insert((lane.clone(), class), 70);
        let known = HashMap::from([(lane.clone(), known)]);
        outlines.remember(&BTreeMap::from([(scan, 1)]), &known, &found, started);
    }

    /// Where the next scan of a lane begins at the latest: one that is not known, at the front.
    fn begins(outlines: &Outlines, lane: &Arc<str>) -> i64 {
        let outlines = outlines.lock();
        let Some(known) = outlines.get(lane) else { return i64::MIN };
        let made = known.made.map(|(_, rank)| rank);
        made.into_iter().chain(known.classes.values().copied()).min().unwrap_or(i64::MIN)
    }

    #[test]
    fn work_that_is_made_during_a_scan_is_found_by_the_next() {
        let lane: Arc<str> = "lane".into();
        let made = Change { executions: vec![Write::Update(row("lane", 0))], ..Change::default() };
        let rank = row("lane", 0).rank();
        assert!(rank < 70 && row("lane", 0).is_claimable());

        let started = Instant::now();
        let outlines = Outlines::default();
        remember(&outlines, &lane, outlines.of(&lane), started);
        assert_eq!(begins(&outlines, &lane), 70, "behind what was handed out");

        // Of a lane that is not known yet.
        let outlines = Outlines::default();
        let known = outlines.of(&lane);
        outlines.learn(&made);
        remember(&outlines, &lane, known, started);
        assert!(begins(&outlines, &lane) <= rank);

        // Of a lane that was forgotten, and of one that became known again since.
        for again in [false, true] {
            let outlines = Outlines::default();
            remember(&outlines, &lane, outlines.of(&lane), started);
            let known = outlines.of(&lane);
            outlines.forget();
            outlines.learn(&made);
            if again {
                outlines.of(&lane);
            }
            remember(&outlines, &lane, known, started);
            assert!(begins(&outlines, &lane) <= rank);
        }
    }
}
