//! What a sibling class marks. In: a class with a whole layer behind one that may leave each rank a part of the sequence. Out: where another class of the file marks a layer that is made
//! alike. Never: a layer that something may mark, sum or freeze elsewhere. Source: mcore-bridge, pull request 173. Next: `beside_layers.rs`, which asks; `class_marks.rs`.

use super::beside_layers::whole_linear;
use super::class_marks::{freezes, marked, quotes, text_of};
use super::expr::Expr;
use super::marking::{is_off, own_names};
use super::reducers::Covered;
use super::view::View;
use super::{Class, Lint, near};
use crate::ir::{Arg, ClassId, Func, Rvalue};
use crate::project::ClassRef;
use crate::rules::LayerRule;
use crate::source::{Name, Place, Span};
use crate::types::AxisType;

/// Words of a class or a file that may be about another split.
const OTHERWISE: &[&str] =
    &["expert", "sequence_parallel = false", "sequence_parallel=false", "replace(config", "copy(config"];

/// Where another class marks a whole layer for a sum over the ranks of a rule, and that layer.
pub fn alike(
    lint: &Lint<'_>,
    class: &Class<'_>,
    init: &View<'_>,
    whole: &Name,
    rule: &LayerRule,
) -> Option<(Place, Option<Name>)> {
    let file = init.file();
    if lint.rules.marks().iter().any(|mark| quotes(text_of(lint, class.at), mark)) {
        return None;
    }
    if near::has_any(&near::bare(file), OTHERWISE) || names_elsewhere(lint, class.at, whole) {
        return None;
    }
    let frozen = freezes(file) && !freezes_others(lint, class.at, whole);
    let derives = |other| lint.settings.statics.linearized(other).contains(&class.at);
    let path = format!("{whole}.weight");
    let known = |mark: &str| lint.rules.mark(mark).is_some();
    if lint.reducers().covers(&path, &rule.default_group, &known, &|_| false) != Covered::No {
        return None;
    }
    if frozen || lint.settings.marking.may_mark(class.at, &path, (&derives, &[class.at]), false) {
        return None;
    }
    if near::methods(init, class.at.class).iter().any(|method| is_given(method, whole)) {
        return None;
    }
    let own = lint.settings.statics.linearized(class.at);
    let module = class.at.module;
    let others = lint.project.modules[module].ir.classes.ids().map(|class| ClassRef { module, class });
    let apart = |other: &ClassRef| !own.contains(other) && !derives(*other);
    others.filter(apart).find_map(|other| marks_whole(init, other.class, rule))
}

/// Whether a method gives a layer of its object, or the object, to something that may do anything with it. What torch has marks nothing.
fn is_given(method: &View<'_>, layer: &str) -> bool {
    let held = |e: &Expr| match e {
        Expr::Local(local) => method.local_name(*local) == "self",
        own => own.any(&mut |e| near::own_attribute(method, e).is_some_and(|name| name == layer)),
    };
    (0..method.steps.len()).any(|step| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = method.value(step) else {
            return false;
        };
        let plain = method
            .callee(value)
            .is_some_and(|path| path.starts_with("torch.") || path.starts_with("builtins.") || !path.contains('.'));
        // The result of the layer is not the layer.
        let given = |arg: &Arg| {
            let e = method.through(&arg.value);
            let called = |e: &Expr| matches!(e, Expr::Call { .. });
            held(&e) && !e.any(&mut |e| called(e))
        };
        let setter = near::written_name(method, value).is_some_and(|name| name == "setattr");
        (!plain || setter) && args.iter().any(given)
    })
}

/// Where a class marks a whole layer of its own for a sum over the ranks of a rule.
fn marks_whole(view: &View<'_>, class: ClassId, rule: &LayerRule) -> Option<(Place, Option<Name>)> {
    near::methods(view, class).iter().find_map(|method| {
        (0..method.steps.len()).find_map(|step| {
            let (target, mark, _) = marked(method, step)?;
            let known = method.rules.mark(&mark)?;
            let sums = known.set == AxisType::R && known.axes == rule.default_group;
            let names = own_names(method, &target).filter(|_| sums && !is_off(method, method.steps[step].stmt))?;
            let layer = names.iter().find(|name| whole_linear(method, class, name).is_some())?;
            Some((method.place(method.steps[step].id), Some(layer.clone())))
        })
    })
}

