//! Annotations as types: a tensor with a partition spec is split as the spec says on each axis of its mesh, and a compiler moves it as
//! operations need it. In: calls of the functions of a sharding library in the executed program. Out: meshes, tensors with types.
//! Never: what is wrong with an annotation, which `spec.rs` says. Next: `infer/dtensor/op.rs`.

use crate::infer::dtensor::found::Distributed;
use crate::infer::expr::CallArgs;
use crate::infer::finding::FindingKind;
use crate::infer::machine::Machine;
use crate::infer::value::{ObjId, Value};
use crate::ir::{Const, StmtId};
use crate::plan::Placement;
use crate::rules::IntrinsicRule;
use crate::source::Name;
use crate::types::{Axis, Dist, Mesh, OnMesh, Shape, Stated, TensorType};
use std::sync::Arc;

impl Machine<'_> {
    /// A function of a sharding library that makes a mesh or annotates a tensor; `None` for any other.
    pub(in crate::infer) fn annotating_intrinsic(
        &mut self,
        id: StmtId,
        rule: &Arc<IntrinsicRule>,
        args: &CallArgs,
    ) -> Option<Value> {
        let does = rule.does.strip_prefix("sharding-").filter(|_| !args.open)?;
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let bound = rule.args.bind(&keywords);
        let arg = |name: &str| {
            let at = rule.args.index(name)?;
            bound.first(at).and_then(|i| args.args.get(i)).map(|a| a.value.clone())
        };
        let tensor = || arg("t").or_else(|| arg("elem"));
        Some(match does {
            "mesh" => self.compiled_mesh(arg("axis_names"), arg("mesh_shape")),
            "hybrid-mesh" => {
                let alone = arg("dcn_mesh_shape").is_none_or(|v| v.is_none());
                self.compiled_mesh(arg("axis_names"), arg("ici_mesh_shape").filter(|_| alone))
            }
            "flat-mesh" => {
                let names = arg("axis_name").filter(|v| v.as_str().is_some()).map(|v| Value::tuple(vec![v]));
                self.compiled_mesh(names, None)
            }
            "mark" => {
                let tensor = tensor()?;
                self.annotated(id, &tensor, arg("mesh"), arg("partition_spec"));
                tensor
            }
            "mark-gradients" => {
                let source = tensor()?;
                let known = self.as_tensor(&source).and_then(|at| self.w.heap.tensor(at).cloned());
                let copy = self.new_tensor(known.unwrap_or_else(TensorType::unknown));
                self.annotated(id, &copy, arg("mesh"), arg("partition_spec"));
                copy
            }
            "set-mesh" => {
                self.compiled = arg("mesh").unwrap_or(Value::Unknown);
                Value::NONE
            }
            "get-mesh" => self.compiled.clone(),
            "clear" => {
                let tensor = tensor()?;
                if let Some(at) = self.as_tensor(&tensor) {
                    self.laid(at, Dist::Unknown);
                }
                tensor
            }
            "annotate" | "wrapped" => tensor()?,
            _ => return None,
        })
    }

    fn compiled_mesh(&mut self, names: Option<Value>, shape: Option<Value>) -> Value {
        let Some(names) = names.and_then(|n| self.literal_items(&n)) else { return Value::Unknown };
        let sizes = shape.and_then(|s| self.literal_items(&s)).unwrap_or_default();
        let mut axes: Vec<(Axis, Option<u64>)> = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let Some(name) = name.as_str() else { return Value::Unknown };
            let axis = self.settings.canonical(name);
            if axes.iter().any(|(a, _)| *a == axis) {
                return Value::Unknown;
            }
            let size = sizes.get(i).and_then(Value::as_int).and_then(|n| u64::try_from(n).ok());
            axes.push((axis, size));
        }
        Value::Mesh(Arc::new(Mesh { auto: true, ..Mesh::new(axes) }))
    }

    /// A tensor gets the placements that a spec stands for.
    fn annotated(&mut self, id: StmtId, tensor: &Value, mesh: Option<Value>, spec: Option<Value>) {
        let Some(at) = self.as_tensor(tensor) else { return };
        let (Some(Value::Mesh(mesh)), Some(Value::Tuple(spec))) = (mesh, spec) else {
            return self.laid(at, Dist::Unknown);
        };
        let placements = placements(&mesh, &spec, &|name| self.settings.canonical(name));
        let on = OnMesh { mesh: Some(mesh), placements, stated: Stated(Some(self.place(id))) };
        self.otherwise(id, at, &on);
        if let Some(t) = self.w.heap.tensor_mut(at) {
            let fits = t.shape.as_ref().is_none_or(|s| s.rank() == spec.len());
            if t.shape.is_none() && fits {
                t.shape = Some(Shape(vec![None; spec.len()]));
            }
        }
        self.laid(at, Dist::On(Arc::new(on)));
    }

    fn laid(&mut self, at: ObjId, dist: Dist) {
        if let Some(t) = self.w.heap.tensor(at).cloned() {
            self.retype(at, TensorType { dist, ..t });
        }
    }

    /// Whether the tensor is known to lie otherwise, by another notation: a comment, placements.
    fn otherwise(&mut self, id: StmtId, at: ObjId, on: &OnMesh) {
        let Some(t) = self.w.heap.tensor(at).cloned() else { return };
        for (axis, placement) in on.axes() {
            let Some(placement) = placement else { continue };
            let state = t.local.get(axis);
            let declared = state.is_declared().then(|| (state.clone(), state.origin.as_ref().map(|o| o.place)));
            let by_placement = match &t.dist {
                Dist::On(before) if before.mesh.as_deref().is_some_and(|m| !m.auto) => before
                    .axes()
                    .find(|(a, _)| *a == axis)
                    .and_then(|(_, p)| Some((crate::types::state_of_placement(p?), before.stated.0))),
                _ => None,
            };
            for (state, stated) in declared.into_iter().chain(by_placement) {
                if crate::infer::dtensor::differs(&state, placement, t.rank()) {
                    let kind = Distributed::Notations {
                        axis: axis.clone(),
                        state,
                        placement,
                        stated,
                        here: true,
                        value: None,
                        by: None,
                    };
                    self.report(self.place(id), FindingKind::Distributed(kind));
                    return;
                }
            }
        }
    }
}

/// The placement on each axis of a mesh; `None`: an entry is not known.
fn placements(mesh: &Mesh, spec: &[Value], named: &dyn Fn(&str) -> Axis) -> Option<Vec<Option<Placement>>> {
    let mut out = vec![Some(Placement::Replicate); mesh.axes.len()];
    for (dim, entry) in spec.iter().enumerate() {
        let entries = match entry {
            Value::Const(Const::None) => continue,
            Value::Tuple(inner) => inner.to_vec(),
            one => vec![one.clone()],
        };
        for entry in entries {
            let at = match &entry {
                Value::Const(Const::Str(name)) => mesh.position(&named(name)),
                Value::Const(Const::Int(n)) => usize::try_from(*n).ok(),
                _ => None,
            }?;
            *out.get_mut(at)? = Some(Placement::Shard(dim));
        }
    }
    Some(out)
}
