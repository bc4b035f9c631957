//! Partition specs against their mesh and tensor, as the library asserts them, and what it does not assert. In: an annotation.
//! Out: the annotated tensor, and what is wrong. Never: an unknown entry taken for anything. Source: PyTorch/XLA, `mark_sharding`,
//! `Mesh._get_op_sharding`, `_translate_named_partition_spec`. Next: `mod.rs`.

use super::found::{Entry, Sharding};
use super::library::{Annotation, Effect};
use super::run::Run;
use super::value::{AxisNames, Manual, Mesh, Note, Val};
use crate::ir::{Const, LocalId, Operand};
use crate::source::{Name, Place};
use std::sync::Arc;

/// The axes of each dim; an axis that is not known is `None`.
type Dims = Vec<Vec<Option<usize>>>;

impl Run<'_> {
    pub fn annotate(&mut self, place: Place, annotation: &Annotation, effect: Effect) -> Val {
        self.without_mode(place);
        self.named(annotation);
        let tensor = match (&annotation.tensor, annotation.local) {
            (Val::Unknown, Some(local)) => match self.st.get(local) {
                Some(Val::Tensor(t)) => Val::Tensor(*t),
                _ => Val::Unknown,
            },
            (value, _) => value.clone(),
        };
        let before = match &tensor {
            Val::Tensor(t) => self.st.tensors.get(t).cloned(),
            _ => None,
        };
        let given = annotation.spec.items().map(|i| i.len());
        let shape = before.as_ref().and_then(|t| t.shape.clone());
        if let (Some(shape), Some(given)) = (&shape, given)
            && shape.len() != given
        {
            let made = before.as_ref().map(|t| t.made).filter(|m| *m != place);
            self.report(place, Sharding::Length { given, rank: shape.len(), made });
            self.forget_use(&annotation.mesh);
            return Val::Unknown;
        }
        let dims = self.entries(place, &annotation.mesh, &annotation.spec);
        let note = self.note(place, annotation, dims.as_ref());
        if let (Some(dims), Some(shape), Val::Mesh(mesh)) = (&dims, &shape, &annotation.mesh) {
            self.even(place, mesh, dims, shape);
        }
        let shape = shape.or_else(|| given.map(|n| vec![None; n]));
        match (effect, tensor) {
            (Effect::Mark | Effect::Enter, Val::Tensor(t)) => {
                if let Some(known) = self.st.tensors.get_mut(&t) {
                    let old = std::mem::replace(&mut known.note, note.clone());
                    known.shape = shape;
                    self.compare(place, &old, &note);
                }
                match effect {
                    Effect::Enter => self.tensor(place, None, Note::Unknown, Manual::Yes),
                    _ => Val::Tensor(t),
                }
            }
            (Effect::Beside, tensor) => tensor,
            (Effect::Copy, _) => self.tensor(place, shape, note, Manual::Unknown),
            (Effect::Enter, _) => self.tensor(place, None, Note::Unknown, Manual::Yes),
            (Effect::Mark, _) => self.tensor(place, shape, note, Manual::Unknown),
        }
    }

    /// A variable that is annotated holds a tensor from now on.
    fn named(&mut self, annotation: &Annotation) {
        if let (Val::Unknown, Some(local)) = (&annotation.tensor, annotation.local) {
            self.holds_tensor(local);
        }
    }

    /// A variable whose `shape` is read holds a tensor from now on.
    pub fn is_tensor(&mut self, base: &Operand) {
        if let Operand::Local(local) = base
            && self.operand(base) == Val::Unknown
        {
            self.holds_tensor(*local);
        }
    }

    fn holds_tensor(&mut self, local: LocalId) {
        if let Some(at) = self.at()
            && self.project.func(at).locals()[local].kind == crate::ir::LocalKind::Plain
        {
            let made = Place { file: self.project.file(at.module), span: self.project.func(at).name_span };
            let tensor = self.tensor(made, None, Note::Unknown, Manual::Unknown);
            self.st.set(local, tensor);
        }
    }

    /// Nothing is known of what a mesh is used for.
    fn forget_use(&mut self, mesh: &Val) {
        if let Val::Mesh(mesh) = mesh
            && let Some(used) = self.meshes.get_mut(&mesh.id)
        {
            used.escaped = true;
        }
    }

    /// The axes of each dim, if the spec is right as far as it is known.
    pub fn entries(&mut self, place: Place, mesh: &Val, spec: &Val) -> Option<Dims> {
        let known = match mesh {
            Val::Mesh(mesh) => Some(mesh.clone()),
            _ => None,
        };
        let items = match spec {
            Val::Tuple(items) => items.clone(),
            Val::List(_) => {
                self.wrong(place, known.as_ref(), Entry::List);
                self.forget_use(mesh);
                return None;
            }
            _ => {
                self.forget_use(mesh);
                return None;
            }
        };
        let mut dims: Dims = Vec::with_capacity(items.len());
        for item in items.iter() {
            match entry(known.as_deref(), item, false) {
                Ok(axes) => dims.push(axes),
                Err(entry) => {
                    self.wrong(place, known.as_ref(), entry);
                    self.forget_use(mesh);
                    return None;
                }
            }
        }
        if let Some(axis) = twice(known.as_deref(), &items, &dims) {
            self.report(place, Sharding::Twice { axis });
            self.forget_use(mesh);
            return None;
        }
        let known = known?;
        if let Some(used) = self.meshes.get_mut(&known.id) {
            used.annotates = true;
            used.escaped |= dims.iter().flatten().any(Option::is_none);
        }
        for axis in dims.iter().flatten().flatten() {
            self.uses(&known, *axis);
        }
        Some(dims)
    }

    /// A spec without a tensor: the names are looked up, and nothing else is asserted yet.
    pub fn spec_alone(&mut self, place: Place, mesh: &Val, spec: &Val) {
        self.forget_use(mesh);
        let Val::Mesh(mesh) = mesh else { return };
        for item in spec.items().unwrap_or_default() {
            if let Err(entry @ (Entry::Unknown { .. } | Entry::Unnamed { .. } | Entry::Type)) =
                entry(Some(mesh), &item, false)
            {
                return self.wrong(place, Some(mesh), entry);
            }
        }
    }

    fn wrong(&mut self, place: Place, mesh: Option<&Arc<Mesh>>, entry: Entry) {
        self.report(place, Sharding::Entry { entry, mesh: mesh.map(|m| m.made) });
    }

    fn note(&self, place: Place, annotation: &Annotation, dims: Option<&Dims>) -> Note {
        let (Some(dims), Val::Mesh(mesh)) = (dims, &annotation.mesh) else { return Note::Unknown };
        let all: Option<Vec<Vec<usize>>> = dims.iter().map(|d| d.iter().copied().collect()).collect();
        match all {
            Some(dims) => {
                let text = text(mesh, &dims);
                Note::Known { place, mesh: mesh.id, dims, text }
            }
            None => Note::Unknown,
        }
    }

    /// Two annotations of one tensor in the same mesh.
    fn compare(&mut self, place: Place, old: &Note, new: &Note) {
        if let Note::Known { place: first, mesh, dims, text } = old
            && let Note::Known { mesh: other, dims: now, text: after, .. } = new
            && mesh == other
            && dims != now
            && *first != place
        {
            let disagree = Sharding::Disagree { first: *first, before: text.clone(), after: after.clone() };
            self.report(place, disagree);
        }
    }

    /// Dims that are cut into parts of different sizes.
    fn even(&mut self, place: Place, mesh: &Mesh, dims: &Dims, shape: &[Option<i64>]) {
        for (dim, (axes, size)) in dims.iter().zip(shape).enumerate() {
            let axes: Option<Vec<usize>> = axes.iter().copied().collect();
            let (Some(axes), Some(size)) = (axes, size) else { continue };
            let parts = axes.iter().try_fold(1i64, |all, axis| all.checked_mul(mesh.size(*axis)?));
            if let Some(parts) = parts
                && parts > 1
                && size % parts != 0
            {
                let axes = axes.iter().map(|a| mesh.axis(*a)).collect();
                self.report(place, Sharding::Uneven { dim, size: *size, parts, axes });
            }
        }
    }
}

