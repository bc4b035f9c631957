//! Means that are taken where no gradient is followed: in a learning rate, in what `step` is given, or by an optimizer of the project. In: a
//! module and a mistake. Out: whether a sum that nothing is known to divide may be divided there. Never: a verdict on such a division.
//! Source: a plain step is linear in the gradient, so that its rate may have the factor. Next: `unsure.rs`.

use super::groups::{of_size_name, words};
use super::value::What;
use super::verdict::{Mistake, Wrong};
use crate::infer::practice::expr::Expr;
use crate::infer::practice::near;
use crate::infer::practice::view::View;
use crate::ir::{BinOp, FuncId, Rvalue};
use crate::project::{FuncRef, ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::{Files, Name};
use crate::types::{Factor, Monomial};

/// Words of the rate of a step, between underscores.
const RATES: &[&str] = &["lr", "lrs", "alpha", "eta", "rate"];

/// Ways to say that a step has the size of no gradient.
const SIGNS: &[&str] = &[".sign(", ".sign_(", "torch.sign("];

/// Whether a mistake is that of a sum that nothing divides.
fn is_bare_sum(mistake: &Mistake) -> bool {
    let sums = |m: &Monomial| !m.is_number() && m.powers().all(|(f, n)| n > 0 && matches!(f, Factor::Size(_)));
    let scaled = |w: &What| matches!(w, What::Over(s) | What::Times(s) if !s.known().is_some_and(Monomial::is_number));
    mistake.wrong == Wrong::Mean && sums(&mistake.factor) && !mistake.events.iter().any(|e| scaled(&e.what))
}

/// Whether a mistake is that nothing divides a sum, where the module may take the mean in a step.
pub fn may_divide(project: &Project, rules: &RuleBook, files: &Files, module: ModuleId, mistake: &Mistake) -> bool {
    if !is_bare_sum(mistake) {
        return false;
    }
    let funcs = project.modules[module].ir.funcs.ids();
    funcs.into_iter().any(|func: FuncId| {
        let view = View::new(project, rules, files, FuncRef { module, func });
        let steps = is_of_optimizer(&view);
        let rate = says_rate(&view.func.name);
        steps && SIGNS.iter().any(|word| view.code().contains(word))
            || (0..view.steps.len()).any(|step| divides(&view, step, steps || rate))
    })
}

/// Whether a statement divides a rate by a size, or hands a size to `step`.
fn divides(view: &View<'_>, step: usize, anything: bool) -> bool {
    let Some(value) = view.value(step) else { return false };
    let divisor = match value {
        Rvalue::Binary { op: BinOp::Div, right, .. } | Rvalue::InPlace { op: BinOp::Div, right, .. } => right,
        Rvalue::CallMethod { name, args, .. } if name == "step" => {
            return args.iter().any(|arg| is_size(view, &view.expr(&arg.value)));
        }
        Rvalue::CallMethod { name, args, .. } if super::written::operation(name) == Some(BinOp::Div) => {
            match args.first() {
                Some(first) => &first.value,
                None => return false,
            }
        }
        _ => return false,
    };
    is_size(view, &view.expr(divisor)) && (anything || says_rate(line(view, step)))
}

/// The text of the lines that a statement is on.
fn line<'a>(view: &View<'a>, step: usize) -> &'a str {
    let place = view.place(view.steps[step].id);
    let text = view.files[place.file].whole();
    let (start, end) = (place.span.start as usize, place.span.end as usize);
    let from = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let to = text[end..].find('\n').map_or(text.len(), |at| end + at);
    &text[from..to]
}

/// Whether a name in a text is that of the rate of a step: `lr`, `set_lr`, `LambdaLR`.
fn says_rate(text: &str) -> bool {
    let mut names = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty());
    names.any(|name| name.ends_with("LR") || name.split('_').any(|part| RATES.contains(&part.to_lowercase().as_str())))
}

/// Whether an expression is, or has in it, the number of ranks of a group.
pub fn is_size(view: &View<'_>, expr: &Expr) -> bool {
    let named = |name: &str| {
        let lower = name.to_lowercase();
        of_size_name(name).is_some() || words(&lower).is_some() || lower.contains("world") || lower == "n_ranks"
    };
    near::deep(view, expr).any(&mut |e| match e {
        Expr::Local(local) => named(view.local_name(*local)),
        Expr::Call { callee, .. } => {
            let name = near::path(view, callee).unwrap_or_else(|| Name::from(callee.last_name().unwrap_or_default()));
            name.ends_with("get_world_size") || of_size_name(super::value::last(&name)).is_some()
        }
        Expr::Path(_) | Expr::Attr(..) => e.last_name().is_some_and(named),
        _ => false,
    })
}

/// Whether a function is a method of a class that takes steps with gradients and takes no backward pass: an optimizer.
fn is_of_optimizer(view: &View<'_>) -> bool {
    let Some(class) = near::class_of(view) else { return false };
    let methods = near::methods(view, class);
    let steps = methods.iter().any(|m| m.func.name == "step");
    steps
        && methods.iter().any(|m| m.code().contains(".grad"))
        && !methods.iter().any(|m| m.code().contains(".backward("))
}
