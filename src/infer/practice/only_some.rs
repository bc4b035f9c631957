//! What communicates without saying so, on some ranks only. In: a function. Out: under a test of the rank, a call of a function of the
//! project that communicates over all ranks whatever it is given; the only barrier of a file; what a library does with all ranks; a function
//! whose decorator calls it under such a test. Never: a counterpart on the other ranks, a branch that calls something which may hold it, or a
//! test that holds where there is one rank alone.
//! Source: torch.distributed, `barrier`; torch.distributed.checkpoint, `save`, `state_dict.get_model_state_dict`; torch.distributed.tensor,
//! `DTensor.full_tensor`; torch.distributed.fsdp, `FullyShardedDataParallel.state_dict_type`, whose full dicts all ranks gather.
//! Next: `rank_tests.rs`, whose tests these are.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lost::last;
use super::mirrored::given;
use super::near;
use super::rank_tests::{Test, asks_job, test};
use super::ranks::{decided, is_answered, is_exit, other_branch_calls, same, together, waits, without_group};
use super::shards_asked::{WHOLE_TENSOR, asks_split, is_sharded, listed, makes_whole};
use super::view::{Guard, View};
use super::wrapped;
use crate::ir::{Arg, ArgKind, Const, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::Name;

/// Functions of libraries that every rank has to call, and the argument that says otherwise.
const TOGETHER: &[&str] = &[
    "torch.distributed.checkpoint.save",
    "torch.distributed.checkpoint.load",
    "torch.distributed.checkpoint.state_dict_saver.save",
    "torch.distributed.checkpoint.state_dict_loader.load",
];
/// Those that do so where they are asked for whole tensors.
const WHOLE: &[&str] = &[
    "torch.distributed.checkpoint.state_dict.get_model_state_dict",
    "torch.distributed.checkpoint.state_dict.get_optimizer_state_dict",
    "torch.distributed.checkpoint.state_dict.get_state_dict",
];

/// Parts of names of what makes a model that has its state in parts.
const SHARD: &[&str] = &["shard", "fsdp", "parallelize", "wrap", "distribute"];

/// Words of tests of the rank.
pub const FIRST: &[&str] = &["rank", "is_main", "on_main", "main_", "master", "global_zero", "process_zero"];

/// The same, or what asks for them under another name: `if self.should_save`.
pub const ASKED: &[&str] = &[
    "rank",
    "is_main",
    "on_main",
    "main_",
    "master",
    "global_zero",
    "process_zero",
    "should_",
    "is_first",
    "is_chief",
    "leader",
    "writer",
];

const ALONE: &[&str] = &["no_dist", "process_group", "use_collectives"];

/// How many calls lie between a test and what communicates.
const MOST_CALLS: usize = 2;

pub fn calls(view: &View<'_>, out: &mut Found) {
    if view.func.is_generator && !is_context(view) || view.func.name.starts_with("__") {
        return;
    }
    let mut last: Option<(usize, Option<(Guard<'_>, Test)>)> = None;
    for i in 0..view.steps.len() {
        let guards = &view.steps[i].guards;
        if guards.is_empty() || !matches!(view.value(i), Some(Rvalue::Call { .. } | Rvalue::CallMethod { .. })) {
            continue;
        }
        // Steps side by side share their conditions.
        let shared = last.filter(|(at, _)| std::rc::Rc::ptr_eq(&view.steps[*at].guards, guards));
        let found = shared.map_or_else(|| decided(view, i), |(_, found)| found);
        last = Some((i, found));
        let Some((guard, told)) = found else { continue };
        let Some(Reached { name, inside, model }) = communicates(view, i, told) else { continue };
        // The ranks along another dim of a mesh have parts of other tensors.
        if (name == WHOLE_TENSOR || model.is_some()) && !told.of_all && has_dims(view) {
            continue;
        }
        if model.is_some_and(|model| !is_sharded(view, i, &model)) {
            continue;
        }
        // Of a condition of which a part tells ranks apart the rest may ask whether there is anything to gather.
        let asked = test(view, &guard).is_none() && !name_is_of_project(view, i);
        let matched = matched(view, i, &name, (&guard, told)) || other_branch_calls(view, &guard);
        if asked
            || matched
            || is_called_by_others(view, i, told)
            || inside.is_some_and(|n| is_answered_elsewhere(view, i, &n))
        {
            continue;
        }
        let exit = is_exit(view, &guard);
        let condition = view.part(guard.at, 0);
        let exit = exit.then_some(condition);
        out.push((view.place(view.steps[i].id), Practice::SomeRanks { collective: name, condition, exit }));
    }
}

/// Whether a generator is a context manager, which runs from its beginning to its end.
fn is_context(view: &View<'_>) -> bool {
    decorator_line(view).is_some_and(|line| line.contains("contextmanager"))
}

/// The decorator next to a function: decorators stand before its span.
pub(super) fn decorator_line<'a>(view: &View<'a>) -> Option<&'a str> {
    let text = view.file();
    let before = text.get(..view.func.span.start as usize)?.trim_end();
    before.rsplit('\n').next().map(str::trim).filter(|line| line.starts_with('@'))
}

fn name_is_of_project(view: &View<'_>, step: usize) -> bool {
    view.value(step).is_some_and(|value| callee(view, value).is_some())
}

/// `@main_only` on a function that communicates: the decorator calls what it is given under a test of the rank.
pub fn decorated(view: &View<'_>, out: &mut Found) {
    let Some(parent) = view.func.parent else { return };
    if decorator_line(view).is_none() || view.func.is_generator {
        return;
    }
    let outer = near::shared(view, FuncRef { module: view.at.module, func: parent });
    let defined = |stmt: &Stmt| matches!(stmt, Stmt::Def { func, .. } if *func == view.at.func);
    let Some(Stmt::Def { decorators, .. }) = outer.steps.iter().find(|s| defined(s.stmt)).map(|s| s.stmt) else {
        return;
    };
    for decorator in decorators {
        let path = near::path(&outer, &outer.expr(decorator));
        let Some(Resolved::Func(at)) = path.map(|path| view.project.path(&path)) else { continue };
        let Some((guard, exit)) = calls_on_some(&view.other(at)) else { continue };
        let test = Test { of_all: true, one: false };
        let reached = |i| surely(view, i, test, &[], 0).filter(|reached| reached.model.is_none());
        let found = (0..view.steps.len()).find_map(|i| Some((i, reached(i)?.name)));
        if let Some((step, collective)) = found {
            let practice = Practice::SomeRanks { collective, condition: guard, exit: exit.then_some(guard) };
            out.push((view.place(view.steps[step].id), practice));
        }
    }
}

/// The test under which a decorator calls the function that it is given, if it does so nowhere else.
fn calls_on_some(view: &View<'_>) -> Option<(crate::source::Place, bool)> {
    let [given] = &*view.func.params else { return None };
    let (inner, around) = view.steps.iter().find_map(|s| match s.stmt {
        Stmt::Def { dst, func, .. } => Some((FuncRef { module: view.at.module, func: *func }, *dst)),
        _ => None,
    })?;
    let returned =
        |s: &super::view::Step<'_>| matches!(s.stmt, Stmt::Return { value } if *value == Operand::Local(around));
    if !view.steps.iter().any(returned) {
        return None;
    }
    let inner = view.other(inner);
    let (_, function) = inner.func.captures.iter().find(|(outer, _)| *outer == given.local)?;
    let is_call =
        |i: &usize| matches!(inner.value(*i), Some(Rvalue::Call { callee: Operand::Local(l), .. }) if l == function);
    let calls: Vec<usize> = (0..inner.steps.len()).filter(is_call).collect();
    let [call] = calls.as_slice() else { return None };
    let (guard, _) = decided(&inner, *call)?;
    let told = (inner.part(guard.at, 0), is_exit(&inner, &guard));
    (!other_branch_calls(&inner, &guard)).then_some(told)
}

/// Whether the same is called elsewhere in the function, where the other ranks may come.
fn matched(view: &View<'_>, step: usize, name: &str, (guard, told): (&Guard<'_>, Test)) -> bool {
    (0..view.steps.len()).any(|j| {
        let guards = &view.steps[j].guards;
        let here = guards.iter().any(|g| same(g, guard));
        let elsewhere = || guards.iter().any(|g| !same(g, guard) && (g.at == guard.at || test(view, g).is_some()));
        let talks = || view.value(j).is_some_and(|v| together(view, v).is_some() || callee(view, v).is_some());
        let opposite = || guards.iter().any(|g| test(view, g).is_some_and(|other| other.one != told.one));
        let unknown = || view.value(j).is_some_and(|v| may_talk(view, v)) && opposite();
        let again = || called_name(view, j).is_some_and(|other| other == *name);
        j != step && !here && (again() || elsewhere() && talks() || unknown())
    })
}

