//! Parameters of one kind of which a class marks one and leaves out another. In: a class that marks parameters by name. Out: the one left out:
//! a bias of a weight, whole as it is, for marks that have gradients summed; any of a layer of experts, for marks that tell these apart.
//! Never: parameters of which one may be split, or that something else may mark. Next: `class_marks.rs`, which finds the marks; `uneven.rs`
//! compares modules.

use super::class_marks::{self, ClassMarks, Site};
use super::expr::Expr;
use super::found::Practice;
use super::marks::asked_by_any;
use super::membership::Membership;
use super::own_parameters::{self, Making, Own};
use super::view::{Guard, View};
use super::{Class, Found, Lint, divided, marked_elsewhere, near, uneven};
use crate::ir::{ArgKind, Const};
use crate::source::{Name, Place};
use crate::types::AxisType;

/// Parts of names of sizes that belong to one rank.
const LOCAL: &[&str] = &["local", "partition", "shard", "per_rank", "split", "chunk"];

/// Parts of sizes that a configuration has, of the whole model.
const WHOLE: &[&str] = &["config.", "cfg.", "args."];

/// Parameters that a class leaves out where it marks others of their kind.
pub fn left_out<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some(marks) = class.own_marks(lint) else { return };
    experts(lint, marks, out);
    let mut own: Option<Vec<Own<'a>>> = None;
    for site in &marks.sites {
        let Some(marked) = site.path.as_ref().filter(|_| !site.is_off || class_marks::is_of_experts(&site.mark)) else {
            continue;
        };
        let of_experts = class_marks::is_of_experts(&site.mark);
        if site.says_nothing() || !of_experts && !asked_by_any(lint, &site.mark) {
            continue;
        }
        let own = own.get_or_insert_with(|| own_parameters::of(marks));
        let Some(known) = own.iter().find(|p| p.name == *marked) else { continue };
        for other in own.iter().filter(|other| other.name != *marked) {
            let alike = if of_experts { are_experts(site, known, other) } else { are_whole(lint, marks, known, other) };
            let Some(making) = other.makings.iter().find(|m| alike && coexists(site, m)) else { continue };
            let place = making.place;
            if marks.touches(&other.name, &site.mark, marked) || is_told(out, place, &other.name, &site.mark) {
                continue;
            }
            if marks.freezes(lint)
                || marks.has_own_ways(lint)
                || marks.exchanges(&other.name, marked)
                || marks.denies(lint, &other.name, &site.mark)
                || !of_experts && marks.returns(&other.name)
                || marks.is_summed_by_class(lint)
                || marked_elsewhere::may_be(marks, lint, &other.name, &site.mark)
                || !of_experts && (has_another(lint, marks, &other.name) || is_unused(lint, marks, &other.name))
            {
                continue;
            }
            let (module, sibling, mark) = (other.name.clone(), marked.clone(), site.mark.clone());
            let found = if of_experts {
                let (parameter, marked) = (module, site.place());
                Practice::Membership(Membership::ExpertNotMarked { parameter, sibling, mark, marked })
            } else {
                Practice::SiblingNotMarked { module, sibling, mark, marked: site.place() }
            };
            out.push((place, found));
        }
    }
}

/// Whether a parameter has a mark of its own, by which its gradient may be summed too.
fn has_another(lint: &Lint<'_>, marks: &ClassMarks<'_>, name: &Name) -> bool {
    let (set, attribute) = (format!("setattr(self.{name},"), format!("self.{name}."));
    class_marks::text_of(lint, marks.class).lines().any(|line| {
        let marked = line.contains(&set) || line.contains(&attribute) && line.contains(" = ");
        marked && near::has_any(&line.to_lowercase(), &["grads_", "gradients_", "sum_", "average_", "reduce_"])
    })
}

/// Whether nothing in a class with a forward speaks of a parameter but the constructor.
fn is_unused(lint: &Lint<'_>, marks: &ClassMarks<'_>, name: &Name) -> bool {
    let method = |name: &str| lint.project.own_method(marks.class, name);
    let built =
        method("__init__").map_or("", |at| lint.files[lint.project.file(at.module)].slice(lint.project.func(at).span));
    let attribute = format!("self.{name}");
    let times = |text: &str| near::ending(text, &attribute).count();
    method("forward").is_some() && times(class_marks::text_of(lint, marks.class)) == times(built)
}

/// A class that tells experts apart, and marks the others alone as what they are without the mark.
fn experts(lint: &Lint<'_>, marks: &ClassMarks<'_>, out: &mut Found) {
    let Some(site) = marks.sites.iter().find(|site| class_marks::is_of_experts(&site.mark)) else { return };
    let Some(guard) = site.guards().last().filter(|guard| !guard.holds && site.says_nothing()) else { return };
    let test = site.view.part(guard.at, 0);
    let words = near::bare(site.view.text(test));
    if !words.contains("expert") || words.contains("not ") || words.contains('!') {
        return;
    }
    let alone = marks.sites.iter().filter(|other| other.mark == site.mark).count() == 1;
    // What the absence of the mark means is said where it is asked for.
    let asks = |module| {
        let text = lint.files[lint.project.file(module)].whole();
        ["\"", "'"].iter().any(|quote| text.contains(&format!("{quote}{}{quote}, True", site.mark)))
    };
    let says = |module: &crate::project::ModuleId| lint.files.says(lint.project.file(*module), &site.mark);
    if alone
        && !marks.freezes(lint)
        && !marks.has_own_ways(lint)
        && lint.project.modules.ids().filter(says).any(asks)
        && !marked_elsewhere::may_be(marks, lint, "", &site.mark)
    {
        let found = Membership::ExpertsNotMarked { mark: site.mark.clone(), told: test };
        out.push((site.place(), Practice::Membership(found)));
    }
}

