//! Tensor-parallel plans that are kept as data, against the modules that they are about. In: a dict from paths of modules to words, and
//! the classes that are made with the configuration which holds it. Out: a parameter whose gradient is partial and that the plan leaves
//! out; a module that is given a part where it takes the whole, or the other way round. Never: values that go through more than views
//! and operations on each element. Source: DESIGN.md section 7. Next: `rules/models/*.toml`, which has the words.

use super::expr::Expr;
use super::found::{Practice, Scales};
use super::view::View;
use super::{Found, Lint};
use crate::ir::{ArgKind, BuildKind, Const, FuncKind, Item, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::rules::PlanStyleRule;
use crate::source::{FileId, Name, Place};

/// Methods that keep what a value is on each rank.
const VIEWS: &[&str] =
    &["view", "reshape", "transpose", "contiguous", "unflatten", "to", "float", "permute", "type_as"];
/// A file with a plan has one of these.
pub const WORDS: &[&str] = &["wise\""];

/// How deep an expression is followed.
const MOST_DEPTH: usize = 12;

/// An entry: the path up to the last component, that one, its word and place.
struct Entry<'a> {
    parent: String,
    leaf: Name,
    style: Option<&'a PlanStyleRule>,
    place: Place,
}

/// What a class makes: attributes, with where and how.
pub(super) type Attributes = Vec<(Name, Place, Made)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// A matrix, whole unless the plan splits it.
    Linear,
    /// A norm over the last dim, with a weight; one without is any module.
    Norm,
    Other,
}

/// Plans of a module, against the classes of the modules beside it.
pub fn plans(lint: &Lint<'_>, module: ModuleId, out: &mut Found) {
    let ir = &lint.project.modules[module].ir;
    for (class, c) in ir.classes.iter_enumerated() {
        let body = lint.view(FuncRef { module, func: c.body });
        for step in 0..body.steps.len() {
            let entries = entries(lint, &body, step);
            if entries.iter().filter(|e| e.style.is_some()).count() >= 2 {
                against(lint, ClassRef { module, class }, &entries, out);
            }
        }
    }
}

/// The entries of a dict from strings to strings.
fn entries<'a>(lint: &Lint<'a>, view: &View<'a>, step: usize) -> Vec<Entry<'a>> {
    let Some(Rvalue::Build { kind: BuildKind::Dict, items }) = view.value(step) else { return Vec::new() };
    let text = |item: &Item| match item {
        Item::One(Operand::Const(Const::Str(text))) => Some(text.clone()),
        _ => None,
    };
    // Most dicts are no plans.
    let words = items.iter().skip(1).step_by(2).filter_map(text);
    if words.filter(|word| lint.rules.plan_style(word).is_some()).take(2).count() < 2 {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (i, pair) in items.chunks(2).enumerate() {
        let [key, word] = pair else { return Vec::new() };
        let (Some(key), Some(word)) = (text(key), text(word)) else { return Vec::new() };
        let Some((parent, leaf)) = key.rsplit_once('.') else { continue };
        let place = view.part(view.steps[step].id, 2 * i);
        let style = lint.rules.plan_style(&word);
        out.push(Entry { parent: parent.to_string(), leaf: Name::from(leaf), style, place });
    }
    out
}

/// Compares a plan with the classes whose constructors take the configuration that holds it.
fn against(lint: &Lint<'_>, config: ClassRef, entries: &[Entry<'_>], out: &mut Found) {
    let name = &lint.project.class(config).name;
    let package = lint.project.name(config.module).rsplit_once('.').map(|(package, _)| package);
    let beside = |other: &str| match package {
        Some(package) => {
            other.strip_prefix(package).and_then(|r| r.strip_prefix('.')).is_some_and(|r| !r.contains('.'))
        }
        None => !other.contains('.'),
    };
    let mut parents: Vec<&str> = entries.iter().map(|e| e.parent.as_str()).collect();
    parents.sort_unstable();
    parents.dedup();
    for module in lint.project.modules.ids() {
        let says = || lint.files[lint.project.file(module)].whole().contains(name.as_str());
        if module != config.module && !beside(lint.project.name(module)) || !says() {
            continue;
        }
        for class in lint.project.modules[module].ir.classes.ids() {
            let class = ClassRef { module, class };
            let Some(init) = super::marks::init_of(lint, class) else { continue };
            let takes = |hint: &str| hint.trim_matches(|c| c == '"' || c == '\'') == name.as_str();
            if !lint.project.func(init).params.iter().any(|p| p.hint.as_deref().is_some_and(takes)) {
                continue;
            }
            let of = |parent: &str| entries.iter().filter(|e| e.parent == parent).collect::<Vec<_>>();
            // Most constructors make nothing that a plan speaks of, and their text tells.
            let text = lint.files[lint.project.file(module)].slice(lint.project.func(init).span);
            let may_make = |parent: &&str| of(parent).iter().all(|e| text.contains(e.leaf.as_str()));
            if !parents.iter().any(may_make) {
                continue;
            }
            let init = lint.view(init);
            let attributes = attributes(&init);
            for parent in &parents {
                let own = of(parent);
                let has = |e: &&Entry<'_>| attributes.iter().any(|(n, ..)| *n == e.leaf);
                if own.len() >= 2 && own.iter().all(has) {
                    compared(lint, class, &attributes, &own, out);
                    break;
                }
            }
        }
    }
}

