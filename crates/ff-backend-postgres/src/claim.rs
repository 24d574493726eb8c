//! Finds and locks claimable executions, best first, past whatever others have locked.
//!
//! The claim index keeps the places of executions that were handed out until no reader can need
//! them any more. While somebody holds an old snapshot they pile up at the front of a lane, and a
//! scan from the front walks over all of them. Once that has become slow, a lane is scanned from
//! where the last claim ended, and from the front again only as often as its cost allows.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ff_core::capability;
use ff_core::engine_error::StoreError;
use ff_core::rows::ExecutionRow;
use ff_core::store::cells::{Cells, Reader};
use ff_core::store::{Change, ClaimScan, Claimable, World, Write};
use ff_core::types::ExecutionKey;

use crate::columns::Column;
use crate::load::{Loader, readable, whole};

/// A scan from the front may take this long, and this much for each row that it brings.
const CHEAP: Duration = Duration::from_millis(5);
const CHEAP_PER_ROW: Duration = Duration::from_micros(60);
/// A scan from the front that cost more is repeated after so many times its cost.
const SHARE: u32 = 20;

/// The work of a lane that has the same namespace and needs the same capabilities.
type Class = (Arc<str>, Arc<str>);

/// Where the scans of slow lanes begin.
#[derive(Default)]
pub(crate) struct Frontiers(Mutex<HashMap<Arc<str>, Frontier>>);

struct Frontier {
    /// What the lane had work for, and the rank that the last scan of it ended at.
    classes: BTreeMap<Class, i64>,
    /// When the lane is scanned from the front again.
    until: Instant,
}

impl Frontiers {
    fn of(&self, lane: &Arc<str>) -> Option<BTreeMap<Class, i64>> {
        let frontiers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = frontiers.get(lane).filter(|known| Instant::now() < known.until)?;
        Some(known.classes.clone())
    }

    fn scanned(&self, lane: &Arc<str>, classes: BTreeMap<Class, i64>, until: Instant) {
        let mut frontiers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        frontiers.insert(lane.clone(), Frontier { classes, until });
    }

    fn advance(&self, lane: &Arc<str>, class: &Class, rank: i64) {
        let mut frontiers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(from) = frontiers.get_mut(lane).and_then(|known| known.classes.get_mut(class)) {
            *from = (*from).max(rank);
        }
    }

    fn forget(&self, lane: &Arc<str>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(lane);
    }

    /// What this engine makes claimable is found by its next claim, wherever it stands in line.
    pub fn learn(&self, change: &Change) {
        let mut frontiers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if frontiers.is_empty() {
            return;
        }
        for write in &change.executions {
            if let Write::Insert(row) | Write::Update(row) = write
                && row.is_claimable()
                && let Some(known) = frontiers.get_mut(&row.lane)
            {
                let class = (row.namespace.clone(), row.capability_class.clone());
                let from = known.classes.entry(class).or_insert(row.rank());
                *from = (*from).min(row.rank());
            }
        }
    }
}

/// One combination of a scan's lane with a class that suits its worker.
struct Part<'s> {
    scan: &'s ClaimScan,
    class: Class,
    from: i64,
    many: usize,
}