/// Whether the file names a layer outside of its class, other than as one that another class has of its own.
fn names_elsewhere(lint: &Lint<'_>, at: ClassRef, layer: &str) -> bool {
    let file = lint.files[lint.project.file(at.module)].whole();
    let spans = |class: ClassId| lint.project.class(ClassRef { module: at.module, class }).span;
    let inside = |span: Span, place: usize| (span.start as usize..span.end as usize).contains(&place);
    let own = spans(at.class);
    let of_others: Vec<Span> = lint.project.modules[at.module]
        .ir
        .classes
        .ids()
        .filter(|class| *class != at.class)
        .map(spans)
        .filter(|span| lint.files[lint.project.file(at.module)].slice(*span).contains(&format!("self.{layer} =")))
        .collect();
    near::words(file, layer).any(|place| {
        let of_other = file[..place].ends_with("self.") && of_others.iter().any(|span| inside(*span, place));
        !inside(own, place) && !of_other
    })
}

/// Whether every line of a file that takes parameters out of training takes those of something else: of what the constructor is given, of
/// what is there before the layer is made, or of what is not named like it.
pub(super) fn freezes_others(lint: &Lint<'_>, at: ClassRef, layer: &str) -> bool {
    let file = lint.files[lint.project.file(at.module)].whole();
    let made = format!("{}(", lint.project.class(at).name);
    let own = text_of(lint, at);
    let mut start = 0;
    let mut above: Option<&str> = None;
    for line in file.split_inclusive('\n') {
        let here = start;
        start += line.len();
        if freezes(line) {
            let around = lint.project.func_around(at.module, Span::new(here as u32, here as u32));
            let func = around.map(|func| lint.project.func(func).span);
            let before = func.is_some_and(|span| file[start.min(span.end as usize)..span.end as usize].contains(&made));
            let of = frozen_of(line, above);
            let given = of.is_some_and(|of| {
                let built = around.map(|func| lint.project.func(func)).filter(|func| func.name == "__init__");
                let param = |func: &Func| func.params.iter().skip(1).any(|p| p.name == of);
                let kept = of
                    .strip_prefix("self.")
                    .is_some_and(|name| name != layer && own.contains(&format!("self.{name} = {name}\n")));
                built.is_some_and(|func| param(func) || kept)
            });
            let named = || trains_named(line, layer) || above.is_some_and(|test| leaves_named(test, layer));
            if !(before || given || named()) {
                return false;
            }
        }
        if !line.trim().is_empty() {
            above = Some(line.trim());
        }
    }
    true
}

/// What a line freezes: the object that it names, or the one whose parameters the line above goes through.
fn frozen_of<'t>(line: &'t str, above: Option<&'t str>) -> Option<&'t str> {
    let (object, _) = line.trim().split_once(".requires_grad")?;
    let looped = above.and_then(|head| {
        let (variables, iter) = head.strip_prefix("for ")?.split_once(" in ")?;
        let last = variables.rsplit(',').next()?.trim();
        let walked = iter.strip_suffix("parameters():")?;
        let walked = walked.strip_suffix("named_").unwrap_or(walked).strip_suffix('.')?;
        (last == object).then_some(walked)
    });
    Some(looped.unwrap_or(object))
}

/// Whether a test leaves out what is named like a layer: `if "lora_" not in name:`
fn leaves_named(test: &str, layer: &str) -> bool {
    let Some((word, _)) = test.strip_prefix("if ").and_then(|test| test.split_once(" not in ")) else { return false };
    let word = word.trim_matches(['"', '\'']);
    !word.is_empty() && layer.contains(word)
}

/// Whether a line lets what is named like a layer be trained: `p.requires_grad_("lora_" in name)`
fn trains_named(line: &str, layer: &str) -> bool {
    let Some((_, value)) = line.split_once("requires_grad") else { return false };
    let Some((word, _)) = value.split_once(" in ").filter(|(word, _)| !word.ends_with(" not")) else { return false };
    let word = word.trim_start_matches(['_', '(', '=', ' ']).trim_matches(['"', '\'']);
    !word.is_empty() && layer.contains(word)
}