/// Methods and functions that talk to nobody.
const SILENT: &[&str] =
    &["print", "info", "warning", "debug", "error", "append", "makedirs", "mkdir", "format", "write"];

/// Whether what is not known is called, which may talk to the other ranks.
fn may_talk<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    match value {
        Rvalue::CallMethod { name, .. } => !SILENT.contains(&name.as_str()),
        Rvalue::Call { callee, .. } if view.callee(value).is_none() => {
            // An entry of a table, or what another call gives.
            let mut communicates = |e: &Expr| e.last_name().is_some_and(|name| view.rules.may_communicate(name));
            let callee = near::deep(view, &view.expr(callee));
            matches!(callee, Expr::Item(..) | Expr::Call { .. }) || callee.any(&mut communicates)
        }
        Rvalue::Call { .. } => view.callee(value).is_some_and(|path| {
            let known =
                ["builtins.", "torch.", "os.", "logging.", "time.", "json."].iter().any(|p| path.starts_with(p));
            let named = || SILENT.contains(&last(&path).as_str());
            path.contains('.') && !known && !named()
        }),
        _ => false,
    }
}

/// Whether another function calls the same function of the project for the other ranks.
fn is_called_by_others(view: &View<'_>, step: usize, told: Test) -> bool {
    let Some(at) = view.value(step).and_then(|value| callee(view, value)) else { return false };
    let inner = near::shared(view, at);
    let method = inner.func.class.map(|_| inner.func.name.as_str());
    let sites = super::called::sites(view, &view.project.qualified(at), method);
    let side = |(site, at): &(std::rc::Rc<View<'_>>, usize)| {
        if site.at == view.at && *at == step {
            return None;
        }
        site.steps[*at].guards.iter().find_map(|g| Some((site.at, test(site, g)?.one)))
    };
    let sides: Vec<(FuncRef, bool)> = sites.iter().filter_map(side).collect();
    // A function that calls it on both sides is whole by itself.
    let whole = |of: FuncRef| sides.iter().any(|(f, one)| *f == of && *one == told.one);
    sides.iter().any(|(f, one)| *one != told.one && !whole(*f))
}

