//! Results of the parts of a run that are kept for later versions of the project. In: a task, and what it looked at while it ran. Out: its
//! result, the kept one as long as nothing of that changed. Never: another result than a run without: a task is a function of what it
//! looks at, which `source/reads.rs` notes. Next: `root.rs` and `facts.rs`, which run tasks; `check/session.rs`, which says what changed.

use super::output::Output;
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::source::reads::{Read, watch};
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Task {
    Statics(ModuleId),
    Scanned(ModuleId),
    Makers(ModuleId),
    Specs(ModuleId),
    Reducers(ModuleId),
    Marking(ModuleId),
    Body(ModuleId),
    Called(ModuleId),
    Derived(ClassRef),
    RuledIn(ModuleId),
    Ruled(FuncRef),
    Built(ClassRef),
    Root(FuncRef),
    Signature(FuncRef),
    Practice(ModuleId),
    Classes(ModuleId),
    Against(ModuleId),
    Arities(ModuleId),
    Annotates(ModuleId),
    Applied(ModuleId),
    Reducing(ModuleId),
    Mentions(ModuleId),
    Sized(ModuleId),
    Makes(ModuleId),
    Factors(ModuleId),
    Decorated(ModuleId),
    Claims(ModuleId),
    Autograd(ModuleId),
    Unasked(ModuleId),
    Candidates(ModuleId),
    Namesakes(ModuleId),
    Said(ModuleId),
    Sharding(ModuleId),
    Resets(ModuleId),
}

type Result_ = Arc<dyn Any + Send + Sync>;

struct Slot {
    task: Task,
    value: Result_,
    /// How often the task ran.
    turn: u32,
    stale: bool,
    took: Duration,
}

/// A run of a task: where its result lies, and which run it was.
type Turn = (u32, u32);

/// The results of tasks, and who looked at what.
#[derive(Default)]
struct Slots {
    at: FxHashMap<Task, u32>,
    slots: Vec<Slot>,
    /// Runs that looked at a thing; those that are not the last of their task count no more.
    readers: FxHashMap<Read, SmallVec<[Turn; 2]>>,
    /// Runs that are not among the readers yet.
    fresh: Vec<(Turn, Box<[Read]>)>,
    stale: FxHashSet<u32>,
}

/// Readers from which on those that count no more are looked for.
const MANY_READERS: usize = 8;

impl Slots {
    fn get(&self, task: Task) -> Option<&Slot> {
        self.slots.get(*self.at.get(&task)? as usize)
    }

    fn insert(&mut self, task: Task, reads: Box<[Read]>, value: Result_, took: Duration) {
        let next = u32::try_from(self.slots.len()).expect("fewer tasks than that");
        let id = *self.at.entry(task).or_insert(next);
        let turn = match self.slots.get_mut(id as usize) {
            Some(slot) => {
                slot.turn = slot.turn.wrapping_add(1);
                (slot.value, slot.stale, slot.took) = (value, false, took);
                slot.turn
            }
            None => {
                self.slots.push(Slot { task, value, turn: 0, stale: false, took });
                0
            }
        };
        self.stale.remove(&id);
        self.fresh.push(((id, turn), reads));
    }

    /// Enters the last runs among the readers.
    fn settle(&mut self) {
        let (slots, readers) = (&self.slots, &mut self.readers);
        let counts = |(id, turn): &Turn| slots[*id as usize].turn == *turn;
        for (run, reads) in self.fresh.drain(..).filter(|(run, _)| counts(run)) {
            for read in reads {
                let known = readers.entry(read).or_default();
                if known.len() == known.capacity() && known.len() >= MANY_READERS {
                    known.retain(|run| counts(run));
                }
                known.push(run);
            }
        }
    }

    fn forget(&mut self, changed: &[Read]) {
        self.settle();
        for read in changed {
            for (id, turn) in self.readers.remove(read).into_iter().flatten() {
                let slot = &mut self.slots[id as usize];
                if slot.turn == turn && !slot.stale {
                    slot.stale = true;
                    self.stale.insert(id);
                }
            }
        }
    }
}

/// What is put together from parts.
struct Whole {
    parts: Vec<Result_>,
    value: Result_,
}

