//! What each function of a sharding library does and asserts. In: its rule and arguments. Out: its value, and what is wrong.
//! Never: names of a library: a rule says what a function is by `does`. Source: `rules/README.md`. Next: `spec.rs`, `mesh.rs`.

use super::call::Args;
use super::found::{Sharding, Wrapper};
use super::mesh::Wanted;
use super::run::Run;
use super::state::Mode;
use super::value::{AxisNames, Manual, Mesh, Note, Val};
use crate::ir::{Const, LocalId, StmtId};
use crate::rules::IntrinsicRule;
use crate::source::{Name, Place};
use std::sync::Arc;

/// What is annotated, with what.
pub struct Annotation {
    pub tensor: Val,
    /// The variable that holds the tensor.
    pub local: Option<LocalId>,
    pub mesh: Val,
    pub spec: Val,
}

/// What an annotation does to its tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It is the annotation of the tensor from now on.
    Mark,
    /// A new tensor has it.
    Copy,
    /// It stands beside the one that the tensor has.
    Beside,
    /// A new tensor is a shard of it.
    Enter,
}

impl Run<'_> {
    /// A function of a rule of the kind `sharding-...`; any other loses its arguments.
    pub fn annotation(&mut self, id: StmtId, rule: &Arc<IntrinsicRule>, args: &Args) -> Val {
        let get = |name: &str| args.index(&rule.args, name).and_then(|i| args.all.get(i)).map(|g| g.value.clone());
        let Some(does) = rule.does.strip_prefix("sharding-").filter(|_| !args.open) else {
            for given in &args.all {
                self.leak(&given.value);
            }
            return Val::Unknown;
        };
        let place = self.place(id);
        let or_none = |name: &str| get(name).unwrap_or(Val::NONE);
        match does {
            "mesh" => match (get("device_ids"), get("mesh_shape")) {
                (Some(ids), Some(shape)) => {
                    let wanted = Wanted { ids: Some(&ids), shape: &shape, names: &or_none("axis_names") };
                    self.mesh(place, &wanted)
                }
                _ => Val::Unknown,
            },
            "hybrid-mesh" => match get("ici_mesh_shape") {
                Some(inner) => self.hybrid_mesh(place, &inner, &or_none("dcn_mesh_shape"), &or_none("axis_names")),
                None => Val::Unknown,
            },
            "flat-mesh" => {
                let size = self.devices.map_or(Val::Devices(1), Val::number);
                let names = match or_none("axis_name") {
                    name @ Val::Const(Const::Str(_)) => Val::Tuple(Arc::from([name])),
                    other => other,
                };
                let shape = Val::Tuple(Arc::from([size]));
                self.mesh(place, &Wanted { ids: None, shape: &shape, names: &names })
            }
            "set-mesh" => {
                let mesh = get("mesh").unwrap_or(Val::Unknown);
                self.st.global_mesh = mesh;
                Val::NONE
            }
            "get-mesh" => self.st.global_mesh.clone(),
            "mode" => self.mode(place),
            "device-count" => match self.devices.or_else(|| self.stated(place)) {
                Some(n) => {
                    self.devices = Some(n);
                    Val::number(n)
                }
                None => Val::Devices(1),
            },
            "device" => Val::Device,
            "clear" => self.cleared(&get("t").unwrap_or(Val::Unknown)),
            "wrapped" => get("elem").unwrap_or(Val::Unknown),
            "wrap" => self.wrap(place, rule, &get),
            _ => self.annotates(place, does, rule, args),
        }
    }

    fn annotates(&mut self, place: Place, does: &str, rule: &Arc<IntrinsicRule>, args: &Args) -> Val {
        let at = |name: &str| args.index(&rule.args, name).and_then(|i| args.all.get(i));
        let get = |name: &str| at(name).map(|g| g.value.clone());
        let given_mesh = get("mesh").filter(|m| !m.is_none());
        let by_default = rule.args.params.iter().any(|p| p.name == "mesh" && p.default.is_some());
        let mesh = match given_mesh {
            Some(mesh) => mesh,
            None if by_default => self.st.global_mesh.clone(),
            None => Val::Unknown,
        };
        let annotation = Annotation {
            tensor: get("t").unwrap_or(Val::Unknown),
            local: at("t").and_then(|g| g.local),
            mesh,
            spec: get("partition_spec").unwrap_or(Val::Unknown),
        };
        match does {
            "mark" => self.annotate(place, &annotation, Effect::Mark),
            "mark-gradients" => self.annotate(place, &annotation, Effect::Copy),
            "annotate" => self.annotate(place, &annotation, Effect::Beside),
            "enter-manual" => {
                if !self.facts.leaves_manual() {
                    self.report(place, Sharding::Unbalanced);
                }
                self.annotate(place, &annotation, Effect::Enter)
            }
            "leave-manual" => {
                self.without_mode(place);
                if let Val::Tensor(t) = &annotation.tensor
                    && let Some(t) = self.st.tensors.get(t).filter(|t| t.manual == Manual::No)
                {
                    let made = t.made;
                    self.report(place, Sharding::NotManual { made });
                }
                let full = get("full_shape").and_then(|s| s.items());
                let shape = full.map(|s| s.iter().map(Val::int).collect::<Vec<_>>());
                let target = self.tensor(place, shape, Note::Without, Manual::No);
                self.annotate(place, &Annotation { tensor: target, local: None, ..annotation }, Effect::Mark)
            }
            // A spec by itself.
            "spec" => {
                self.spec_alone(place, &annotation.mesh, &annotation.spec);
                Val::Unknown
            }
            _ => {
                self.leak(&annotation.tensor);
                Val::Unknown
            }
        }
    }

    /// The mode is turned on.
    fn mode(&mut self, place: Place) -> Val {
        if let (Mode::No, Some(tensor)) = (self.st.mode, self.st.early) {
            self.report(place, Sharding::Mode { tensor: Some(tensor) });
        }
        self.st.mode = Mode::Yes;
        Val::NONE
    }

    /// An annotation where nothing in the project turns the mode on.
    pub fn without_mode(&mut self, place: Place) {
        let told = self.found.iter().any(|(_, f)| matches!(f, Sharding::Mode { tensor: None }));
        if self.st.mode == Mode::No && !self.facts.mode() && !told {
            self.report(place, Sharding::Mode { tensor: None });
        }
    }

    /// The number of devices that a comment on the line of a call states: nothing but a number, or a number of devices.
    fn stated(&self, place: Place) -> Option<i64> {
        let text = self.files[place.file].whole();
        let rest = text.get(usize::try_from(place.span.end).ok()?..)?.lines().next()?;
        let comment = rest.trim_start_matches(|c: char| c == ')' || c.is_whitespace()).strip_prefix('#')?;
        let mut words = comment.split_whitespace().map(|w| w.trim_end_matches(['.', ',']));
        let first = words.find(|w| !matches!(*w, "=" | "=="))?;
        let count: i64 = first.parse().ok()?;
        let unit = words.next();
        let plain = unit.is_none_or(|u| matches!(u, "devices" | "chips" | "cores")) && words.next().is_none();
        (plain && count > 0).then_some(count)
    }

    fn cleared(&mut self, tensor: &Val) -> Val {
        if let Val::Tensor(id) = tensor
            && let Some(t) = self.st.tensors.get_mut(id)
        {
            t.note = Note::Without;
        }
        tensor.clone()
    }

    /// A module whose parameters and outputs are sharded over one axis.
    fn wrap(&mut self, place: Place, rule: &IntrinsicRule, get: &dyn Fn(&str) -> Option<Val>) -> Val {
        let module = get("module").unwrap_or(Val::Unknown);
        if let Val::Wrapped(first) = module {
            self.report(place, Sharding::Wrapper(Wrapper::Again { first }));
            return Val::Unknown;
        }
        self.without_mode(place);
        let given = get("mesh").filter(|m| !m.is_none());
        let mesh = given.unwrap_or_else(|| self.st.global_mesh.clone());
        if mesh.is_none() {
            self.report(place, Sharding::Wrapper(Wrapper::NoMesh));
        }
        if let Val::Mesh(mesh) = &mesh {
            let extra = get("extra_data_axis").and_then(|e| e.string().cloned());
            for axis in rule.default_group.iter().cloned().chain(extra) {
                self.wrapped_axis(place, mesh, &axis);
            }
        }
        self.leak(&module);
        // The wrapper keeps it, and so may what shards its outputs.
        self.leak(&mesh);
        Val::Wrapped(place)
    }

    fn wrapped_axis(&mut self, place: Place, mesh: &Arc<Mesh>, axis: &Name) {
        let axes = match &mesh.names {
            AxisNames::Unknown => return,
            AxisNames::Without => Vec::new(),
            AxisNames::Known(names) => names.clone(),
        };
        match axes.iter().position(|a| a == axis) {
            Some(at) => self.uses(mesh, at),
            None => {
                let wrapper = Wrapper::Axis { axis: axis.clone(), axes, mesh: Some(mesh.made) };
                self.report(place, Sharding::Wrapper(wrapper));
            }
        }
    }

    /// A collective between processes: a tensor that is annotated lives on all devices of one program.
    pub fn process_collective(&mut self, id: StmtId, path: &Name, input: Option<Val>) {
        let Some(Val::Tensor(tensor)) = input else { return };
        let Some(known) = self.st.tensors.get_mut(&tensor) else { return };
        let note = std::mem::replace(&mut known.note, Note::Unknown);
        if let Note::Known { place: annotated, .. } = note
            && known.manual == Manual::No
            && self.st.mode == Mode::Yes
        {
            let collective = Name::from(path.rsplit('.').next().unwrap_or(path));
            self.report(self.place(id), Sharding::Mixed { collective, annotated });
        }
    }
}
