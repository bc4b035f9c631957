//! What a group expression denotes. In: a value. Out: mesh axes. Never: guesses that lead to errors: a group that nothing resolves is
//! a variable of its own, equal only to itself. Source: DESIGN.md section 5, order of resolution. Next: `intrinsics.rs`.

use super::expr::CallArgs;
use super::items::mesh_group;
use super::machine::Machine;
use super::value::Value;
use crate::ir::Const;
use crate::rules::CollectiveRule;
use crate::source::Name;
use crate::types::{Axis, AxisSet, Mesh};
use std::sync::Arc;

/// The group of all ranks where no mesh says which axes they have.
const WORLD: &str = "world";

/// Whether a group is that of all ranks without a mesh.
pub fn is_world(axes: &AxisSet) -> bool {
    axes.single().is_some_and(|a| a.is_variable() && a.name() == WORLD)
}

impl Machine<'_> {
    /// The axes of the group argument of a collective.
    pub fn group_axes(&mut self, group: Option<&Value>, rule: &CollectiveRule) -> Option<AxisSet> {
        match group {
            None | Some(Value::Const(Const::None)) => self.default_axes(&rule.default_group),
            Some(value) => self.axes_of_value(value),
        }
    }

    /// The axes of an absent group: those of the rule, or all of the mesh.
    pub fn default_axes(&mut self, default: &[Name]) -> Option<AxisSet> {
        if default.is_empty() {
            return Some(self.whole_mesh().unwrap_or_else(|| AxisSet::one(Axis::variable(WORLD))));
        }
        Some(default.iter().map(|a| self.settings.canonical(a)).collect())
    }

    /// Every axis of the mesh in force, if there is one.
    pub fn whole_mesh(&self) -> Option<AxisSet> {
        let mesh = self.w.modes.mesh.clone().or_else(|| self.settings.mesh_of(self.activation().module))?;
        Some(mesh.axis_set())
    }

    /// The axes that a value denotes.
    pub fn axes_of_value(&mut self, value: &Value) -> Option<AxisSet> {
        match value {
            Value::Group(axes) => Some(axes.clone()),
            Value::Mesh(mesh) => Some(mesh_group(mesh)).filter(|_| mesh.is_named()),
            Value::Const(Const::Str(name)) => {
                Some(self.settings.axes_named(name).unwrap_or_else(|| AxisSet::one(Axis::new(name.clone()))))
            }
            Value::Tuple(items) => {
                let mut all = Vec::new();
                for item in items.iter() {
                    all.extend(self.axes_of_value(item)?.iter().cloned());
                }
                Some(all.into_iter().collect())
            }
            Value::Sym(path) => Some(match self.settings.group_named(path) {
                Some(axes) => axes,
                // The name of a group stands for it.
                None if self.deriving.is_some() => {
                    AxisSet::one(Axis::variable(path.strip_suffix("_name").unwrap_or(path)))
                }
                None => self.unknown_mesh_group(path).unwrap_or_else(|| AxisSet::one(Axis::variable(path))),
            }),
            _ => None,
        }
    }

    /// The axes of a slice of a mesh that nothing else is known of: `mesh["tp"].get_group()`, `mesh.get_group("tp")`.
    pub fn axes_of_slice(&self, path: &str, method: &str, args: &CallArgs) -> Option<AxisSet> {
        if !matches!(method, "get_group" | "get_local_rank" | "get_coordinate" | "size" | "get_rank") {
            return None;
        }
        let given = args.get(0, "mesh_dim").and_then(Value::as_str).map(|s| s.to_string());
        let sliced = path.strip_suffix("\"]").and_then(|p| p.rsplit_once("[\"")).map(|(_, name)| name.to_string());
        let name = match (given, sliced) {
            (Some(name), _) if method.starts_with("get_") => name,
            (None, Some(name)) if args.args.is_empty() => name,
            _ => return None,
        };
        Some(self.settings.axes_named(&name).unwrap_or_else(|| AxisSet::one(Axis::new(name))))
    }

    /// An attribute of a mesh.
    pub fn mesh_attr(&mut self, mesh: &Arc<Mesh>, name: &Name) -> Option<Value> {
        match name.as_str() {
            "ndim" => Some(Value::int(mesh.ndim() as i64)),
            "mesh_dim_names" if mesh.is_named() && !mesh.flat => {
                Some(Value::tuple(mesh.axes.iter().map(|(a, _)| Value::str(a.0.clone())).collect()))
            }
            _ => None,
        }
    }

    /// A method of a mesh: its groups, sizes and ranks.
    pub fn mesh_method(&mut self, mesh: &Arc<Mesh>, name: &Name, args: &CallArgs) -> Value {
        let axes = match args.get(0, "mesh_dim").or_else(|| args.keyword("mesh_dim_name")) {
            None | Some(Value::Const(Const::None)) => Some(mesh.axis_set()),
            Some(Value::Const(Const::Str(axis))) => {
                mesh.axes.iter().find(|(a, _)| a.name() == axis.as_str()).map(|(a, _)| AxisSet::one(a.clone()))
            }
            Some(Value::Const(Const::Int(n))) => {
                usize::try_from(*n).ok().and_then(|n| mesh.axes.get(n)).map(|(a, _)| AxisSet::one(a.clone()))
            }
            Some(_) => None,
        };
        if !mesh.is_named() {
            return Value::Unknown;
        }
        match (name.as_str(), axes) {
            ("get_group", Some(axes)) => Value::Group(axes),
            ("size", Some(axes)) => Value::Size(axes),
            ("get_local_rank" | "get_rank" | "get_coordinate", Some(axes)) => Value::Rank(axes),
            // The flattened mesh has one dim that stands for all axes.
            ("_flatten", _) => Value::Mesh(Arc::new(Mesh { axes: mesh.axes.clone(), flat: true, auto: mesh.auto })),
            _ => Value::Unknown,
        }
    }
}
