//! Random operations on a backend and on the memory store: every answer must be the same.
//!
//! Sequences run in groups, in lockstep: at each step every sequence of the group makes one call,
//! on the subject all of them at once so that they share transactions, on memory one by one. Each
//! sequence has a namespace, lanes and ids of its own, so only what batching does wrong can make a
//! difference. The clock moves for the whole group, by a plan that depends only on the group, so a
//! failing seed fails alone too.

mod bulk;
mod flows;
mod generate;
mod keys;
mod limits;
mod log;
mod schedules;
mod step;
mod stream;
mod waits;
mod webhooks;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ff_core::backend::Handle;
use ff_core::engine::EngineConfig;
use ff_core::engine::clock::ManualClock;
use ff_core::engine_backend::{CounterOperations, EngineBackend, Namespaced};
use ff_core::operations::timer::Retention;
use ff_core::store::memory::MemoryBackend;
use tokio::task::JoinSet;

use crate::exercise::Setup;
use generate::Sequence;
use keys::Keys;
use log::Logs;
use step::Step;

/// How many sequences run in lockstep.
const GROUP: u64 = 64;
/// Short enough that the longest steps of the clock reach it within a sequence.
const RETENTION_MS: u64 = 36 * 60 * 60 * 1000;

/// The memory store and the subject.
type Sides<'b> = [&'b Arc<dyn EngineBackend>; 2];

/// A subject, and the clock that it shares with the memory store.
pub struct Model {
    subject: Arc<dyn EngineBackend>,
    clock: Arc<ManualClock>,
    config: EngineConfig,
    /// The first key for tokens that no group has used yet.
    key: AtomicUsize,
}

impl Model {
    pub async fn new<Fut>(make_subject: impl FnOnce(Setup) -> Fut) -> Self
    where
        Fut: Future<Output = Arc<dyn EngineBackend>>,
    {
        let retention = Retention { max_age_ms: Some(RETENTION_MS), max_finished: None };
        // A sweep of one backend's own would come between two calls at different moments.
        let config = EngineConfig {
            retention,
            manual_sweeps: true,
            waitpoint_secrets: keys::secrets(),
            ..EngineConfig::default()
        };
        let setup = Setup::new(config.clone());
        let clock = setup.clock.clone();
        let subject = make_subject(setup).await;
        limits::meet_limits(&*subject).await;
        Self { subject, clock, config, key: AtomicUsize::new(0) }
    }

    /// Runs these seeds, each of them once per model. The error names seed, step and both answers.
    pub async fn check_seeds(
        &self,
        seeds: std::ops::Range<u64>,
        steps: usize,
    ) -> Result<(), String> {
        let mut from = seeds.start;
        while from < seeds.end {
            let to = ((from / GROUP + 1) * GROUP).min(seeds.end);
            self.check_group(from..to, steps).await?;
            from = to;
        }
        Ok(())
    }

    async fn check_group(&self, seeds: std::ops::Range<u64>, steps: usize) -> Result<(), String> {
        let mut plan = fastrand::Rng::with_seed(seeds.start / GROUP);
        let memory: Arc<dyn EngineBackend> =
            MemoryBackend::new(self.clock.clone(), self.config.clone());
        limits::meet_limits(&*memory).await;
        let sides = [&memory, &self.subject];
        let mut keys = Keys::begin(sides, self.key.load(Ordering::Relaxed)).await;
        let mut logs = Logs::begin(sides).await?;
        let mut pairs: Vec<_> = seeds.map(|seed| self.pair(&memory, seed)).collect();
        for at in 0..steps {
            let mut running = JoinSet::new();
            let mut expected = Vec::new();
            for (index, pair) in pairs.iter_mut().enumerate() {
                let step = pair.sequence.next();
                let (subject, own) = (pair.subject.clone(), pair.for_subject(&step));
                running.spawn(async move { (index, own.run(&*subject).await) });
                let (answer, given) = step.run(&*pair.memory).await;
                let handles = given.handles.clone();
                pair.sequence.learn(given);
                expected.push((step, answer, handles));
            }
            while let Some(answered) = running.join_next().await {
                let (index, (answer, given)) = answered.map_err(|error| error.to_string())?;
                let (step, expected, handles) = &expected[index];
                pairs[index].compare(&format!("step {at}: {step:?}"), expected, &answer)?;
                pairs[index].handles.extend(handles.iter().cloned().zip(given.handles));
            }
            keys.change(&mut plan, sides).await?;
            logs.compare(sides, &pairs, at).await?;
            self.pass_time(&memory, &mut plan).await?;
        }
        self.key.store(keys.end(), Ordering::Relaxed);
        logs.compare(sides, &pairs, steps).await?;
        self.compare_shared(&memory, &pairs).await?;
        let mut endings = JoinSet::new();
        for pair in pairs {
            endings.spawn(async move { pair.compare_everything().await });
        }
        endings.join_all().await.into_iter().collect::<Result<(), String>>()?;
        self.leave_nothing_due().await
    }

