//! Gradients that lie otherwise in memory than a view needs. In: a function of a file that lays its model out channels last. Out: a collective
//! into `grad.reshape(-1)`, which is a copy then. Never: gradients that are made contiguous before. Source: torch.Tensor.reshape, which
//! copies what no view can show. Next: `lost.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lost::{last, written};
use super::view::View;
use crate::ir::Stmt;

/// Methods that copy what is not contiguous.
const MAY_COPY: &[&str] = &["reshape", "flatten", "ravel"];
const LAID_OUT: &str = "memory_format=torch.channels_last";

/// `dist.all_reduce(p.grad.reshape(-1))`
pub fn gradients(view: &View<'_>, out: &mut Found) {
    if !view.file().contains(LAID_OUT) {
        return;
    }
    let dense = view.steps.iter().any(|s| matches!(s.stmt, Stmt::SetAttr { name, .. } if name == "grad"));
    for (i, call) in view.collectives().iter().filter(|_| !dense) {
        let Some(Expr::Call { callee, step: made, .. }) = written(call).map(|o| view.expr(o)) else { continue };
        let Expr::Attr(of, method) = &*callee else { continue };
        if of.last_name() == Some("grad") && MAY_COPY.contains(&method.as_str()) {
            let original = view.part(view.steps[made].id, 0);
            let practice = Practice::LostCopy { collective: last(&call.rule.name), method: method.clone(), original };
            out.push((view.place(view.steps[*i].id), practice));
        }
    }
}
