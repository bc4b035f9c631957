//! What holds for unmarked parameters of a program that is written for no framework and sums gradients itself. In: the reducers of the
//! project, what the tables say of marks, the texts. Out: the rule that a table has for a framework: the axes over which a parameter without
//! a mark is whole and its gradient not summed. Never: a rule where a reducer takes parameters for anything but a mark that the tables know,
//! where two marks are of several axes, or where a wrapper over all ranks may sum what the program does not.
//! Source: DESIGN.md section 7; megatron-core `distributed/finalize_model_grads.py`, whose protocol such programs copy. Next: `parameters.rs`.

use super::model_axis::COLLECTIVES;
use super::practice::reducers::{Reducer, Test};
use super::settings::Settings;
use crate::project::Project;
use crate::rules::{ProtocolRule, RuleBook};
use crate::source::{Files, Name};
use crate::types::AxisType;

/// What wraps a model and sums its gradients, as it is called; over a part of the ranks if the call says so.
const WRAPPERS: &[&str] = &[
    "DataParallel(",
    "DDP(",
    "FSDP(",
    "FullyShardedDataParallel(",
    "fully_shard(",
    "replicate(",
    ".prepare(",
    ".setup(",
    "DistributedOptimizer(",
    ".initialize(",
];

/// What may sum a gradient in another way than by the reducers that are read.
const OTHERWISE: &[&str] =
    &["parametrization", "register_hook(", "grad_hook(", "backward_hook(", "dist.reduce(", "distributed.reduce("];

/// What a function has that averages: then gradients are whole on every rank, or parts of another size.
const AVERAGES: &[&str] = &["AVG", "div", " / ", " /= "];

/// Words of names and of constructors of parameters that each rank has its own of, in spite of a whole size.
const OWN: &[&str] = &["expert", "member", "generator", "rank", "seed"];

/// What a call of one of those says if it is told its ranks.
const TOLD: &[&str] = &["group", "mesh"];

/// Words of the group of a reducer that sums over other axes than those of a model.
const OF_DATA: &[&str] = &["dp", "data", "replica", "cp", "context", "dp_cp"];

/// How far the arguments of a call are looked at, in characters.
const ARGUMENTS: usize = 400;

/// The rule, if the project has one of its own.
pub fn own_protocol(project: &Project, rules: &RuleBook, files: &Files, settings: &Settings) -> Option<ProtocolRule> {
    let reducers: Vec<&Reducer> = settings.reducers().all.iter().filter(|r| !is_over_data(files, r)).collect();
    let axes = of_marks(rules, &reducers)?;
    let fits = |reducer: &&Reducer| reducer.may_sum_over(|own| axes.contains(own));
    let averages = |r: &&Reducer| {
        let text = files[r.place.file].slice(project.func(r.func).span);
        AVERAGES.iter().any(|word| text.contains(word))
    };
    // What the layers take for their group may be what the sum is given, or another one.
    let named = |r: &&Reducer| r.axes.is_none() && r.group.as_ref().is_some_and(|name| !name.contains('.'));
    // Where none is given it may be all ranks, and those of the layers too.
    let may_be_all = |r: &&Reducer| {
        let is_group = |name: &Name| r.group.as_ref() == Some(name);
        named(r) && project.func(r.func).params.iter().any(|p| p.has_default && is_group(&p.name))
    };
    let over_all = || ["get_world_size()", "(None)", ", None", "get_rank()"].iter().any(|w| files.any_says(w));
    if reducers.iter().any(named) && (super::model_axis::asks_for_groups(files, settings) || takes_all_ranks(files))
        || reducers.iter().any(may_be_all) && over_all()
    {
        return None;
    }
    let unread = || {
        OTHERWISE.iter().any(|word| files.saying(word).next().is_some())
            || sums_unread(files, settings)
            || files.saying(".grad").any(|file| super::may_be_summed::sums_otherwise(files[file].whole()))
    };
    if !reducers.iter().all(fits) || reducers.iter().any(averages) || unread() || wraps_any(files) {
        return None;
    }
    Some(ProtocolRule {
        packages: Vec::new(),
        axes,
        summed_names: Vec::new(),
        source: Name::from("DESIGN.md section 7"),
    })
}

