//! Numbers of ranks that are known by a name alone: `config.tensor_model_parallel_size`, `tp_size`. In: the name, and the constructor that
//! divides a size by it. Out: the axes over which the part is one. Never: of ranks with other data, experts or layers, or where an object
//! has several groups that it may be. Source: DESIGN.md section 5, one identity per group. Next: `share.rs`, which divides.

use super::machine::Machine;
use super::model_axis::NAME;
use super::practice::near::{self, has_part};
use super::value::Value;
use crate::source::Name;
use crate::types::{Axis, AxisSet};

/// Words of the ranks over which weights are split.
const OF_MODEL: &[&str] = &["tp", "mp", "model", "tensor"];

/// Words of groups of other ranks, or of those ranks and others.
const OF_OTHERS: &[&str] = &["expert", "ep", "etp", "data", "dp", "cp", "context", "pp", "pipeline", "embedding"];

/// Names of a group that do not say whose it is.
const PLAIN: &[&str] = &["group", "process_group", "pg"];

impl Machine<'_> {
    /// The axes that such a number counts: the one group of the parts of the model that the object is given or keeps, else what the
    /// program calls the axis. Nothing for a number that is no more than that of some ranks.
    pub fn axes_of_degree(&self, path: &str) -> AxisSet {
        let last = path.rsplit('.').next().unwrap_or(path);
        if !names_model(last) {
            return AxisSet::default();
        }
        let groups = self.groups_in_constructor();
        let told: Vec<&AxisSet> = groups.iter().filter(|(name, _)| names_model(name)).map(|(_, axes)| axes).collect();
        if let Some((first, rest)) = told.split_first() {
            return if rest.iter().all(|axes| axes == first) { (*first).clone() } else { AxisSet::default() };
        }
        match groups.as_slice() {
            [] if self.knows_model_axis() => AxisSet::one(self.settings.canonical(NAME)),
            [(name, axes)] if PLAIN.contains(&name.trim_start_matches('_')) => axes.clone(),
            // Groups of other ranks alone: that of the model is asked for elsewhere.
            groups
                if !groups.is_empty()
                    && groups.iter().all(|(name, _)| OF_OTHERS.iter().any(|word| has_part(name, word))) =>
            {
                AxisSet::one(self.settings.canonical(NAME))
            }
            _ => AxisSet::default(),
        }
    }

    /// Whether the layers of a file may be split over one axis alone: one that something names, or of code that communicates nowhere itself.
    fn knows_model_axis(&self) -> bool {
        let Some(module) = self.stack.last().map(|a| a.func.module) else { return false };
        let text = self.files[self.project.file(module)].whole();
        self.settings.tells_model_axis(self.rules, module) || !near::has_any(text, &["all_reduce(", "all_gather"])
    }

    /// The groups that the innermost constructor under execution is given, and those that its object keeps so far.
    fn groups_in_constructor(&self) -> Vec<(Name, AxisSet)> {
        let is_init = |at: &usize| self.stack.get(*at).is_some_and(|a| self.project.func(a.func).name == "__init__");
        let Some(at) = (0..self.stack.len().min(self.w.frames.len())).rev().find(is_init) else { return Vec::new() };
        let (func, frame) = (self.project.func(self.stack[at].func), &self.w.frames[at]);
        if frame.func != self.stack[at].func {
            return Vec::new();
        }
        let given = func.params.iter().map(|p| (&p.name, frame.get(p.local)));
        let own = func.params.first().map(|own| frame.get(own.local));
        let kept = match own {
            Some(Value::Object(id)) => self.w.heap.object(*id).map(|cell| cell.attrs.as_slice()),
            _ => None,
        };
        let kept = kept.unwrap_or_default().iter().map(|(name, value)| (name, value));
        let mut out: Vec<(Name, AxisSet)> = Vec::new();
        for (name, value) in given.chain(kept).filter(|(name, _)| self.settings.is_group_name(name)) {
            let axes = match value {
                Value::Group(axes) => axes.clone(),
                Value::Sym(path) => match self.settings.group_named(path) {
                    Some(axes) => axes,
                    None => AxisSet::one(Axis::variable(path.strip_prefix('?').unwrap_or(path))),
                },
                _ => continue,
            };
            // One that is kept under another name is no other one.
            let known = out.iter().any(|(_, other)| *other == axes);
            if !known || names_model(name) {
                out.push((name.clone(), axes));
            }
        }
        out
    }
}

/// Whether a name says that the ranks are those of the parts of a model, and no others.
fn names_model(name: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| has_part(name, word));
    has(OF_MODEL) && !has(OF_OTHERS)
}