/// Whether what a function of the project calls has a root, and stands in a third function too, for the other ranks.
fn is_answered_elsewhere(view: &View<'_>, step: usize, collective: &Name) -> bool {
    let Some(at) = view.value(step).and_then(|value| callee(view, value)) else { return false };
    at.module == view.at.module && is_answered(&near::shared(view, at), collective)
}

fn called_name(view: &View<'_>, step: usize) -> Option<Name> {
    match view.value(step)? {
        Rvalue::CallMethod { name, .. } => Some(name.clone()),
        value => Some(last(&view.callee(value)?)),
    }
}

/// What is called: the name of it, and that of the collective in it.
struct Reached {
    name: Name,
    inside: Option<Name>,
    /// The model whose tensors are made whole in what is called, as the caller names it.
    model: Option<Expr>,
}

impl Reached {
    fn new(name: Name) -> Reached {
        Reached { name, inside: None, model: None }
    }
}

/// The name of what a step calls, if all ranks have to call it.
fn communicates(view: &View<'_>, step: usize, test: Test) -> Option<Reached> {
    let value = view.value(step)?;
    if let Some(call) = together(view, value) {
        let only = || barriers(view) == 1;
        let everyone = without_group(call.group) && call.name.contains("barrier");
        return (everyone && only()).then(|| Reached::new(call.name));
    }
    let library = of_library(view, step).map(Reached::new);
    library.or_else(|| of_project(view, value, test, &[], 0))
}

