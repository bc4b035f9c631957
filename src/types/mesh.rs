//! Mesh axes, sets of them, and meshes. In: names and sizes. Out: [`Axis`], [`AxisSet`] (what a process group denotes), [`Mesh`].
//! Never: how an expression names a group, which is `infer/groups.rs`. Next: `local_type.rs`.

use crate::source::Name;
use std::fmt;
use std::sync::Arc;

/// A mesh axis, by name. A group that nothing resolves is an axis of its own (its name begins with `?`), equal only to itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Axis(pub Name);

impl Axis {
    pub fn new(name: impl Into<Name>) -> Axis {
        Axis(name.into())
    }
    /// A group variable: an axis known only as the value of a parameter or expression.
    pub fn variable(name: &str) -> Axis {
        Axis(Name::from(format!("?{name}")))
    }
    pub fn is_variable(&self) -> bool {
        self.0.starts_with('?')
    }
    /// The dim of a mesh of unknown origin: it may be that of a group, named or not.
    pub fn of_mesh(name: &str) -> Axis {
        Axis(Name::from(format!("?@{name}")))
    }
    pub fn is_of_mesh(&self) -> bool {
        self.0.starts_with("?@")
    }
    /// A dim of a mesh without names, known by its position only: other meshes have one of the same position.
    pub fn is_position(&self) -> bool {
        self.0.strip_prefix('?').is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()))
    }
    /// The name without the marks of a variable.
    pub fn name(&self) -> &str {
        let marked = self.0.strip_prefix('?').map(|name| name.strip_prefix('@').unwrap_or(name));
        marked.unwrap_or(&self.0)
    }
    /// The name as a reader knows it: without the number that tells apart what is called alike.
    pub fn shown(&self) -> &str {
        let name = self.name();
        match name.rsplit_once('#') {
            Some((shown, number)) if !shown.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => shown,
            _ => name,
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

/// The mesh axes over which the ranks of a process group extend; sorted, without duplicates. Values carry it, so it is small and its
/// clones share one list; there is none for no axes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AxisSet(Option<Arc<[Axis]>>);

impl AxisSet {
    pub fn one(axis: Axis) -> AxisSet {
        AxisSet(Some(Arc::from([axis])))
    }
    fn axes(&self) -> &[Axis] {
        self.0.as_deref().unwrap_or_default()
    }
    pub fn iter(&self) -> std::slice::Iter<'_, Axis> {
        self.axes().iter()
    }
    pub fn len(&self) -> usize {
        self.axes().len()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
    pub fn contains(&self, axis: &Axis) -> bool {
        self.axes().contains(axis)
    }
    /// The only axis, if there is exactly one.
    pub fn single(&self) -> Option<&Axis> {
        match self.axes() {
            [axis] => Some(axis),
            _ => None,
        }
    }
}

impl FromIterator<Axis> for AxisSet {
    fn from_iter<T: IntoIterator<Item = Axis>>(iter: T) -> AxisSet {
        let mut axes: Vec<Axis> = iter.into_iter().collect();
        axes.sort();
        axes.dedup();
        if axes.is_empty() { AxisSet(None) } else { AxisSet(Some(axes.into())) }
    }
}

impl fmt::Display for AxisSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, axis) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{axis}")?;
        }
        Ok(())
    }
}

/// Named dimensions of the device mesh, in order, with sizes where the source shows them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Mesh {
    pub axes: Vec<(Axis, Option<u64>)>,
    /// All axes are one dim of the mesh.
    pub flat: bool,
    /// A compiler moves the tensors on it as operations need them.
    pub auto: bool,
}

impl Mesh {
    pub fn new(axes: Vec<(Axis, Option<u64>)>) -> Mesh {
        Mesh { axes, flat: false, auto: false }
    }
    /// The number of its dims.
    pub fn ndim(&self) -> usize {
        if self.flat { 1 } else { self.axes.len() }
    }
    /// Whether its dims have names.
    pub fn is_named(&self) -> bool {
        self.axes.iter().all(|(axis, _)| !axis.is_variable())
    }
    /// Whether it is certainly another mesh than this one: one with other names or sizes.
    pub fn differs(&self, other: &Mesh) -> bool {
        let named = self.is_named() && other.is_named();
        if !named || self.flat || other.flat {
            return false;
        }
        self.axes.len() != other.axes.len()
            || self
                .axes
                .iter()
                .zip(&other.axes)
                .any(|((a, n), (b, m))| a != b || n.zip(*m).is_some_and(|(n, m)| n != m))
    }
    pub fn axis_set(&self) -> AxisSet {
        self.axes.iter().map(|(axis, _)| axis.clone()).collect()
    }
    pub fn position(&self, axis: &Axis) -> Option<usize> {
        self.axes.iter().position(|(a, _)| a == axis)
    }
    pub fn size(&self, axis: &Axis) -> Option<u64> {
        self.axes.iter().find(|(a, _)| a == axis).and_then(|(_, size)| *size).filter(|size| *size > 0)
    }
}
