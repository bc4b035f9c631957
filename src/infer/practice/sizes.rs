//! Sizes of parameters: whole, given, or a part of something; and the classes whose objects the project makes with whole sizes.
//! In: constructors and the calls of them. Out: [`Size`], [`made_whole`]. Never: numbers. Next: `infer/parameters.rs`, which asks.

use super::super::memo::{Memo, Task, combined, kept_equals};
use super::asked::{Asked, Topic};
use super::expr::Expr;
use super::view::View;
use crate::ir::{ArgKind, BinOp, FuncKind, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Project, Resolved};
use crate::rules::{Entry, ModuleRule, RuleBook};
use crate::source::reads::{Read, note};
use crate::source::{Files, Name};
use aho_corasick::AhoCorasick;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Words in a size or a name that say that it is a part of something.
const PARTS: &[&str] = &[
    "partition",
    "local",
    "shard",
    "per_rank",
    "_rank",
    "world_size",
    "tp_size",
    "divide",
    "per_gpu",
    "num_experts",
    "_tp",
];

/// What the sizes of a parameter say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Numbers, and sizes of the configuration.
    Whole,
    /// Sizes that the constructor is given under a name that is one of the whole model.
    Named,
    /// Sizes that the constructor is given.
    Given,
    /// Divided, computed by a function, or not followed.
    Part,
}

/// Receivers whose attributes are sizes of the whole model.
pub(super) const CONFIGS: &[&str] = &["config", "cfg", "args", "conf", "hparams", "model_config", "model_args"];

/// What the sizes of a whole model are called where a constructor is given them.
const OF_MODELS: &[&str] = &[
    "hidden_size",
    "head_dim",
    "head_size",
    "d_model",
    "kv_channels",
    "embed_dim",
    "cond_dim",
    "r",
    "lora_r",
    "lora_rank",
    "lora_dim",
];

/// What parallel layers call the sizes of the whole matrix; those of the part are `..._per_partition`.
const OF_LAYERS: &[&str] = &["input_size", "output_size"];

/// The sizes in the arguments of a call that makes a parameter or a module.
pub fn made_of(view: &View<'_>, step: usize, depth: usize) -> Size {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return Size::Part;
    };
    // What a module of torch is made with are sizes, whatever their names.
    let outer = !matches!(view.ruled(value), Some((_, Some(Entry::Module(_)))));
    let sizes = args.iter().filter(|a| !is_option(&a.kind));
    sizes.map(|a| size_of(view, &view.through(&a.value), outer, depth)).max().unwrap_or(Size::Part)
}

/// Arguments that are no sizes.
fn is_option(kind: &ArgKind) -> bool {
    matches!(kind, ArgKind::Keyword(k) if matches!(k.as_str(), "device" | "dtype" | "bias" | "eps" | "requires_grad" | "generator" | "elementwise_affine"))
}

pub(super) fn size_of(view: &View<'_>, expr: &Expr, outer: bool, depth: usize) -> Size {
    if depth > super::super::limits::MAX_VALUE_DEPTH {
        return Size::Part;
    }
    let deeper = |e: &Expr| size_of(view, e, false, depth + 1);
    match expr {
        Expr::Const(_) => Size::Whole,
        Expr::Attr(_, name) if says_part(name) => Size::Part,
        Expr::Attr(base, name) => match &**base {
            Expr::Local(l) if CONFIGS.contains(&view.local_name(*l).as_str()) => Size::Whole,
            Expr::Attr(_, inner) if CONFIGS.contains(&inner.as_str()) => Size::Whole,
            Expr::Local(l) if view.local_name(*l) == "self" => stored(view, name, depth),
            Expr::Local(l) if view.is_param(*l) && OF_LAYERS.contains(&name.as_str()) => Size::Named,
            _ => Size::Part,
        },
        Expr::Local(l) if says_part(view.local_name(*l)) => Size::Part,
        // Data that is given may be anything; a size that is given is what the caller calls it.
        Expr::Local(l) if view.is_param(*l) => {
            if outer && depth == 0 && is_data(view, *l) {
                Size::Part
            } else if OF_MODELS.contains(&view.local_name(*l).as_str()) {
                Size::Named
            } else {
                Size::Given
            }
        }
        Expr::Local(_) => Size::Part,
        Expr::Call { callee, args, step } => match callee.path() {
            Some(path) if path.starts_with("torch.") => {
                let _ = args;
                made_of(view, *step, depth + 1)
            }
            _ => Size::Part,
        },
        Expr::Binary(BinOp::Mul | BinOp::Add | BinOp::Sub, a, b) => deeper(a).max(deeper(b)),
        Expr::Binary(BinOp::FloorDiv, a, b) if counts_heads(view, b) => deeper(a).max(deeper(b)),
        Expr::Build(items) => items.iter().map(deeper).max().unwrap_or(Size::Whole),
        Expr::Path(path) if !says_part(path) => Size::Whole,
        _ => Size::Part,
    }
}