/// The axes that an entry names.
fn entry(mesh: Option<&Mesh>, item: &Val, inside: bool) -> Result<Vec<Option<usize>>, Entry> {
    match item {
        Val::Const(Const::None) => Ok(Vec::new()),
        Val::Const(Const::Int(index)) => index_of(mesh, *index).map(|axis| vec![axis]),
        Val::Const(Const::Str(axis)) => name_of(mesh, axis).map(|axis| vec![axis]),
        Val::Const(_) => Err(Entry::Type),
        Val::List(_) => Err(Entry::List),
        Val::Tuple(_) if inside => Err(Entry::Nested),
        Val::Tuple(items) => {
            let mut out = Vec::with_capacity(items.len());
            for item in items.iter() {
                out.extend(entry(mesh, item, true)?);
            }
            Ok(out)
        }
        _ => Ok(vec![None]),
    }
}

fn index_of(mesh: Option<&Mesh>, index: i64) -> Result<Option<usize>, Entry> {
    let dims = mesh.and_then(Mesh::dims);
    match (usize::try_from(index), dims) {
        (Ok(at), Some(dims)) if at >= dims => Err(Entry::Index { index, dims }),
        (Ok(at), _) => Ok(mesh.map(|_| at)),
        // No mesh has an axis with a number below zero.
        (Err(_), _) => Err(Entry::Index { index, dims: dims.unwrap_or(0) }),
    }
}

