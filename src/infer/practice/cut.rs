//! Raw collectives on the way of a gradient. In: functions and the functions they call. Out: a collective whose output buffer cuts the
//! gradient of what a submodule computed; a raw reduction beside a differentiable one of the same value. Never: values that an unknown
//! function made, and what runs without gradients. Source: DESIGN.md section 7. Next: `gradient/mod.rs`, which follows values.

use super::beside::Question;
use super::expr::Expr;
use super::found::Practice;
use super::gradient::{Walk, may_cut};
use super::made::{Communicates, Cut, MODULE, Made, PARAMS, direct, through};
use super::view::View;
use super::{Found, Lint};
use crate::ir::{Block, Const, FuncId, FuncKind, LocalId, Operand, Param, ParamKind, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::source::{FileId, Idx, Name};
use rustc_hash::FxHashSet;

/// Words in names of code that is never trained.
const UNTRAINED: &[&str] = &["infer", "generat", "eval", "decod", "predict", "no_grad"];

/// How files say that their models are not trained.
const SERVED: &[&str] = &["Inference-only", "inference-only", "Inference only", "inference only"];

/// How code says that it runs without gradients, and words that no project goes without that trains anything.
const WITHOUT: &[&str] = &["inference_mode", "no_grad"];
const TRAINS: &[&str] = &[
    ".backward(",
    "optim.",
    "optimizer",
    "Trainer",
    "training_step",
    ".train()",
    "cross_entropy",
    "Loss",
    " loss",
    "_loss",
    "autograd.Function",
];

/// What asks for the gradient of something, or turns it off.
const GRADIENT: &str = "requires_grad";

/// Cuts of the gradient in one function.
pub fn cuts<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    let forward = view.func.name == "forward" && class_of(view).is_some_and(|c| is_module(lint, c));
    let text = view.text(view.spot(view.func.span));
    let reduces = text.contains("all_reduce") && view.func.kind == FuncKind::Function;
    if !forward && !reduces || !may_cut(lint, view) || !is_trained(lint, view) {
        return;
    }
    let walk = Walk::of(lint, view);
    let Some(walk) = walk.filter(|walk| !walk.cuts.is_empty() && !is_served(lint, view)) else { return };
    let before = out.len();
    for returned in walk.firsts() {
        if forward {
            report_cut(&walk.cuts, returned, out);
            report_before(&walk.cuts, returned, out);
        }
        report_mixed(view, &walk.cuts, returned, out);
    }
    let own = class_of(view).filter(|_| forward && out.len() > before);
    if own.is_some_and(|class| super::only_read::may_be(lint, class)) {
        out.truncate(before);
    }
    let any = |words: &[&str]| words.iter().any(|word| lint.files.any_says(word));
    if out.len() > before
        && any(WITHOUT)
        && !any(TRAINS)
        && !lint.files.saying(GRADIENT).any(|file| asks_gradient(lint, file))
    {
        out.truncate(before);
    }
    let mut seen = Vec::new();
    out.retain(|(place, practice)| {
        let again =
            matches!(practice, Practice::GradientCut { .. } | Practice::MixedGradient { .. }) && seen.contains(place);
        seen.push(*place);
        !again
    });
}

/// Whether a file asks for gradients anywhere: that it turns them off says the opposite.
fn asks_gradient(lint: &Lint<'_>, file: FileId) -> bool {
    let off = |rest: &str| ["_(False)", " = False", "=False"].iter().any(|off| rest.starts_with(off));
    lint.files[file].whole().split(GRADIENT).skip(1).any(|rest| !off(rest))
}

/// Output buffers between a submodule and the result.
fn report_cut(cuts: &[Cut], returned: u128, out: &mut Found) {
    for (k, cut) in cuts.iter().enumerate() {
        let reaches = returned & through(k) != 0 && returned & direct(k) == 0;
        if reaches && cut.how == Communicates::IntoBuffer && cut.input & MODULE != 0 {
            let practice = Practice::GradientCut { collective: cut.name.clone(), call: cut.call, before: None };
            out.push((cut.place, practice));
        }
    }
}

/// Exchanges between an argument of a module and a differentiable collective, which has a gradient to bring back.
fn report_before(cuts: &[Cut], returned: u128, out: &mut Found) {
    for (k, cut) in cuts.iter().enumerate() {
        // What is gathered may be labels; what is exchanged and comes back is not.
        let exchanged = cut.name.contains("all_to_all") && cut.how == Communicates::IntoBuffer;
        let fills = exchanged && cut.call.is_none() && cut.input & PARAMS != 0;
        let behind = cuts.iter().enumerate().find(|(j, other)| {
            other.how == Communicates::Differentiable
                && returned & through(*j) != 0
                && other.input & through(k) != 0
                && other.input & direct(k) == 0
                && other.input & MODULE != 0
                && !apart(other, cut)
        });
        if let Some((_, other)) = behind.filter(|_| fills) {
            let before = Some((other.name.clone(), other.place));
            let practice = Practice::GradientCut { collective: cut.name.clone(), call: None, before };
            out.push((cut.place, practice));
        }
    }
}

/// A raw reduction of one value and a differentiable one of another, both made from the same argument.
fn report_mixed(view: &View<'_>, cuts: &[Cut], returned: u128, out: &mut Found) {
    let reached = |k: usize| returned & through(k) != 0 && returned & direct(k) == 0;
    let containers = containers(view);
    for (k, cut) in cuts.iter().enumerate().filter(|(k, c)| reached(*k) && c.how != Communicates::Differentiable) {
        if cut.call.is_some() || cut.how == Communicates::InPlace && !cut.computed {
            continue;
        }
        let other = cuts.iter().enumerate().find(|(j, o)| {
            let alternatives = super::handles::excludes(&view.steps[cut.step], &view.steps[o.step]);
            *j != k
                && !alternatives
                && returned & through(*j) != 0
                && o.how == Communicates::Differentiable
                && !o.splits
                && !(cut.how == Communicates::InPlace && (o.equal || cut.input & through(*j) != 0))
                && !apart(o, cut)
                && whole(o.input, cut.input)
                && o.input & cut.input & containers == 0
        });
        if let Some((_, other)) = other {
            let practice = Practice::MixedGradient {
                collective: cut.name.clone(),
                differentiable: other.name.clone(),
                other: other.place,
            };
            out.push((cut.place, practice));
        }
    }
}