/// Whether some collective of the program is given no group.
fn takes_all_ranks(files: &Files) -> bool {
    COLLECTIVES.iter().any(|call| {
        files.saying(call).any(|file| {
            let text = files[file].whole();
            let mut calls = text.match_indices(call).map(|(at, _)| arguments(&text[at + call.len()..]));
            calls.any(|given| !given.contains("group") && !given.contains("mesh") && !given.trim().is_empty())
        })
    })
}

/// Whether a line sums a gradient of something, and no reducer that is read is there.
fn sums_unread(files: &Files, settings: &Settings) -> bool {
    files.saying("all_reduce(").any(|file| {
        let text = files[file].whole();
        text.match_indices("all_reduce(").any(|(at, _)| {
            let line = text[at..].lines().next().unwrap_or_default();
            let is_read = |r: &Reducer| {
                let span = r.place.span;
                r.place.file == file && (span.start as usize..=span.end as usize).contains(&at)
            };
            (line.contains(".grad") || is_of_gradient(text, line)) && !settings.reducers().all.iter().any(is_read)
        })
    })
}

/// Whether what a call is given first is a variable that a gradient is bound to: `g = model.head.weight.grad`.
fn is_of_gradient(text: &str, call: &str) -> bool {
    let given = call.split_once('(').map_or("", |(_, given)| given);
    let name = given.split([',', ')']).next().unwrap_or_default().trim();
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    plain
        && text.lines().any(|line| {
            line.trim()
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(" = "))
                .is_some_and(|v| v.ends_with(".grad"))
        })
}

/// Whether each rank may have a parameter of its own, by its name, or by what it is made with.
pub fn may_differ_by_rank(name: &str, made: &str) -> bool {
    OWN.iter().any(|word| name.contains(word) || made.contains(word))
}

/// Whether the group of a reducer says that its ranks have other samples of the same parameters.
pub fn is_over_data(files: &Files, reducer: &Reducer) -> bool {
    let text = files[reducer.place.file].slice(reducer.place.span);
    let group = reducer.group.as_ref().map_or(text, Name::as_str).to_ascii_lowercase();
    let mut words = group.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| OF_DATA.contains(&word))
}

/// The axes of the marks by which alone reducers choose, if they are the same ones.
fn of_marks(rules: &RuleBook, reducers: &[&Reducer]) -> Option<Vec<Name>> {
    let takes_all = |r: &&Reducer| r.through.is_some() || r.when.is_empty() || r.when.iter().any(Vec::is_empty);
    if reducers.iter().any(takes_all) {
        return None;
    }
    let mut axes: Option<&Vec<Name>> = None;
    for test in reducers.iter().flat_map(|r| r.when.iter().flatten()) {
        let Test::Mark(mark) = test else { return None };
        let rule = rules.mark(mark).filter(|rule| rule.set == AxisType::R && rule.unless.is_none())?;
        if axes.is_some_and(|known| *known != rule.axes) {
            return None;
        }
        axes = Some(&rule.axes);
    }
    axes.cloned()
}

/// Whether anything wraps a model over all ranks.
pub fn wraps_any(files: &Files) -> bool {
    WRAPPERS.iter().any(|wrapper| wraps_all(files, wrapper))
}

/// Whether this wraps a model over all ranks.
fn wraps_all(files: &Files, wrapper: &str) -> bool {
    files.saying(wrapper).any(|file| {
        let text = files[file].whole();
        let mut calls = text.match_indices(wrapper).map(|(at, _)| arguments(&text[at + wrapper.len()..]));
        calls.any(|given| !TOLD.iter().any(|word| given.contains(word)))
    })
}

/// The arguments of a call, whose text begins here, without those of the calls in it.
fn arguments(text: &str) -> String {
    let mut depth = 0;
    let mut out = String::new();
    for c in text.chars().take(ARGUMENTS) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}