/// The module of the function that a task executes.
fn executed(task: Task) -> Option<ModuleId> {
    match task {
        Task::Root(at) => Some(at.module),
        Task::Built(at) => Some(at.module),
        _ => None,
    }
}

/// Everything that is kept.
#[derive(Default)]
pub struct Memo {
    slots: Mutex<Slots>,
    wholes: Mutex<FxHashMap<&'static str, Whole>>,
    /// What turned out to have changed while results were found again.
    moved: Mutex<Vec<Read>>,
    stopped: Arc<AtomicBool>,
    /// Modules of which functions are executed again; of others what is known of them stands, be it of an earlier version.
    hurry: Mutex<Option<Vec<ModuleId>>>,
    /// Results of functions as they are before shardings are declared.
    early: OnceLock<Box<Memo>>,
}

/// Why a run ends early: its result is not wanted any more.
pub struct Stopped;

fn open<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memo {
    /// A memo whose run ends early, by unwinding with [`Stopped`], once the flag is set.
    pub fn new(stopped: Arc<AtomicBool>) -> Memo {
        Memo { stopped, ..Memo::default() }
    }

    /// Lets go of results that looked at any of these things.
    pub fn forget(&self, changed: &[Read]) {
        if changed.is_empty() {
            return;
        }
        open(&self.slots).forget(changed);
        if let Some(early) = self.early.get() {
            early.forget(changed);
        }
    }

    /// Enters what was looked at where it is found fast once it changes.
    pub fn settle(&self) {
        open(&self.slots).settle();
    }

    /// Results of functions as they are before shardings are declared, which are other ones than those after.
    pub fn early(&self) -> &Memo {
        let early = self.early.get_or_init(|| Box::new(Memo::new(self.stopped.clone())));
        early.moved();
        early
    }

    /// The functions that are executed for themselves and reach a module, in order.
    pub fn reaching(&self, module: ModuleId) -> Vec<FuncRef> {
        let kept = open(&self.slots);
        let mut out: Vec<FuncRef> = kept
            .slots
            .iter()
            .filter_map(|slot| match slot.task {
                Task::Root(root) if !slot.stale => Some((root, slot.value.downcast_ref::<Arc<Output>>()?)),
                _ => None,
            })
            .filter(|(root, output)| root.module == module || output.executed.iter().any(|f| f.module == module))
            .map(|(root, _)| root)
            .collect();
        out.sort_unstable();
        out
    }

    /// What turned out to have changed while results were found again, since the last time that somebody asked.
    pub fn moved(&self) -> Vec<Read> {
        std::mem::take(&mut *open(&self.moved))
    }

    /// Lets go of results that looked at things of which a result is another one now.
    pub fn forget_results(&self, changed: &[Read]) {
        open(&self.moved).extend_from_slice(changed);
        self.forget(changed);
    }

    /// Where the result of a task lies, be it stale.
    pub fn last(&self, task: Task) -> Option<*const ()> {
        open(&self.slots).get(task).map(|slot| Arc::as_ptr(&slot.value).cast())
    }

    fn check_stop(&self) {
        if self.stopped.load(Ordering::Relaxed) {
            std::panic::resume_unwind(Box::new(Stopped));
        }
    }

    fn known(&self, task: Task) -> Option<Result_> {
        self.known_each(std::iter::once(task)).pop()?
    }

    /// What is known of these tasks.
    fn known_each(&self, tasks: impl Iterator<Item = Task>) -> Vec<Option<Result_>> {
        self.check_stop();
        let hurry = open(&self.hurry);
        let waits = |task: Task| executed(task).is_some_and(|m| hurry.as_ref().is_some_and(|own| !own.contains(&m)));
        let slots = open(&self.slots);
        tasks.map(|t| slots.get(t).filter(|slot| !slot.stale || waits(t)).map(|slot| slot.value.clone())).collect()
    }

    /// For a first look: functions outside these modules are not executed again.
    pub fn hurry(&self, modules: Option<Vec<ModuleId>>) {
        *open(&self.hurry) = modules;
    }

    /// How long it took to execute what has to be executed again outside these modules.
    pub fn awaited(&self, modules: &[ModuleId]) -> Duration {
        let kept = open(&self.slots);
        let outside = |slot: &&Slot| executed(slot.task).is_some_and(|module| !modules.contains(&module));
        kept.stale.iter().map(|id| &kept.slots[*id as usize]).filter(outside).map(|slot| slot.took).sum()
    }
}

