//! Results of the parts of a run that are kept for later versions of the project. In: a task, and what it looked at while it ran. Out: its
//! result, the kept one as long as nothing of that changed. Never: another result than a run without: a task is a function of what it
//! looks at, which `source/reads.rs` notes. Next: `root.rs` and `facts.rs`, which run tasks; `check/session.rs`, which says what changed.

use super::output::Output;
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::source::reads::{Read, watch};
use rustc_hash::{FxHashMap, FxHashSet};
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
}

type Result_ = Arc<dyn Any + Send + Sync>;

struct Slot {
    reads: Box<[Read]>,
    value: Result_,
    stale: bool,
    took: Duration,
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
    slots: Mutex<FxHashMap<Task, Slot>>,
    wholes: Mutex<FxHashMap<&'static str, Whole>>,
    /// What turned out to have changed while results were found again.
    moved: Mutex<Vec<Read>>,
    stopped: Arc<AtomicBool>,
    /// Modules of which functions are executed again; of others what is known of them stands, be it of an earlier version.
    hurry: Mutex<Option<Vec<ModuleId>>>,
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
        let mut changed = changed.to_vec();
        changed.sort_unstable();
        changed.dedup();
        let all: FxHashSet<Read> = changed.iter().copied().collect();
        for slot in open(&self.slots).values_mut().filter(|slot| !slot.stale) {
            slot.stale = match changed.len() < 64 && slot.reads.len() > 64 {
                true => changed.iter().any(|read| slot.reads.binary_search(read).is_ok()),
                false => slot.reads.iter().any(|read| all.contains(read)),
            };
        }
    }

    /// The functions that are executed for themselves and reach a module, in order.
    pub fn reaching(&self, module: ModuleId) -> Vec<FuncRef> {
        let slots = open(&self.slots);
        let mut out: Vec<FuncRef> = slots
            .iter()
            .filter_map(|(task, slot)| match task {
                Task::Root(root) if !slot.stale => Some((*root, slot.value.downcast_ref::<Arc<Output>>()?)),
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
        open(&self.slots).get(&task).map(|slot| Arc::as_ptr(&slot.value).cast())
    }

    fn known(&self, task: Task) -> Option<Result_> {
        if self.stopped.load(Ordering::Relaxed) {
            std::panic::resume_unwind(Box::new(Stopped));
        }
        let slots = open(&self.slots);
        let slot = slots.get(&task)?;
        let serves = !slot.stale
            || executed(task).is_some_and(|m| open(&self.hurry).as_ref().is_some_and(|own| !own.contains(&m)));
        serves.then(|| slot.value.clone())
    }

    /// For a first look: functions outside these modules are not executed again.
    pub fn hurry(&self, modules: Option<Vec<ModuleId>>) {
        *open(&self.hurry) = modules;
    }

    /// How long it took to execute what has to be executed again outside these modules.
    pub fn awaited(&self, modules: &[ModuleId]) -> Duration {
        let slots = open(&self.slots);
        let outside = |task: &Task| executed(*task).is_some_and(|module| !modules.contains(&module));
        slots.iter().filter(|(task, slot)| slot.stale && outside(task)).map(|(_, slot)| slot.took).sum()
    }
}

fn cast<T: Any + Send + Sync>(value: Result_) -> Arc<T> {
    value.downcast().expect("a task has results of one type")
}

/// The result of a task.
pub fn kept<T: Any + Send + Sync>(memo: Option<&Memo>, task: Task, run: impl FnOnce() -> T) -> Arc<T> {
    let Some(memo) = memo else { return Arc::new(run()) };
    if let Some(value) = memo.known(task) {
        return cast(value);
    }
    let started = Instant::now();
    let (value, reads) = watch(run);
    let value = Arc::new(value);
    let took = started.elapsed();
    open(&memo.slots).insert(task, Slot { reads, value: value.clone(), stale: false, took });
    value
}

/// The result of a task; the same one as before if it turns out equal.
pub fn kept_equal<T: Any + Send + Sync + PartialEq>(
    memo: Option<&Memo>,
    task: Task,
    run: impl FnOnce() -> T,
) -> Arc<T> {
    let Some(memo) = memo else { return Arc::new(run()) };
    if let Some(value) = memo.known(task) {
        return cast(value);
    }
    let started = Instant::now();
    let (value, reads) = watch(run);
    let took = started.elapsed();
    let before = open(&memo.slots).get(&task).map(|slot| cast::<T>(slot.value.clone()));
    let value = before.filter(|before| **before == value).unwrap_or_else(|| Arc::new(value));
    open(&memo.slots).insert(task, Slot { reads, value: value.clone(), stale: false, took });
    value
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