/// The name of what a step calls with all ranks: a collective, what a library does so, or a function of the project.
pub(super) fn meets_all(view: &View<'_>, step: usize) -> Option<Name> {
    match together(view, view.value(step)?) {
        Some(call) => without_group(call.group).then_some(call.name),
        None => communicates(view, step, Test { of_all: true, one: false })
            .filter(|reached| reached.model.is_none())
            .map(|reached| reached.name),
    }
}

/// What a library does with all ranks.
fn of_library(view: &View<'_>, step: usize) -> Option<Name> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let own = || !view.project.methods_named(&Name::from(WHOLE_TENSOR)).is_empty();
    if let Rvalue::CallMethod { base, name, .. } = value {
        if name == WHOLE_TENSOR && args.is_empty() && !own() && may_be_split(view) {
            return Some(name.clone());
        }
        if name == "state_dict" && view.steps[step].contexts.iter().any(|c| gathers(view, c, base)) {
            return Some(name.clone());
        }
    }
    let path = view.callee(value)?;
    let name = || Some(last(&path));
    if TOGETHER.contains(&path.as_str()) {
        let alone = |a: &Arg| match &a.kind {
            ArgKind::Keyword(k) => ALONE.contains(&k.as_str()),
            ArgKind::DoubleStar | ArgKind::Star => true,
            ArgKind::Positional => false,
        };
        let placed = args.iter().filter(|a| a.kind == ArgKind::Positional).count();
        let otherwise = placed > 3 || args.iter().any(alone);
        return if otherwise { None } else { name() };
    }
    let options = || args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "options"));
    if WHOLE.contains(&path.as_str())
        && options().is_some_and(|a| is_whole(&view.through(&a.value)))
        && may_shard(view, step)
    {
        return name();
    }
    let optimizer = path.starts_with("torch.distributed.fsdp.") && path.ends_with(".full_optim_state_dict");
    if optimizer { name() } else { None }
}

/// `StateDictOptions(full_state_dict=True)`
fn is_whole(options: &Expr) -> bool {
    let Some(args) = options.call_of("StateDictOptions") else { return false };
    let set = |(kind, value): &(ArgKind, Expr)| {
        matches!(kind, ArgKind::Keyword(k) if k == "full_state_dict") && *value == Expr::Const(Const::Bool(true))
    };
    args.iter().any(set)
}

/// Whether a file does not say that its models are whole on each rank, as one is before it is sharded.
fn may_shard(view: &View<'_>, step: usize) -> bool {
    let shards = |s: usize| called_name(view, s).is_some_and(|n| near::has_any(&n.to_lowercase(), SHARD));
    if (step..view.steps.len()).any(shards) {
        return false;
    }
    let text = view.file().to_lowercase();
    near::has_any(&text, &["fsdp", "fully_shard", "fullyshard", "parallelize"])
}

