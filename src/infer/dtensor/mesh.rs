//! Meshes of devices: their dims, names and slices. In: calls and subscripts. Out: meshes, or a finding. Never: groups, which
//! `groups.rs` makes of them. Source: torch 2.15 `torch.distributed.device_mesh`. Next: `modules.rs`.

use super::found::{Distributed, MeshMistake};
use crate::infer::expr::CallArgs;
use crate::infer::finding::FindingKind;
use crate::infer::machine::Machine;
use crate::infer::value::Value;
use crate::ir::StmtId;
use crate::source::Name;
use crate::types::{Axis, Mesh};
use std::sync::Arc;

/// Functions that give a mesh further names: one that is written out, and others.
const FLATTEN: &str = "_flatten(";
const NAMING: [&str; 2] = ["_unflatten(", "_concatenate("];

impl Machine<'_> {
    /// A mesh by its sizes and names; dims without names are known by their number only.
    pub(in crate::infer) fn device_mesh(&mut self, id: StmtId, shape: Option<Value>, names: Option<Value>) -> Value {
        let sizes = shape.and_then(|s| self.literal_items(&s));
        let unnamed = names.as_ref().is_none_or(Value::is_none);
        let size = |sizes: &Option<Vec<Value>>, i: usize| {
            sizes.as_ref()?.get(i).and_then(Value::as_int).and_then(|n| u64::try_from(n).ok())
        };
        if unnamed {
            let Some(sizes) = sizes else { return Value::Unknown };
            let all = Some(sizes);
            let count = all.as_ref().map_or(0, Vec::len);
            let axes = (0..count).map(|i| (Axis::variable(&i.to_string()), size(&all, i))).collect();
            return Value::Mesh(Arc::new(Mesh::new(axes)));
        }
        let Some(names) = names.and_then(|n| self.literal_items(&n)) else { return Value::Unknown };
        if let Some(sizes) = sizes.as_ref().filter(|s| s.len() != names.len()) {
            self.mesh_mistake(id, MeshMistake::Names { names: names.len(), sizes: sizes.len() });
            return Value::Unknown;
        }
        let mut axes: Vec<(Axis, Option<u64>)> = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let Some(name) = name.as_str() else { return Value::Unknown };
            let axis = self.settings.canonical(name);
            if axes.iter().any(|(a, _)| *a == axis) {
                self.mesh_mistake(id, MeshMistake::Repeated(name.clone()));
                return Value::Unknown;
            }
            axes.push((axis, size(&sizes, i)));
        }
        Value::Mesh(Arc::new(Mesh::new(axes)))
    }

    /// `mesh["tp"]`, `mesh["dp", "tp"]`: the mesh has these dims, in this order.
    pub(in crate::infer) fn check_slice(&mut self, id: StmtId, mesh: &Arc<Mesh>, index: &Value) {
        let names: Option<Vec<Name>> = match index {
            Value::Const(crate::ir::Const::Str(name)) => Some(vec![name.clone()]),
            Value::Tuple(items) => items.iter().map(|v| v.as_str().cloned()).collect(),
            _ => None,
        };
        let Some(names) = names.filter(|n| !n.is_empty() && !mesh.flat) else { return };
        if mesh.axes.iter().all(|(a, _)| a.is_variable()) {
            if !mesh.axes.is_empty() {
                self.mesh_mistake(id, MeshMistake::Unnamed);
            }
            return;
        }
        let at: Vec<Option<usize>> = names.iter().map(|n| mesh.position(&self.settings.canonical(n))).collect();
        let missing = at.iter().zip(&names).find(|(at, _)| at.is_none()).map(|(_, name)| name.clone());
        let mistake = match missing {
            Some(name) if self.may_be_named_so(&name) => return,
            Some(name) => MeshMistake::NoDim { name, mesh: mesh.clone() },
            None if at.windows(2).any(|pair| matches!(pair, [Some(a), Some(b)] if a >= b)) => {
                MeshMistake::Order { given: names, mesh: mesh.clone() }
            }
            None => return,
        };
        self.mesh_mistake(id, mistake);
    }

    /// Whether anything in the project may give dims of a mesh this name together.
    fn may_be_named_so(&self, name: &str) -> bool {
        let names = |text: &str| {
            text.match_indices(FLATTEN).any(|(at, found)| {
                let given = text[at + found.len()..].trim_start();
                let given = given.strip_prefix("mesh_dim_name=").unwrap_or(given);
                match given.chars().next() {
                    Some(quote @ ('"' | '\'')) => match given[1..].split_once(quote) {
                        Some((written, rest)) if rest.trim_start().starts_with([')', ',']) => written == name,
                        _ => true,
                    },
                    _ => true,
                }
            })
        };
        let handed_on = |text: &str| {
            let called = text.matches(FLATTEN).count();
            text.matches(FLATTEN.trim_end_matches('(')).count() > called || text.contains("mesh.flatten(")
        };
        NAMING.iter().any(|word| self.project_says(word))
            || self.files.saying("flatten").any(|file| handed_on(self.files[file].whole()))
            || self.files.saying(FLATTEN).any(|file| names(self.files[file].whole()))
    }

    /// A method that means one dim, of a mesh with several.
    pub(in crate::infer) fn check_mesh_call(&mut self, id: StmtId, mesh: &Arc<Mesh>, name: &Name, args: &CallArgs) {
        let one = matches!(name.as_str(), "get_group" | "get_local_rank");
        if one && args.args.is_empty() && !args.open && mesh.ndim() > 1 {
            self.mesh_mistake(id, MeshMistake::WhichDim { method: name.clone(), mesh: mesh.clone() });
        }
    }

    pub(super) fn mesh_mistake(&mut self, id: StmtId, mistake: MeshMistake) {
        self.report(self.place(id), FindingKind::Distributed(Distributed::Mesh(mistake)));
    }
}
