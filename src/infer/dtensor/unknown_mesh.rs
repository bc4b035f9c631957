//! Meshes of unknown origin: a parameter, an attribute, what an unknown function returns. In: symbols that are used as meshes. Out: a
//! mesh of one dim with an axis of its own, groups, sizes and ranks on it. Never: two of them taken for equal or for different; what
//! a symbol is beyond one dim. Next: `make.rs`.

use super::Call;
use crate::infer::expr::CallArgs;
use crate::infer::machine::Machine;
use crate::infer::value::{ObjId, Value};
use crate::ir::Const;
use crate::source::Name;
use crate::types::{Axis, AxisSet, AxisState, Mesh};
use std::sync::Arc;

/// How names of meshes end.
const MESH: &str = "mesh";

impl Machine<'_> {
    /// The mesh of a call. One of which nothing is known has one dim if there is one placement.
    pub(super) fn mesh_given(&self, call: &Call<'_>) -> Option<Arc<Mesh>> {
        match call.value("device_mesh")? {
            Value::Mesh(mesh) => Some(mesh.clone()),
            Value::Sym(path) => {
                let placements = self.literal_items(call.value("placements")?)?;
                let axis = self.axis_of_unknown(path).filter(|_| placements.len() == 1)?;
                Some(Arc::new(Mesh::new(vec![(axis, None)])))
            }
            _ => None,
        }
    }

    /// The axis of a mesh of one dim of which nothing but where it comes from is known: named where it is a slice by name, else one
    /// that is equal to itself only.
    pub(super) fn axis_of_unknown(&self, path: &str) -> Option<Axis> {
        if self.symbol(&Name::from(path)).is_some() {
            return None;
        }
        let axes = match (self.settings.group_named(path), sliced(path)) {
            (Some(axes), _) => axes,
            (None, Some(name)) => self.settings.axes_named(name).unwrap_or_else(|| AxisSet::one(Axis::new(name))),
            (None, None) => AxisSet::one(Axis::of_mesh(path)),
        };
        axes.single().cloned()
    }

    /// What a mesh of unknown origin is as a group.
    pub(in crate::infer) fn unknown_mesh_group(&self, path: &str) -> Option<AxisSet> {
        self.axis_of_unknown(path).filter(|_| is_mesh(path)).map(AxisSet::one)
    }

    /// A collective over a group moves what a mesh of unknown origin says too, as the group may be that of the mesh.
    pub(in crate::infer) fn forget_unknown_meshes(&mut self, tensor: ObjId, over: &AxisSet) {
        let Some(mut t) = self.w.heap.tensor(tensor).cloned().filter(|_| self.w.modes.typecheck.is_none()) else {
            return;
        };
        let any = over.iter().any(Axis::is_of_mesh);
        let others = t.local.listed().map(|(axis, _)| axis).filter(|axis| any || axis.is_of_mesh());
        let others: Vec<Axis> = others.filter(|axis| !over.contains(axis)).cloned().collect();
        if others.is_empty() {
            return;
        }
        for axis in others {
            t.local.set(&axis, AxisState::UNKNOWN);
        }
        self.retype(tensor, t);
    }

    /// A method of something that is a mesh by its name, without saying which dim.
    pub(in crate::infer) fn unknown_mesh_method(&self, path: &str, name: &str, args: &CallArgs) -> Option<Value> {
        if !args.args.is_empty() || args.open || !is_mesh(path) {
            return None;
        }
        let axes = || self.axis_of_unknown(path).map(AxisSet::one);
        match name {
            "get_group" => axes().map(Value::Group),
            "size" => axes().map(Value::Size),
            "get_local_rank" => axes().map(Value::Rank),
            _ => None,
        }
    }

    /// What an unknown function of constants returns whose name says that it is a mesh.
    pub(in crate::infer) fn mesh_of_call(&self, path: &str, args: &CallArgs) -> Option<Value> {
        let named = path.rsplit('.').next().is_some_and(|last| last.starts_with("get_") && last.ends_with(MESH));
        if !named || args.open {
            return None;
        }
        let mut text: Vec<String> = Vec::new();
        for arg in &args.args {
            let value = match &arg.value {
                Value::Const(Const::Str(s)) => format!("{s:?}"),
                Value::Const(Const::Int(n)) => n.to_string(),
                Value::Const(Const::None) => "None".to_owned(),
                _ => return None,
            };
            text.push(arg.keyword.as_ref().map_or(value.clone(), |k| format!("{k}={value}")));
        }
        Some(Value::Sym(Name::from(format!("{path}({})", text.join(", ")))))
    }
}

/// Whether the last part of a path is the name of a mesh, or of a slice or getter of one.
fn is_mesh(path: &str) -> bool {
    let named = path.split(['[', '(']).next().unwrap_or(path);
    named.rsplit('.').next().is_some_and(|last| last == MESH || last.ends_with("_mesh"))
}

/// The one name by which a mesh is cut out of another: `mesh["tp"]`, `get_mesh("tp")`.
fn sliced(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("[\"").or_else(|| path.split_once("(\""))?;
    let name = rest.strip_suffix("\"]").or_else(|| rest.strip_suffix("\")"))?;
    (!name.contains('"')).then_some(name)
}
