//! Programs that annotate tensors with a mesh and a partition spec, and leave the communication to the compiler: what the library
//! asserts when the program runs, and what it does not. In: the project and the rules. Out: findings. Never: types; nothing is said
//! of what is not a constant. Source: DESIGN.md section 8. Next: `found.rs`, `value.rs`.

mod call;
mod eval;
mod exec;
mod forward;
pub mod found;
mod library;
mod mesh;
mod numbers;
mod run;
mod spec;
mod state;
mod types;
mod value;

use super::digest::Digests;
use super::finding::{Finding, FindingKind};
use super::memo::{Memo, Task, combined, kept_each, kept_equals, taken};
use super::practice::view::View;
use super::shared::Shared;
use crate::ir::{FuncKind, LocalId, LocalKind};
use crate::project::{ClassRef, FuncRef, ModuleId, Project};
use crate::rules::{Entry, RuleBook};
use crate::source::{Files, Name, Place};
use found::Sharding;
use run::{Facts, Run, Said, body};
use rustc_hash::FxHashMap;
use state::{Frame, Mode};
use value::{AxisNames, Note, Val};

/// Everything found in a project, in the order of its modules.
pub fn sharding(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    digests: &Digests,
    memo: Option<&Memo>,
) -> Vec<Finding> {
    let library = Library::new(rules);
    let all: Vec<ModuleId> = project.modules.ids().collect();
    let used = kept_each(memo, &all, Task::Annotates, |module| library.is_used(files[project.file(module)].whole()));
    let modules: Vec<ModuleId> = all.iter().zip(used).filter(|(_, used)| **used).map(|(module, _)| *module).collect();
    if modules.is_empty() {
        return Vec::new();
    }
    let said = kept_equals(memo, &all, Task::Said, |module| {
        let text = files[project.file(module)].whole();
        let times = digests.of(project, module).assigned.clone();
        library.said(text, times)
    });
    let facts = combined(memo, "sharding", said, |said| Facts::new(&said), Facts::differences);
    let found = kept_each(memo, &modules, Task::Sharding, |module| of_module(project, rules, files, &facts, module));
    found
        .into_iter()
        .flat_map(taken)
        .map(|(place, kind)| Finding::everywhere(place, FindingKind::Sharding(kind)))
        .collect()
}

/// Names of the library that rules describe.
#[derive(Default)]
struct Library {
    packages: Vec<Name>,
    /// Functions and classes that make or annotate.
    names: Vec<Name>,
    modes: Vec<Name>,
    leaves: Vec<Name>,
    sets: Vec<Name>,
}

impl Library {
    fn new(rules: &RuleBook) -> Library {
        let mut library = Library::default();
        for (name, entry) in rules.entries() {
            let Entry::Intrinsic(rule) = entry else { continue };
            let last = Name::from(name.rsplit('.').next().unwrap_or(name));
            if let Some("mark" | "mesh" | "wrap" | "mark-gradients" | "annotate" | "enter-manual" | "leave-manual") =
                rule.does.strip_prefix("sharding-")
            {
                let package = Name::from(name.split('.').next().unwrap_or(name));
                if !library.packages.contains(&package) {
                    library.packages.push(package);
                }
                // Of a static method, the class.
                let method = name.strip_suffix(".apply").and_then(|n| n.rsplit('.').next());
                library.names.push(method.map_or_else(|| last.clone(), Name::from));
            }
            match rule.does.as_str() {
                "sharding-mode" => library.modes.push(Name::from(last.to_lowercase())),
                "sharding-leave-manual" => library.leaves.push(last),
                "sharding-set-mesh" => library.sets.push(last),
                _ => {}
            }
        }
        library
    }

    fn is_used(&self, text: &str) -> bool {
        let has = |names: &[Name]| names.iter().any(|n| text.contains(n.as_str()));
        has(&self.packages) && has(&self.names)
    }

    /// What a file says; `times`: how many lines assign an attribute.
    fn said(&self, text: &str, times: FxHashMap<Name, u32>) -> Said {
        let says = |names: &[Name]| names.iter().any(|n| text.contains(n.as_str()));
        Said {
            // The variable of the environment that turns it on has the name of the function.
            mode: says(&self.modes) || self.modes.iter().any(|n| text.contains(n.to_uppercase().as_str())),
            leaves_manual: says(&self.leaves),
            sets_mesh: says(&self.sets),
            times,
        }
    }
}