fn cast<T: Any + Send + Sync>(value: Result_) -> Arc<T> {
    value.downcast().expect("a task has results of one type")
}

/// The result of a task.
pub fn kept<T: Any + Send + Sync>(memo: Option<&Memo>, task: Task, run: impl FnOnce() -> T) -> Arc<T> {
    kept_or_same(memo, task, run, |_, _| false)
}

/// The result of a task; the same one as before if the new one is like it.
fn kept_or_same<T: Any + Send + Sync>(
    memo: Option<&Memo>,
    task: Task,
    run: impl FnOnce() -> T,
    alike: impl Fn(&T, &T) -> bool,
) -> Arc<T> {
    let Some(memo) = memo else { return Arc::new(run()) };
    if let Some(value) = memo.known(task) {
        return cast(value);
    }
    let started = Instant::now();
    let (value, reads) = watch(run);
    let took = started.elapsed();
    let before = open(&memo.slots).get(task).map(|slot| cast::<T>(slot.value.clone()));
    let value = before.filter(|before| alike(before, &value)).unwrap_or_else(|| Arc::new(value));
    open(&memo.slots).insert(task, reads, value.clone(), took);
    value
}

/// The results of tasks of one kind, in order.
pub fn kept_each<K: Copy + Sync, T: Any + Send + Sync>(
    memo: Option<&Memo>,
    keys: &[K],
    task: impl Fn(K) -> Task + Sync,
    run: impl Fn(K) -> T + Sync,
) -> Vec<Arc<T>> {
    kept_or_same_each(memo, keys, task, run, |_, _| false)
}

/// The same; each is the one before if it turns out equal.
pub fn kept_equals<K: Copy + Sync, T: Any + Send + Sync + PartialEq>(
    memo: Option<&Memo>,
    keys: &[K],
    task: impl Fn(K) -> Task + Sync,
    run: impl Fn(K) -> T + Sync,
) -> Vec<Arc<T>> {
    kept_or_same_each(memo, keys, task, run, T::eq)
}

fn kept_or_same_each<K: Copy + Sync, T: Any + Send + Sync>(
    memo: Option<&Memo>,
    keys: &[K],
    task: impl Fn(K) -> Task + Sync,
    run: impl Fn(K) -> T + Sync,
    alike: impl Fn(&T, &T) -> bool + Sync,
) -> Vec<Arc<T>> {
    let Some(memo) = memo else { return keys.par_iter().map(|key| Arc::new(run(*key))).collect() };
    let known = memo.known_each(keys.iter().map(|key| task(*key)));
    each(keys, known, |_| 0, |key| kept_or_same(Some(memo), task(key), || run(key), &alike))
}

/// The same for tasks that may take long, those with the most work first.
pub fn kept_long<K: Copy + Sync, T: Any + Send + Sync>(
    memo: Option<&Memo>,
    keys: &[K],
    task: impl Fn(K) -> Task + Sync,
    work: impl Fn(K) -> usize,
    run: impl Fn(K) -> T + Sync,
) -> Vec<Arc<T>> {
    let known = match memo {
        Some(memo) => memo.known_each(keys.iter().map(|key| task(*key))),
        None => keys.iter().map(|_| None).collect(),
    };
    each(keys, known, work, |key| kept(memo, task(key), || run(key)))
}

/// The same; where a result is another one than before, those who looked at it are told.
pub fn kept_told<K: Copy + Sync, T: Any + Send + Sync>(
    memo: Option<&Memo>,
    keys: &[K],
    task: impl Fn(K) -> Task + Sync,
    told: impl Fn(K) -> Read + Sync,
    run: impl Fn(K) -> T + Sync,
) -> Vec<Arc<T>> {
    let Some(memo) = memo else { return kept_long(memo, keys, task, |_| 0, run) };
    let known = memo.known_each(keys.iter().map(|key| task(*key)));
    each(
        keys,
        known,
        |_| 0,
        |key| {
            let before = memo.last(task(key));
            let found = kept(Some(memo), task(key), || run(key));
            if before.is_some_and(|before| !std::ptr::addr_eq(before, Arc::as_ptr(&found))) {
                memo.forget_results(&[told(key)]);
            }
            found
        },
    )
}