pub(super) fn attributes(init: &View<'_>) -> Attributes {
    let mut out = Attributes::new();
    for step in &init.steps {
        let Stmt::SetAttr { name, value, .. } = step.stmt else { continue };
        let (callee, args) = match (init.expr(value), unpacked(init, value)) {
            (Expr::Call { callee, args, .. }, _) | (_, Some(Some(Expr::Call { callee, args, .. }))) => (callee, args),
            (_, Some(_)) => {
                out.push((name.clone(), init.place(step.id), Made::Other));
                continue;
            }
            (_, None) => continue,
        };
        let made = callee.last_name().unwrap_or_default();
        let off = Expr::Const(Const::Bool(false));
        let bare = args.iter().any(|(kind, value)| {
            matches!(kind, ArgKind::Keyword(name) if name == "elementwise_affine") && *value == off
        });
        let made = match made {
            "Linear" => Made::Linear,
            _ if bare => Made::Other,
            _ if made.ends_with("RMSNorm") || made.ends_with("LayerNorm") => Made::Norm,
            _ => Made::Other,
        };
        out.push((name.clone(), init.place(step.id), made));
    }
    out
}

/// What each of several variables gets that are unpacked, if a comprehension makes all of them alike:
/// `self.q, self.k = (Linear(d, d) for _ in range(2))`. `None`: nothing is unpacked.
fn unpacked(init: &View<'_>, value: &Operand) -> Option<Option<Expr>> {
    let [def] = init.defs(super::near::local(value)?) else { return None };
    let Stmt::Unpack { value: whole, .. } = init.steps[*def].stmt else { return None };
    let list = super::near::local(whole);
    let mut appended = init.steps.iter().filter_map(|step| match step.stmt {
        Stmt::Append { collection, value, .. } if Some(*collection) == list => Some(value),
        _ => None,
    });
    let (one, more) = (appended.next(), appended.next());
    Some(one.filter(|_| more.is_none()).map(|value| init.expr(value)))
}