/// Whether a parameter of the constructor is a tensor rather than a size: no annotation says that it is a number, and it is all that
/// the new parameter is made of.
fn is_data(view: &View<'_>, local: LocalId) -> bool {
    let param = view.func.params.iter().find(|p| p.local == local);
    let number = param.and_then(|p| p.hint.as_deref()).is_some_and(|h| h.contains("int"));
    let name = view.local_name(local);
    let sized =
        ["size", "dim", "features", "hidden", "channels", "width", "inner", "num_"].iter().any(|w| name.contains(w));
    !number && !sized
}

/// Whether a parameter is a copy of data that the constructor is given, of which nothing says that it is a part, and which is not cut.
fn copies_given(view: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step) else { return false };
    let Some(data) = args.first() else { return false };
    let mut at = view.through(&data.value);
    for _ in 0..super::super::limits::MAX_VALUE_DEPTH {
        at = match at {
            Expr::Call { callee, .. } => match *callee {
                Expr::Attr(base, name) if matches!(name.as_str(), "clone" | "detach" | "contiguous" | "data") => *base,
                _ => return false,
            },
            Expr::Attr(base, name) if name == "data" => *base,
            Expr::Attr(base, name) => {
                return !says_part(&name)
                    && matches!(*base, Expr::Local(l) if view.is_param(l) && view.local_name(l) != "self");
            }
            Expr::Local(l) => return view.is_param(l) && !says_part(view.local_name(l)),
            _ => return false,
        };
    }
    false
}

/// Whether a parameter of this name that a call makes, or the module that it makes, has sizes that are given and no parts. `base`: the
/// layer that the class is derived from.
pub fn whole_for(view: &View<'_>, step: usize, name: &str, base: Option<&ModuleRule>) -> bool {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return false;
    };
    if super::routers::routes(view, step, name) {
        return true;
    }
    let module = view.callee(value).and_then(|path| match view.rules.get(&path) {
        Some(Entry::Module(rule)) => Some(&**rule),
        _ => None,
    });
    let of_base = matches!(value, Rvalue::CallMethod { name, .. } if name == "__init__");
    let module = module.or(base.filter(|_| of_base));
    let last = name.rsplit('.').next().unwrap_or(name);
    let Some((rule, (_, sizes))) = module.and_then(|r| Some((r, r.params.iter().find(|(n, _)| n == last)?))) else {
        return made_of(view, step, 0) != Size::Part || copies_given(view, step);
    };
    sizes.iter().all(|size| {
        let name = size.strip_prefix('*').unwrap_or(size);
        let Some(at) = rule.args.index(name.split(' ').next().unwrap_or(name)) else { return true };
        let Some(given) = view.argument(args, at, &rule.args.params[at].name) else { return true };
        match view.through(given) {
            Expr::Local(l) if view.is_param(l) && divides(view, l) => true,
            expr => size_of(view, &expr, false, 0) != Size::Part,
        }
    })
}

/// Whether a function divides what it is given: then that is whole, whatever its name.
fn divides(view: &View<'_>, local: LocalId) -> bool {
    let is = |o: &Operand| matches!(o, Operand::Local(l) if *l == local);
    view.steps.iter().any(|s| match s.stmt {
        Stmt::Assign { value: Rvalue::Binary { op: BinOp::FloorDiv, left, .. }, .. } => is(left),
        _ => false,
    })
}