/// What is known, and what has to be found again.
fn each<K: Copy + Sync, T: Any + Send + Sync>(
    keys: &[K],
    known: Vec<Option<Result_>>,
    work: impl Fn(K) -> usize,
    run: impl Fn(K) -> Arc<T> + Sync,
) -> Vec<Arc<T>> {
    let mut missing: Vec<usize> = (0..keys.len()).filter(|at| known[*at].is_none()).collect();
    // The longest first, so that no thread is left alone with one at the end.
    missing.sort_by_key(|at| std::cmp::Reverse(work(keys[*at])));
    let mut found: Vec<(usize, Arc<T>)> = missing.par_iter().with_max_len(1).map(|at| (*at, run(keys[*at]))).collect();
    found.sort_unstable_by_key(|(at, _)| *at);
    let mut found = found.into_iter();
    let next = |known: Option<Result_>| known.map(cast).or_else(|| Some(found.next()?.1)).expect("each has a result");
    known.into_iter().map(next).collect()
}

/// What is put together from parts: the same as before if all parts are. `differ` says what changed otherwise.
pub fn combined<P: Any + Send + Sync, W: Any + Send + Sync>(
    memo: Option<&Memo>,
    name: &'static str,
    parts: Vec<Arc<P>>,
    build: impl FnOnce(Vec<Arc<P>>) -> W,
    differ: impl FnOnce(&W, &W) -> Vec<Read>,
) -> Arc<W> {
    let Some(memo) = memo else { return Arc::new(build(parts)) };
    let before = {
        let wholes = open(&memo.wholes);
        wholes.get(name).map(|whole| {
            let same = whole.parts.len() == parts.len()
                && whole.parts.iter().zip(&parts).all(|(a, b)| std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b)));
            (same, cast::<W>(whole.value.clone()))
        })
    };
    if let Some((true, value)) = before {
        return value;
    }
    let held: Vec<Result_> = parts.iter().map(|part| part.clone() as Result_).collect();
    let value = Arc::new(build(parts));
    let changed = before.map_or_else(Vec::new, |(_, before)| differ(&before, &value));
    open(&memo.wholes).insert(name, Whole { parts: held, value: value.clone() });
    memo.forget_results(&changed);
    value
}

/// What depends on nothing that changes.
pub fn constant<T: Any + Send + Sync>(memo: Option<&Memo>, name: &'static str, make: impl FnOnce() -> T) -> Arc<T> {
    combined(memo, name, Vec::<Arc<()>>::new(), |_| make(), |_, _| Vec::new())
}

/// The same for parts that are often made anew and turn out equal.
pub fn combined_equal<P: Any + Send + Sync + PartialEq, W: Any + Send + Sync>(
    memo: Option<&Memo>,
    name: &'static str,
    mut parts: Vec<Arc<P>>,
    build: impl FnOnce(Vec<Arc<P>>) -> W,
    differ: impl FnOnce(&W, &W) -> Vec<Read>,
) -> Arc<W> {
    if let Some(memo) = memo
        && let Some(whole) = open(&memo.wholes).get(name)
    {
        for (part, before) in parts.iter_mut().zip(&whole.parts) {
            let before = || before.clone().downcast::<P>().ok();
            if let Some(before) = before().filter(|before| !Arc::ptr_eq(before, part) && **before == **part) {
                *part = before;
            }
        }
    }
    combined(memo, name, parts, build, differ)
}

/// The keys under which two tables differ.
pub fn differing<'a, K: Eq + std::hash::Hash, V: PartialEq>(
    a: &'a FxHashMap<K, V>,
    b: &'a FxHashMap<K, V>,
) -> impl Iterator<Item = &'a K> {
    let changed = b.iter().filter(|(key, value)| a.get(*key) != Some(*value)).map(|(key, _)| key);
    changed.chain(a.keys().filter(|key| !b.contains_key(*key)))
}

/// The value itself, where nobody else keeps it.
pub fn taken<T: Clone>(value: Arc<T>) -> T {
    Arc::try_unwrap(value).unwrap_or_else(|shared| (*shared).clone())
}
