//! What declared shardings say to the code that computes: types of a module's parameters, of the inputs of its forward, and of what a
//! call of it gives. In: declarations of the whole project. Out: look-ups, and types. Never: more than all declarations of a class
//! agree on: of two that differ, a type is either. Next: `mod.rs`.

use super::layout::DeclaredLayout;
use crate::infer::assertion::DeclaredType;
use crate::infer::expr::CallArgs;
use crate::infer::finding::Declared;
use crate::infer::heap::ObjectClass;
use crate::infer::intrinsics::atom_set;
use crate::infer::machine::Machine;
use crate::infer::memo::differing;
use crate::infer::value::{ObjId, Value};
use crate::ir::annotation::Atom;
use crate::ir::{Func, StmtId};
use crate::project::{ClassRef, FuncRef};
use crate::source::reads::{Read, note};
use crate::source::{Name, Place};
use crate::types::{AxisState, LocalType, Origin, Reason, TensorType};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// One declaration for the modules of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharded {
    pub class: ClassRef,
    /// The module that has it, and under which name.
    pub owner: Option<(ClassRef, Name)>,
    pub place: Place,
    /// The forward computes with local tensors.
    pub local: bool,
    pub states: Vec<(Name, Arc<DeclaredLayout>)>,
    /// Inputs as the caller gives them, and as the forward sees them.
    pub outside: Vec<(Name, Arc<DeclaredLayout>)>,
    pub inside: Vec<(Name, Arc<DeclaredLayout>)>,
    pub output: Option<Arc<DeclaredLayout>>,
}

/// Declarations by class, and by the module that has what they are for.
#[derive(Clone, Debug, Default)]
pub struct Shardings {
    of: FxHashMap<ClassRef, Vec<Sharded>>,
    within: FxHashMap<(ClassRef, Name), Vec<Sharded>>,
}

impl Shardings {
    pub fn new(found: &[Sharded]) -> Shardings {
        let mut out = Shardings::default();
        for one in found {
            out.of.entry(one.class).or_default().push(one.clone());
            if let Some(owner) = &one.owner {
                out.within.entry(owner.clone()).or_default().push(one.clone());
            }
        }
        out
    }

    /// Of which classes other things are declared.
    pub fn differences(&self, other: &Shardings) -> Vec<Read> {
        let of = differing(&self.of, &other.of).copied();
        let within = differing(&self.within, &other.within).map(|(owner, _)| *owner);
        of.chain(within).map(|class| Read::Sharded(class.module.0, class.class.0)).collect()
    }

    fn of_class(&self, class: ClassRef) -> Option<&[Sharded]> {
        note(|| Read::Sharded(class.module.0, class.class.0));
        self.of.get(&class).map(Vec::as_slice)
    }

    /// Classes of which something is declared, and those that have such modules.
    pub fn classes(&self) -> impl Iterator<Item = ClassRef> + '_ {
        self.of.keys().copied().chain(self.within.keys().map(|(owner, _)| *owner))
    }

    /// What all declarations of a class say of something: each of them says it.
    fn agreed(all: &[Sharded], of: impl Fn(&Sharded) -> Option<Arc<DeclaredLayout>>) -> Option<(LocalType, Place)> {
        let mut out: Option<(LocalType, Place)> = None;
        for one in all {
            let layout = of(one)?;
            let local = local_type(&layout);
            out = Some(match out {
                None => (local, layout.made),
                Some((known, place)) => (known.join(&local), place),
            });
        }
        out
    }

    pub fn state(&self, class: ClassRef, name: &str) -> Option<(LocalType, Place)> {
        Shardings::agreed(self.of_class(class)?, |s| find(&s.states, name))
    }

    /// An input inside the forward, unless that computes with local tensors.
    pub fn input(&self, class: ClassRef, name: &str) -> Option<(LocalType, Place)> {
        let all = self.of_class(class)?;
        Shardings::agreed(all, |s| find(&s.inside, name).filter(|_| !s.local))
    }

    fn of_owner(&self, owner: ClassRef, name: &Name) -> Option<&[Sharded]> {
        note(|| Read::Sharded(owner.module.0, owner.class.0));
        if self.within.is_empty() {
            return None;
        }
        self.within.get(&(owner, name.clone())).map(Vec::as_slice)
    }
}

fn find(list: &[(Name, Arc<DeclaredLayout>)], name: &str) -> Option<Arc<DeclaredLayout>> {
    list.iter().find(|(n, _)| n == name).map(|(_, layout)| layout.clone())
}

