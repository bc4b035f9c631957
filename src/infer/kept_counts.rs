//! Counts of ranks that a module keeps in a variable: `_N = dist.get_world_size(_GROUP)`. In: a module and the name of a variable that its
//! body leaves without a value. Out: the number of ranks, or the own rank. Never: one that is set in several ways. Next: `names.rs`.

use super::expr::CallArgs;
use super::join::alike;
use super::machine::Machine;
use super::value::Value;
use super::world::World;
use crate::project::{FuncRef, ModuleId, Resolved};
use crate::source::Name;

impl Machine<'_> {
    /// What a variable counts that one statement of a function sets, by the group that this statement names.
    pub fn counted_once(&mut self, module: ModuleId, name: &Name) -> Option<Value> {
        let said = self.made_as(module, name)?.to_string();
        let (callee, group) = said.split_once('(')?;
        let group = group.strip_suffix(')')?.trim();
        let group = group.strip_prefix("group=").unwrap_or(group);
        let made: fn(_) -> Value = match callee.rsplit('.').next()? {
            "get_world_size" => Value::Size,
            "get_rank" => Value::Rank,
            _ => return None,
        };
        let group = match group.strip_suffix("()") {
            // The getter is asked for the same group all over the program.
            Some(getter) => {
                let getter = Name::from(getter);
                matches!(self.project.member(module, &getter), Some(Resolved::Func(_)))
                    .then(|| self.accessor(None, &getter, &CallArgs::default()))??
            }
            None => {
                let variable = Name::from(group);
                let is_kept = matches!(self.project.member(module, &variable), Some(Resolved::Value(..)));
                match is_kept.then(|| self.variable_of(module, &variable))? {
                    value @ Value::Group(_) => value,
                    _ => self.returned_by_getter(module, &[group])?,
                }
            }
        };
        matches!(group, Value::Group(_)).then(|| self.axes_of_value(&group))?.map(made)
    }

    /// The number of ranks that a getter of a library gives of which nothing is known, if the text asks the same library for the group that
    /// is called alike: `get_tp_world_size()` beside `get_tp_group()`.
    pub fn foreign_count(&mut self, path: &Name, args: &CallArgs) -> Option<Value> {
        let (library, name) = path.rsplit_once('.')?;
        if !args.args.is_empty() || args.open || self.deriving.is_some() || !self.in_constructor() {
            return None;
        }
        let stem = super::names::COUNTS.iter().find_map(|end| name.strip_suffix(end))?;
        let module = self.activation().module;
        let asked = self.files[self.project.file(module)].whole();
        let group = Name::from(format!("{stem}_group"));
        let same = matches!(self.project.member(module, &group), Some(Resolved::External(of)) if of.rsplit_once('.').is_some_and(|(l, _)| l == library));
        if !same || !asked.contains(&format!("{group}()")) {
            return None;
        }
        let Some(Value::Group(axes)) = self.accessor(None, &group, &CallArgs::default()) else { return None };
        match self.accessor(None, name, &CallArgs::default())? {
            count @ (Value::Size(_) | Value::Rank(_)) if self.axes_of_value(&count).is_none_or(|of| of == axes) => {
                Some(count)
            }
            _ => None,
        }
    }

    /// Whether a short function without arguments asks whether the program runs on several ranks, or gives the group of all:
    /// `is_dist_avail_and_initialized()`, `get_tp_group()` in a program with one group.
    pub fn asks_ranks(&self, func: FuncRef) -> bool {
        let callee = self.project.func(func);
        let asks = || {
            let text = self.files[self.project.file(func.module)].slice(callee.span);
            ["is_initialized()", "is_available()", "group.WORLD"].iter().any(|word| text.contains(word))
        };
        callee.params.is_empty() && callee.code.count() <= super::limits::MAX_CHOICE && asks()
    }

    /// Whether an outcome is the count of one process alone beside that of a group, in a world that nothing tells apart: it is the count of
    /// the group either way, `if not is_initialized(): return 1`.
    pub fn of_several(&self, kept: &mut [(World, Value)], world: &World, value: &Value) -> bool {
        let same = |w: &World| self.deriving.is_none() && w.facts == world.facts && alike(w, world);
        for (w, v) in kept.iter_mut() {
            if let Some(count) = beyond_one(v, value).filter(|_| same(w)) {
                *v = count;
                return true;
            }
        }
        false
    }
}

/// The number of ranks, or the own rank, where a getter gives that of its group, or that of one process alone before there are several.
fn beyond_one(a: &Value, b: &Value) -> Option<Value> {
    match (a, b) {
        (Value::Size(_), Value::Const(crate::ir::Const::Int(1)))
        | (Value::Rank(_), Value::Const(crate::ir::Const::Int(0))) => Some(a.clone()),
        (Value::Const(crate::ir::Const::Int(1)), Value::Size(_))
        | (Value::Const(crate::ir::Const::Int(0)), Value::Rank(_)) => Some(b.clone()),
        _ => None,
    }
}