impl Loader<'_> {
    pub async fn claimable(
        &mut self,
        world: &mut World,
        scans: &BTreeMap<ClaimScan, usize>,
    ) -> Result<(), StoreError> {
        let mut lanes: Vec<&Arc<str>> = scans.keys().map(|scan| &scan.lane).collect();
        lanes.dedup();
        let (mut known, mut fresh) = (HashMap::new(), Vec::new());
        for lane in lanes {
            match self.frontiers.of(lane) {
                Some(classes) => drop(known.insert(lane.clone(), classes)),
                None => fresh.push(lane.clone()),
            }
        }
        let started = Instant::now();
        let outlined = self.outline(&fresh).await?;
        known.extend(outlined);
        let found = self.scan(world, scans, &known).await?;
        let rows = found.values().map(|claimable| claimable.keys.len() as u32).sum::<u32>();
        let (took, cheap) = (started.elapsed(), CHEAP + CHEAP_PER_ROW * rows);
        if took > cheap && !fresh.is_empty() {
            for lane in &fresh {
                let classes = known.remove(lane).unwrap_or_default();
                self.frontiers.scanned(lane, classes, started + took * SHARE);
                self.advance_to(world, lane, &found);
            }
        }
        let short: Vec<_> = scans
            .iter()
            .filter(|(scan, many)| !fresh.contains(&scan.lane) && found[*scan].keys.len() < **many)
            .map(|(scan, many)| (scan.clone(), *many))
            .collect();
        for (scan, claimable) in found {
            world.claimable.insert(scan, claimable);
        }
        self.from_the_front(world, short).await
    }

    /// Behind the frontier was not enough: whatever there is, it is before it.
    async fn from_the_front(
        &mut self,
        world: &mut World,
        short: Vec<(ClaimScan, usize)>,
    ) -> Result<(), StoreError> {
        if short.is_empty() {
            return Ok(());
        }
        let scans: BTreeMap<ClaimScan, usize> = short.into_iter().collect();
        let mut lanes: Vec<_> = scans.keys().map(|scan| scan.lane.clone()).collect();
        lanes.dedup();
        for lane in &lanes {
            self.frontiers.forget(lane);
        }
        let known = self.outline(&lanes).await?.into_iter().collect();
        for (scan, claimable) in self.scan(world, &scans, &known).await? {
            world.claimable.insert(scan, claimable);
        }
        Ok(())
    }

    /// What each lane has work for.
    async fn outline(
        &mut self,
        lanes: &[Arc<str>],
    ) -> Result<Vec<(Arc<str>, BTreeMap<Class, i64>)>, StoreError> {
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = lanes.iter().map(|lane| &**lane).collect();
        let rows = self.fetch(sqlx::query(&self.statements.outline).bind(names)).await?;
        let mut outlined: Vec<_> =
            lanes.iter().map(|lane| (lane.clone(), BTreeMap::new())).collect();
        for cells in rows {
            let column = Column(&cells);
            let lane = column.text(0)?.unwrap_or_default();
            let class: Class = (
                column.text(1)?.unwrap_or_default().into(),
                column.text(2)?.unwrap_or_default().into(),
            );
            if let Some((_, classes)) = outlined.iter_mut().find(|(name, _)| **name == *lane) {
                classes.insert(class, i64::MIN);
            }
        }
        Ok(outlined)
    }

    async fn scan(
        &mut self,
        world: &mut World,
        scans: &BTreeMap<ClaimScan, usize>,
        known: &HashMap<Arc<str>, BTreeMap<Class, i64>>,
    ) -> Result<BTreeMap<ClaimScan, Claimable>, StoreError> {
        let parts = parts(scans, known);
        let mut found: BTreeMap<&ClaimScan, Vec<(i64, ExecutionKey)>> = BTreeMap::new();
        if !parts.is_empty() {
            let column = |of: fn(&Part<'_>) -> String| parts.iter().map(of).collect::<Vec<_>>();
            let query = sqlx::query(&self.statements.claim)
                .bind(column(|part| part.scan.lane.to_string()))
                .bind(column(|part| part.class.0.to_string()))
                .bind(column(|part| part.class.1.to_string()))
                .bind(parts.iter().map(|part| part.from).collect::<Vec<_>>())
                .bind(parts.iter().map(|part| whole(part.many)).collect::<Vec<_>>());
            for cells in self.fetch(query).await? {
                let column = Column(&cells);
                let place = column.int(0)?.unwrap_or(1) as usize - 1;
                let read = Reader::from(&column, self.words, 1).execution_with_payload();
                let Some(row) = readable(read)? else { continue };
                let part = &parts[place];
                found.entry(part.scan).or_default().push((row.rank(), row.key));
                self.frontiers.advance(&part.scan.lane, &part.class, row.rank());
                world.executions.load(row);
            }
        }
        let merge = |(scan, many): (&ClaimScan, &usize)| {
            let mut rows = found.remove(scan).unwrap_or_default();
            rows.sort_unstable_by_key(|(rank, key)| (*rank, key.id));
            // What the index has and the scan did not bring is in somebody else's hand just now.
            let locked = rows.is_empty() && parts.iter().any(|part| part.scan == scan);
            let more = locked || rows.len() >= *many;
            rows.truncate(*many);
            let keys = rows.into_iter().map(|(_, key)| key).collect();
            (scan.clone(), Claimable { keys, more })
        };
        Ok(scans.iter().map(merge).collect())
    }

    fn advance_to(&self, world: &World, lane: &Arc<str>, found: &BTreeMap<ClaimScan, Claimable>) {
        let of_lane = found.iter().filter(|(scan, _)| scan.lane == *lane);
        let rows = of_lane.flat_map(|(_, claimable)| &claimable.keys);
        for row in rows.filter_map(|key| world.executions.get(key)) {
            let ExecutionRow { namespace, capability_class, .. } = row;
            let class = (namespace.clone(), capability_class.clone());
            self.frontiers.advance(lane, &class, row.rank());
        }
    }
}

fn parts<'s>(
    scans: &'s BTreeMap<ClaimScan, usize>,
    known: &HashMap<Arc<str>, BTreeMap<Class, i64>>,
) -> Vec<Part<'s>> {
    let mut parts = Vec::new();
    for (scan, many) in scans {
        let suits = |(namespace, class): &Class| {
            scan.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
                && capability::satisfied(class, &scan.offered)
        };
        for (class, from) in known.get(&scan.lane).into_iter().flatten() {
            if suits(class) {
                parts.push(Part { scan, class: class.clone(), from: *from, many: *many });
            }
        }
    }
    parts
}
