//! Sizes that are divided by the number of ranks of a group, and the parameters made with them. In: numbers, sizes and arguments of
//! calls that make tensors. Out: [`Value::Share`], and for parameters the axes and dims over which they are split. Never: a guess about
//! code that trains nothing: there no gradient is missing. Source: DESIGN.md section 7. Next: `reshaped.rs`.

use super::expr::{CallArgs, differing};
use super::groups::{is_world, may_differ};
use super::machine::Machine;
use super::ops::{AxisRef, OpCall, Operand};
use super::practice::near;
use super::settings::is_degree;
use super::value::Value;
use crate::ir::{BinOp, Const};
use crate::project::{Binding, ClassRef, ModuleId, Resolved};
use crate::rules::Entry;
use crate::source::Name;
use crate::types::{AxisSet, AxisState, AxisType, Divided, LocalType, Origin, Reason};
use std::sync::Arc;

/// Operations that give the same values in memory of their own or of another kind.
const SAME: &[&str] = &["clone", "contiguous", "detach", "to", "cuda", "cpu", "float", "half", "bfloat16", "double"];

/// How names of groups begin whose number of ranks divides data, experts or layers, but no weight.
const OTHERS: &[&str] = &["dp_", "data_", "ep_", "expert_", "cp_", "context_", "pp_", "pipeline_"];

