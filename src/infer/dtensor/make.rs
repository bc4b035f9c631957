//! How distributed tensors are made, moved and left. In: calls. Out: tensors with a mark, or a finding. Never: operations on them.
//! Next: `op.rs`.

use super::Call;
use super::found::Distributed;
use super::placements::question;
use crate::infer::finding::{FindingKind, OperandAt};
use crate::infer::machine::Machine;
use crate::infer::value::{ObjId, Value};
use crate::plan::{Placement, ReduceOp, Written};
use crate::source::Place;
use crate::types::{
    AxisState, AxisType, Dist, LocalType, Mesh, OnMesh, Origin, Reason as Why, Shape, Stated, TensorType, Tri,
    state_of_placement,
};
use std::sync::Arc;

/// Parts of names of tensors without gradients.
const COUNTED: &[&str] = &[
    "mask", "idx", "index", "indic", "ids", "label", "target", "pos", "len", "count", "num", "seq", "norm", "metric",
    "token",
];

impl Machine<'_> {
    /// `distribute_tensor(tensor, mesh, placements)`: the tensor is the whole one.
    pub(super) fn distribute(&mut self, call: &Call<'_>) -> Value {
        let tensor = self.tensor_argument(call);
        let mesh = self.mesh_given(call);
        let known = tensor.as_ref().map(|(_, t)| t.clone());
        let shape = known.as_ref().and_then(|t| t.shape.clone());
        let omitted = call.value("placements").is_none_or(Value::is_none);
        let given = match (omitted, &mesh) {
            (true, Some(mesh)) => Some(vec![Some(Written::Replicate); mesh.ndim()]),
            (true, None) => None,
            (false, _) => self.placements_given(call.value("placements")),
        };
        let Ok(placements) = self.checked(call, mesh.as_deref(), shape.as_ref(), given) else {
            return self.lost_on_mesh(mesh, shape);
        };
        if let Some(was) = known.as_ref().and_then(|t| t.dist.on())
            && self.distributed_again(call, was, mesh.as_ref(), placements.as_deref(), omitted)
        {
            return Value::Unknown;
        }
        self.on_mesh(
            OnMesh { mesh, placements, stated: Stated(Some(self.place(call.id))) },
            known.map_or(Tri::Unknown, |t| t.grad),
            shape,
        )
    }

    /// Whether a tensor that lies on a mesh is distributed another way.
    fn distributed_again(
        &mut self,
        call: &Call<'_>,
        was: &OnMesh,
        mesh: Option<&Arc<Mesh>>,
        wanted: Option<&[Option<Placement>]>,
        omitted: bool,
    ) -> bool {
        let kind = match (&was.mesh, mesh) {
            (Some(a), Some(b)) if a.differs(b) => {
                Distributed::OtherMesh { api: call.name(), meshes: [a.clone(), b.clone()] }
            }
            _ => {
                let wanted = wanted.and_then(|w| w.iter().copied().collect::<Option<Vec<_>>>());
                let (Some(was), Some(wanted), false) = (was.known(), wanted, omitted) else { return false };
                if was == wanted || was.len() != wanted.len() {
                    return false;
                }
                Distributed::Again { api: call.name(), was, wanted }
            }
        };
        self.report(self.place(call.id), FindingKind::Distributed(kind));
        true
    }

    /// `DTensor.from_local(tensor, mesh, placements)`: the tensor is the part of this rank.
    pub(super) fn local_wrapped(&mut self, call: &Call<'_>) -> Value {
        let tensor = self.tensor_argument(call);
        let mesh = self.mesh_given(call);
        let known = tensor.as_ref().map(|(_, t)| t.clone());
        if known.as_ref().is_some_and(|t| t.dist.on().is_some()) {
            let part = call.arg("tensor").map_or(0, |(_, part)| part);
            let kind = Distributed::NotLocal { api: call.name(), tensor: self.part(call.id, part) };
            self.report(self.place(call.id), FindingKind::Distributed(kind));
            return Value::Unknown;
        }
        let shape = known.as_ref().and_then(|t| t.shape.clone());
        let given = self.placements_given(call.value("placements"));
        let Ok(placements) = self.checked(call, mesh.as_deref(), shape.as_ref(), given) else {
            return self.lost_on_mesh(mesh, None);
        };
        let on = OnMesh { mesh, placements, stated: Stated(Some(self.place(call.id))) };
        if let Some((_, t)) = &tensor {
            self.check_claim(call, t, &on);
        }
        let whole = other_shape(shape, &on);
        self.on_mesh(on, known.map_or(Tri::Unknown, |t| t.grad), whole)
    }

    /// Whether local values are to each other what the placements say.
    fn check_claim(&mut self, call: &Call<'_>, t: &TensorType, on: &OnMesh) {
        let part = call.arg("tensor").map_or(0, |(_, part)| part);
        for (axis, placement) in on.axes() {
            let (state, Some(placement)) = (t.local.get(axis).clone(), placement) else { continue };
            let allowed = match placement {
                Placement::Replicate => AxisType::EQUAL,
                Placement::Shard(_) | Placement::Strided { .. } => AxisType::EQUAL.join(AxisType::V),
                Placement::Partial(_) => continue,
            };
            if state.set.known().is_none() || !state.set.meet(allowed).is_empty() || axis.is_position() {
                continue;
            }
            let operand =
                OperandAt { place: Some(self.part(call.id, part)), state, is_number: false, is_divisor: false };
            let kind = Distributed::Claim { api: call.name(), axis: axis.clone(), placement, operand };
            self.report(self.place(call.id), FindingKind::Distributed(kind));
            return;
        }
    }

    /// A factory with a mesh and placements.
    pub(super) fn distributed_factory(&mut self, call: &Call<'_>) -> Value {
        let mesh = self.mesh_given(call);
        let sizes: Vec<Value> = match call.args.args.iter().filter(|a| a.keyword.is_none()).collect::<Vec<_>>()[..] {
            [one] => self.literal_items(&one.value).unwrap_or_else(|| vec![one.value.clone()]),
            ref many => many.iter().map(|a| a.value.clone()).collect(),
        };
        let numbers = !sizes.is_empty() && sizes.iter().all(Value::is_number);
        let shape = numbers.then(|| Shape(sizes.iter().map(Value::as_int).collect()));
        let omitted = call.value("placements").is_none_or(Value::is_none);
        let given = match (omitted, &mesh) {
            (true, Some(mesh)) => Some(vec![Some(Written::Replicate); mesh.ndim()]),
            _ => self.placements_given(call.value("placements")),
        };
        match self.checked(call, mesh.as_deref(), shape.as_ref(), given) {
            Ok(placements) => self.on_mesh(
                OnMesh { mesh, placements, stated: Stated(Some(self.place(call.id))) },
                Tri::Unknown,
                shape,
            ),
            Err(()) => self.lost_on_mesh(mesh, shape),
        }
    }

    /// `tensor.redistribute(mesh, placements)`
    pub(super) fn redistribute(&mut self, call: &Call<'_>) -> Value {
        let Some((_, t)) = self.tensor_argument(call) else { return Value::Unknown };
        let Some(on) = t.dist.on().cloned() else { return Value::Unknown };
        let wanted_mesh = self.mesh_given(call);
        if let (Some(a), Some(b)) = (&on.mesh, &wanted_mesh)
            && a.differs(b)
        {
            let kind = Distributed::OtherMesh { api: call.name(), meshes: [a.clone(), b.clone()] };
            self.report(self.place(call.id), FindingKind::Distributed(kind));
            return Value::Unknown;
        }
        let mesh = on.mesh.clone().or(wanted_mesh);
        let given = self.placements_given(call.value("placements"));
        let Ok(placements) = self.checked(call, mesh.as_deref(), t.shape.as_ref(), given) else {
            return self.lost_on_mesh(mesh, t.shape);
        };
        let to = OnMesh { mesh, placements, stated: Stated(Some(self.place(call.id))) };
        if let (Some(from), Some(target)) = (on.known(), to.known())
            && from.len() == target.len()
            && let Err(refusal) = question(to.mesh.as_deref(), t.shape.as_ref(), &from, &target)
        {
            let part = call.arg("placements").map_or(0, |(_, part)| part);
            self.refuse(call, part, refusal);
            return self.lost_on_mesh(to.mesh, t.shape);
        }
        self.on_mesh(to, t.grad, t.shape)
    }

    /// `tensor.to_local()`: the part of this rank, with the type that the placements stand for.
    pub(super) fn local_part(&mut self, call: &Call<'_>) -> Value {
        let Some((_, t)) = self.tensor_argument(call) else { return Value::Unknown };
        let Some(on) = t.dist.on().cloned() else { return Value::Unknown };
        let mesh = on.mesh.clone();
        let stated = self.placements_given(call.value("grad_placements"));
        let gradients = match stated {
            Some(given) => {
                let known = on.placements.as_ref().map(Vec::len);
                let ndim = mesh.as_deref().map(Mesh::ndim).or(known);
                let fits = ndim == Some(given.len());
                match self.check_placements(call, "grad_placements", mesh.as_deref(), t.shape.as_ref(), &given) {
                    Ok(found) => Some(found).filter(|_| fits),
                    Err(()) => None,
                }
            }
            None => None,
        };
        let silent = call.value("grad_placements").is_some() && gradients.is_none();
        // Without a word about it the gradient of an activation is taken for what the activation is.
        let part = call.arg("tensor").map_or(0, |(_, part)| part);
        let at = self.part(call.id, part);
        let kept = self.files[at.file].slice(at.span).starts_with("self.");
        let bare = call.value("grad_placements").is_none() && !kept && self.trains(&t, at);
        let mut local = LocalType::unknown();
        for (i, (axis, placement)) in on.axes().enumerate() {
            let Some(placement) = placement.filter(|_| !axis.is_position() && !silent) else { continue };
            let mut state = state_of_placement(placement);
            if placement == Placement::Replicate {
                state.set = match gradients.as_ref().and_then(|g| g.get(i).copied().flatten()) {
                    Some(Placement::Partial(_)) => AxisType::R,
                    Some(Placement::Replicate) => AxisType::I,
                    None if bare => AxisType::I,
                    _ => continue,
                };
            }
            if placement.is_partial() && placement != Placement::Partial(ReduceOp::Sum) {
                continue;
            }
            let origin = Origin::new(self.place(call.id), Why::Collective(call.name()), state.set.known());
            local.set(axis, state.from(&origin));
        }
        let shape = other_shape(t.shape, &on);
        self.new_tensor(TensorType { local, shape, grad: t.grad, dist: Dist::Plain, ..TensorType::unknown() })
    }

    /// `tensor.full_tensor()`: the whole of it, on every rank.
    pub(super) fn full_tensor(&mut self, call: &Call<'_>) -> Value {
        let Some((_, t)) = self.tensor_argument(call) else { return Value::Unknown };
        let Some(on) = t.dist.on().cloned() else { return Value::Unknown };
        let mut local = LocalType::unknown();
        // Without a word about it the gradient is taken for whole on every rank.
        let part = call.arg("tensor").map_or(0, |(_, part)| part);
        let trained = call.value("grad_placements").is_none() && self.trains(&t, self.part(call.id, part));
        for (axis, placement) in on.axes().filter(|(axis, _)| trained && !axis.is_position()) {
            if matches!(placement, Some(Placement::Shard(_))) {
                let origin = Origin::new(self.place(call.id), Why::Collective(call.name()), AxisType::I.known());
                local.set(axis, AxisState::new(AxisType::I).from(&origin));
            }
        }
        self.new_tensor(TensorType { local, shape: t.shape, grad: t.grad, dist: Dist::Plain, ..TensorType::unknown() })
    }

    /// Whether gradients flow through a tensor: it is not one without, by its type or its name, in the forward of a module.
    fn trains(&self, t: &TensorType, at: Place) -> bool {
        let text = self.files[at.file].slice(at.span).to_lowercase();
        if COUNTED.iter().any(|word| text.contains(word)) {
            return false;
        }
        let forward = |func: crate::project::FuncRef| {
            let f = self.project.func(func);
            let class = f.class.filter(|_| f.name == "forward");
            class.is_some_and(|class| {
                let class = crate::project::ClassRef { module: func.module, class };
                self.settings.statics.external_bases(class).any(|base| base.ends_with(".Module"))
            })
        };
        self.w.modes.grad && t.grad != Tri::No && self.stack.iter().any(|a| forward(a.func))
    }

    fn checked(
        &mut self,
        call: &Call<'_>,
        mesh: Option<&Mesh>,
        shape: Option<&Shape>,
        given: Option<Vec<Option<Written>>>,
    ) -> Result<Option<Vec<Option<Placement>>>, ()> {
        match given {
            Some(given) => self.check_placements(call, "placements", mesh, shape, &given).map(Some),
            None => Ok(None),
        }
    }

    fn tensor_argument(&self, call: &Call<'_>) -> Option<(ObjId, TensorType)> {
        match call.value("tensor")? {
            Value::Tensor(id) => self.w.heap.tensor(*id).map(|t| (*id, t.clone())),
            _ => None,
        }
    }

    pub(super) fn on_mesh(&mut self, on: OnMesh, grad: Tri, shape: Option<Shape>) -> Value {
        self.new_tensor(TensorType { shape, grad, dist: Dist::On(Arc::new(on)), ..TensorType::unknown() })
    }

    /// After a finding: on this mesh, nobody knows how.
    fn lost_on_mesh(&mut self, mesh: Option<Arc<Mesh>>, shape: Option<Shape>) -> Value {
        self.on_mesh(OnMesh { mesh, placements: None, stated: Stated::default() }, Tri::Unknown, shape)
    }
}

/// The shape of the whole of which a rank has a part of this shape, or of the part that it has: sizes of split dims are not known.
fn other_shape(shape: Option<Shape>, on: &OnMesh) -> Option<Shape> {
    let mut shape = shape?;
    for placement in on.placements.as_ref()? {
        match placement {
            Some(Placement::Replicate | Placement::Partial(_)) => {}
            Some(Placement::Shard(dim) | Placement::Strided { dim, .. }) => *shape.0.get_mut(*dim)? = None,
            None => return Some(Shape(vec![None; shape.rank()])),
        }
    }
    Some(shape)
}