/// Whether a file speaks of tensors in parts, and not of whole ones alone.
fn may_be_split(view: &View<'_>) -> bool {
    let text = view.file().to_lowercase();
    near::has_any(&text, &["shard", "fsdp", "parallelize", "distribute_", "from_local", "checkpoint"])
        && (!text.contains("replicate(") || text.contains("shard("))
}

/// Whether a file speaks of a dim of a mesh that has others.
fn has_dims(view: &View<'_>) -> bool {
    let text = near::bare(view.file());
    ["mesh[", "_mesh.", "mesh_dim_names"].iter().any(|word| text.contains(word))
}

/// Whether a context makes the state of a model whole: `FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)`.
fn gathers(view: &View<'_>, context: &Operand, model: &Operand) -> bool {
    let Expr::Call { callee, args, .. } = view.through(context) else { return false };
    let named =
        callee.last_name().is_some_and(|n| n.ends_with("state_dict_type") || n.ends_with("state_dict_type_context"));
    let same = args.first().is_some_and(|(_, first)| *first == view.expr(model) || *first == view.through(model));
    let whole = args.iter().any(|(_, e)| match e {
        Expr::Const(Const::Str(text)) => text.eq_ignore_ascii_case("full"),
        other => other.last_name() == Some("FULL_STATE_DICT"),
    });
    named && same && whole
}

/// How many barriers the files of the project have.
fn barriers(view: &View<'_>) -> usize {
    let count = |text: &str| text.matches("barrier(").count() + text.matches("wait_for_everyone(").count();
    let own = count(view.file());
    // The files of other modules are looked at only where this one has no second one.
    match own {
        0 | 1 => view.project.modules.iter().map(|m| count(view.files[m.file].whole())).sum(),
        more => more,
    }
}

/// The function of the project that is called: by its name, a method of a class that is named, of the own object, or of one whose class is known.
pub(super) fn callee(view: &View<'_>, value: &Rvalue) -> Option<FuncRef> {
    match value {
        Rvalue::Call { callee, .. } => wrapped::function(view, &view.through(callee)),
        Rvalue::CallMethod { base, name, .. } if near::is_self(view, base) => {
            let class = near::class_of(view)?;
            view.project.own_method(ClassRef { module: view.at.module, class }, name)
        }
        Rvalue::CallMethod { base, name, .. } => {
            let of = view.through(base);
            let project = view.project;
            let named =
                near::path(view, &of).map(|path| (project.path(&path), project.path(&format!("{path}.{name}"))));
            match named {
                Some((Resolved::Class(class), _)) => project.own_method(class, name),
                Some((_, Resolved::Func(at))) => Some(at),
                _ => project.own_method(class_of(view, &of, name)?, name),
            }
        }
        _ => None,
    }
}

/// The class of an object that is made here, that the constructor keeps, or that an annotation names where no other class has the method.
fn class_of(view: &View<'_>, object: &Expr, method: &Name) -> Option<ClassRef> {
    let made = |view: &View<'_>, e: &Expr| match e {
        Expr::Call { callee, .. } => match view.project.path(&near::path(view, callee)?) {
            Resolved::Class(class) => Some(class),
            _ => None,
        },
        _ => None,
    };
    match object {
        Expr::Local(local) if view.is_as_given(*local) => {
            let hint = view.func.params.iter().find(|p| p.local == *local)?.hint.as_ref()?;
            let path = super::expr::path_of_hint(view.project, view.at.module, hint)?;
            match view.project.path(&path) {
                Resolved::Class(class) if view.project.methods_named(method).len() == 1 => Some(class),
                _ => None,
            }
        }
        Expr::Attr(..) => {
            let (name, class) = near::own_attribute(view, object).zip(near::class_of(view))?;
            match near::assigned(view, class, name).as_slice() {
                [(by, _, value)] => made(by, &by.through(value)),
                _ => None,
            }
        }
        other => made(view, other),
    }
}