impl Machine<'_> {
    /// Arithmetic with the number of ranks, or with a size that was divided by it.
    pub fn share(&self, op: BinOp, left: &Value, right: &Value) -> Option<Value> {
        if let Value::Sym(path) = right
            && op == BinOp::FloorDiv
            && self.is_unknown_degree(path)
            && self.may_be_size(left)
        {
            return Some(Value::Share(self.axes_of_degree(path)));
        }
        if let Some(value) = self.own_range(op, left, right) {
            return Some(value);
        }
        let counts = |v: &Value| matches!(v, Value::Share(_) | Value::Size(_));
        if !(counts(left) || counts(right)) || self.deriving.is_some() {
            return None;
        }
        match (op, left, right) {
            (BinOp::FloorDiv, whole, Value::Size(axes)) if self.may_be_size(whole) => Some(Value::Share(axes.clone())),
            (BinOp::FloorDiv, Value::Share(axes), whole) if self.may_be_size(whole) => Some(Value::Share(axes.clone())),
            (BinOp::Mul, Value::Share(a), Value::Share(b)) => {
                Some(Value::Share(a.iter().chain(b.iter()).cloned().collect()))
            }
            (BinOp::Add | BinOp::Sub, Value::Share(a), Value::Share(b)) if a == b => Some(Value::Share(a.clone())),
            (BinOp::Mul, Value::Share(axes), whole) | (BinOp::Mul, whole, Value::Share(axes))
                if self.may_be_size(whole) =>
            {
                Some(Value::Share(axes.clone()))
            }
            _ => None,
        }
    }

    /// Whether a constructor is given a number of ranks by that name, of a group that nothing tells and that weights are split over.
    fn is_unknown_degree(&self, path: &str) -> bool {
        let last = path.rsplit('.').next().unwrap_or(path);
        let of_others = OTHERS.iter().any(|other| last.starts_with(other));
        is_degree(last) && !of_others && self.deriving.is_none() && self.in_constructor()
    }

    /// Whether a number is not known, or is written down, and no name tells that it counts ranks.
    pub fn counts_nothing_known(&self, value: &Value) -> bool {
        match value {
            Value::Unknown | Value::Number(None) => true,
            Value::Const(Const::Int(n)) => *n > 1,
            Value::Sym(path) => !is_degree(path.rsplit('.').next().unwrap_or(path)) && self.symbol(path).is_none(),
            _ => false,
        }
    }

    /// Whether one of the operands may be split over an axis by its size, or over a group that may be it, and nothing else tells its type there.
    pub fn meets_part(&self, operands: &[Operand], states: &[AxisState], axis: &AxisRef, result: AxisType) -> bool {
        if result.leq(AxisType::EQUAL) && may_differ(operands, states, axis) {
            return true;
        }
        let AxisRef::Named(axis) = axis else { return false };
        let may_be = |o: &Operand| {
            let divided = o.id.and_then(|id| self.w.heap.tensor(id)).and_then(|t| t.divided.as_ref());
            let all = axis.name() == "world";
            divided.is_some_and(|d| {
                d.axes.iter().next().is_none()
                    || d.axes.contains(axis)
                    || all
                    || axis.is_variable() && is_world(&d.axes)
            })
        };
        operands.iter().zip(states).any(|(o, s)| s.set.is_unknown() && may_be(o))
    }

    /// Whether a value is a number that is no part of another: one that is not known, or that a constructor computes from what it is given.
    fn may_be_size(&self, value: &Value) -> bool {
        match value {
            Value::Const(Const::Int(_)) | Value::Number(None) | Value::Unknown => true,
            Value::Sym(path) => self.symbol(path).is_none() || self.in_constructor(),
            // `hidden = hidden or size`: nobody divides a truth value.
            Value::Cond(_) => self.in_constructor(),
            Value::Tensor(id) => {
                let plain = |t: &crate::types::TensorType| {
                    t.home.is_none() && t.divided.is_none() && t.local.listed().all(|(_, s)| s.known().is_none())
                };
                self.in_constructor() && self.w.heap.tensor(*id).is_some_and(plain)
            }
            _ => false,
        }
    }

    /// What a constructor is given as rank and number of ranks beside one group: those of that group. A number of ranks alone is that of the
    /// group that is called as it is: `tp_size` beside `tp_group`.
    pub fn beside_group(&mut self, name: &str) -> Option<Value> {
        if !(name.ends_with("rank") || name.ends_with("size")) || !self.in_constructor() {
            return None;
        }
        let names: Vec<Name> = self.func().params.iter().map(|p| p.name.clone()).collect();
        if is_degree(name) {
            let stem = name.strip_suffix("world_size").or_else(|| name.strip_suffix("size"))?;
            let is_groups = |n: &str| n.strip_prefix(stem) == Some("group") || stem.is_empty() && n == "process_group";
            let mut groups = names.iter().filter(|n| self.settings.is_group_name(n));
            // A number of ranks of no name beside one group alone is that of the group, unless that is one of copies.
            let own = |n: &&Name| {
                let parts = ["tp", "mp", "model", "tensor"];
                parts.iter().any(|part| near::has_part(n, part))
            };
            let only = groups.next().filter(|_| stem.is_empty() && groups.next().is_none()).filter(own);
            if let Some(group) = names.iter().find(|n| is_groups(n)).or(only).cloned() {
                return self.axes_of_value(&Value::Sym(group)).map(Value::Size);
            }
        }
        let only = |is: &dyn Fn(&str) -> bool| {
            let mut found = names.iter().filter(|n| is(n));
            found.next().filter(|_| found.next().is_none()).cloned()
        };
        let rank = only(&|n| n == "rank" || n.ends_with("_rank"))?;
        let prefix = rank.strip_suffix("rank").unwrap_or_default();
        let size = only(&|n| {
            let rest = n.strip_prefix(prefix).unwrap_or(n);
            rest == "world_size" || rest == "size"
        })?;
        let group = only(&|n| n == "group" || n.ends_with("_group"))?;
        let own = prefix.is_empty() || matches!(group.as_str(), "group" | "process_group");
        if !own && group.strip_prefix(prefix) != Some("group") {
            return None;
        }
        let axes = self.axes_of_value(&Value::Sym(group))?;
        match name {
            n if n == rank => Some(Value::Rank(axes)),
            n if n == size => Some(Value::Size(axes)),
            _ => None,
        }
    }

    pub fn in_constructor(&self) -> bool {
        self.stack.iter().any(|a| self.project.func(a.func).name == "__init__")
    }

    /// How the result of an operation is divided: it makes a tensor of such a size, or cuts one by the own rank.
    pub fn divided(&self, call: &OpCall<'_>, args: &CallArgs) -> Option<Arc<Divided>> {
        let tells = |v: &Value| {
            let counted = matches!(
                v,
                Value::Size(_) | Value::Share(_) | Value::Rank(_) | Value::Edge(_) | Value::Number(Some(_))
            );
            counted || matches!(v, Value::Slice(_) | Value::Tuple(_) | Value::List(_))
        };
        let divided = |v: &Value| self.tensor(v).is_some_and(|t| t.divided.is_some());
        if !args.args.iter().any(|a| tells(&a.value) || divided(&a.value)) {
            return None;
        }
        let rule = call.rule;
        let last = rule.name.rsplit('.').next().unwrap_or(&rule.name);
        if rule.tensors.is_empty() {
            return self.divided_sizes(args).or_else(|| self.still_divided(call, args));
        }
        let first = args.args.first().map(|a| &a.value);
        let of_first = || first.and_then(|v| self.tensor(v)).and_then(|t| t.divided.clone());
        let named = |name: &str| {
            let at = call.rule.args.index(name).and_then(|p| call.bound.first(p))?;
            args.args.get(at).map(|a| &a.value)
        };
        let dim = || match named("dim") {
            None => Some(0),
            Some(value) => value.as_int().and_then(|n| i8::try_from(n).ok()),
        };
        match last {
            "chunk" | "tensor_split" => {
                let parts = args.args.iter().find_map(|a| match &a.value {
                    Value::Size(axes) => Some(axes.clone()),
                    _ => None,
                });
                parts.map(|axes| Arc::new(Divided { axes, dim: dim() }))
            }
            "narrow" => named("start").and_then(differing).map(|axes| Arc::new(Divided { axes, dim: dim() })),
            "__getitem__" => match args.args.get(1).map(|a| &a.value) {
                Some(index) => cut(index).or_else(|| differing(index).and_then(|_| of_first())),
                None => None,
            },
            same if rule.identity || SAME.contains(&same) => of_first(),
            _ => self.still_divided(call, args),
        }
    }

    /// The sizes of a new tensor: one argument for each dim, or a sequence of them.
    pub fn divided_sizes(&self, args: &CallArgs) -> Option<Arc<Divided>> {
        let share = |v: &Value| matches!(v, Value::Share(_));
        let listed = |v: &Value| match v {
            Value::Tuple(items) => items.iter().any(share),
            Value::List(_) => true,
            v => share(v),
        };
        if !args.args.iter().any(|a| listed(&a.value)) {
            return None;
        }
        let sizes = args.args.iter().filter(|a| a.keyword.as_deref().is_none_or(|k| k == "size"));
        let mut sizes: Vec<Value> = sizes.map(|a| a.value.clone()).collect();
        if let [one @ (Value::Tuple(_) | Value::List(_)), ..] = sizes.as_slice() {
            sizes = self.literal_items(one)?;
        }
        divided_by(sizes.iter())
    }

    /// What a parameter made with a divided size is, in code that trains.
    pub fn split_by_size(&self, divided: &Divided, origin: &Arc<Origin>, local: &mut LocalType) {
        let own = divided.axes.iter().all(|axis| local.get(axis).set == AxisType::V);
        let open = self.w.modes.typecheck.is_none() && !self.is_global();
        if !open || !own && !self.is_trained() {
            return;
        }
        if self.stack.last().is_some_and(|active| !self.sizes_tell(active.func.module, &divided.axes)) {
            return;
        }
        for axis in divided.axes.iter() {
            let state = local.get(axis).clone();
            let alone = divided.dim.filter(|_| divided.axes.len() == 1);
            match state.set {
                set if set.is_unknown() => {
                    let origin = Some(origin.clone());
                    local.set(axis, AxisState { set: AxisType::V, shard: alone, nest: 0, origin });
                }
                AxisType::V if state.shard.is_none() => local.set(axis, AxisState { shard: alone, ..state }),
                _ => {}
            }
        }
    }

    /// Whether sizes say how parameters made in a module are split. A framework itself has marks for this, and groups of its own under
    /// several names; code on it asks for the number of ranks by the framework's name for the axis.
    fn sizes_tell(&self, module: ModuleId, axes: &AxisSet) -> bool {
        let Some(rule) = self.settings.statics.protocol(self.rules, module) else { return true };
        !rule.has(self.project.name(module))
            && axes.iter().all(|axis| rule.axes.iter().any(|a| self.settings.canonical(a) == *axis))
    }

    /// Whether the module under execution cares for gradients of what it communicates: it has an autograd function or uses one, a
    /// collective with a gradient, or an optimizer. Or one of those that called it takes a backward pass.
    fn is_trained(&self) -> bool {
        let Some(module) = self.stack.last().map(|a| a.func.module) else { return false };
        let text_of = |module| self.files[self.project.file(module)].whole();
        let text = text_of(module);
        let trains = [
            ".backward(",
            "optim.",
            "optimizer.",
            "optimizer =",
            "optimizer)",
            "optimizer,",
            "distributed.nn",
            "DTensor.from_local(",
        ];
        if trains.iter().any(|word| text.contains(word))
            || self.stack.iter().any(|a| a.func.module != module && text_of(a.func.module).contains(".backward("))
        {
            return true;
        }
        // A program that runs its model without gradients, and is no library of models.
        let infers = ["inference_mode(", "set_grad_enabled(False)"].iter().any(|word| text.contains(word));
        if infers && text.contains("__main__") {
            return false;
        }
        self.project.bindings(module).any(|(name, binding)| match binding {
            Binding::Class(class) => self.is_autograd_function(ClassRef { module, class: *class }),
            Binding::Import(_) => match self.project.member(module, name) {
                Some(Resolved::Class(class)) => self.is_autograd_function(class),
                Some(Resolved::Func(func)) => self.has_autograd(func.module),
                // `enter = _Enter.apply` in the other file.
                Some(Resolved::Module(module) | Resolved::Value(module, _)) => self.has_autograd(module),
                Some(Resolved::External(path)) => self.is_differentiable(&path) || self.uses_member(text, name, &path),
                _ => false,
            },
            Binding::Func(_) | Binding::Value => false,
        })
    }

    /// Whether a function is a collective with a gradient.
    fn is_differentiable(&self, path: &str) -> bool {
        matches!(self.rules.get(path), Some(Entry::Collective(rule)) if rule.differentiable)
    }

    /// Whether a text calls such a function as a member of what is imported under a name: `tensor_parallel.gather_from_region(x)`.
    fn uses_member(&self, text: &str, name: &str, path: &str) -> bool {
        self.rules.collectives().filter(|rule| rule.differentiable).any(|rule| {
            let member = rule.name.strip_prefix(path).filter(|member| member.rfind('.') == Some(0));
            member.is_some_and(|member| text.contains(&format!("{name}{member}")))
        })
    }

    fn has_autograd(&self, module: ModuleId) -> bool {
        self.project.bindings(module).any(|(_, binding)| match binding {
            Binding::Class(class) => self.is_autograd_function(ClassRef { module, class: *class }),
            _ => false,
        })
    }
}