/// The arguments that hold several values: what is made of one of these is not made of another.
fn containers(view: &View<'_>) -> Made {
    let holds = |local: LocalId| {
        view.readers(local).iter().any(|step| match (view.steps[*step].stmt, view.value(*step)) {
            (Stmt::Unpack { value: Operand::Local(of), .. }, _) => *of == local,
            (_, Some(Rvalue::Item { base: Operand::Local(of), index })) => {
                *of == local && matches!(index, Operand::Const(Const::Int(_) | Const::Str(_)))
            }
            _ => false,
        })
    };
    let several = |p: &Param| matches!(p.kind, ParamKind::VarArgs | ParamKind::KwArgs) || holds(p.local);
    let params = view.func.params.iter().enumerate().take(30);
    params.filter(|(_, p)| several(p)).fold(0, |bits, (i, _)| bits | 1 << i)
}

/// Whether two collectives run over groups that have nothing to do with each other.
fn apart(a: &Cut, b: &Cut) -> bool {
    matches!((&a.axes, &b.axes), (Some(a), Some(b)) if !a.iter().any(|axis| b.contains(axis)))
}

/// Whether the raw value is made from every argument that the other one is made from: the sum of weights is not, beside a weighted sum.
fn whole(other: u128, raw: u128) -> bool {
    other & PARAMS != 0 && other & PARAMS & !raw == 0
}

pub fn class_of(view: &View<'_>) -> Option<ClassRef> {
    view.func.class.map(|class| ClassRef { module: view.at.module, class })
}

pub fn is_module(lint: &Lint<'_>, class: ClassRef) -> bool {
    !lint.is_autograd(class) && lint.settings.statics.external_bases(class).any(|b| b.ends_with("Module"))
}

/// Whether gradients flow in a function: no decorator turns them off, it is not a function of autograd, nothing is frozen.
pub fn is_trained(lint: &Lint<'_>, view: &View<'_>) -> bool {
    let named = |n: &str| {
        let n = n.to_lowercase();
        UNTRAINED.iter().any(|w| n.contains(w))
    };
    let class = class_of(view);
    let turned_off = |c: ClassRef| {
        let text = view.text(view.spot(lint.project.class(c).span));
        lint.is_autograd(c)
            || [".freeze()", "requires_grad_(False)", "requires_grad = False"].iter().any(|w| text.contains(w))
    };
    let frozen = class.is_some_and(|c| view.answer(Question::Frozen(c), || turned_off(c)));
    let context = view.func.params.first().is_some_and(|p| p.name == "ctx");
    !frozen
        && !context
        && !named(&view.project.qualname(view.at))
        && !named(lint.project.name(view.at.module))
        && !decorators(lint, view.at).iter().any(|d| named(d) || d.contains("inference_mode") || d.contains("custom"))
}

/// Whether the file, or one beside it, says that its models are only served.
fn is_served(lint: &Lint<'_>, view: &View<'_>) -> bool {
    let package = |module: ModuleId| lint.project.name(module).rsplit_once('.').map(|(package, _)| package);
    let says = |module: ModuleId| {
        let text = lint.files[lint.project.file(module)].whole();
        *lint.served[module.index()].get_or_init(|| SERVED.iter().any(|words| text.contains(words)))
    };
    let own = package(view.at.module);
    says(view.at.module)
        || own.is_some() && lint.project.modules.ids().any(|module| package(module) == own && says(module))
}

/// Functions in a block whose definitions have decorators.
fn decorated(block: &Block, out: &mut FxHashSet<FuncId>) {
    for node in block {
        match &node.stmt {
            Stmt::Def { func, decorators, .. } if !decorators.is_empty() => {
                out.insert(*func);
            }
            stmt => stmt.blocks().for_each(|inner| decorated(inner, out)),
        }
    }
}

/// The names of the decorators of a function.
pub fn decorators(lint: &Lint<'_>, at: FuncRef) -> Vec<Name> {
    let func = lint.project.func(at);
    let Some(parent) = func.parent else { return Vec::new() };
    let parent = FuncRef { module: at.module, func: parent };
    // Most functions have none, and the function around them, often a whole module, need not be taken apart to know that.
    let module = &lint.project.modules[at.module];
    let known = lint.decorated[at.module.index()].get_or_init(|| {
        let mut out = FxHashSet::default();
        module.ir.defining().into_iter().for_each(|func| decorated(module.ir.funcs[func].body(), &mut out));
        out
    });
    if !known.contains(&at.func) {
        return Vec::new();
    }
    let outer = lint.view(parent);
    let defined = |stmt: &Stmt| matches!(stmt, Stmt::Def { func, .. } if *func == at.func);
    let Some(step) = outer.steps.iter().find(|s| defined(s.stmt)) else { return Vec::new() };
    let Stmt::Def { decorators, .. } = step.stmt else { return Vec::new() };
    decorators.iter().map(|d: &Operand| name_of(&outer.expr(d))).collect()
}

fn name_of(e: &Expr) -> Name {
    match e {
        Expr::Call { callee, .. } => name_of(callee),
        other => Name::from(other.last_name().unwrap_or("")),
    }
}