    /// A subject outlives its groups. What they have left to be done would be swept together with
    /// what the next one has, and a sweep takes only so much at once: in other company, things that
    /// are due at the same moment are done in another order.
    async fn leave_nothing_due(&self) -> Result<(), String> {
        self.clock.advance(Duration::from_millis(2 * RETENTION_MS));
        let swept = self.subject.engine().sweep().await;
        swept.map(drop).map_err(|error| error.to_string())
    }

    /// Reads that cover all sequences, once for the group because they are large.
    async fn compare_shared(
        &self,
        memory: &Arc<dyn EngineBackend>,
        pairs: &[Pair],
    ) -> Result<(), String> {
        let lanes = pairs.iter().flat_map(|pair| pair.sequence.lanes()).collect();
        let namespaces = pairs.iter().map(|pair| pair.sequence.namespace()).collect();
        for step in [Step::Lanes(lanes), Step::Counts(namespaces)] {
            let (expected, _) = step.run(&**memory).await;
            let (answer, _) = step.run(&*self.subject).await;
            if let Some(pair) = pairs.first() {
                pair.compare("lanes and counts of its group", &expected, &answer)?;
            }
        }
        for side in [memory, &self.subject] {
            let drifts = side.recount_limits(false).await.map_err(|error| error.to_string())?;
            if !drifts.is_empty() {
                return Err(format!("counters of {}: {drifts:?}", side.engine().store().name()));
            }
        }
        Ok(())
    }

    fn pair(&self, memory: &Arc<dyn EngineBackend>, seed: u64) -> Pair {
        let sequence = Sequence::new(seed, self.clock.clone());
        let confine = |backend: &Arc<dyn EngineBackend>| -> Arc<dyn EngineBackend> {
            if !sequence.is_confined() {
                return backend.clone();
            }
            Arc::new(Namespaced::new(backend.clone(), sequence.namespace()))
        };
        let (subject, memory) = (confine(&self.subject), confine(memory));
        Pair { seed, subject, memory, sequence, handles: HashMap::new() }
    }

    /// Mostly nothing; sometimes enough for a lease, a delay, a deadline, a key or retention.
    async fn pass_time(
        &self,
        memory: &Arc<dyn EngineBackend>,
        plan: &mut fastrand::Rng,
    ) -> Result<(), String> {
        let ms = match plan.u32(..100) {
            0..50 => 0,
            50..65 => 1,
            65..75 => 500,
            75..85 => plan.u64(1..5_000),
            85..92 => 10_000,
            92..97 => 60_000,
            97..99 => 30 * 60 * 1000,
            _ => 25 * 60 * 60 * 1000,
        };
        // What is due already must not be swept at a later time on one side than on the other.
        self.sweep(memory).await?;
        self.clock.advance(Duration::from_millis(ms));
        self.sweep(memory).await
    }

    async fn sweep(&self, memory: &Arc<dyn EngineBackend>) -> Result<(), String> {
        for backend in [memory, &self.subject] {
            let swept = backend.engine().sweep().await;
            swept.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// The seeds that a test runs: as many as it says, or what the environment asks for.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("FF_MODEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FF_MODEL_SEQUENCES").unwrap_or(count),
    }
}

/// Runs one seed on a subject of its own.
pub async fn check<Fut>(
    seed: u64,
    steps: usize,
    make_subject: impl FnOnce(Setup) -> Fut,
) -> Result<(), String>
where
    Fut: Future<Output = Arc<dyn EngineBackend>>,
{
    Model::new(make_subject).await.check_seeds(seed..seed + 1, steps).await
}

/// One sequence on its two backends.
struct Pair {
    seed: u64,
    subject: Arc<dyn EngineBackend>,
    memory: Arc<dyn EngineBackend>,
    sequence: Sequence,
    /// The subject's handles by those of memory: each side draws its own nonces.
    handles: HashMap<Handle, Handle>,
}

impl Pair {
    fn for_subject(&self, step: &Step) -> Step {
        let mut step = step.clone();
        for handle in step.handles_mut() {
            if let Some(own) = self.handles.get(handle) {
                *handle = own.clone();
            }
        }
        step
    }

    fn compare(&self, what: &str, expected: &str, answer: &str) -> Result<(), String> {
        if expected == answer {
            return Ok(());
        }
        let (seed, name) = (self.seed, self.subject.engine().store().name());
        Err(format!("seed {seed}, {what}\n  memory: {expected}\n  {name}: {answer}"))
    }

    /// The final state of all that the sequence can have touched.
    async fn compare_everything(&self) -> Result<(), String> {
        for steps in self.sequence.everything() {
            for step in steps {
                let (expected, _) = step.run(&*self.memory).await;
                let (answer, _) = step.run(&*self.subject).await;
                self.compare(&format!("at the end: {step:?}"), &expected, &answer)?;
                // Of what is not there, there is nothing else to see.
                if expected == "Ok(None)" {
                    break;
                }
            }
        }
        // Schedules would go on for ever, and limits are counted.
        self.sequence.end_schedules(&*self.subject).await;
        self.sequence.end_limits(&*self.subject).await;
        Ok(())
    }
}