/// Whether a parameter has been reported without the mark.
fn is_told(out: &Found, place: Place, name: &Name, mark: &Name) -> bool {
    out.iter().any(|(at, found)| match found {
        Practice::SiblingNotMarked { module, mark: told, .. } => *at == place && module == name && told == mark,
        Practice::Membership(Membership::ExpertNotMarked { parameter, mark: told, .. }) => {
            *at == place && parameter == name && told == mark
        }
        _ => false,
    })
}

/// Whether a parameter is made in a configuration in which the other is marked.
fn coexists(site: &Site<'_>, making: &Making<'_>) -> bool {
    let guards: &[Guard<'_>] = &making.view.steps[making.step].guards;
    !class_marks::exclude((&site.view, site.guards()), (&making.view, guards))
}

/// Whether a class with a mark of experts on one parameter has it to say of another: the whole layer is one of experts or not, the two go by
/// one name, or they are a weight and its bias, with as many rows.
fn are_experts(site: &Site<'_>, marked: &Own<'_>, other: &Own<'_>) -> bool {
    let is_of_layer = |e: &Expr| match e {
        Expr::Local(local) => site.view.local_name(*local).contains("is_expert"),
        other => other.last_name().is_some_and(|name| name.contains("is_expert")),
    };
    let by_layer = site.value.as_ref().is_some_and(|value| value.any(&mut |e| is_of_layer(e)));
    let stem = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_').to_string();
    let numbered = || marked.name.ends_with(|c: char| c.is_ascii_digit()) && stem(&marked.name) == stem(&other.name);
    let rows = |own: &Own<'_>| dims_of(own).and_then(|dims| dims.into_iter().next());
    let paired = || are_paired(&marked.name, &other.name) && rows(marked).is_some_and(|n| rows(other) == Some(n));
    by_layer || numbered() || paired()
}

/// A weight and its bias.
fn are_paired(a: &str, b: &str) -> bool {
    let pair =
        |a: &str, b: &str| a.contains("weight") && a.replace("weight", "bias") == b || a == "gamma" && b == "beta";
    pair(a, b) || pair(b, a)
}

/// Whether two parameters are a weight and its bias, both whole on every rank.
fn are_whole(lint: &Lint<'_>, marks: &ClassMarks<'_>, marked: &Own<'_>, other: &Own<'_>) -> bool {
    if !are_paired(&marked.name, &other.name) {
        return false;
    }
    let of_parts = |name: &Name| lint.rules.mark(name).is_some_and(|r| r.set == AxisType::V);
    let is_split = |own: &Own<'_>| {
        let divided = |m: &Making<'_>| divided::tensor(&m.view, &m.tensor, 0).is_some();
        own.makings.iter().any(divided)
            || lint.rules.marks().iter().filter(|m| of_parts(m)).any(|m| marks.touches(&own.name, m, &marked.name))
    };
    if is_split(marked) || is_split(other) {
        return false;
    }
    let both = (dims_of(marked), dims_of(other));
    let (Some(known), Some(found)) = both else { return false };
    if uneven::gathers(lint, marks.class) {
        return false;
    }
    // Of one shape, one is what the other is.
    if known == found {
        return true;
    }
    let (few, many) = if known.len() < found.len() { (&known, &found) } else { (&found, &known) };
    // The other sizes of a weight may be those of a part, whatever they are called, unless a configuration has them.
    let given =
        |dim: &String| !few.contains(dim) && !near::has_any(dim, WHOLE) && !dim.chars().all(|c| c.is_ascii_digit());
    if found.len() > known.len() && found.iter().any(given) {
        return false;
    }
    let local = |dim: &String| near::has_any(dim, LOCAL) || near::has_part(dim, "tp") || near::has_part(dim, "part");
    few.iter().all(|dim| many.contains(dim)) && !many.iter().any(local)
}

/// The sizes of a parameter as they are written, where all that make it say the same.
fn dims_of(own: &Own<'_>) -> Option<Vec<String>> {
    let mut known: Option<Vec<String>> = None;
    for making in &own.makings {
        let dims = dims(&making.view, &making.tensor)?;
        if known.as_ref().is_some_and(|known| *known != dims) {
            return None;
        }
        known = Some(dims);
    }
    known
}

fn dims(view: &View<'_>, tensor: &Expr) -> Option<Vec<String>> {
    let tensor = near::deep(view, tensor);
    let Expr::Call { callee, args, .. } = &tensor else { return None };
    if !["empty", "zeros", "ones", "rand", "randn", "Tensor", "full"].contains(&callee.last_name()?) {
        return None;
    }
    let mut out = Vec::new();
    for (kind, arg) in args {
        match (kind, arg) {
            (ArgKind::Positional, Expr::Build(items)) => {
                for item in items {
                    out.push(written(view, item)?);
                }
            }
            (ArgKind::Positional, one) => out.push(written(view, one)?),
            (ArgKind::Star, one) => out.push(format!("*{}", written(view, one)?)),
            (ArgKind::Keyword(name), _) if name == "size" => return None,
            _ => {}
        }
        if callee.last_name() == Some("full") {
            break;
        }
    }
    (!out.is_empty()).then_some(out)
}

/// A size as it is written: a number, a variable or an attribute.
fn written(view: &View<'_>, size: &Expr) -> Option<String> {
    match size {
        Expr::Const(Const::Int(n)) => Some(n.to_string()),
        Expr::Local(local) => Some(view.local_name(*local).to_string()),
        Expr::Attr(base, name) => Some(format!("{}.{name}", written(view, base)?)),
        Expr::Binary(op, a, b) => Some(format!("({} {op:?} {})", written(view, a)?, written(view, b)?)),
        Expr::Path(path) => Some(path.to_string()),
        _ => None,
    }
}
