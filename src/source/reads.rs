//! What a computation looked at, so that its result can be kept until one of these things changes. In: notes made by the accessors of
//! texts, modules and facts. Out: the set of things read while [`watch`] ran. Never: a result; nobody watches in a single run, where a
//! note costs one test. Next: `infer/memo.rs`, which keeps results.

use rustc_hash::{FxHashSet, FxHasher};
use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};

/// A thing that a computation can look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Read {
    /// A function by module and number: its body, or how it binds.
    Func(u32, u32),
    Class(u32, u32),
    /// Anything of a module.
    Module(u32),
    /// Every module.
    Modules,
    /// What the top level of a module binds a name to.
    Name(u32, u64),
    /// All that it binds.
    Names(u32),
    /// The functions of a name.
    Named(u64),
    /// A whole text, and a part of it.
    Text(u32),
    Block(u32, u32),
    /// How often a word occurs in all texts, and whether it occurs in one.
    Says(u64),
    SaysIn(u32, u64),
    /// What a module body leaves under a name.
    Export(u32, u64),
    Relevant(u32, u32),
    RelevantClass(u32, u32),
    /// The classes of a field of module specifications, and the one that a name of a module stands for.
    Spec(u64),
    Alternative(u32, u64),
    Reducers,
    Marking,
    /// What all functions of the project read and mark.
    Lint,
    /// Classes whose parameters have the sizes that they are given.
    Sizes,
    /// Who reduces gradients, and the factors that classes apply to them.
    Factors,
    /// The object that the constructor of a class leaves.
    Built(u32, u32),
    /// What each function of a module may cost that is executed for itself.
    Allowance(u32),
    /// The functions of a module that decorators expand.
    Decorated(u32),
    /// Whether anything turns the mode of annotations on, leaves manual sharding or sets a mesh for all.
    ShardingMode,
    /// Whether one statement of the project sets an attribute of this name.
    SetOnce(u64),
    /// Whether something sets an attribute of this name of a class from outside.
    Reset(u64),
    /// The shardings that are declared of a class, and of the modules that it has.
    Sharded(u32, u32),
}

/// What nobody notes.
const NOTHING: Read = Read::Built(u32::MAX, u32::MAX);

/// Bytes of a text that are told apart.
const BLOCK: u32 = 256;

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static LAST: Cell<Read> = const { Cell::new(NOTHING) };
    static READS: RefCell<FxHashSet<Read>> = RefCell::default();
}

/// The number of a name.
pub fn number(name: &str) -> u64 {
    let mut hasher = FxHasher::default();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Notes that something was looked at.
#[inline]
pub fn note(read: impl FnOnce() -> Read) {
    if WATCHED.get() {
        keep(read());
    }
}

#[cold]
fn keep(read: Read) {
    if LAST.get() != read {
        LAST.set(read);
        READS.with_borrow_mut(|reads| reads.insert(read));
    }
}

/// Notes what was noted elsewhere.
pub fn note_all(reads: &[Read]) {
    reads.iter().for_each(|read| note(|| *read));
}

/// Notes that a part of a text was looked at.
#[inline]
pub fn note_text(file: u32, start: u32, end: u32) {
    if WATCHED.get() {
        blocks(start, end).for_each(|block| keep(Read::Block(file, block)));
    }
}

/// The parts of a text between two offsets.
pub fn blocks(start: u32, end: u32) -> impl Iterator<Item = u32> {
    start / BLOCK..=end.max(start) / BLOCK
}

/// Runs something and tells what it looked at. What surrounds it is told nothing.
pub fn watch<T>(run: impl FnOnce() -> T) -> (T, Box<[Read]>) {
    let outer = READS.take();
    let watched = WATCHED.replace(true);
    LAST.set(NOTHING);
    let guard = Restore { outer: Some(outer), watched };
    let value = run();
    let reads = READS.take().into_iter().collect();
    drop(guard);
    (value, reads)
}

/// Puts back what was watched outside, also when the inner computation ends early.
struct Restore {
    outer: Option<FxHashSet<Read>>,
    watched: bool,
}

impl Drop for Restore {
    fn drop(&mut self) {
        WATCHED.set(self.watched);
        LAST.set(NOTHING);
        READS.set(self.outer.take().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_told_to_the_innermost() {
        note(|| Read::Reducers);
        let ((), outer) = watch(|| {
            note(|| Read::Modules);
            let ((), inner) = watch(|| note(|| Read::Module(3)));
            assert!(inner.contains(&Read::Module(3)) && !inner.contains(&Read::Modules));
            note_text(1, 250, 260);
        });
        assert!(
            outer.contains(&Read::Modules) && outer.contains(&Read::Block(1, 1)) && !outer.contains(&Read::Module(3))
        );
    }
}