/// Of a parameter whose sizes say nothing.
pub fn not_told() -> Arc<Divided> {
    Arc::new(Divided { axes: AxisSet::default(), dim: None })
}

/// How sizes say that a tensor is divided.
pub fn divided_by<'a>(sizes: impl Iterator<Item = &'a Value>) -> Option<Arc<Divided>> {
    let mut found: Option<Divided> = None;
    for (dim, size) in sizes.enumerate() {
        let Value::Share(axes) = size else { continue };
        let dim = i8::try_from(dim).ok();
        found = Some(match found {
            None => Divided { axes: axes.clone(), dim },
            Some(known) => Divided { axes: known.axes.iter().chain(axes.iter()).cloned().collect(), dim: None },
        });
    }
    found.map(Arc::new)
}

/// An index that takes each rank's own range of one dim.
fn cut(index: &Value) -> Option<Arc<Divided>> {
    let range = |v: &Value| match v {
        Value::Slice(parts) => differing(&parts[0]),
        _ => None,
    };
    let items: &[Value] = match index {
        Value::Tuple(items) => items,
        one => std::slice::from_ref(one),
    };
    let at = items.iter().position(|i| range(i).is_some())?;
    let axes: AxisSet = range(&items[at])?;
    // An index before it takes a dim away, an ellipsis or `None` moves it.
    let plain = items[..at].iter().all(|i| matches!(i, Value::Slice(_)));
    let dim = if plain { i8::try_from(at).ok() } else { None };
    Some(Arc::new(Divided { axes, dim }))
}

/// Why a parameter is split.
pub fn partitioned(place: crate::source::Place) -> Arc<Origin> {
    Origin::new(place, Reason::Parameter, Some(crate::types::Spmd::Varying))
}
