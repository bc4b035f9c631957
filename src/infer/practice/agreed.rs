//! Overflow flags that ranks must agree on. In: a class. Out: a flag that is made equal over some ranks, where the class shows that others
//! have gradients of their own: it sums norms over those, or scatters gradients to them. Never: groups of which one may hold the
//! other, or a flag that is reduced over the default group. Next: `named_axes.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::named_axes::of_group;
use super::view::{CollectiveCall, View};
use super::{Class, Found, Lint};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// Words of a function that looks for overflows.
const OVERFLOWS: &[&str] = &["isinf", "isnan", "isfinite", "overflow", "found_inf"];

/// Axes over which something is reduced, and where.
type Reductions = Vec<(Vec<Name>, Place)>;

/// `all_reduce(found_inf, op=MAX, group=self.dp_group)` in a class that sums norms over `self.tp_group`.
pub fn flags<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let text = lint.files[lint.project.file(class.at.module)].slice(lint.project.class(class.at).span);
    if !text.contains("MAX") || !text.contains(".grad") && !text.contains("_grad") || !has(text, OVERFLOWS) {
        return;
    }
    let (mut flags, mut parts) = (Reductions::new(), Reductions::new());
    for (_, func) in &lint.project.class(class.at).methods {
        let view = lint.view(FuncRef { module: class.at.module, func: *func });
        let (looks, code) = (has(view.code(), OVERFLOWS), view.code());
        for (i, call) in view.collectives() {
            let over = call.group.filter(|g| !view.expr(g).is_none()).map(|g| of_group(&view, &view.expr(g)));
            let extreme = takes_extreme(&view, call);
            let place = view.place(view.steps[*i].id);
            match (over, call.rule.op.as_str()) {
                // Over all ranks, or over those of which nothing is known.
                (None | Some(None), "all_reduce") if extreme && looks => return,
                (Some(Some(axes)), "all_reduce") if extreme && looks => flags.push((axes, place)),
                (Some(Some(axes)), "all_reduce") if !extreme && code.contains("norm") && is_scalar(&view, call) => {
                    parts.push((axes, place));
                }
                (Some(Some(axes)), "reduce_scatter") if code.contains("grad") => parts.push((axes, place)),
                _ => {}
            }
        }
    }
    let Some((_, first)) = flags.first() else { return };
    let apart = |axes: &[Name]| flags.iter().all(|(known, _)| known.iter().all(|a| !axes.contains(a)) && plain(known));
    let Some((axes, shown)) = parts.iter().find(|(axes, _)| plain(axes) && apart(axes)) else { return };
    let over = flags.iter().flat_map(|(axes, _)| axes.iter().cloned()).collect();
    let found = Membership::NotAgreed { over, apart: axes.clone(), shown: *shown };
    out.push((*first, Practice::Membership(found)));
}

fn has(text: &str, words: &[&str]) -> bool {
    words.iter().any(|w| text.contains(w))
}

/// Whether axes are ones of which it is known that neither holds another.
fn plain(axes: &[Name]) -> bool {
    axes.iter().all(|a| matches!(a.as_str(), "dp" | "tp" | "pp" | "mp" | "cp" | "ep"))
}

fn takes_extreme(view: &View<'_>, call: &CollectiveCall<'_>) -> bool {
    call.args.iter().any(|a| matches!(view.through(&a.value).last_name(), Some("MAX" | "MIN" | "BOR" | "BAND")))
}

/// Whether what is reduced is called a norm or a total, and no gradient.
fn is_scalar(view: &View<'_>, call: &CollectiveCall<'_>) -> bool {
    let Some(input) = call.input else { return false };
    let name = match view.expr(input) {
        Expr::Local(local) => view.local_name(local).as_str().to_lowercase(),
        other => other.last_name().unwrap_or_default().to_lowercase(),
    };
    ["norm", "total", "sq"].iter().any(|w| name.contains(w)) && !name.contains("grads")
}
