//! Values that a derivation knows by name only: groups that a call gives, dims that are arguments, indices that visit every rank.
//!
//! In: calls and values that nothing resolves while a function is derived. Out: a value with an identity, so that forward and backward
//! agree on it. Never: types. Source: DESIGN.md section 6. Next: `terms.rs`.

use super::super::expr::{CallArgs, int_compare};
use super::super::formula::{Atom, Formula};
use super::super::groups::is_world;
use super::super::machine::{Eval, Machine};
use super::super::value::Value;
use super::super::world::World;
use crate::ir::{BinOp, CmpOp, Const};
use crate::project::FuncRef;
use crate::source::Name;
use crate::types::{Axis, AxisSet, AxisState, AxisType, LocalType};
use std::sync::Arc;

/// Words of an accessor that say what it gives, not of which group.
const ACCESSOR_WORDS: &[&str] =
    &["get", "group", "process", "world", "size", "rank", "local", "global", "cpu", "gpu", "pg", "num", "ranks"];

/// The group of accessors whose names do not say which: `get_group()`.
pub const UNNAMED: &str = "group";

/// What an accessor of a group gives.
enum Gives {
    Group,
    Size,
    Rank,
}

impl Machine<'_> {
    /// What a call gave, if a derivation can tell more of it: a group, rank or size by its name and arguments, else a value of its own.
    pub fn derived_result(
        &mut self,
        eval: Eval,
        before: World,
        base: Option<&Value>,
        name: &str,
        args: &CallArgs,
    ) -> Eval {
        match &eval {
            Eval::Many(outcomes) if outcomes.is_empty() => {
                // Every way through it raises, by what little is known of it.
                self.w = before;
                return Eval::One(Value::Unknown);
            }
            Eval::Many(_) => return self.derived_results(eval, base, name, args),
            Eval::One(Value::Unknown) => {}
            // A group that is made before the training begins.
            Eval::One(Value::Const(Const::None)) if self.settings.is_group_name(name) => {}
            // An entry of a table that the function keeps.
            Eval::One(Value::Sym(path)) if path.contains('[') => {}
            // A method that is called like an accessor of the tables, of a key that they do not know.
            Eval::One(Value::Size(axes) | Value::Rank(axes)) if is_world(axes) && !args.args.is_empty() => {}
            Eval::One(Value::Sym(_) | Value::Path(_))
                if matches!(base, Some(Value::Sym(_))) && !args.args.is_empty() => {}
            _ => return eval,
        }
        let explained = self.deriving.as_mut().is_none_or(|d| !std::mem::take(&mut d.unresolved));
        if self.follows(args) {
            return eval;
        }
        if let Some(value) = self.accessor(base, name, args) {
            return Eval::One(value);
        }
        if let (true, Some(text)) = (name.starts_with("get_"), self.call_text(base, name, args)) {
            return Eval::One(Value::Sym(Name::from(text)));
        }
        match explained {
            true => eval,
            false => {
                self.next_id += 1;
                Eval::One(Value::Sym(Name::from(format!("?{}", self.next_id))))
            }
        }
    }

    fn derived_results(&self, eval: Eval, base: Option<&Value>, name: &str, args: &CallArgs) -> Eval {
        let Eval::Many(mut outcomes) = eval else { return eval };
        if let (false, Some(value)) = (self.follows(args), self.accessor(base, name, args)) {
            for (_, found) in &mut outcomes {
                if matches!(found, Value::Unknown) || matches!(found, Value::Sym(path) if path.contains('[')) {
                    *found = value.clone();
                }
            }
        }
        Eval::Many(outcomes)
    }

    /// `pg.tp_world_size()`, `context.get_group(mode)`: two calls with the same arguments are about the same group.
    pub fn accessor(&self, base: Option<&Value>, name: &str, args: &CallArgs) -> Option<Value> {
        let base = base.filter(|base| !matches!(base, Value::Module(_) | Value::Package(_) | Value::Path(_)));
        let words: Vec<&str> = name.split('_').filter(|w| !w.is_empty()).collect();
        let has = |word: &str| words.contains(&word);
        if ["all", "groups", "ranks", "list", "dict"].into_iter().any(has) {
            return None;
        }
        let gives = match () {
            () if has("rank") => Gives::Rank,
            () if has("size") => Gives::Size,
            () if has("group") || has("pg") => Gives::Group,
            () => return None,
        };
        let rest: Vec<&str> = words.iter().copied().filter(|w| !ACCESSOR_WORDS.contains(w)).collect();
        let base = match base {
            Some(value) => Some(self.text_of(value)?),
            None => None,
        };
        let mut texts = Vec::new();
        for arg in &args.args {
            texts.push(self.text_of(&arg.value)?);
        }
        let short = |t: &str| t.rsplit('.').next().unwrap_or(t).to_string();
        let variable = match (rest.is_empty(), texts.as_slice(), base) {
            (true, [one], _) => short(one),
            (false, [], Some(base)) => format!("{base}.{}", rest.join("_")),
            (false, [], None) => rest.join("_"),
            (_, [], Some(base)) => base,
            (true, [], None) => UNNAMED.to_string(),
            (_, texts, _) => format!("{}({})", rest.join("_"), texts.join(", ")),
        };
        let axes = AxisSet::one(Axis::variable(&variable));
        Some(match gives {
            Gives::Group => Value::Group(axes),
            Gives::Size => Value::Size(axes),
            Gives::Rank => Value::Rank(axes),
        })
    }

    /// A forward that is given a group, and a rank or a size beside it whose values nothing tells, is given those of the group.
    pub fn told_ranks(&mut self, at: FuncRef, own: usize, values: &mut [Value]) {
        let func = self.project.func(at);
        let names = || func.params.iter().skip(own).map(|p| &p.name).enumerate();
        let mut groups = names().filter(|(_, name)| self.settings.is_group_name(name));
        let (Some((group, _)), None) = (groups.next(), groups.next()) else { return };
        let open = |i: usize| matches!(&values[i], Value::Unknown | Value::Sym(_) | Value::Tensor(_));
        // `tp_size` and `tp_rank` beside `tp_group`, `size` and `rank` beside `group`.
        let stem = names().find(|(i, _)| *i == group).and_then(|(_, name)| name.strip_suffix("group")).unwrap_or("?");
        let made = |name: &Name| match name.strip_prefix(stem) {
            Some("size") => Some(Value::Size as Made),
            Some("rank") => Some(Value::Rank as Made),
            _ => rank_or_size(name),
        };
        let told: Vec<(usize, Made)> =
            names().filter(|(i, _)| open(*i)).filter_map(|(i, name)| Some((i, made(name)?))).collect();
        if told.is_empty() {
            return;
        }
        let Some(axes) = self.axes_of_value(&values[group]) else { return };
        for (i, made) in told {
            values[i] = made(axes.clone());
        }
    }

    /// How a call is written, if all of it is the same whenever it is evaluated.
    fn call_text(&self, base: Option<&Value>, name: &str, args: &CallArgs) -> Option<String> {
        let base = self.text_of(base?)?;
        let texts: Option<Vec<String>> = args.args.iter().map(|a| self.text_of(&a.value)).collect();
        Some(format!("{base}.{name}({})", texts?.join(", ")))
    }

    /// How a value that is the same whenever it is read is written.
    fn text_of(&self, value: &Value) -> Option<String> {
        match value {
            Value::Sym(path) if self.symbol(path).is_none() => Some(path.to_string()),
            Value::Path(path) => Some(path.to_string()),
            Value::Const(Const::Str(s)) => Some(s.to_string()),
            Value::Const(Const::Int(n)) => Some(n.to_string()),
            Value::Object(id) => self.w.heap.object(*id).map(|o| o.path.to_string()),
            Value::Group(axes) => axes.single().map(|a| a.name().to_string()),
            _ => None,
        }
    }

    /// An item of an unknown value by a key that is an unknown value with a name.
    pub fn symbol_item_by_name(&self, path: &str, key: &Value) -> Value {
        match key {
            Value::Sym(key) if self.deriving.is_some() && self.symbol(key).is_none() => {
                Value::Sym(Name::from(format!("{path}[{key}]")))
            }
            _ => Value::Unknown,
        }
    }

    /// A dim from 0: a number, or an argument, which is taken to be a dim of its own.
    pub fn dim_of(&mut self, value: &Value) -> Option<usize> {
        let path = match value {
            Value::Sym(path) if self.symbol(path).is_none() && !path.starts_with('?') => path.clone(),
            other => return self.dim_from(other.as_int()?),
        };
        let name = self.flag_name(&path);
        self.ask(&Formula::Atom(Atom::Equals(name.clone(), Const::None)));
        let fixed = self.w.facts.iter().find_map(|(atom, holds)| match atom {
            Atom::Equals(n, Const::Int(k)) if holds && *n == name => Some(*k),
            _ => None,
        });
        if let Some(fixed) = fixed {
            return self.dim_from(fixed);
        }
        let deriving = self.deriving.as_mut()?;
        if deriving.one_dim {
            if !deriving.dims.contains(&path) {
                deriving.dims.push(path);
            }
            return Some(1);
        }
        let at = match deriving.dims.iter().position(|d| *d == path) {
            Some(at) => at,
            None => {
                deriving.dims.push(path);
                deriving.dims.len() - 1
            }
        };
        // The first dim is the one that code names by number.
        let order = (1..deriving.rank).chain([0]);
        order.into_iter().nth(at)
    }

    /// Comparisons of values that a derivation knows by name: a dim is the one that it was taken for, and of what a call gave that nothing
    /// resolves each may hold.
    pub fn derived_compare(&self, op: CmpOp, left: &Value, right: &Value) -> Option<Value> {
        let deriving = self.deriving.as_ref()?;
        if matches!(op, CmpOp::In | CmpOp::NotIn) && matches!(left, Value::Rank(_)) {
            // The rank is in one of the groups that a loop visits.
            return Some(Value::Unknown);
        }
        let own = |v: &Value| matches!(v, Value::Sym(path) if path.starts_with('?') && self.symbol(path).is_none());
        if own(left) || own(right) {
            return Some(Value::Unknown);
        }
        let (Value::Sym(path), Some(n)) = (left, right.as_int()) else { return None };
        let at = deriving.dims.iter().position(|d| d == path)?;
        let dim = if deriving.one_dim { 1 } else { (1..deriving.rank).chain([0]).nth(at)? };
        let given = self.dim_from(n).and_then(|n| i64::try_from(n).ok()).unwrap_or(n);
        let order = matches!(op, CmpOp::Lt | CmpOp::Le | CmpOp::Gt | CmpOp::Ge);
        let truth = int_compare(op, i64::try_from(dim).ok()?, if order { n } else { given })?;
        Some(Value::Const(Const::Bool(truth)))
    }

    /// A dim counted from the front, `dim % x.ndim`, is the dim that was given.
    pub fn derived_binary(&self, op: BinOp, left: &Value, right: &Value) -> Option<Value> {
        let deriving = self.deriving.as_ref()?;
        let own = matches!(left, Value::Sym(path) if self.symbol(path).is_none() && !path.starts_with('?'));
        let dims = right.as_int() == i64::try_from(deriving.rank).ok();
        (op == BinOp::Mod && own && dims).then(|| left.clone())
    }

    /// The dims that are arguments, by the number that they were taken for.
    pub fn dims_by_name(&self) -> Vec<(usize, Name)> {
        let Some(deriving) = &self.deriving else { return Vec::new() };
        let numbers = (1..deriving.rank).chain([0]);
        match deriving.one_dim {
            true => deriving.dims.iter().take(1).map(|d| (1, d.clone())).collect(),
            false => numbers.zip(deriving.dims.iter().cloned()).collect(),
        }
    }

    /// The indices of the ranks of a group, each in turn.
    pub fn every_rank(axes: &AxisSet) -> Value {
        let mut t = LocalType::everywhere(AxisState::new(AxisType::R));
        for axis in axes.iter() {
            t.set(axis, AxisState::new(AxisType::I));
        }
        Value::Number(Some(Arc::new(t)))
    }
}

/// What a rank in a group is of by its name.
const OF_GROUP: &[&str] =
    &["group", "tp", "mp", "sp", "cp", "ep", "tensor_parallel", "model_parallel", "sequence_parallel"];

/// The value of a group's axes.
type Made = fn(AxisSet) -> Value;

/// What an argument beside a group is by its name: `rank`, `mp_rank`, `world_size`, `tp_world_size`.
fn rank_or_size(name: &str) -> Option<Made> {
    if name == "rank" || name.strip_suffix("_rank").is_some_and(|of| OF_GROUP.contains(&of)) {
        return Some(Value::Rank);
    }
    (name == "world_size" || name.ends_with("_world_size")).then_some(Value::Size as Made)
}

/// Whether a number is made of the index of a rank that a loop visits.
pub fn visits_ranks(value: &Value) -> bool {
    match value {
        Value::Number(Some(t)) => t.listed().any(|(_, s)| s.set == AxisType::I),
        Value::Slice(parts) => parts.iter().any(visits_ranks),
        _ => false,
    }
}
