//! What a program calls the axis over which layers are split, which tables call `tp`. In: names of its mesh axes, and its functions. Out: the
//! axis. Never: a name beside one that the tables give. Source: DESIGN.md section 5, one identity per group. Next: `settings.rs`.

use super::groups::WORLD;
use super::settings::Settings;
use crate::project::{ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::{FileId, Files, Name};
use crate::types::Axis;

/// What tables call it.
pub const NAME: &str = "tp";

/// Other names of it in meshes.
const IN_MESHES: &[&str] = &["mp", "model", "model_parallel", "tensor", "tensor_parallel"];

/// Functions by which a program gives its group, with what their results are called where nothing else is known of them. Those that can
/// mean no other axis go first: beside the group of one axis, that of `model_parallel` is the one of all that a model is split over.
const GETTERS: &[(&str, &str)] = &[
    ("get_tensor_model_parallel_group", "tensor_model_parallel"),
    ("get_tensor_parallel_group", "tensor_parallel"),
    ("get_tp_group", NAME),
    ("get_model_parallel_group", "model_parallel"),
    ("get_mp_group", "mp"),
];

/// Whether a function of this name, by being defined, may name the axis.
pub fn is_named_by(function: &str) -> bool {
    GETTERS.iter().any(|(getter, _)| *getter == function)
}

/// Whether an axis is that one, under any of its names.
pub fn is_of_model(axis: &Axis) -> bool {
    axis.name() == NAME || IN_MESHES.contains(&axis.name())
}

/// Its name in meshes that do not call it as tables do.
pub fn of_meshes(axes: &[Name]) -> Option<Axis> {
    let has = |name: &str| axes.iter().any(|known| known == name);
    let mut own = IN_MESHES.iter().filter(|name| has(name));
    let one = own.next().filter(|_| own.next().is_none() && !has(NAME));
    one.map(|name| Axis::new(*name))
}

/// The group of a function of the program, where neither a table nor the configuration says which group that is, nor a mesh has the axis.
pub fn of_getters(project: &Project, rules: &RuleBook, settings: &Settings, axes: &[Name]) -> Option<Axis> {
    if axes.iter().any(|axis| axis == NAME) {
        return None;
    }
    let defined = |getter: &str| project.modules.ids().find_map(|module| project.own_function(module, getter));
    let (at, group) = GETTERS.iter().find_map(|(getter, group)| Some((defined(getter)?, group)))?;
    let path = project.qualified(at);
    let is_known = rules.get(&path).is_some() || settings.group_named(&format!("{path}()")).is_some();
    (!is_known).then(|| Axis::variable(group))
}

/// The group over which the project sums the gradients with a mark of that axis, where it is called after the axis or functions are given no
/// group under another name.
pub fn of_reducers(project: &Project, settings: &Settings) -> Option<Axis> {
    let protocol = settings.own_protocol.as_ref().as_ref().filter(|own| own.axes == [Name::from(NAME)])?;
    let mut names = settings.reducers().over(&protocol.axes).map(|r| r.group.as_ref().filter(|_| r.axes.is_none()));
    let name = names.next()??;
    if names.any(|other| other != Some(name)) || settings.group_named(name).is_some() {
        return None;
    }
    // What is called after the axis is no other one, however many groups there are.
    if name.split('_').any(|word| word == NAME || IN_MESHES.contains(&word)) {
        return Some(Axis::variable(name));
    }
    let mut params = project.modules.iter().flat_map(|m| m.ir.funcs.iter()).flat_map(|func| func.params.iter());
    let other = params.any(|param| param.name != *name && settings.is_group_name(&param.name));
    (!other).then(|| Axis::variable(name))
}

/// Collectives that take all ranks where no group is given.
pub const COLLECTIVES: &[&str] = &["all_reduce(", "all_gather(", "all_gather_into_tensor(", "reduce_scatter_tensor("];

/// Words with a group in them that say nothing of the ranks of a collective.
const NO_GROUPS: &[&str] = &["init_process_group", "destroy_process_group", "param_group", "groups"];

/// All ranks, where the program communicates and no file of it that does speaks of a group or a mesh.
pub fn of_all_ranks(files: &Files) -> Option<Axis> {
    let mut speaking: Vec<FileId> = COLLECTIVES.iter().flat_map(|word| files.saying(word)).collect();
    speaking.sort();
    speaking.dedup();
    let plain = |file: &FileId| {
        let text = files[*file].whole();
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        !words.any(is_of_some)
    };
    (!speaking.is_empty() && speaking.iter().all(plain)).then(|| Axis::variable(WORLD))
}

/// Whether a word of a program is about some ranks.
fn is_of_some(word: &str) -> bool {
    let group = word == "group" || word.ends_with("_group") || word.ends_with("ProcessGroup") || word == "pg";
    (group || word.contains("mesh") || word.ends_with("_pg")) && !NO_GROUPS.iter().any(|other| word.contains(other))
}

/// How a program asks for a group that nothing else names.
const ASKED: &[&str] = &[".get_group(", "config.group", "cfg.group", "args.group", "mesh["];

/// Whether some file takes a group from elsewhere than its arguments: what that is, and what a function is given, may be one.
pub fn asks_for_groups(files: &Files, settings: &Settings) -> bool {
    let getter = |text: &str| {
        text.match_indices("_group(").any(|(at, _)| {
            let name =
                text[..at].rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').next().unwrap_or_default();
            let last = name.rsplit('.').next().unwrap_or_default();
            let full = format!("{name}_group()");
            last.starts_with("get_") && !last.contains("process") && settings.group_named(&full).is_none()
        })
    };
    ASKED.iter().any(|word| files.saying(word).next().is_some())
        || files.saying("_group(").any(|file| getter(files[file].whole()))
}

/// Whether the package of a module gives its group by another function than the one that names the axis in the project: several programs stand
/// beside one another, and what is said of the one is not said of the other.
pub fn is_of_other(project: &Project, module: ModuleId) -> bool {
    let name = |of: ModuleId| project.modules[of].name.as_str();
    let package = |of: ModuleId| name(of).rsplit_once('.').unwrap_or_default().0;
    let first = |within: &dyn Fn(ModuleId) -> bool| {
        let defines =
            |getter: &str| project.modules.ids().any(|of| within(of) && project.own_function(of, getter).is_some());
        GETTERS.iter().position(|(getter, _)| defines(getter))
    };
    let own = first(&|of| package(of) == package(module));
    own.is_some() && own != first(&|_| true)
}
