//! Modules over meshes: `fully_shard`, `parallelize_module`, styles. In: calls. Out: findings. Never: the types of what modules
//! compute. Source: torch 2.15 `torch.distributed.tensor.parallel`, `torch.distributed.fsdp`. Next: `found.rs`.

use super::Call;
use super::found::{Distributed, MeshMistake, PlanMistake};
use super::planned::Applied;
use crate::infer::finding::FindingKind;
use crate::infer::heap::{Cell, ObjectCell, ObjectClass};
use crate::infer::machine::Machine;
use crate::infer::practice::near;
use crate::infer::value::{ObjId, Value};
use crate::ir::ParamKind;
use crate::rules::Entry;
use crate::source::Name;
use crate::types::{Axis, Mesh};
use std::sync::Arc;

impl Machine<'_> {
    /// `fully_shard(module, mesh=mesh)`: one dim, or two with names for hybrid sharding.
    pub(super) fn fully_shard(&mut self, call: &Call<'_>) -> Value {
        let other = call.args.keyword("dp_mesh_dims").is_some();
        if let Some(Value::Mesh(mesh)) = call.value("mesh")
            && !other
        {
            let dims = mesh.ndim();
            let nameless = dims == 2 && mesh.axes.iter().all(|(a, _)| a.is_variable());
            let api = call.name();
            if !(1..=2).contains(&dims) {
                self.mesh_mistake(call.id, MeshMistake::Dims { api, dims, least: 1, most: 2 });
            } else if nameless {
                self.mesh_mistake(call.id, MeshMistake::NoNames { api });
            }
        }
        self.forget(call.args);
        Value::Unknown
    }

    /// `parallelize_module(module, mesh, plan)`: a mesh of one dim; every key of the plan is a module that its style knows.
    pub(super) fn parallelize(&mut self, call: &Call<'_>) -> Value {
        let plan = call.value("parallelize_plan").cloned();
        let entries: Vec<(Name, Value)> = match &plan {
            Some(Value::Dict(id)) => match self.w.heap.get(*id) {
                Some(Cell::Dict(dict)) => {
                    dict.entries.iter().filter_map(|(k, v)| Some((k.as_str()?.clone(), v.clone()))).collect()
                }
                _ => Vec::new(),
            },
            Some(style) => vec![(Name::from(""), style.clone())],
            None => Vec::new(),
        };
        self.open_modules |= self.is_open_plan(plan.as_ref(), entries.len());
        let builtin = entries.iter().any(|(_, v)| self.style_of(v).is_some());
        if let Some(Value::Mesh(mesh)) = call.value("device_mesh")
            && mesh.ndim() > 1
            && builtin
        {
            let kind = MeshMistake::Dims { api: call.name(), dims: Mesh::ndim(mesh), least: 1, most: 1 };
            self.mesh_mistake(call.id, kind);
        } else if let Some((module, sure)) = self.module_given(call, &entries) {
            self.note_open_plans(call, true);
            let axis = match call.value("device_mesh") {
                Some(Value::Mesh(mesh)) if mesh.ndim() == 1 => mesh.axes.first().map(|(axis, _)| axis.clone()),
                Some(Value::Sym(path)) => self.axis_of_unknown(path),
                _ => None,
            };
            let axis = axis.unwrap_or_else(|| Axis::variable("mesh"));
            let mut fine = true;
            for (key, style) in &entries {
                if self.check_entry(call, (module, sure), key, style) {
                    fine = false;
                    break;
                }
                let known = self.style_of(style).is_some();
                for at in self.modules_at(module, key) {
                    match known {
                        true => self.styled(at, style, &axis),
                        false => self.styled_otherwise(at),
                    }
                }
            }
            let plan = Applied { module, axis, place: self.place(call.id) };
            if fine && !self.quiet && !self.plans.contains(&plan) {
                self.plans.push(plan);
            }
        } else {
            self.note_open_plans(call, false);
        }
        let module = call.value("module").cloned().unwrap_or(Value::Unknown);
        self.forget(call.args);
        match module {
            Value::Object(_) => module,
            _ => Value::Unknown,
        }
    }

    /// Whether a plan may have entries that are not known.
    fn is_open_plan(&self, plan: Option<&Value>, entries: usize) -> bool {
        match plan {
            Some(Value::Dict(id)) => match self.w.heap.get(*id) {
                // A loop without rounds leaves out what it fills under a pattern: that opens no plan.
                Some(Cell::Dict(dict)) => {
                    let looped = dict.entries.iter().any(|(key, _)| key.as_str().is_some_and(|k| k.contains('*')));
                    let text = self.files[self.file()].slice(self.func().span);
                    let closed = looped && !near::has_any(text, &[".update(", "**", "|="]);
                    dict.is_open() && !closed || dict.entries.len() > entries
                }
                _ => true,
            },
            Some(style) => self.style_of(style).is_none(),
            None => true,
        }
    }

    /// The modules that a key of a plan names.
    pub(super) fn modules_at(&self, module: ObjId, key: &str) -> Vec<ObjId> {
        let mut found = vec![Value::Object(module)];
        for step in key.split('.').filter(|s| !s.is_empty()) {
            let mut next = Vec::new();
            for value in found {
                let open = matches!(&value, Value::List(_)).then(|| self.literal_items(&value)).filter(Option::is_none);
                let (items, attr) = match &value {
                    Value::Object(at) => {
                        (self.modules_of(*at), self.w.heap.object(*at).and_then(|o| o.get(step)).cloned())
                    }
                    Value::List(_) => (Some(self.elements(&value)), None),
                    _ => (None, None),
                };
                match (step.parse::<usize>(), items) {
                    // The last one stands for all that are not told apart.
                    (Ok(at), Some(items)) => next.extend(items.get(at).or_else(|| open.and(items.last())).cloned()),
                    (Err(_), Some(items)) if step == "*" => next.extend(items),
                    _ => next.extend(attr),
                }
            }
            found = next;
        }
        let object = |value: Value| match value {
            Value::Object(at) => Some(at),
            _ => None,
        };
        found.into_iter().filter_map(object).collect()
    }

    /// `distribute_module(module, mesh, partition_fn, input_fn, output_fn)`: functions are called with three arguments.
    pub(super) fn distribute_module(&mut self, call: &Call<'_>) -> Value {
        for (part, name) in call.rule.roles.clone() {
            let Some((Value::Closure(closure), place)) = call.arg(&name) else { continue };
            let func = self.project.func(closure.func);
            let variadic = func.params.iter().any(|p| matches!(p.kind, ParamKind::VarArgs));
            let positional = |p: &&crate::ir::Param| matches!(p.kind, ParamKind::Normal | ParamKind::PositionalOnly);
            let most = func.params.iter().filter(positional).count();
            let least = most.saturating_sub(closure.defaults.len());
            let fits = |given: usize| least <= given && given <= most;
            let short = part.contains("2-or-3");
            if variadic || fits(3) || (short && most == 2) {
                continue;
            }
            let mistake = PlanMistake::Arity { argument: name.clone(), takes: most, given: 3 };
            let at = self.part(call.id, place);
            self.report(at, FindingKind::Distributed(Distributed::Plan(mistake)));
        }
        let module = call.value("module").cloned().unwrap_or(Value::Unknown);
        self.forget(call.args);
        match module {
            Value::Object(_) => module,
            _ => Value::Unknown,
        }
    }

    /// The rule of a style, by the object that stands for it.
    pub(super) fn style_of(&self, value: &Value) -> Option<Arc<crate::rules::IntrinsicRule>> {
        let Value::Object(id) = value else { return None };
        let ObjectClass::External(name) = &self.w.heap.object(*id)?.class else { return None };
        match self.rules.get(name)? {
            Entry::Intrinsic(rule) if rule.does.starts_with("dtensor-style") => Some(rule.clone()),
            _ => None,
        }
    }

    /// One entry of a plan. True if a finding was reported.
    fn check_entry(&mut self, call: &Call<'_>, (module, sure): (ObjId, bool), key: &Name, style: &Value) -> bool {
        let mut at = module;
        for step in key.split('.').filter(|s| !s.is_empty()) {
            if step.contains(['*', '?', '[']) || self.modules_of(at).is_some() {
                let named = self.modules_at(module, key);
                return named.into_iter().any(|at| self.check_style(call, at, key, style));
            }
            let Some(cell) = self.w.heap.object(at) else { return false };
            match cell.get(step) {
                Some(Value::Object(next)) => at = *next,
                Some(_) => return false,
                None => return sure && self.no_module(call, at, key, step),
            }
        }
        self.check_style(call, at, key, style)
    }

    /// Whether a style knows the layer that it is for. True if a finding was reported.
    fn check_style(&mut self, call: &Call<'_>, at: ObjId, key: &Name, style: &Value) -> bool {
        let Some(rule) = self.style_of(style).filter(|r| r.does == "dtensor-style-weight") else { return false };
        let Some(ObjectClass::External(layer)) = self.w.heap.object(at).map(|o| o.class.clone()) else { return false };
        let known = matches!(self.rules.get(&layer), Some(Entry::Module(_)));
        if !known || rule.default_group.contains(&layer) {
            return false;
        }
        let takes = rule.default_group.iter().map(|n| crate::infer::collective::short(n)).collect();
        let mistake = PlanMistake::Layer {
            style: crate::infer::collective::short(&rule.name),
            key: key.clone(),
            layer: crate::infer::collective::short(&layer),
            takes,
        };
        self.report(self.place(call.id), FindingKind::Distributed(Distributed::Plan(mistake)));
        true
    }

    /// A step of a key that no attribute has: only where the class shows all of its attributes.
    fn no_module(&mut self, call: &Call<'_>, at: ObjId, key: &Name, step: &str) -> bool {
        let Some(ObjectCell { class: ObjectClass::Project(class), attrs, .. }) = self.w.heap.object(at).cloned() else {
            return false;
        };
        let text = self.files[self.project.file(class.module)].whole();
        let hidden = ["setattr(", "add_module(", "register_module(", "__getattr__", "__dict__"];
        let statics = &self.settings.statics;
        let alone =
            statics.linearized(class).len() == 1 && statics.external_bases(class).all(|b| b.ends_with(".Module"));
        // Containers name their modules by number.
        let alone = alone && !step.starts_with(|c: char| c.is_ascii_digit());
        let named = mentions(text, step);
        if hidden.iter().any(|word| text.contains(word)) || named || !alone {
            return false;
        }
        let near = attrs
            .iter()
            .filter(|(_, v)| matches!(v, Value::Object(_)))
            .map(|(n, _)| n.clone())
            .find(|n| strsim_near(n, step));
        let class = self.project.class(class).name.clone();
        let mistake = PlanMistake::NoModule { key: key.clone(), class, near };
        self.report(self.place(call.id), FindingKind::Distributed(Distributed::Plan(mistake)));
        true
    }

    /// A style: an object whose class is its rule. Its lists of layouts are of equal length.
    pub(super) fn style(&mut self, call: &Call<'_>) -> Value {
        let lists = match call.rule.does.as_str() {
            "dtensor-style-input" => Some(("input_layouts", "desired_input_layouts")),
            "dtensor-style-output" => Some(("output_layouts", "desired_output_layouts")),
            _ => None,
        };
        let both = [("input_layouts", "desired_input_layouts"), ("output_layouts", "desired_output_layouts")];
        let both = both.into_iter().filter(|_| call.rule.does == "dtensor-style-both");
        for (given, desired) in lists.into_iter().chain(both) {
            let count = |m: &Self, name: &str| match call.value(name) {
                Some(Value::Placement(_)) => Some(1),
                Some(Value::Tuple(items)) => Some(items.len()),
                Some(list @ Value::List(_)) => m.literal_items(list).map(|items| items.len()),
                _ => None,
            };
            let (a, b) = (count(self, given), count(self, desired));
            let absent = call.value(desired).is_none_or(Value::is_none);
            let mistake = match (a, b) {
                (Some(a), Some(b)) if a != b => Some(PlanMistake::Lengths { style: call.name(), given: a, desired: b }),
                (Some(_), None) if absent => Some(PlanMistake::NoDesired { style: call.name() }),
                _ => None,
            };
            if let Some(mistake) = mistake {
                self.report(self.place(call.id), FindingKind::Distributed(Distributed::Plan(mistake)));
            }
        }
        let name = call.rule.name.clone();
        let attrs = call.args.args.iter().filter_map(|a| Some((a.keyword.clone()?, a.value.clone()))).collect();
        let cell = ObjectCell { class: ObjectClass::External(name.clone()), path: name, attrs };
        Value::Object(self.fresh(Cell::Object(cell)))
    }
}

/// Whether two names differ by one letter or so.
fn strsim_near(a: &str, b: &str) -> bool {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    a.contains(&b) || b.contains(&a)
}

/// Whether a text has an attribute of this name; in a string it is part of the key of a plan.
fn mentions(text: &str, name: &str) -> bool {
    let attribute = format!(".{name}");
    let word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(&attribute).any(|(at, _)| {
        let (before, rest) = (&text[..at], &text[at + attribute.len()..]);
        let is_key = before.trim_end_matches(|c: char| word(c) || matches!(c, '.' | '*')).ends_with(['"', '\'', '`']);
        !is_key && !rest.starts_with(word)
    })
}