/// A layout as a type.
fn local_type(layout: &DeclaredLayout) -> LocalType {
    let mut local = LocalType::unknown();
    for (axis, atom) in layout.types() {
        let Some(atom) = atom else { continue };
        let mut state = AxisState::new(atom_set(atom));
        if let Atom::Shard(dim) = atom {
            state.shard = i8::try_from(dim).ok();
            state.nest = layout.nest(&axis);
        }
        let origin = Origin::new(layout.made, Reason::Declared, state.known());
        local.set(&axis, state.from(&origin));
    }
    local
}

impl Machine<'_> {
    /// Whether nothing is declared, and nobody has to know that somebody asked.
    fn no_shardings(&self) -> bool {
        self.settings.shardings.of.is_empty() && !self.project.watched
    }

    /// A parameter or buffer that a module gets under a name of which declarations speak.
    pub(in crate::infer) fn sharded_state(&mut self, class: ClassRef, name: &Name, tensor: ObjId) {
        if self.no_shardings() {
            return;
        }
        let Some((local, _)) = self.settings.shardings.state(class, name) else { return };
        self.fill(tensor, &local);
    }

    /// Inputs of a forward of which declarations speak.
    pub(in crate::infer) fn sharded_inputs(&mut self, root: FuncRef, func: &Func) {
        if self.no_shardings() || func.name != "forward" {
            return;
        }
        let Some(class) = func.class.map(|class| ClassRef { module: root.module, class }) else { return };
        for param in func.params.iter().skip(1) {
            let Some((local, _)) = self.settings.shardings.input(class, &param.name) else { continue };
            let value = self.local(param.local);
            if let (Value::Sym(_), Some(tensor)) = (&value, self.as_tensor(&value)) {
                self.fill(tensor, &local);
            }
        }
    }

    /// Types where none are known.
    fn fill(&mut self, tensor: ObjId, local: &LocalType) {
        let Some(mut t) = self.w.heap.tensor(tensor).cloned() else { return };
        for (axis, state) in local.listed() {
            if t.local.get(axis).set.is_unknown() {
                t.local.set(axis, state.clone());
            }
        }
        self.retype(tensor, t);
    }

    /// The class of an object, if declarations speak of a module that it has under a name, and nothing else is known of that.
    pub(in crate::infer) fn sharded_owner(&self, object: ObjId, name: &Name) -> Option<ClassRef> {
        if self.no_shardings() {
            return None;
        }
        let cell = self.w.heap.object(object)?;
        let ObjectClass::Project(class) = &cell.class else { return None };
        let hidden = matches!(cell.get(name), Some(Value::Unknown | Value::Sym(_)));
        (hidden && self.settings.shardings.of_owner(*class, name).is_some()).then_some(*class)
    }

    /// A call of a module that a module has, by what declarations say of it.
    pub(in crate::infer) fn sharded_call(
        &mut self,
        id: StmtId,
        owner: ClassRef,
        name: &Name,
        args: &CallArgs,
    ) -> Option<Value> {
        let settings = self.settings;
        let all = settings.shardings.of_owner(owner, name)?;
        let class = all.first().map(|s| s.class).filter(|c| all.iter().all(|s| s.class == *c))?;
        let forward = self.declared_forward(class)?;
        let params = &self.project.func(forward).params;
        for (i, param) in params.iter().skip(1).enumerate() {
            let given = args.args.iter().filter(|a| a.keyword.is_none()).nth(i);
            let given = given.or_else(|| args.args.iter().find(|a| a.keyword.as_ref() == Some(&param.name)));
            let Some(given) = given else { continue };
            let [only] = all else { break };
            let Some(layout) = find(&only.outside, &param.name) else { continue };
            let Some(tensor) = self.as_tensor(&given.value) else { continue };
            let Some(known) = self.w.heap.tensor(tensor).cloned() else { continue };
            // Which dim is split is certain of what another declaration states, and of what has a known rank.
            let certain = |axis: &crate::types::Axis| known.rank().is_some() || known.local.get(axis).is_declared();
            let stated = layout.types().into_iter().filter_map(|(axis, atom)| match atom? {
                Atom::Shard(_) if known.local.get(&axis).known().is_some() && !certain(&axis) => {
                    Some((axis, Atom::Varying))
                }
                atom => Some((axis, atom)),
            });
            let declared = DeclaredType { entries: stated.collect(), ..DeclaredType::default() };
            let at = self.part(id, given.part);
            self.declare(id, tensor, &declared, Declared::Argument, layout.made, at);
        }
        let (local, _) = Shardings::agreed(all, |s| s.output.clone())?;
        let value = self.new_tensor(TensorType { local, ..TensorType::unknown() });
        Some(value)
    }
}