/// Whether a size that a function is given bears the name of a size of the whole model.
fn names_model(view: &View<'_>, expr: &Expr) -> bool {
    let Expr::Local(l) = expr else { return false };
    let name = view.local_name(*l);
    let whole = ["hidden", "dim", "embd", "embed", "d_model"].iter().any(|w| name.contains(w));
    whole && !["inner", "inter", "ffn", "ff_", "expert"].iter().any(|w| name.contains(w))
}

/// Whether a size is the number of heads.
fn counts_heads(view: &View<'_>, expr: &Expr) -> bool {
    match expr {
        Expr::Local(l) => view.is_param(*l) && view.local_name(*l).contains("head") && !says_part(view.local_name(*l)),
        Expr::Attr(_, name) => name.contains("head") && !says_part(name),
        _ => false,
    }
}

/// What an attribute holds that the constructor stored before.
fn stored(view: &View<'_>, attr: &str, depth: usize) -> Size {
    let values = view.steps.iter().filter_map(|s| match s.stmt {
        Stmt::SetAttr { base: Operand::Local(l), name, value } if name == attr && view.local_name(*l) == "self" => {
            Some(value)
        }
        _ => None,
    });
    values.map(|v| size_of(view, &view.through(v), false, depth + 1)).max().unwrap_or(Size::Part)
}

pub fn says_part(text: &str) -> bool {
    let mut lower = text.to_lowercase();
    if lower.contains("lo") && lower.contains("_rank") {
        // The rank of a matrix is none of a process.
        lower = lower.replace("lora_rank", "").replace("low_rank", "");
    }
    PARTS.iter().any(|p| lower.contains(p))
}

/// A class whose parameters have the sizes that its constructor is given: the parameters of the constructor that are sizes.
#[derive(Clone, Debug, PartialEq)]
struct Sized {
    class: ClassRef,
    name: Name,
    sizes: Vec<(usize, Name)>,
}

/// The classes whose parameters have the sizes that they are given, and that the project makes with whole sizes only.
pub fn made_whole(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    asked: &Asked,
    memo: Option<&Memo>,
) -> Arc<FxHashSet<ClassRef>> {
    let modules: Vec<ModuleId> = project.modules.ids().collect();
    let parts = kept_equals(memo, &modules, Task::Sized, |module| sized_in(project, rules, files, asked, module));
    let flat = |parts: Vec<Arc<Vec<Sized>>>| parts.iter().flat_map(|part| part.iter().cloned()).collect::<Vec<_>>();
    let sized = combined(memo, "sized", parts, flat, |_, _| vec![Read::Sizes]);
    let by_class: FxHashMap<ClassRef, &Sized> = sized.iter().map(|s| (s.class, s)).collect();
    let names = AhoCorasick::new(sized.iter().map(|s| s.name.as_str())).ok();
    let made_in = |module: ModuleId| {
        note(|| Read::Sizes);
        let text = files[project.file(module)].whole();
        let named = |text: &str| match &names {
            Some(names) => names.is_match(text),
            None => sized.iter().any(|s| text.contains(s.name.as_str())),
        };
        let mut out = Vec::new();
        if sized.is_empty() || !named(text) {
            return out;
        }
        for (func, f) in project.modules[module].ir.funcs.iter_enumerated() {
            let text = files[project.file(module)].slice(f.span);
            if f.kind != FuncKind::Function || !named(text) {
                continue;
            }
            let view = View::new(project, rules, files, FuncRef { module, func });
            makes(&view, &by_class, &mut out);
        }
        out
    };
    let made = kept_equals(memo, &modules, Task::Makes, made_in);
    let joined = |made: Vec<Arc<Vec<(ClassRef, bool)>>>| {
        let mut whole: FxHashMap<ClassRef, bool> = FxHashMap::default();
        for (class, is_whole) in made.iter().flat_map(|part| part.iter()) {
            *whole.entry(*class).or_insert(true) &= is_whole;
        }
        whole.into_iter().filter(|(_, whole)| *whole).map(|(class, _)| class).collect::<FxHashSet<_>>()
    };
    combined(memo, "made whole", made, joined, |a, b| if a == b { Vec::new() } else { vec![Read::Marking] })
}