/// The body of a module, then each of its functions by itself.
fn of_module(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    facts: &Facts,
    module: ModuleId,
) -> Vec<(Place, Sharding)> {
    let mut run = Run::new(project, rules, files, facts);
    let ir = &project.modules[module].ir;
    for (func, f) in ir.funcs.iter_enumerated() {
        let at = FuncRef { module, func };
        if f.kind == FuncKind::ClassBody {
            continue;
        }
        run.reset();
        if f.kind == FuncKind::Module {
            run.st.mode = Mode::No;
            run.st.global_mesh = if facts.sets_mesh() { Val::Unknown } else { Val::NONE };
        }
        let locals = receiver(&mut run, facts, at);
        run.st.frames.push(Frame { at, locals: Shared::new(locals) });
        let _ = run.block(f.body());
        forward::forward_only(&View::new(project, rules, files, at), &mut run.found);
        if at == body(module) {
            exports(&mut run, module);
        }
    }
    unused(&mut run, module, files);
    // One finding is shown for a place: what stops the program goes before what does not.
    run.found.sort_by_key(|(_, found)| !found.stops());
    run.found
}

/// The object of a method: what its constructor, and nothing else in the project, gives it.
fn receiver(run: &mut Run<'_>, facts: &Facts, at: FuncRef) -> FxHashMap<LocalId, Val> {
    let project = run.project;
    let func = project.func(at);
    let mut locals = FxHashMap::default();
    let (Some(class), Some(own)) = (func.class, func.params.first()) else { return locals };
    if func.name == "__init__" || !run::is_plain(project, at) {
        return locals;
    }
    let object = run.instance(ClassRef { module: at.module, class });
    if let Val::Object(id) = object
        && let Some(held) = run.st.objects.get_mut(&id)
    {
        held.retain(|name, _| facts.is_set_once(name));
    }
    for tensor in run.st.tensors.values_mut() {
        tensor.note = Note::Unknown;
    }
    locals.insert(own.local, object);
    locals
}

/// What the functions of a module see of its top level: names that it binds once.
fn exports(run: &mut Run<'_>, module: ModuleId) {
    let project = run.project;
    let func = project.func(body(module));
    let Some(frame) = run.st.frames.first() else { return };
    let mut all = run::Exports::default();
    for (local, l) in func.locals().iter_enumerated().filter(|(_, l)| l.kind != LocalKind::Temp) {
        if let Some(value @ (Val::Const(_) | Val::Devices(_) | Val::Tuple(_) | Val::Ids(_) | Val::Mesh(_))) =
            frame.locals.get(&local)
            && exec::times_bound(func.body(), local) == 1
        {
            all.insert(l.name.clone(), value.clone());
        }
    }
    let hidden: Vec<Val> = frame.locals.values().filter(|v| !all.values().any(|known| known == *v)).cloned().collect();
    for value in hidden.iter().filter(|v| matches!(v, Val::Mesh(_) | Val::Tuple(_) | Val::List(_))) {
        run.escape(value, 0);
    }
    run.exports.insert(module, all);
}

/// Axes that no spec uses, of meshes that go nowhere else.
fn unused(run: &mut Run<'_>, module: ModuleId, files: &Files) {
    let own = run.project.name(module);
    let last = own.rsplit('.').next().unwrap_or(own);
    let imported = files.saying(last).any(|file| file != run.project.file(module));
    if imported || run.cut {
        return;
    }
    let lost = run.st.lost.borrow().clone();
    let mut found = Vec::new();
    for used in run.meshes.values().filter(|u| u.annotates && !u.escaped && !lost.contains(&u.mesh.id)) {
        let (AxisNames::Known(names), Some(shape)) = (&used.mesh.names, &used.mesh.shape) else { continue };
        for (axis, name) in names.iter().enumerate().filter(|(axis, _)| !used.axes.contains(axis)) {
            let size = shape.get(axis).filter(|s| s.int() != Some(1)).and_then(mesh::shown);
            if let Some(size) = size {
                found.push((used.mesh.made, axis, Sharding::Unused { axis: name.clone(), size }));
            }
        }
    }
    found.sort_by_key(|(place, axis, _)| (place.span.start, *axis));
    for (place, _, kind) in found {
        run.report(place, kind);
    }
}