/// The calls of submodules in `forward`, against the words of the plan for them.
fn compared(lint: &Lint<'_>, class: ClassRef, attributes: &Attributes, plan: &[&Entry<'_>], out: &mut Found) {
    let Some((_, func)) = lint.project.class(class).methods.iter().find(|(n, _)| n == "forward") else { return };
    let view = lint.view(FuncRef { module: class.module, func: *func });
    if view.func.kind != FuncKind::Function {
        return;
    }
    for step in 0..view.steps.len() {
        let Some(Rvalue::CallMethod { base, name, args }) = view.value(step) else { continue };
        let called = matches!(view.expr(base), Expr::Local(l) if view.local_name(l) == "self");
        let Some((_, made_at, made)) = attributes.iter().find(|(n, ..)| n == name).filter(|_| called) else { continue };
        let Some(first) = args.first() else { continue };
        let mut sources = Vec::new();
        if sources_of(&view, &view.expr(&first.value), attributes, 0, &mut sources).is_none() {
            continue;
        }
        let entry = plan.iter().find(|e| e.leaf == *name);
        // A word that no rule knows may do anything.
        if entry.is_some_and(|e| e.style.is_none()) {
            continue;
        }
        let takes_part = entry.map(|e| e.style.and_then(|s| s.takes_part));
        for source in sources {
            let from = plan.iter().find(|e| e.leaf == source);
            let gives_part = match from {
                Some(e) => e.style.and_then(|s| s.gives_part),
                None => attributes.iter().any(|(n, _, m)| *n == source && *m == Made::Linear).then_some(false),
            };
            let (Some(gives), place) = (gives_part, entry.or(from).map(|e| e.place)) else { continue };
            let wrong = match (takes_part, made) {
                (Some(Some(takes)), _) => takes != gives,
                (None, Made::Norm | Made::Linear) => gives,
                _ => false,
            };
            let Some(place) = place.filter(|_| wrong) else { continue };
            if entry.is_none() && is_spoken_of(lint, [place.file, view.place(view.steps[step].id).file], name) {
                continue;
            }
            let mistake = Scales::PlanMisfit {
                module: name.clone(),
                source: source.clone(),
                gives_part: gives,
                listed: entry.is_some(),
                norm: *made == Made::Norm,
                made: *made_at,
                used: view.place(view.steps[step].id),
            };
            let known =
                |(at, p): &(Place, Practice)| *at == place && matches!(p, Practice::Scales(Scales::PlanMisfit { .. }));
            if !out.iter().any(known) {
                out.push((place, Practice::Scales(mistake)));
            }
        }
    }
}

/// Whether one of some files speaks of a module that a plan leaves out in another way: in a string, as an entry that comes later or by whose
/// name gradients are summed, or as one that is not trained.
fn is_spoken_of(lint: &Lint<'_>, files: [FileId; 2], module: &Name) -> bool {
    files.into_iter().any(|file| {
        let text = lint.files[file].whole();
        let quoted = |quote: char| text.contains(&format!("{module}{quote}"));
        let frozen = || text.contains(&format!("{module}.requires_grad_(False)"));
        let hooked = || text.contains(&format!("{module}.weight.register_hook("));
        ['"', '\''].into_iter().any(quoted) || frozen() || hooked()
    })
}

/// The submodules whose results an expression is made of; `None` if there is more to it.
pub(super) fn sources_of(
    view: &View<'_>,
    expr: &Expr,
    own: &Attributes,
    depth: usize,
    out: &mut Vec<Name>,
) -> Option<()> {
    if depth > MOST_DEPTH {
        return None;
    }
    match expr {
        Expr::Local(l) if !view.is_param(*l) => match view.through(&Operand::Local(*l)) {
            Expr::Local(_) => None,
            inner => sources_of(view, &inner, own, depth + 1, out),
        },
        Expr::Binary(_, a, b) => {
            let before = out.len();
            let left = sources_of(view, a, own, depth + 1, out);
            let right = sources_of(view, b, own, depth + 1, out);
            (left.is_some() && right.is_some() || out.len() > before && numbers(a, b)).then_some(())
        }
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(base, name) if matches!(**base, Expr::Local(l) if view.local_name(l) == "self") => {
                let made = own.iter().find(|(n, ..)| n == name).map(|(_, _, m)| *m);
                match made {
                    Some(Made::Linear) => out.push(name.clone()),
                    // An activation, with or without a class of its own.
                    _ if name.contains("act") => return sources_of(view, &args.first()?.1, own, depth + 1, out),
                    _ => return None,
                }
                Some(())
            }
            Expr::Attr(base, name) if VIEWS.contains(&name.as_str()) => sources_of(view, base, own, depth + 1, out),
            Expr::Path(path) if path.starts_with("torch.nn.functional.") && args.len() <= 2 => {
                let activation = ["silu", "gelu", "relu", "sigmoid", "tanh"].iter().any(|a| path.ends_with(a));
                activation.then_some(())?;
                sources_of(view, &args.first()?.1, own, depth + 1, out)
            }
            _ => None,
        },
        _ => None,
    }
}

fn numbers(a: &Expr, b: &Expr) -> bool {
    matches!(a, Expr::Const(_)) || matches!(b, Expr::Const(_))
}