/// The classes of a module whose parameters have the sizes that they are given.
fn sized_in(project: &Project, rules: &RuleBook, files: &Files, asked: &Asked, module: ModuleId) -> Vec<Sized> {
    if !asked.shown(module, files[project.file(module)].whole()).speaks_of(Topic::Parameters)
        || crate::infer::parameters::protocol(project, rules, module).is_none()
    {
        return Vec::new();
    }
    let classes = project.modules[module].ir.classes.ids();
    classes.filter_map(|class| sized(project, rules, files, ClassRef { module, class })).collect()
}

/// The parameters of a constructor from which the sizes of its parameters are taken.
fn sized(project: &Project, rules: &RuleBook, files: &Files, class: ClassRef) -> Option<Sized> {
    let at = project.own_method(class, "__init__")?;
    let text = files[project.file(class.module)].slice(project.func(at).span);
    if !text.contains("Parameter(") && !text.contains("Linear(") && !text.contains(".__init__(") {
        return None;
    }
    let view = View::new(project, rules, files, at);
    let mut sizes: Vec<(usize, Name)> = Vec::new();
    let mut given = |made: &Expr| {
        made.any(&mut |e| {
            if let Expr::Local(l) = e
                && let Some(i) = view.func.params.iter().position(|p| p.local == *l)
                && i > 0
            {
                sizes.push((i - 1, view.local_name(*l).clone()));
            }
            false
        });
    };
    for step in 0..view.steps.len() {
        if let Stmt::SetAttr { value, .. } = view.steps[step].stmt {
            let made = view.expr(value);
            if made.call_of("Parameter").is_some() {
                given(&made);
            }
        }
        if let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step)
            && makes_module(&view, value, class)
        {
            args.iter().filter(|a| !is_option(&a.kind)).for_each(|a| given(&view.expr(&a.value)));
        }
    }
    (!sizes.is_empty()).then(|| Sized { class, name: project.class(class).name.clone(), sizes })
}

/// Whether a call makes a module of torch, or is the constructor of the one that the class is derived from.
fn makes_module<'a>(view: &View<'a>, value: &'a Rvalue, class: ClassRef) -> bool {
    match value {
        Rvalue::CallMethod { base, name, .. } if name == "__init__" => {
            let above = matches!(view.expr(base), Expr::Call { callee, .. } if callee.last_name() == Some("super"));
            let text = view.text(view.spot(view.project.class(class).span));
            let head = text.split(':').next().unwrap_or_default();
            above && ["nn.Linear", "nn.LayerNorm", "nn.RMSNorm", "nn.Embedding"].iter().any(|of| head.contains(of))
        }
        other => matches!(view.ruled(other), Some((_, Some(Entry::Module(rule)))) if !rule.params.is_empty()),
    }
}

/// The calls of these classes in a function, and whether the sizes that they give are whole.
fn makes(view: &View<'_>, classes: &FxHashMap<ClassRef, &Sized>, out: &mut Vec<(ClassRef, bool)>) {
    for step in 0..view.steps.len() {
        let Some(value) = view.value(step) else { continue };
        if let Some(path) = view.callee(value)
            && let Resolved::Class(class) = view.project.path(&path)
            && let Some(sized) = classes.get(&class)
            && let Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } = value
        {
            let whole = sized.sizes.iter().all(|(at, name)| {
                let given = view.argument(args, *at, name);
                given.is_none_or(|o| {
                    let expr = view.through(o);
                    match size_of(view, &expr, false, 0) {
                        Size::Whole | Size::Named => true,
                        Size::Given => names_model(view, &expr),
                        Size::Part => false,
                    }
                })
            });
            let open = args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar));
            out.push((class, whole && !open));
            continue;
        }
        // A class that is handed on may be made with anything.
        for operand in view.reads(step) {
            if let Operand::Global(name) = operand
                && !is_callee(value, operand)
                && let Some(Resolved::Class(class)) = view.project.member(view.at.module, name)
                && classes.contains_key(&class)
            {
                out.push((class, false));
            }
        }
    }
}

fn is_callee(value: &Rvalue, operand: &Operand) -> bool {
    matches!(value, Rvalue::Call { callee, .. } if std::ptr::eq(callee, operand))
}
