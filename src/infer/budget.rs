//! What a root may spend, and how it gives up precision when that runs out. In: steps. Out: how many worlds may be kept apart, whether a
//! callee is still executed. Never: a guess: what is given up is joined or unknown. Source: DESIGN.md section 5. Next: `exec.rs`.

use super::limits::{
    CALL_SHARE, MAX_FILE_STEPS, MAX_SEARCHED, MAX_STEPS, MAX_WORLDS, MIN_STEPS, STEPS_PER_STATEMENT, WORLDS_LEFT,
};
use super::settings::Allowances;
use crate::project::{FuncRef, ModuleId};
use rustc_hash::FxHashMap;

/// What each root of a file may spend beyond its own statements, of the files in which that is less than [`MAX_STEPS`].
pub fn allowances<'a>(roots: impl Iterator<Item = &'a FuncRef>) -> Allowances {
    let mut counts: FxHashMap<ModuleId, u64> = FxHashMap::default();
    for root in roots {
        *counts.entry(root.module).or_default() += 1;
    }
    let part = |count: u64| (MAX_FILE_STEPS / count).max(MIN_STEPS);
    counts.into_iter().map(|(module, count)| (module, part(count))).filter(|(_, steps)| *steps < MAX_STEPS).collect()
}

/// The steps of one root.
#[derive(Debug, Default)]
pub struct Budget {
    spent: u64,
    call: Share,
    exhausted: bool,
    /// Values that were looked through for names of containers.
    searched: u64,
    /// Functions whose calls were given up, with the most that one of them was allowed.
    given_up: FxHashMap<FuncRef, u64>,
}

/// What the innermost call may spend, or the root.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    start: u64,
    /// Steps after which precision is given up altogether, and no callee is executed.
    soft: u64,
    /// Steps after which the call is given up.
    end: u64,
    /// Worlds that its caller may keep apart.
    worlds: usize,
}

impl Budget {
    /// A root with so many statements of its own, and so many steps beyond them.
    pub fn of_root(statements: u64, steps: u64) -> Budget {
        let end = steps + statements * STEPS_PER_STATEMENT;
        Budget { call: Share { start: 0, soft: steps, end, worlds: MAX_WORLDS }, ..Budget::default() }
    }

    /// The steps that were taken.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// So many steps, for bodies that are executed beside the root.
    pub fn of_steps(steps: u64) -> Budget {
        Budget { call: Share { start: 0, soft: steps, end: steps, worlds: MAX_WORLDS }, ..Budget::default() }
    }

    /// Counts one step. Whether it may be executed.
    pub fn step(&mut self) -> bool {
        self.spent += 1;
        self.exhausted |= self.spent > self.call.end;
        self.spent <= self.call.end
    }

    /// Whether so many values may be looked through.
    pub fn search(&mut self, values: u64) -> bool {
        self.searched += values;
        self.searched <= MAX_SEARCHED
    }

    /// How many worlds may be kept apart: fewer, the more was spent.
    pub fn worlds(&self) -> usize {
        let Share { start, soft, worlds, .. } = self.call;
        let used = |percent: u64| (self.spent - start) * 100 >= (soft - start) * percent;
        WORLDS_LEFT.iter().rev().find(|(percent, _)| used(*percent)).map_or(worlds, |(_, left)| worlds.min(*left))
    }

    /// Starts a call of a function with so many statements, if it may be executed.
    pub fn enter(&mut self, func: FuncRef, statements: u64) -> Option<Share> {
        let share = self.call.soft.saturating_sub(self.spent) * CALL_SHARE / 100;
        if share == 0 || self.given_up.get(&func).is_some_and(|most| share <= *most) {
            return None;
        }
        let soft = self.spent + share;
        let end = soft + statements * STEPS_PER_STATEMENT;
        let call = Share { start: self.spent, soft, end, worlds: self.worlds() };
        Some(std::mem::replace(&mut self.call, call))
    }

    /// Ends a call. Whether it was given up.
    pub fn leave(&mut self, func: FuncRef, caller: Share) -> bool {
        let call = std::mem::replace(&mut self.call, caller);
        // What the callee spent without its callees does not count against its caller.
        self.call.end += self.spent.saturating_sub(call.soft);
        let exhausted = std::mem::take(&mut self.exhausted);
        if exhausted {
            let most = self.given_up.entry(func).or_default();
            *most = (call.soft - call.start).max(*most);
        }
        exhausted
    }
}