fn name_of(mesh: Option<&Mesh>, axis: &Name) -> Result<Option<usize>, Entry> {
    match mesh.map(|m| &m.names) {
        None | Some(AxisNames::Unknown) => Ok(None),
        Some(AxisNames::Without) => Err(Entry::Unnamed { axis: axis.clone() }),
        Some(AxisNames::Known(names)) => match names.iter().position(|n| n == axis) {
            Some(at) => Ok(Some(at)),
            None => Err(Entry::Unknown { axis: axis.clone(), axes: names.clone() }),
        },
    }
}

/// An axis that occurs twice: by its place in the mesh, or as it is written where the mesh is not known.
fn twice(mesh: Option<&Mesh>, items: &[Val], dims: &Dims) -> Option<Name> {
    let mut seen = Vec::new();
    for axis in dims.iter().flatten().flatten() {
        if seen.contains(axis) {
            return Some(mesh.map_or_else(|| Name::from(axis.to_string()), |m| m.axis(*axis)));
        }
        seen.push(*axis);
    }
    let mut written: Vec<&Val> = Vec::new();
    let each = items.iter().flat_map(|i| match i {
        Val::Tuple(inner) => inner.iter().collect::<Vec<_>>(),
        other => vec![other],
    });
    for item in each.filter(|i| i.string().is_some() || i.int().is_some()) {
        if written.contains(&item) {
            let index = || item.int().map(|n| Name::from(n.to_string()));
            return item.string().cloned().or_else(index);
        }
        written.push(item);
    }
    None
}

/// A spec as it is written.
fn text(mesh: &Mesh, dims: &[Vec<usize>]) -> Name {
    let axis = |at: &usize| match mesh.names {
        AxisNames::Known(_) => format!("'{}'", mesh.axis(*at)),
        _ => at.to_string(),
    };
    let one = |axes: &Vec<usize>| match axes.as_slice() {
        [] => "None".to_string(),
        [only] => axis(only),
        many => tuple(&many.iter().map(axis).collect::<Vec<_>>()),
    };
    Name::from(tuple(&dims.iter().map(one).collect::<Vec<_>>()))
}

fn tuple(items: &[String]) -> String {
    match items {
        [only] => format!("({only},)"),
        many => format!("({})", many.join(", ")),
    }
}