/// The name of a function of the project that communicates over all ranks whatever it is given. `left`: parameters of the caller that are left out.
fn of_project<'a>(view: &View<'a>, value: &'a Rvalue, test: Test, left: &[LocalId], depth: usize) -> Option<Reached> {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let at = callee(view, value)?;
    let inner = near::shared(view, at);
    if inner.func.is_generator || inner.func.is_async {
        return None;
    }
    let left = left_out(view, &inner, args, left);
    let reached = (0..inner.steps.len()).find_map(|i| surely(&inner, i, test, &left, depth))?;
    // What is a model here is what the caller gives.
    let bound = usize::from(inner.func.class.is_some());
    let model = match reached.model {
        Some(Expr::Local(local)) => Some(view.expr(given(&inner, local, args, bound)?)),
        other => other,
    };
    Some(Reached { name: inner.func.name.clone(), inside: reached.inside.or(Some(reached.name)), model })
}

/// What a step that is reached wherever the program is distributed does with all ranks.
fn surely(view: &View<'_>, step: usize, test: Test, left: &[LocalId], depth: usize) -> Option<Reached> {
    let at = &view.steps[step];
    let value = view.value(step)?;
    let (Rvalue::Call { .. } | Rvalue::CallMethod { .. }) = value else { return None };
    let always = |g: &Guard<'_>| asks_job(view, &view.expr(g.test), g.holds);
    let model = match &**at.loops {
        [] => None,
        [round] => Some(listed(view, *round)?),
        _ => return None,
    };
    if let Some(model) = model.clone().filter(|_| makes_whole(view, value)) {
        let told = |g: &Guard<'_>| always(g) || g.holds && asks_split(&view.expr(g.test));
        return at
            .guards
            .iter()
            .all(told)
            .then(|| Reached { model: Some(model), ..Reached::new(Name::from(WHOLE_TENSOR)) });
    }
    if !at.guards.iter().all(always) {
        return None;
    }
    if let Some(call) = together(view, value) {
        let absent = match call.group {
            Some(Operand::Local(local)) => left.contains(local),
            _ => false,
        };
        let all = absent || without_group(call.group) || waits(view, call.group, test);
        return all.then(|| Reached::new(call.name));
    }
    let deeper = || if depth + 1 < MOST_CALLS { of_project(view, value, test, left, depth + 1) } else { None };
    let library = of_library(view, step).filter(|n| n != WHOLE_TENSOR).map(Reached::new);
    library.or_else(deeper)
}

/// The parameters that a call leaves out, or gives what was left out itself, and that stay so.
fn left_out(view: &View<'_>, inner: &View<'_>, args: &[Arg], left: &[LocalId]) -> Vec<LocalId> {
    if args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar)) {
        return Vec::new();
    }
    let absent = |e: &Operand| match e {
        Operand::Const(Const::None) => true,
        Operand::Local(local) => left.contains(local),
        Operand::Const(_) | Operand::Global(_) => false,
    };
    let bound = usize::from(inner.func.class.is_some());
    let given = |(i, p): &(usize, &crate::ir::Param)| {
        let named = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if *k == p.name));
        let placed = || args.get(i.checked_sub(bound)?).filter(|a| a.kind == ArgKind::Positional);
        named.or_else(placed).is_none_or(|a| absent(&a.value))
    };
    let none = |(_, p): &(usize, &crate::ir::Param)| super::group_argument::defaults_to_none(view, inner.at, p);
    let whole = |local: LocalId| {
        inner.defs(local).iter().all(|def| {
            let bound = inner.bound(*def, local);
            let name = match &bound {
                Expr::Call { callee, .. } => callee.last_name(),
                other => other.last_name(),
            };
            bound.is_none() || name.is_some_and(|n| n == "WORLD" || n.ends_with("default_group"))
        })
    };
    let params = inner.func.params.iter().enumerate();
    params.filter(|(_, p)| p.has_default && whole(p.local)).filter(given).filter(none).map(|(_, p)| p.local).collect()
}
