//! Meshes of devices: ids, shape and names, as the constructor asserts them. In: values. Out: a mesh, and what is wrong.
//! Never: a guess at the number of devices: it is a symbol until the program says it. Source: PyTorch/XLA, `Mesh.__init__` and
//! `HybridMesh.__init__`. Next: `spec.rs`.

use super::eval::ids;
use super::found::{Devices, Names, Sharding};
use super::numbers::product;
use super::run::{Run, Used};
use super::value::{AxisNames, Ids, Mesh, Val};
use crate::source::{Name, Place};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a mesh is made of. `ids`: `None` where the library makes them.
pub struct Wanted<'v> {
    pub ids: Option<&'v Val>,
    pub shape: &'v Val,
    pub names: &'v Val,
}

impl Run<'_> {
    pub fn mesh(&mut self, place: Place, wanted: &Wanted<'_>) -> Val {
        let shape = wanted.shape.items();
        let listed = wanted.ids.and_then(ids);
        let names = axis_names(wanted.names);
        let wrong = self
            .count(listed.as_ref())
            .or_else(|| names_of(&names, wanted.names, shape.as_deref()))
            .or_else(|| self.size(listed.as_ref(), shape.as_deref()))
            .or_else(|| each(listed.as_ref()));
        if let Some(wrong) = wrong {
            self.report(place, wrong);
            return Val::Unknown;
        }
        let id = self.id();
        let mesh = Arc::new(Mesh { id, made: place, shape, names });
        let used = Used { mesh: mesh.clone(), axes: BTreeSet::new(), annotates: false, escaped: false };
        if self.quiet == 0 {
            self.meshes.insert(id, used);
        }
        Val::Mesh(mesh)
    }

    /// A mesh of meshes: the sizes are multiplied axis by axis, and the library numbers the devices.
    pub fn hybrid_mesh(&mut self, place: Place, inner: &Val, outer: &Val, names: &Val) -> Val {
        let shape = match (inner.items(), outer.items()) {
            (Some(inner), _) if outer.is_none() => Val::Tuple(inner.into()),
            (Some(inner), Some(outer)) if inner.len() != outer.len() => {
                let wrong = Devices::Outer { inner: inner.len(), outer: outer.len() };
                self.report(place, Sharding::Devices(wrong));
                return Val::Unknown;
            }
            (Some(inner), Some(outer)) => {
                let sizes = inner.into_iter().zip(outer);
                Val::Tuple(sizes.map(|(a, b)| product(&[a, b]).unwrap_or(Val::Unknown)).collect())
            }
            _ => Val::Unknown,
        };
        self.mesh(place, &Wanted { ids: None, shape: &shape, names })
    }

    /// The devices that there are.
    fn all(&self) -> Val {
        self.devices.map_or(Val::Devices(1), Val::number)
    }

    fn count(&self, ids: Option<&Ids>) -> Option<Sharding> {
        let (given, devices) = (ids?.len(), self.all());
        let wrong = Devices::Count { ids: shown(&given)?, devices: shown(&devices)? };
        differ(&given, &devices).then_some(Sharding::Devices(wrong))
    }

    fn size(&self, ids: Option<&Ids>, shape: Option<&[Val]>) -> Option<Sharding> {
        let size = product(shape?)?;
        let given = ids.map_or_else(|| self.all(), Ids::len);
        let wrong = Devices::Size { ids: shown(&given)?, size: shown(&size)? };
        differ(&given, &size).then_some(Sharding::Devices(wrong))
    }

    /// An axis of a mesh is used by an annotation.
    pub fn uses(&mut self, mesh: &Mesh, axis: usize) {
        if let Some(used) = self.meshes.get_mut(&mesh.id) {
            used.annotates = true;
            used.axes.insert(axis);
        }
    }
}

/// Whether two numbers are different whatever the number of devices is.
fn differ(a: &Val, b: &Val) -> bool {
    match (a, b) {
        (Val::Devices(a), Val::Devices(b)) => a != b,
        _ => matches!((a.int(), b.int()), (Some(a), Some(b)) if a != b),
    }
}

/// A number as it is shown.
pub fn shown(value: &Val) -> Option<Name> {
    match value {
        Val::Devices(1) => Some(Name::from("n")),
        Val::Devices(times) => Some(Name::from(format!("{times}n"))),
        other => other.int().map(|n| Name::from(n.to_string())),
    }
}

fn axis_names(value: &Val) -> AxisNames {
    if value.is_none() {
        return AxisNames::Without;
    }
    let names = value.items().and_then(|items| items.iter().map(|i| i.string().cloned()).collect());
    names.map_or(AxisNames::Unknown, AxisNames::Known)
}

fn names_of(names: &AxisNames, value: &Val, shape: Option<&[Val]>) -> Option<Sharding> {
    if names == &AxisNames::Without {
        return None;
    }
    let count = value.items().map(|i| i.len());
    if let (Some(names), Some(shape)) = (count, shape)
        && names != shape.len()
    {
        return Some(Sharding::Names(Names::Count { names, dims: shape.len() }));
    }
    let AxisNames::Known(all) = names else { return None };
    let twice = all.iter().enumerate().find(|(i, name)| all.iter().take(*i).any(|n| n == *name));
    twice.map(|(_, axis)| Sharding::Names(Names::Twice { axis: axis.clone() }))
}

/// Ids that occur twice, or that no device has.
fn each(ids: Option<&Ids>) -> Option<Sharding> {
    let Some(Ids::Listed(ids)) = ids else { return None };
    let mut seen = BTreeSet::new();
    if let Some(id) = ids.iter().find(|id| !seen.insert(**id)) {
        return Some(Sharding::Devices(Devices::Twice { id: *id }));
    }
    let size = i64::try_from(ids.len()).ok()?;
    let beyond = ids.iter().find(|id| **id >= size)?;
    Some(Sharding::Devices(Devices::Beyond { id: *beyond, size }))
}
